"""A schedule as the row of random numbers that decided it: recorded, played again, and made shorter as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from holdfast.chaos.outcome import SimulationFailed

Play = Callable[[Random], object]
"""Runs one schedule with these random numbers; raises SimulationFailed if it breaks something."""


class Floats(Random):
    """Random numbers of which every one comes from `random()`, so that a tape of these is all there is to a schedule."""

    _randbelow = Random._randbelow_without_getrandbits  # type: ignore[attr-defined]


class Tape(Floats):
    """Gives the numbers of a tape, then those of a fixed seed; remembers all it gave."""

    def __init__(self, numbers: Sequence[float] = (), seed: int = 0) -> None:
        super().__init__(seed)
        self._numbers = numbers
        self.given: list[float] = []

    def random(self) -> float:
        at = len(self.given)
        number = self._numbers[at] if at < len(self._numbers) else super().random()
        self.given.append(number)
        return number


@dataclass(frozen=True)
class Failure:
    """A failing schedule and what it takes to see it again."""

    reason: str
    tape: tuple[float, ...]

    @property
    def kind(self) -> str:
        """What is wrong, without the numbers of this schedule: another schedule with the same kind of reason counts as the
        same failure."""
        return " ".join(word for word in self.reason.split() if word.isalpha())[:40]


def played(play: Play, numbers: Sequence[float], seed: int = 0) -> Failure | None:
    """The failure that a tape leads to; None: there is none."""
    tape = Tape(numbers, seed)
    try:
        play(tape)
    except SimulationFailed as failed:
        return Failure(failed.reason, tuple(tape.given))
    return None


def shrunk(play: Play, failure: Failure, tries: int = 2_000) -> Failure:
    """The shortest schedule found that fails in the same way: stretches of the tape are left out, long ones first."""
    size = max(1, len(failure.tape) // 2)
    while size and tries > 0:
        at, shorter = 0, False
        while at < len(failure.tape) and tries > 0:
            tries -= 1
            found = played(play, failure.tape[:at] + failure.tape[at + size :])
            if found is not None and found.kind == failure.kind and len(found.tape) < len(failure.tape):
                failure, shorter = found, True
            else:
                at += size
        if not shorter:
            size //= 2
    return failure
