"""What the frames of a partition mean, one after the other: where the next row goes, how far rows count, which sequence each
writer has reached. The same code tells it to the owner when it opens a log, and to readers of other processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.log.format.frame import NO_EPOCH, NO_TIME, Frame, Kind

Ranges = tuple[tuple[int, int], ...]
"""Positions from, up to and not including; ascending."""


@dataclass(slots=True)
class PartitionState:
    """All that the frames so far say. `apply` is the only change; frames come in order."""

    next: int = 0
    t_run_max: int = NO_TIME
    wall_max: int = NO_TIME
    """The newest moment at which something was appended, by the clocks of the writers; a clock set back does not lower it."""
    sealed: int = NO_EPOCH
    """The newest sealed epoch."""
    writers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By name: the last sequence, and the position behind its rows."""
    pending: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, its first position) of rows that no seal covers, both ascending."""
    withdrawn: list[tuple[int, int]] = field(default_factory=list)
    """Positions of rows that were withdrawn."""

    @property
    def committed(self) -> int:
        """Rows before this position count for good."""
        return self.pending[0][1] if self.pending else self.next

    def apply(self, frame: Frame) -> None:
        if frame.kind in (Kind.ROWS, Kind.NOTE):
            self._rows(frame)
        elif frame.kind is Kind.SEAL:
            self.pending = [each for each in self.pending if each[0] > frame.epoch]
            self.sealed = max(self.sealed, frame.epoch)
        elif frame.kind is Kind.WITHDRAW:
            self._withdraw(frame.epoch, frame.position)
        self.wall_max = max(self.wall_max, frame.wall)

    def _rows(self, frame: Frame) -> None:
        if frame.epoch != NO_EPOCH and (not self.pending or self.pending[-1][0] < frame.epoch):
            self.pending.append((frame.epoch, frame.position))
        self.next = frame.next
        self.t_run_max = max(self.t_run_max, frame.t_run_max)
        if frame.sequence >= self.writers.get(frame.writer, (0, 0))[0]:
            self.writers[frame.writer] = (frame.sequence, frame.next)

    def _withdraw(self, epoch: int, position: int) -> None:
        gone = [first for at, first in self.pending if at > epoch]
        if gone and gone[0] < position:
            self.withdrawn.append((gone[0], position))
        self.pending = [each for each in self.pending if each[0] <= epoch]

    def forget_below(self, low: int) -> None:
        """Ranges of rows that are trimmed need not be known any more."""
        self.withdrawn = [each for each in self.withdrawn if each[1] > low]

    def snapshot(self) -> dict[str, Any]:
        """For the beginning of a tail: nobody has to read earlier segments to know how things stand."""
        return {
            "next": self.next,
            "t_run_max": self.t_run_max,
            "wall_max": self.wall_max,
            "sealed": self.sealed,
            "writers": {name: list(at) for name, at in sorted(self.writers.items())},
            "pending": [list(each) for each in self.pending],
            "withdrawn": [list(each) for each in self.withdrawn],
        }

    @staticmethod
    def restored(data: Mapping[str, Any]) -> PartitionState:
        return PartitionState(
            data["next"],
            data["t_run_max"],
            data["wall_max"],
            data["sealed"],
            {name: (at[0], at[1]) for name, at in data["writers"].items()},
            [(each[0], each[1]) for each in data["pending"]],
            [(each[0], each[1]) for each in data["withdrawn"]],
        )


def rows_in(start: int, end: int, withdrawn: list[tuple[int, int]] | Ranges) -> int:
    """How many rows [start, end) has: positions of withdrawn ones have none."""
    return sum(behind - begin for begin, behind in without(start, end, withdrawn))


def without(start: int, end: int, withdrawn: list[tuple[int, int]] | Ranges) -> list[tuple[int, int]]:
    """The parts of [start, end) that were not withdrawn."""
    left: list[tuple[int, int]] = []
    for begin, behind in withdrawn:
        if behind <= start or begin >= end:
            continue
        if begin > start:
            left.append((start, begin))
        start = behind
    if start < end:
        left.append((start, end))
    return left
