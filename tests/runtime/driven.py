"""A keyed logic driven by hand: steps over several partitions, shared out by mapping tasks or read by everybody."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from holdfast.operators.shared.logic import Applied, KeyedLogic, Place
from holdfast.state.columns.hashing import HASH_COLUMN


class Weak:
    """Passes rows on, and fails at those of which `fails_at` says so, `failures` times. Subclass it."""

    failures = 0

    def fails_at(self, row: Any) -> bool:
        raise NotImplementedError

    def process(self, row: Any, port: int) -> Any:
        if type(self).failures and self.fails_at(row):
            type(self).failures -= 1
            raise ValueError("a passing weakness")
        time.sleep(0.003)
        return row


def with_one_hash(table: pa.Table) -> pa.Table:
    """All keys have the same hash."""
    return table.append_column(HASH_COLUMN, pa.array(np.full(table.num_rows, 1234567)))


def drive(
    driven: Driven,
    rows: int,
    data: st.DataObject,
    table_of: Callable[[int, int], pa.Table],
    may_collide: bool = True,
) -> Iterator[tuple[int, int]]:
    """That many rows in steps cut anywhere, with rescales in between; behind each step it says which rows were in it.
    `table_of`: the rows between two numbers."""
    collide = may_collide and data.draw(st.integers(0, 3)) == 0
    cuts = sorted(data.draw(st.sets(st.integers(0, rows), max_size=12)) | {0, rows})
    for begin, end in itertools.pairwise(cuts):
        table = table_of(begin, end)
        driven.step(with_one_hash(table) if collide else table, data.draw(st.integers(0, 3)))
        if data.draw(st.integers(0, 4)) == 0:
            driven.rescale(data.draw(st.integers(1, 4)))
        yield begin, end


class Driven:
    """What an engine does, without one."""

    def __init__(self, logic: KeyedLogic, partitions: int, directory: Path) -> None:
        self.logic = logic
        self.segments: list[Any] = [()] * partitions
        self.meta: Any = None
        self.counts: dict[str, int] = {}
        self.directory = directory
        self.emitted: list[dict[str, Any]] = []
        self.beside: list[dict[str, Any]] = []
        """Rows of the output ports behind the first."""
        self._step = 0

    def step(self, rows: pa.Table | dict[int, pa.Table], mappers: int) -> None:
        """`rows`: of port 0, or by input port. `mappers`: so many tasks share them out; 0: every partition reads all."""
        self._step += 1
        by_port = rows if isinstance(rows, dict) else {0: rows}
        needed = {
            port: table.select(
                [n for n in table.column_names if n in (*self.logic.columns[port], HASH_COLUMN)]
            )
            for port, table in by_port.items()
        }
        done = [
            self._apply(p, arrived)
            for p, arrived in enumerate(self._arrivals(needed, mappers))
            if arrived is not None
        ]
        assert all(applied.meta == done[0].meta for applied in done), "all partitions agree on the meta"
        self.meta = done[0].meta if done else self.meta

    def _arrivals(self, rows: dict[int, pa.Table], mappers: int) -> list[Any]:
        partitions = len(self.segments)
        if not mappers:
            return [self.logic.own(rows, p, partitions) for p in range(partitions)]
        pieces = [
            (port, table.take(pa.array(range(m, table.num_rows, mappers), pa.int64())))
            for m in range(mappers)
            for port, table in rows.items()
        ]
        shares = [
            (port, self.logic.shares(port, piece, partitions)) for port, piece in pieces if piece.num_rows
        ]
        return [
            self.logic.gather([(port, share[p]) for port, share in shares if p in share])
            for p in range(partitions)
        ]

    def _apply(self, partition: int, arrived: Any) -> Applied:
        place = Place(self.directory, f"op-p{partition}-of{len(self.segments)}-s{self._step}")
        applied = self.logic.apply(self.segments[partition], self.meta, arrived, place)
        self.segments[partition] = applied.segments
        for name, count in applied.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        assert [output.schema for output in applied.outputs] == list(self.logic.outputs)
        self.emitted += applied.outputs[0].to_pylist()
        self.beside += [row for output in applied.outputs[1:] for row in output.to_pylist()]
        return applied

    def rescale(self, partitions: int) -> None:
        self._step += 1
        self.segments = [
            self.logic.repartition(
                self.segments, p, partitions, Place(self.directory, f"re-p{p}-of{partitions}-s{self._step}")
            )
            for p in range(partitions)
        ]
