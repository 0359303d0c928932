"""What arrives at a parked region by `.replayable()`: it is put into the store while the region waits for a person, and is given to it then,
or to the next run. Up to which size, and what then, the queue decides (`runtime/links/preserved_queue.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from holdfast.runtime.failures import is_fatal, story_of

if TYPE_CHECKING:
    from holdfast.runtime.region.region import Region

logger = logging.getLogger("holdfast.region")
KEEP_S = 0.1
"""About how long what arrives is not in the store yet."""
LATER_S = 5.0
"""After this time a store that refused it is asked again."""

Later = Callable[[float, Callable[[], None]], None]


def keep_input(region: Region, later: Later) -> None:
    """Make stable what has arrived, and look again a little later, as long as the region is parked. Called by its thread: elements may be
    stuck in the user's code, or wait for each other."""
    if not region.parked:
        return
    wait_s = KEEP_S
    try:
        for life in region.lives.values():
            life.borders.record_waiting()
    except Exception as error:
        if is_fatal(error):
            raise
        wait_s = LATER_S  # nothing is lost yet: the rows wait in files
        logger.warning(
            "region %s: what arrives cannot be put into the store: %s", region.plan.name, story_of(error)
        )
    later(wait_s, partial(keep_input, region, later))
