"""The search for a poison row: one that ends, or hangs, the process that works at it, so that nobody is left to tell which it was. Pure.

A step has rows 0 … n-1, in their order. It is tried as a whole; a death may have other causes, so only after `after` of them in a row a row is
looked for, by bisection over prefixes: what a row does may depend on those before it. Then the row is confirmed: the prefix that ends with it dies
again, and the one before it lives after that, so it is not the machine. One that did not come to an end in time must do that alone as well, while
a step without rows ends in time: else many rows may only have been too much for the time. What is found is left out, and the
rest is tried as a whole again, for there may be more of them.

    whole ──it lives──▶ done
      │ ▲
      │ └──found: it is left out──┬──or it lives now: a false alarm──┐
      └──died `after` times──▶ bisect ──one row is left──▶ confirm ──▶ control ──too often──▶ given up

Must hold: no row is left out that lives together with all before it, or where nothing lives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

MAX_FOUND = 8
"""So many rows of one step are looked for. More of them are no accident: the code is at fault, or the machine."""
MAX_ALARMS = 3
"""False alarms after which the search is given up."""


class SearchPhase(StrEnum):
    WHOLE = "whole"
    BISECT = "bisect"
    CONFIRM = "confirm"
    CONTROL = "control"
    DONE = "done"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Search:
    """How far it has come. `attempt` is what is to be tried next; tell what became of it with `lived` or `died`."""

    rows: int
    after: int
    phase: SearchPhase = SearchPhase.WHOLE
    found: tuple[int, ...] = ()
    """Rows that are left out."""
    deaths: int = 0
    """Of the whole, in a row."""
    low: int = 0
    """The first so many rows, without those that were found, live."""
    high: int = 0
    """The first so many die."""
    alarms: int = 0
    is_late: bool = False
    """What died last did not come to an end in time."""

    @property
    def is_over(self) -> bool:
        return self.phase in (SearchPhase.DONE, SearchPhase.GIVEN_UP)

    @property
    def attempt(self) -> range:
        """Try these rows, without those that were found."""
        match self.phase:
            case SearchPhase.BISECT:
                return range((self.low + self.high) // 2)
            case SearchPhase.CONFIRM:
                return range(self.high - 1 if self.is_late else 0, self.high)
            case SearchPhase.CONTROL:
                return range(0 if self.is_late else self.low)
            case _:
                return range(self.rows)

    def lived(self) -> Search:
        """What was tried came to its end."""
        match self.phase:
            case SearchPhase.BISECT:
                return replace(self, low=self.attempt.stop)._narrowed()
            case SearchPhase.CONFIRM:
                return self._alarmed()
            case SearchPhase.CONTROL:
                return self._with_found()
            case SearchPhase.WHOLE:
                return replace(self, phase=SearchPhase.DONE)
        raise AssertionError(f"nothing was to be tried: {self}")

    def died(self, is_late: bool = False) -> Search:
        """What was tried ended the process; `is_late`: it did not come to an end in time."""
        after = replace(self, is_late=is_late)
        match self.phase:
            case SearchPhase.BISECT:
                return replace(after, high=self.attempt.stop)._narrowed()
            case SearchPhase.CONFIRM if is_late == self.is_late:
                return replace(after, phase=SearchPhase.CONTROL)
            case SearchPhase.CONFIRM | SearchPhase.CONTROL:
                return self._alarmed()
            case SearchPhase.WHOLE if self.deaths + 1 < self.after:
                return replace(after, deaths=self.deaths + 1)
            case SearchPhase.WHOLE:
                return replace(after, phase=SearchPhase.BISECT, deaths=0, high=self.rows)._narrowed()
        raise AssertionError(f"nothing was to be tried: {self}")

    def _narrowed(self) -> Search:
        """Rows that were found are not in any attempt: both ends step over them."""
        low, high = self.low, self.high
        while low < high and low in self.found:
            low += 1
        while high > low and high - 1 in self.found:
            high -= 1
        phase = SearchPhase.CONFIRM if high - low == 1 else SearchPhase.BISECT
        if low == high:
            phase = SearchPhase.GIVEN_UP
        return replace(self, phase=phase, low=low, high=high)

    def _alarmed(self) -> Search:
        """Something else than the row that was suspected ends processes: begin anew, a few times."""
        alarms = self.alarms + 1
        phase = SearchPhase.GIVEN_UP if alarms >= MAX_ALARMS else SearchPhase.WHOLE
        return replace(self, phase=phase, low=0, high=0, deaths=0, alarms=alarms)

    def _with_found(self) -> Search:
        found = (*self.found, self.high - 1)
        phase = SearchPhase.GIVEN_UP if len(found) > MAX_FOUND else SearchPhase.WHOLE
        # What comes next is another row: it has not been tried without this one.
        return replace(self, phase=phase, found=found, low=self.low, high=0, deaths=0)
