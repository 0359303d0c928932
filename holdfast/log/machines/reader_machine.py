"""The way of one reader through one partition, as a pure machine: from disk up to the live edge, then from memory.

What must hold: the rows that are delivered are those from the start on, each once, in order, none behind what counts, none
withdrawn. Whatever else happens between looking and reading: rows are appended, leave memory, are merged, are trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.log.machines.partition_state import Ranges, without


@dataclass(frozen=True, slots=True)
class Facts:
    """How a partition stands at one moment."""

    low: int
    """Rows before this are trimmed."""
    end: int
    """Rows before this may be delivered: acknowledged ones, or those that count for good."""
    memory: int
    """Rows from this on, up to `end`, are in memory. `end`: none are."""
    withdrawn: Ranges = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """All there is was delivered."""


@dataclass(frozen=True, slots=True)
class FromDisk:
    """Read [start, end) from segments."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FromMemory:
    """Take [start, end) from what the writer keeps in memory; if it has left memory meanwhile, decide again."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The next row is gone: nothing is delivered, and the reader is told where rows begin now."""

    position: int
    low: int


Action = Wait | FromDisk | FromMemory | Trimmed


class ReaderMachine:
    """Where one reader is. `decide` looks and changes nothing but the place behind withdrawn rows; `delivered` moves on."""

    def __init__(self, position: int) -> None:
        self.position = position
        """Of the next row."""
        self.is_live = False
        """Whether the last rows came from memory, or there were none."""

    def decide(self, facts: Facts) -> Action:
        if self.position < facts.low:
            return Trimmed(self.position, facts.low)
        left = without(self.position, facts.end, facts.withdrawn)
        if not left:
            # Nothing but withdrawn rows is here: what comes next lies behind them.
            self.position = max(self.position, facts.end)
            self.is_live = True
            return Wait()
        start, end = left[0]
        if start >= facts.memory:
            return FromMemory(start, end)
        return FromDisk(start, min(end, facts.memory) if facts.memory > start else end)

    def delivered(self, action: FromDisk | FromMemory, start: int, end: int) -> None:
        """Rows [start, end), a beginning of what `action` said, were handed over."""
        if not (start == action.start and start < end <= action.end and start >= self.position):
            raise AssertionError(f"rows {start} to {end} do not follow {self.position} within {action}")
        self.position = end
        self.is_live = isinstance(action, FromMemory)
