"""Base or delta: how many deltas follow a base, adapted to what checkpoints cost. Pure; document 003.

A *base* holds a whole state, a *delta* what changed since the checkpoint before. After a base come `number` deltas, then
the next base, at which `number` is chosen anew:

- Deltas pay if an average one, with a surcharge for logging changes, costs less than the base: then the number doubles.
  Otherwise it is halved, down to 0: changes are not logged any more, every checkpoint is a base.
- After `probe_after` bases in a row one delta is tried again, since the way a state changes may have changed.
- Whatever pays, a restore stays bounded: the deltas behind a base have together at most `ratio` times its bytes, are at
  most `count`, and base and deltas can be restored within `seconds`.

Must hold: `next_form` says "delta" only if changes were logged since the checkpoint before (`tracking`), and only if the
chain with the delta in it keeps every bound, as far as sizes and speeds are known then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from holdfast.checkpoint.restore_time import Speed

Form = Literal["base", "delta"]

RESTORE_OVER_CHECKPOINT = 1.2
"""Without measured speeds, restoring a checkpoint is taken to last so many times as long as taking it did."""
WEIGHT = 0.5
"""Of the newest delta in the average of deltas."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a user allows, and how costs are compared."""

    ratio: float | None = 1.5
    """Bytes of all deltas behind a base, over those of the base."""
    count: int | None = None
    """Deltas behind a base."""
    seconds: float | None = None
    """For restoring a base and all its deltas."""
    surcharge: float = 0.10
    """Logging changes costs this share of storing them."""
    probe_after: int = 10
    """So many bases in a row, then a delta is tried."""
    first: int = 1
    """The delta number to begin with, and to try again with."""
    by: Literal["bytes", "seconds"] = "bytes"
    """What is compared to find out whether deltas pay."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one checkpoint took."""

    bytes: int
    seconds: float
    overhead: int = 0
    """Bytes beside: a base may hold rows that newer ones replace. A restore reads them too."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is remembered between checkpoints."""

    number: int = 1
    """Deltas that follow the present base."""
    deltas: int = 0
    """Taken since the base."""
    bases: int = 0
    """Taken in a row."""
    base: Cost | None = None
    delta: Cost | None = None
    """Weighted average of recent deltas."""
    chain: Cost = Cost(0, 0.0)
    """Of all deltas since the base."""


def tracking(history: History) -> bool:
    """True if the next checkpoint may be a delta: changes are to be logged from now on."""
    return history.base is not None and history.deltas < history.number


def next_form(
    history: History, limits: Limits, *, pending: int | None = None, speed: Speed | None = None
) -> Form:
    """What the next checkpoint is. `pending`: bytes it would have as a delta, if known."""
    if not tracking(history):
        return "base"
    expected = history.delta or Cost(0, 0.0)
    if pending is not None:
        expected = Cost(pending, expected.seconds)
    chain = _sum(history.chain, expected)
    return "delta" if _fits(history, chain, history.deltas + 1, limits, speed) else "base"


def taken(history: History, form: Form, cost: Cost, limits: Limits, *, speed: Speed | None = None) -> History:
    """The history after a checkpoint; at a base the delta number is chosen anew."""
    if form == "delta":
        delta = cost if history.delta is None else _average(history.delta, cost)
        return replace(
            history, deltas=history.deltas + 1, bases=0, delta=delta, chain=_sum(history.chain, cost)
        )
    after = replace(history, base=cost, bases=history.bases + 1, deltas=0, chain=Cost(0, 0.0))
    number = min(_wanted(history, after, limits), most_deltas(after, limits, speed))
    return replace(after, number=number, bases=0 if number else after.bases)


def _wanted(before: History, after: History, limits: Limits) -> int:
    """The delta number by benefit alone."""
    if after.base is None or after.delta is None:
        return limits.first
    if before.number == 0:
        return limits.first if after.bases >= limits.probe_after else 0
    if not before.deltas:
        return before.number  # a bound kept deltas out: nothing was learned about them
    return max(1, 2 * before.number) if pays(after, limits) else before.number // 2


def pays(history: History, limits: Limits) -> bool:
    """True if an average delta with the surcharge costs less than the base."""
    assert history.base is not None
    assert history.delta is not None
    base, delta = getattr(history.base, limits.by), getattr(history.delta, limits.by)
    return bool(delta * (1 + limits.surcharge) < base)


def most_deltas(history: History, limits: Limits, speed: Speed | None = None) -> int:
    """How many average deltas the bounds allow behind the present base. A delta never seen counts as large as the base."""
    assert history.base is not None
    each = history.delta or history.base
    most = [limits.count] if limits.count is not None else []
    if limits.ratio is not None:
        most.append(_times(limits.ratio * history.base.bytes, each.bytes))
    if limits.seconds is not None:
        left = limits.seconds - _base_seconds(history.base, speed)
        most.append(_times(left, _delta_seconds(each, 1, speed)))
    return max(0, min(most, default=_MANY))


def restore_seconds(history: History, speed: Speed | None = None) -> float:
    """How long restoring the newest checkpoint will take."""
    if history.base is None:
        return 0.0
    chain = _delta_seconds(history.chain, history.deltas, speed) if history.deltas else 0.0
    return _base_seconds(history.base, speed) + chain


_MANY = 1 << 20


def _fits(history: History, chain: Cost, deltas: int, limits: Limits, speed: Speed | None) -> bool:
    assert history.base is not None
    if limits.count is not None and deltas > limits.count:
        return False
    if limits.ratio is not None and chain.bytes > limits.ratio * history.base.bytes:
        return False
    if limits.seconds is None:
        return True
    whole = _base_seconds(history.base, speed) + _delta_seconds(chain, deltas, speed)
    return whole <= limits.seconds


def _base_seconds(base: Cost, speed: Speed | None) -> float:
    return (
        RESTORE_OVER_CHECKPOINT * base.seconds
        if speed is None
        else speed.base_seconds(base.bytes + base.overhead)
    )


def _delta_seconds(chain: Cost, deltas: int, speed: Speed | None) -> float:
    if speed is None:
        return RESTORE_OVER_CHECKPOINT * chain.seconds
    return speed.delta_seconds(chain.bytes, deltas)


def _times(room: float, each: float) -> int:
    if room <= 0:
        return 0
    return _MANY if each <= 0 else min(_MANY, int(room / each + 1e-9))


def _sum(one: Cost, other: Cost) -> Cost:
    return Cost(one.bytes + other.bytes, one.seconds + other.seconds)


def _average(old: Cost, new: Cost) -> Cost:
    return Cost(
        round(WEIGHT * new.bytes + (1 - WEIGHT) * old.bytes),
        WEIGHT * new.seconds + (1 - WEIGHT) * old.seconds,
    )
