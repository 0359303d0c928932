"""What an aggregate function is: maps around one merge. `accumulators.py` has the list of them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from holdfast.state.columns.grouping import Runs

Columns = list[pa.Array]
Parts = list[tuple[str, pa.DataType]]


class Accumulator(ABC):
    """One aggregate function over one input type. Where nothing else is said, the result is the first part it keeps."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """What it keeps, in order."""

    @property
    def result(self) -> pa.DataType:
        """The type of the result."""
        return self.parts[0][1]

    @abstractmethod
    def lift(self, column: pa.Array, rows: int) -> Columns:
        """Each input row as a state of its own. Only a count may have no column, but None."""

    @abstractmethod
    def fold(self, states: Columns, runs: Runs) -> Columns:
        """The states of each run merged, or after each of its rows if it is a running one."""

    def finish(self, states: Columns) -> pa.Array:
        """The result of each state."""
        return states[0]
