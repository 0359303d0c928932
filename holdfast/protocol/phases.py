"""The phase of a machine: legal moves are data, an illegal one tells the machine's recent story."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

P = TypeVar("P", bound=Enum)

HISTORY_LENGTH = 40


class ProtocolViolation(AssertionError):
    """A machine was asked for something the protocol never does: a defect, not a fault.

    The element loop treats it like any failure (it feeds `Broke`), so the region falls back to its last epoch.
    """


class Machine(Generic[P]):
    """The current phase of one machine, and how it got there.

    `taken` holds every move made, so that tests can demand that each legal move was seen; `ignored` counts events that
    came too late, or twice.
    """

    def __init__(self, owner: str, table: Mapping[P, frozenset[P]], start: P) -> None:
        self._owner = owner
        self._table = table
        self._history: deque[object] = deque(maxlen=HISTORY_LENGTH)
        self.phase = start
        self.taken: set[tuple[P, P]] = set()
        self.ignored = 0

    def _note(self, event: object) -> None:
        self._history.append(event)

    def _ignore(self) -> list[Any]:
        """No commands."""
        self.ignored += 1
        return []

    def _move(self, to: P) -> None:
        """Go to `to`, or raise if the table does not know the move."""
        if to not in self._table[self.phase]:
            raise self._violation(f"no move from {self.phase.value} to {to.value}")
        self._history.append(to)
        self.taken.add((self.phase, to))
        self.phase = to

    def _violation(self, what: str) -> ProtocolViolation:
        """The error to raise for `what`, with the recent events and phases, oldest first."""
        story = "\n".join(f"  -> {h.value}" if isinstance(h, Enum) else f"  {h}" for h in self._history)
        return ProtocolViolation(
            f"{self._owner} in phase {self.phase.value}: {what}. Its recent story:\n{story}"
        )


def legal_moves(table: Mapping[P, frozenset[P]]) -> set[tuple[P, P]]:
    """Every move a table allows, as pairs."""
    return {(here, there) for here, targets in table.items() for there in targets}
