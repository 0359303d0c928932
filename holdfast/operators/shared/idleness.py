"""Sources that have been silent for so long that they no longer hold the watermark back.

How long a source has been silent is processing time between steps: a step begins with the driver's time (`clocked`),
and its `meta` keeps the silence of each source after it. So what was decided up to an epoch is stored with it, and a run
that goes on from there begins with the same sources idle. While nobody ran, nobody was silent (`resumed`).

    {"now": when the last step began, "silent": [[source, µs without a row]]}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOW, PASSED, SILENT = "now", "passed", "silent"


def clocked(idle_us: int | None, meta: Any, now_us: int) -> Any:
    """What `KeyedLogic.at` gives: with the step's own time, which never falls, and what passed since the last step."""
    if idle_us is None:
        return meta
    known = meta or {}
    before = known.get(NOW, now_us)
    now = max(now_us, before)
    # A step that brought nobody a row has not used up what had passed before it.
    return {**known, NOW: now, PASSED: known.get(PASSED, 0) + now - before}


def resumed(idle_us: int | None, meta: Any) -> Any:
    """What `KeyedLogic.resumed` gives: the next step is the first one, before which no time passed."""
    if idle_us is None or meta is None:
        return meta
    return {name: value for name, value in meta.items() if name != NOW}


def noted(idle_us: int | None, meta: Mapping[str, Any], silent: Any) -> dict[str, Any]:
    """What a step's new `meta` keeps."""
    return {} if idle_us is None else {NOW: meta.get(NOW, 0), SILENT: silent}
