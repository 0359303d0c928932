"""Base or delta: how many deltas follow a base, adapted to what checkpoints cost. Pure; document 003.

A *base* holds a whole state, a *delta* what changed since the checkpoint before. After a base come `number` deltas, then
the next base, at which `number` is chosen anew:

- Deltas pay if an average one, with a surcharge for logging changes, costs less than the base: then the number doubles.
  The surcharge is what logging took over what storing took, both measured (costs/tracking_cost.py); until then it is assumed.
  Otherwise it is halved, down to 0: changes are not logged any more, every checkpoint is a base.
- After `probe_after` bases in a row one delta is tried again, whatever those before were like: the way a state changes
  may have changed.
- Whatever pays, a restore stays bounded: the deltas behind a base have together at most `ratio` times its bytes, are at
  most `count`, and base and deltas can be restored within `seconds`.

Nothing is assumed of a delta never seen: it is built, and its real size decides. A delta that a bound does not let in is
*refused*: a base is stored instead. One large change says nothing about the next one. But a delta that is refused behind
two bases in a row is believed to be what deltas are like: they end until there is room for such a one.

Must hold: `next_form` says "delta" only if changes were logged since the checkpoint before (`tracking`), and, if it
knows the size of the delta, only if the chain with the delta in it keeps every bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from holdfast.checkpoint.costs.restore_time import Speed

Form = Literal["base", "delta"]

RESTORE_OVER_CHECKPOINT = 1.2
"""Without measured speeds: how long restoring a checkpoint lasts, over how long taking it did."""
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
    """Logging changes costs this share of storing them, as long as that was not measured."""
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
    logging_s: float | None = None
    """What logging the changes of a delta took besides, while rows were processed. None: not measured."""


@dataclass(frozen=True, slots=True)
class History:
    """All that is remembered between checkpoints."""

    number: int = 1
    """Deltas that follow the present base."""
    deltas: int = 0
    """Taken since the base."""
    bases: int = 0
    """Taken in a row, up to now."""
    base: Cost | None = None
    delta: Cost | None = None
    """Weighted average of recent deltas; None: not known, or too long ago."""
    chain: Cost = Cost(0, 0.0)
    """Of all deltas since the base."""


def tracking(history: History) -> bool:
    """True if the next checkpoint may be a delta: changes are to be logged from now on."""
    return history.base is not None and history.deltas < history.number


def next_form(
    history: History,
    limits: Limits,
    *,
    pending: int | None = None,
    between: tuple[int, int] | None = None,
    speed: Speed | None = None,
) -> Form:
    """What the next checkpoint is. `pending`: bytes it would have as a delta, if known; `between`: the least and the most
    it can have. Without them it is taken to be like those before."""
    if not tracking(history):
        return "base"
    average = history.delta or Cost(0, 0.0)
    least, most = (average.bytes, average.bytes) if between is None else between
    size = min(max(average.bytes, least), most) if pending is None else pending
    chain = _sum(history.chain, Cost(size, average.seconds))
    return "delta" if _fits(history, chain, history.deltas + 1, limits, speed) else "base"


def taken(
    history: History,
    form: Form,
    cost: Cost,
    limits: Limits,
    *,
    refused: Cost | None = None,
    speed: Speed | None = None,
) -> History:
    """The history after a checkpoint; at a base the delta number is chosen anew. `refused`: the delta, or the least it
    can have been, in whose place the base was taken."""
    if form == "delta":
        delta = cost if history.delta is None else _average(history.delta, cost)
        return replace(
            history, deltas=history.deltas + 1, bases=0, delta=delta, chain=_sum(history.chain, cost)
        )
    after = replace(history, base=cost, bases=history.bases + 1, deltas=0, chain=Cost(0, 0.0))
    if refused is not None and history.bases >= 2:
        after = replace(after, delta=refused)
    elif history.number == 0 and after.bases % limits.probe_after == 0:
        after = replace(after, delta=None)
    return replace(after, number=min(_wanted(history, after, limits), most_deltas(after, limits, speed)))


def _wanted(before: History, after: History, limits: Limits) -> int:
    """The delta number by benefit alone."""
    if after.delta is None:
        return limits.first
    if not pays(after, limits):
        return before.number // 2
    if before.number == 0:
        return limits.first  # a bound kept deltas out: there may be room now
    return 2 * before.number if before.deltas else before.number


def pays(history: History, limits: Limits) -> bool:
    """True if an average delta with the surcharge costs less than the base."""
    assert history.base is not None
    assert history.delta is not None
    base, delta = getattr(history.base, limits.by), getattr(history.delta, limits.by)
    return bool(delta * (1 + surcharge(history.delta, limits)) < base)


def surcharge(delta: Cost, limits: Limits) -> float:
    """What logging the changes costs, over what storing them does."""
    if delta.logging_s is None or delta.seconds <= 0:
        return limits.surcharge
    return delta.logging_s / delta.seconds


def most_deltas(history: History, limits: Limits, speed: Speed | None = None) -> int:
    """How many average deltas the bounds allow behind the present base; if none is known, how many empty ones."""
    assert history.base is not None
    each = history.delta or Cost(0, 0.0)
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
        logging_s=_average_logging(old.logging_s, new.logging_s),
    )


def _average_logging(old: float | None, new: float | None) -> float | None:
    """Of what was measured; a delta whose logging was not measured says nothing about it."""
    if old is None or new is None:
        return old if new is None else new
    return WEIGHT * new + (1 - WEIGHT) * old
