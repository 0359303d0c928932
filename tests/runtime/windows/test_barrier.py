"""Barriers against `zip`: the k-th rows of all inputs together, for every cut into steps and number of partitions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from driven import Driven
from hypothesis import given
from hypothesis import strategies as st
from sampling import examples

import holdfast as hf
from holdfast.language.operators.rows import barrier_schema, barrier_spec
from holdfast.operators.rows.barrier import Barrier
from holdfast.operators.shared import keyed_maps
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.joins import barriers
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.testing import compare_rows, compare_sequence, run_local

INPUT = pa.schema(
    [("k", pa.string()), ("v", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))]
)

SMALL = Bounds(fan_in=2, rate=2.0, budget=3.0, least_rows=2, pieces=4, piece_rows=2, base_runs=2)
"""Merges take several steps."""

Row = dict[str, Any]


def naive(inputs: Sequence[Sequence[Row]], by: Sequence[str]) -> list[Row]:
    """The rows that leave when all rows have come, in the order of the first input's."""
    queues: list[dict[Any, list[Row]]] = [defaultdict(list) for _ in inputs]
    for rows, queue in zip(inputs, queues, strict=True):
        for row in rows:
            queue[tuple(row[name] for name in by)].append(row)
    found = []
    for key in queues[0]:
        for together in zip(*(queue[key] for queue in queues), strict=False):
            made = dict(together[0])
            for number, row in enumerate(together[1:], 2):
                made |= {f"{name}_{number}": value for name, value in row.items() if name not in by}
            found.append(made)
    return sorted(found, key=lambda row: row["v"])


def table_of(rows: Sequence[Row], port: int, colliding: bool) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), schema=INPUT)
    positions = {
        "__hf_source": pa.array(np.full(len(rows), port, dtype=np.int32)),
        "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
        "__hf_row": table.column("v"),
    }
    for name, column in positions.items():
        table = table.append_column(name, column)
    return table.append_column(HASH_COLUMN, pa.array(np.full(len(rows), 1234567))) if colliding else table


keys = st.sampled_from(["a", "b", "", None, "long enough to be no prefix of another"])


def logic_of(by: tuple[str, ...], ports: int) -> Barrier:
    inputs = [INPUT] * ports
    stamp = None if by else 7
    return Barrier.plan(by, inputs, barrier_schema(inputs, barrier_spec(by)), stamp)


@examples(40)
@given(data=st.data())
def test_the_kth_rows_leave_together(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    by, ports = data.draw(st.sampled_from([("k",), ("k",), ()])), data.draw(st.integers(2, 3))
    drawn = [
        data.draw(st.one_of(st.lists(keys, max_size=8), st.lists(keys, min_size=20, max_size=40)))
        for _ in range(ports)
    ]
    inputs = [[{"k": key, "v": v, "tags": [key]} for v, key in enumerate(rows)] for rows in drawn]
    colliding = bool(by) and data.draw(st.integers(0, 3)) == 0
    driven = Driven(logic_of(by, ports), data.draw(st.integers(1, 4)), tmp_path_factory.mktemp("barrier"))
    done = [0] * ports
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barriers, "CHUNK_ROWS", 5)
        patch.setattr(keyed_maps, "DEFAULT_BOUNDS", SMALL)
        while any(begin < len(rows) for begin, rows in zip(done, inputs, strict=True)):
            ends = [
                min(len(rows), begin + data.draw(st.integers(0, 15)))
                for begin, rows in zip(done, inputs, strict=True)
            ]
            tables = {
                port: table_of(inputs[port][begin:end], port, colliding)
                for port, (begin, end) in enumerate(zip(done, ends, strict=True))
                if begin < end
            }
            done = ends
            if tables:
                driven.step(tables, data.draw(st.integers(0, 3)))
            if data.draw(st.integers(0, 4)) == 0:
                driven.rescale(data.draw(st.integers(1, 4)))
    hidden = ("__hf_source", "__hf_ordinal", "__hf_row")
    emitted = [{n: v for n, v in row.items() if n not in hidden} for row in driven.emitted]
    if by:
        compare_rows(naive(inputs, by), emitted)
    else:
        compare_sequence(naive(inputs, by), emitted)
        assert all((row["__hf_source"], row["__hf_row"]) == (7, row["v"]) for row in driven.emitted)


def test_keys_whose_rows_have_left_are_forgotten(tmp_path: Path) -> None:
    driven = Driven(logic_of(("k",), 2), 1, tmp_path)
    for step in range(100):
        rows = [{"k": f"{step}-{n}", "v": step * 10 + n, "tags": []} for n in range(10)]
        driven.step({step % 2: table_of(rows, step % 2, False)}, 0)
        driven.step({1 - step % 2: table_of(rows, 1 - step % 2, False)}, 0)
    assert len(driven.emitted) == 1000
    assert sum(segment.rows for segment in driven.segments[0]) < 500


def test_a_step_touches_only_the_chunks_it_adds_to_or_empties(tmp_path: Path) -> None:
    driven = Driven(logic_of((), 2), 1, tmp_path)
    rows = [{"k": None, "v": n, "tags": None} for n in range(50_000)]
    for begin in range(0, 50_000, 10_000):
        driven.step({0: table_of(rows[begin : begin + 10_000], 0, False)}, 0)
    before = set(driven.segments[0])
    driven.step({1: table_of(rows[:100], 1, False)}, 0)
    written = sum(segment.rows for segment in set(driven.segments[0]) - before)
    assert len(driven.emitted) == 100
    assert written <= 2 * 50_000 // barriers.CHUNK_ROWS


def test_a_whole_run_over_two_sources_and_what_depends_on_order_behind_it(tmp_path: Path) -> None:
    left, right = ([(f"k{n % 3}", n * sign) for n in range(60)] for sign in (1, -1))
    topology = hf.Topology("both")
    a, b = (
        topology.source(hf.Rows(rows, "k string, v long", rows_per_step=step), name=name).consistent(
            "r", period=0.02
        )
        for rows, step, name in ((left, 7, "a"), (right, 11, "b"))
    )
    a.zip(b, by="k", name="keyed").sink(hf.MemorySink("keyed"), name="keyed_out")
    pairs = a.zip(b, name="pairs").aggregate([], window=hf.tumbling(rows=2), all=hf.collect("v_2"), name="w")
    pairs.sink(hf.MemorySink("pairs"), name="pairs_out")
    run_local(topology, store=f"file:{tmp_path}/store", partitions=3)
    keyed, twos = hf.MemorySink.rows("keyed"), [row["all"] for row in hf.MemorySink.rows("pairs")]
    hf.MemorySink.clear("keyed")
    hf.MemorySink.clear("pairs")
    compare_rows([{"k": f"k{n % 3}", "v": n, "v_2": -n} for n in range(60)], keyed)
    assert twos == [[-n, -n - 1] for n in itertools.islice(itertools.count(0, 2), 30)]
