"""What every actor of a mixed schedule has around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.chaos.mixed.checkers import MixedCheckers
from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.store import MixedStore
from holdfast.ids import ConnectionId


@dataclass(frozen=True, slots=True)
class Around:
    """`reached` hears what was done, so that faults can lie in wait."""

    store: MixedStore
    checkers: MixedCheckers
    connections: dict[ConnectionId, SimConnection]
    random: Callable[[], float]
    reached: Callable[[str], None]


class Actor:
    """An element outside of regions, or a region."""

    def __init__(self, around: Around) -> None:
        self.store = around.store
        self.checkers = around.checkers
        self.random = around.random
        self.reached = around.reached
