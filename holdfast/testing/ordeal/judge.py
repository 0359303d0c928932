"""Judges a sink by what `explain` promises for it. Pure: rows in, a verdict out.

exactly-once    the same rows, each as often
at-least-once   nothing is missing, and nothing came that should not be there; rows may come again
best effort     no more is missing than was counted, and nothing comes twice, unless a region before it goes back
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.compiler.explain import Guarantee
from holdfast.testing.ordeal.compare import Basis, Rows

Kept = Literal["kept", "broken", "not judged"]


@dataclass(frozen=True, slots=True)
class Promise:
    """What is known of a sink before it is judged."""

    sink: str
    guarantee: Guarantee
    may_repeat: bool = False
    """Best effort behind a region: rows come again after a reset."""
    has_state: bool = False
    """Operators with state make its rows: one lost row changes others."""
    recorded: str = ""
    """Why its own code was not run, but its rows were recorded in its place; empty: it wrote them itself, elsewhere."""


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """One sink of a run under faults against an undisturbed one."""

    sink: str
    guarantee: str
    compared: str
    rows: int
    """Of the undisturbed run, as they are compared."""
    found: int
    missing: int
    doubled: int
    wrong: int
    """Rows that the undisturbed run does not have at all."""
    counted: int
    verdict: Kept
    first: str = ""
    """A row that differs, for people."""
    note: str = ""


def judged(
    promise: Promise, basis: Basis, golden: Rows, found: Rows, counted: int, faults: int
) -> SinkVerdict:
    """`counted`: rows that the run says it lost on their way to this sink; `faults`: how many there were."""
    if basis.how == "nothing":
        note = "two undisturbed runs differ in everything, even in the number of rows"
        return SinkVerdict(
            promise.sink, promise.guarantee, "nothing", len(golden), len(found), 0, 0, 0, counted, "not judged", note=note
        )  # fmt: skip
    if basis.how == "count":
        return _by_count(promise, golden, found, counted, faults)
    wanted, got = basis.of(golden), basis.of(found)
    lacking, extra = wanted - got, got - wanted
    doubled = Counter({row: n for row, n in extra.items() if row in wanted})
    wrong = extra - doubled
    verdict, note = _verdict(promise, lacking.total(), doubled.total(), wrong.total(), counted, faults)
    return SinkVerdict(
        promise.sink,
        promise.guarantee,
        basis.told,
        wanted.total(),
        got.total(),
        lacking.total(),
        doubled.total(),
        wrong.total(),
        counted,
        verdict,
        _first(lacking, doubled, wrong) if verdict == "broken" else "",
        note,
    )


def _by_count(promise: Promise, golden: Rows, found: Rows, counted: int, faults: int) -> SinkVerdict:
    missing, more = max(len(golden) - len(found), 0), max(len(found) - len(golden), 0)
    verdict, note = _verdict(promise, missing, more, 0, counted, faults)
    note = note or "two undisturbed runs have other rows: only their number is compared"
    return SinkVerdict(
        promise.sink, promise.guarantee, Basis("count").told, len(golden), len(found), missing, more, 0, counted, verdict, note=note
    )  # fmt: skip


def _verdict(
    promise: Promise, missing: int, doubled: int, wrong: int, counted: int, faults: int
) -> tuple[Kept, str]:
    match promise.guarantee:
        case "exactly-once":
            return _kept(not (missing or doubled or wrong)), ""
        case "exactly-once for single failures" if faults <= 1:
            return _kept(not (missing or doubled or wrong)), ""
        case "exactly-once for single failures":
            note = "promised for single failures, and there were several: what was lost must be counted"
            return _kept(missing <= counted and not wrong), note
        case "at-least-once":
            return _kept(not (missing or wrong)), ""
    if promise.has_state and counted and wrong:
        # Each lost row changes rows of its key or window: a value that is off has a golden one that is missing.
        off = max(missing - wrong, 0)
        note = "lost rows changed the values of others, which are told and not judged"
        return _kept(off <= counted and (not doubled or promise.may_repeat)), note
    return _kept(missing <= counted and not wrong and (not doubled or promise.may_repeat)), ""


def _kept(is_kept: bool) -> Kept:
    return "kept" if is_kept else "broken"


def _first(missing: Counter[Any], doubled: Counter[Any], wrong: Counter[Any]) -> str:
    told = []
    for what, rows in (("wrong", wrong), ("missing", missing), ("doubled", doubled)):
        if rows:
            told.append(f"{what}: {_shown(min(rows, key=repr))}")
    return "; ".join(told[:2])


def _shown(row: Any) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in row)
    return text if len(text) <= 160 else text[:160] + " …"


def overall(verdicts: Sequence[SinkVerdict], faults: Sequence[Mapping[str, Any]], failure: str) -> Kept:
    """Of the whole: one broken promise breaks it; without a fault in the middle, or a sink that could be judged, nothing was shown."""
    if failure or any(each.verdict == "broken" for each in verdicts):
        return "broken"
    if not any(each["in_middle"] for each in faults) or not any(each.verdict == "kept" for each in verdicts):
        return "not judged"
    return "kept"
