"""How the state of one operator is stored: always whole, as a base and deltas behind it, in groups; or window by window in its output log."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError


@dataclass(frozen=True, slots=True)
class Eventual:
    """When windows are checked."""

    every_s: float | None
    slow_after_s: float
    shots: int


@dataclass(frozen=True, slots=True)
class CheckpointForm:
    """What `full()`, `incremental()`, `groups()` and `eventual()` make. The bounds hold for incremental checkpoints; None: no such
    bound."""

    kind: Literal["full", "incremental", "groups", "eventual"] = "incremental"
    ratio: float | None = 1.5
    """Bytes of all deltas behind a base, over those of the base."""
    max_deltas: int | None = None
    restore_within_s: float | None = None
    group_rows: int | None = None
    """Rows of a window that are stored together; None: as many as suit the steps."""
    eventual: Eventual | None = None


INCREMENTAL = CheckpointForm()
"""The default."""


def full() -> CheckpointForm:
    """Every checkpoint holds the whole state: `stream.apply(Model, "…", checkpoint=hf.full())`."""
    return CheckpointForm("full", None)


def incremental(
    ratio: float | None = 1.5, *, max_deltas: int | None = None, restore_within: Duration | None = None
) -> CheckpointForm:
    """A checkpoint holds what changed since the one before, as often as that pays and the bounds allow.

    `ratio`: the changes since the last whole state have together at most this multiple of its bytes. `max_deltas`: how many
    checkpoints of changes there may be in a row. `restore_within`: how long a
    restore may take by estimate. None: no such bound."""
    _check("ratio", ratio, ratio is None or (_is_number(ratio) and ratio > 0), "a number above 0, or None")
    is_count = max_deltas is None or (type(max_deltas) is int and max_deltas >= 0)
    _check("max_deltas", max_deltas, is_count, "a whole number from 0 up, or None")
    within_s = None if restore_within is None else seconds(restore_within, "restore_within")
    return CheckpointForm("incremental", ratio, max_deltas, within_s)


def groups(rows: int) -> CheckpointForm:
    """For window joins: the rows of a window are kept in groups of about `rows`, and a checkpoint stores the groups
    that have changed. Steps that bring more rows than that make a group each."""
    is_count = isinstance(rows, int) and not isinstance(rows, bool) and rows > 0
    _check("rows", rows, is_count, "a whole number above 0")
    return CheckpointForm("groups", None, group_rows=rows)


def eventual(
    every: Duration | None = 10, *, slow_after: Duration | None = None, shots: int = 10
) -> CheckpointForm:
    """For windowed aggregates and window joins outside of regions that go into a log: records of windows stand in that log beside the results, and
    there is no other checkpoint. Results are in the log exactly once.

    Example::

        totals = trades.aggregate("symbol", window=hf.tumbling(rows=1000), n=hf.count(), name="totals")
        totals.checkpoint(form=hf.eventual(every="5 seconds")).sink(hf.LogSink("logs/totals"), name="log")

    `every`: within this time each slow window is checked once, its state (of a join: where it begins) is written; None: never, after a
    failure rows are replayed from where the oldest open window began. `slow_after`: a window is slow when it has been open for so long; default: `every`. Both
    are event time for windows over time, else the clock's. `shots`: in so many portions, so that steps stay short."""
    every_s = None if every is None else seconds(every, "every")
    slow_s = (every_s or 0.0) if slow_after is None else seconds(slow_after, "slow_after", zero=True)
    is_count = isinstance(shots, int) and not isinstance(shots, bool) and shots > 0
    _check("shots", shots, is_count, "a whole number above 0")
    return CheckpointForm("eventual", None, eventual=Eventual(every_s, slow_s, shots))


def checked_form(form: Any) -> CheckpointForm:
    """What a user gave as `checkpoint=`; None: the default."""
    if form is None:
        return INCREMENTAL
    _check(
        "checkpoint",
        form,
        isinstance(form, CheckpointForm),
        "hf.full(), hf.incremental(…), hf.groups(…) or hf.eventual(…)",
    )
    assert isinstance(form, CheckpointForm)
    return form


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check(what: str, value: Any, is_right: bool, wanted: str) -> None:
    if not is_right:
        raise TopologyError(f"{what}={value!r} is not possible.", cure=f"Give {wanted}.")
