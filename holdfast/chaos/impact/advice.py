"""Which operators deserve a checkpoint of their own. Pure: measured effects in, advice out.

An operator is worth as much as the effect that a checkpoint takes away, and costs the size of its state, which each checkpoint
stores. Those that are worth something are ranked by worth per kilobyte.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

WORTH = 0.01
"""A checkpoint that takes away less of the effect than this is not worth it: one row of a hundred, or one percent of a value."""

Verdict = Literal["checkpoint", "keep", "not needed", "leave", "region", "no state", "no help"]

SENTENCES: dict[Verdict, str] = {
    "checkpoint": "deserves .checkpoint(every=…)",
    "keep": "its checkpoint is worth it",
    "not needed": "its checkpoint changes little: cheap to leave without",
    "leave": "cheap to leave without a checkpoint",
    "no help": "a checkpoint of its own would not help: put it into a region if that matters",
    "region": "its region restores it",
    "no state": "has no state: a failure costs the rows of one step",
}


@dataclass(frozen=True, slots=True)
class Effects:
    """What is known of one operator."""

    operator: str
    state_bytes: int
    effect: float
    """Of its loss, as the program is."""
    without: float | None = None
    """If it has no checkpoint; None: it has no state of its own to lose, or is in a region."""
    with_checkpoint: float | None = None
    is_kept: bool = False
    """The program gives it a checkpoint."""
    in_region: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    operator: str
    verdict: Verdict
    saved: float = 0.0
    """How much of the effect a checkpoint takes away."""
    saved_per_kb: float = 0.0

    @property
    def sentence(self) -> str:
        return SENTENCES[self.verdict]


def advise(effects: Iterable[Effects]) -> list[Advice]:
    """Of each operator, those whose checkpoint is worth most per kilobyte first."""
    found = [_advice(each) for each in effects]
    return sorted(found, key=lambda each: (-each.saved_per_kb, -each.saved, each.operator))


def _advice(each: Effects) -> Advice:
    if each.in_region:
        return Advice(each.operator, "region")
    if each.without is None or each.with_checkpoint is None:
        return Advice(each.operator, "no state")
    saved = max(each.without - each.with_checkpoint, 0.0)
    per_kb = saved / max(each.state_bytes / 1000, 0.001)
    if saved >= WORTH:
        return Advice(each.operator, "keep" if each.is_kept else "checkpoint", saved, per_kb)
    if each.is_kept:
        return Advice(each.operator, "not needed", saved, per_kb)
    return Advice(each.operator, "no help" if each.without >= 10 * WORTH else "leave", saved, per_kb)
