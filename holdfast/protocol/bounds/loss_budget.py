"""A loss budget: how much may be lost on the way to a stream, and what follows when it is more. Pure.

What was lost is counted by the accounts (`protocol/accounts.py`), for the stream as for a sink: over all runs on a store, kills included.
Counts only grow, but for `passed`, of which a kill may forget the last step. So a budget is judged by comparing numbers,
at any time and as often as anybody likes; what happened before a person said "go on" (`resumed`) does not count again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from holdfast.ids import OperatorName

Then = Literal["warn", "park", "consistent"]
THENS: tuple[Then, ...] = ("warn", "park", "consistent")

_PREFIX = "may_lose:"


def budget_key(operator: OperatorName) -> OperatorName:
    """Under what name accounts count what is lost for the stream of an operator: none that a sink can have."""
    return OperatorName(f"{_PREFIX}{operator}")


def is_budget_key(name: OperatorName) -> bool:
    return name.startswith(_PREFIX)


@dataclass(frozen=True, slots=True)
class LossBudget:
    """The arguments of `.may_lose(…)`. Each bound holds by itself; None: no bound."""

    rows: int | None = None
    share: float | None = None
    """Of all rows that were lost or came."""
    seconds: float | None = None
    """By how much operators with state were set back, in all."""
    then: Then = "warn"

    def words(self) -> str:
        """For people."""
        said = [f"{self.rows:,} rows"] if self.rows is not None else []
        said += [f"{self.share:.3%} of the rows".replace(".000%", "%")] if self.share is not None else []
        said += [f"{self.seconds:g} s of state"] if self.seconds is not None else []
        return " or ".join(said)


@dataclass(frozen=True, slots=True)
class Use:
    """What was counted for a stream."""

    lost: int = 0
    passed: int = 0
    """Rows of steps that ended well in the element that makes the stream. Counted where a share may be lost."""
    seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of what was lost or came; 0 if nothing did."""
        return self.lost / (self.lost + self.passed) if self.lost else 0.0

    def since(self, before: Use) -> Use:
        """What came on top of it."""
        return Use(
            max(0, self.lost - before.lost),
            max(0, self.passed - before.passed),
            max(0.0, self.seconds - before.seconds),
        )


def exceeded(budget: LossBudget, use: Use) -> tuple[str, ...]:
    """The bounds that are exceeded, in words; empty: none is. To use a budget up is not to exceed it."""
    said: list[str] = []
    if budget.rows is not None and use.lost > budget.rows:
        said.append(f"{use.lost:,} rows are lost, {budget.rows:,} may be")
    if budget.share is not None and use.share > budget.share:
        said.append(f"{use.share:.3%} of {use.lost + use.passed:,} rows are lost, {budget.share:.3%} may be")
    if budget.seconds is not None and use.seconds > budget.seconds:
        said.append(f"state was set back by {use.seconds:.1f} s, {budget.seconds:g} s may be lost")
    return tuple(said)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a budget stands. `before`: what a person accepted; `is_over`: it was told, and what was to follow did; `is_consistent`:
    it was exceeded and the stream is to become consistent, for good."""

    before: Use = Use()
    is_over: bool = False
    is_consistent: bool = False

    def resumed(self, use: Use) -> Standing:
        """A person says "go on": the budget is whole again."""
        return replace(self, before=use, is_over=False) if self.is_over else self


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be done: nothing, or to tell why and do what the user chose."""

    standing: Standing
    reasons: tuple[str, ...] = ()
    then: Then | None = None


def judge(budget: LossBudget, standing: Standing, use: Use) -> Judgement:
    """Compare what is lost with what may be. Tells once, until somebody resumes or the budget is larger."""
    reasons = exceeded(budget, use.since(standing.before))
    if not reasons:
        return Judgement(replace(standing, is_over=False))
    if standing.is_over:
        return Judgement(standing, reasons)
    after = replace(
        standing, is_over=True, is_consistent=standing.is_consistent or budget.then == "consistent"
    )
    return Judgement(after, reasons, budget.then)
