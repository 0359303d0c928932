"""What a Python operator in the driver submitted, as tables: its rows are numbered in the order in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import HostedSpec
from holdfast.operators.python.hosted_clock import times_beside
from holdfast.operators.python.rows import Outbox, stamp


class HostedOutput:
    """`stamped`: the ports whose rows carry positions, since somebody orders by them."""

    def __init__(
        self, name: OperatorName, spec: HostedSpec, source_index: int, stamped: tuple[bool, ...]
    ) -> None:
        self.name, self.spec = name, spec
        self._source_index, self._stamped = source_index, stamped
        self.outbox = self._empty()
        self.counts = [0] * len(spec.ports)
        """Rows that have left so far, by port: part of the operator's state."""
        self._times: list[pa.Table] = []
        self._stray: TopologyError | None = None

    def _empty(self) -> Outbox:
        return Outbox(self.name, self.spec.schemas, self.spec.missing, self.spec.names)

    def clear(self) -> None:
        """What was submitted is worth nothing."""
        self.outbox = self._empty()

    def go_to(self, counts: Sequence[int]) -> None:
        """So many rows have left, by port. With or without errors, which come last: that may change between runs."""
        ports = len(self.spec.ports)
        self.counts = [*counts, *[0] * ports][:ports]
        self._stray = None

    @property
    def errors(self) -> int:
        """Rows that failed so far."""
        return self.counts[-1] if self.spec.letters else 0

    def refuse_stray(self) -> NoReturn:
        """A row came from a thread that nobody knows of, where event time matters: the step fails too, whoever catches this."""
        self._stray = TopologyError(
            f"operator {self.name!r} submitted a row from a thread of its own: behind it event time of its input counts.",
            cure=f"Submit in process(), or declare event time again behind {self.name!r}: .event_time('at', delay=…).",
        )
        raise self._stray

    def take(self) -> list[pa.Table]:
        """A table for each port, stamped where somebody orders by it."""
        if self._stray is not None:
            raise self._stray
        self._times = [
            times_beside(self._source_index, first, came)
            for first, came in zip(self.counts, self.outbox.take_times(), strict=False)
        ]
        tables = self.outbox.take()
        if self.spec.letters:
            tables.append(self.outbox.take_failed())
        for port, table in enumerate(tables):
            if self._stamped[port]:
                tables[port] = stamp(table, self._source_index, self.counts[port])
            self.counts[port] += table.num_rows
        return tables

    def take_times(self) -> dict[int, pa.Table]:
        """The times beside the rows that `take` gave last, by port; where time did not go on, none."""
        times, self._times = self._times, []
        return {port: table for port, table in enumerate(times) if table.num_rows}
