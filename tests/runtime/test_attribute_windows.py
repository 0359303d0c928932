"""Windows by an attribute and by marks against a loop over rows: the same for every cut and number of partitions."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from driven import Driven

import holdfast as hf
from holdfast.errors import RegionParkedError
from holdfast.language.graph import DeltaWindow, MarkedWindow
from holdfast.language.windows import attribute_of
from holdfast.runtime.executor.attributed import AttributedAggregate
from holdfast.state.arrays import list_of
from holdfast.state.attributes import in_units
from holdfast.state.count_windows import ROWS
from holdfast.state.delta_windows import DeltaWindows
from holdfast.state.hashing import HASH_COLUMN
from holdfast.state.run_windows import RunWindows
from holdfast.store.urls import open_store
from holdfast.testing import compare_sequence, run_local

AGGREGATES = (
    ("n", "count", None),
    ("total", "sum", "v"),
    ("low", "min", "x"),
    ("newest", "last", "v"),
    ("all", "collect", "v"),
)
RESULTS = [
    (ROWS, pa.int64()),
    ("n", pa.int64()),
    ("total", pa.int64()),
    ("low", pa.float64()),
    ("newest", pa.int64()),
    ("all", list_of(pa.int64())),
]

Row = tuple[str | None, Any, bool | None, int]
"""(key, attribute, whether it is an end, value), in position order."""

Window = DeltaWindow | MarkedWindow


# --- the naive model ---


def naive(rows: Sequence[Row], window: Window, keyed: bool = True) -> list[dict[str, Any]]:
    """What comes out, in the order in which windows are completed, with the position of the completing row."""
    windows: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    count: dict[Any, int] = defaultdict(int)
    found = []
    for position, (key, attribute, end, value) in enumerate(rows):
        group = key if keyed else ""
        of_key = windows[group]
        if isinstance(window, DeltaWindow):
            if attribute is None or attribute != attribute:
                continue
            if window.every is None and of_key and attribute > of_key[0][0] + window.delta:
                found.append(result(group, count[group], of_key, position))
                of_key.clear()
            if window.every is not None and of_key:
                attribute = max(attribute, of_key[-1][0])
        count[group] += 1
        of_key.append((attribute, value))
        if isinstance(window, MarkedWindow) and end:
            found.append(result(group, count[group], of_key, position))
            of_key.clear()
        if isinstance(window, DeltaWindow) and window.every is not None:
            of_key[:] = [(far, v) for far, v in of_key if far >= attribute - window.delta]
            if count[group] % window.every == 0:
                found.append(result(group, count[group], of_key, position))
    return [row if keyed else {name: v for name, v in row.items() if name != "k"} for row in found]


def result(key: Any, count: int, inside: list[tuple[Any, int]], position: int) -> dict[str, Any]:
    values = [value for _, value in inside]
    made = {"k": key, ROWS: count, "n": len(values), "total": sum(values)}
    return made | {"low": min(values) / 2, "newest": values[-1], "all": values, "__hf_row": position}


# --- the operator, driven by hand ---


def table_of(rows: Sequence[Row], first: int, kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.string()),
            "a": pa.array([row[1] for row in rows], kind),
            "end": pa.array([row[2] for row in rows], pa.bool_()),
            "v": pa.array([row[3] for row in rows], pa.int64()),
            "x": pa.array([row[3] / 2 for row in rows], pa.float64()),
            "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def logic_of(window: Window, kind: pa.DataType, by: tuple[str, ...] = ("k",)) -> AttributedAggregate:
    schema = table_of([], 0, kind).select(["k", "a", "end", "v", "x"]).schema
    output = pa.schema([*((name, pa.string()) for name in by), *RESULTS])
    windows: RunWindows | DeltaWindows
    if isinstance(window, MarkedWindow):
        windows = RunWindows.plan(window.until, by, AGGREGATES, schema)
    elif window.every is None:
        windows = RunWindows.plan(attribute_of(schema, window), by, AGGREGATES, schema)
    else:
        windows = DeltaWindows.plan(attribute_of(schema, window), window.every, by, AGGREGATES, schema)
    return AttributedAggregate(windows, by, output, stamped=True)


def emitted_by(driven: Driven) -> list[dict[str, Any]]:
    hidden = ("__hf_source", "__hf_ordinal")
    found = [{name: value for name, value in row.items() if name not in hidden} for row in driven.emitted]
    return sorted(found, key=lambda row: row["__hf_row"])


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "integers": (pa.int64(), lambda n: n, lambda d: d),
    "short integers": (pa.int16(), lambda n: n, lambda d: d),
    "floats": (pa.float64(), lambda n: n / 4, lambda d: d / 4),
    "decimals": (pa.decimal128(9, 2), lambda n: Decimal(n) / 100, lambda d: Decimal(d) / 100),
    "timestamps": (
        pa.timestamp("us", tz="UTC"),
        lambda n: BEGIN + timedelta(seconds=n),
        lambda d: timedelta(seconds=d),
    ),
}
WINDOWS = ["tumbling", "sliding", "marked"]


def drawn(chance: random.Random, make: Any, falls: bool) -> list[Row]:
    rows: list[Row] = []
    far: dict[Any, int] = defaultdict(int)
    for value in range(chance.randrange(1, 160)):
        key = chance.choice(["a", "a", "b", "", None, "long enough to be no prefix of another"])
        far[key] += chance.choice([0, 0, 1, 2, 3, 9])
        place = far[key] - (chance.choice([0, 0, 3, 12]) if falls else 0)
        attribute = None if chance.random() < 0.04 else make(place)
        rows.append((key, attribute, chance.choice([True, False, False, False, None]), value))
    return rows


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("shape", WINDOWS)
def test_results_depend_neither_on_cuts_nor_on_partitions(
    tmp_path: Path, shape: str, kind: str, seed: int
) -> None:
    chance = random.Random(f"{shape} {kind} {seed}")
    arrow, make, distance = KINDS[kind]
    delta = distance(chance.choice([0, 1, 4, 10, 40]))
    window: Window = MarkedWindow("end")
    if shape != "marked":
        window = DeltaWindow(delta, "a", None if shape == "tumbling" else chance.choice([1, 1, 2, 5]))
    by = chance.choice([("k",), ("k",), ()])
    # One stream of all keys falls whenever another key's row comes.
    rows = drawn(chance, make, falls=chance.random() < 0.5)
    driven = Driven(logic_of(window, arrow, by), chance.randint(1, 4), tmp_path)
    cuts = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(chance.randrange(12)))})
    colliding = chance.random() < 0.3
    for begin, end in itertools.pairwise(cuts):
        table = table_of(rows[begin:end], begin, arrow)
        if colliding:  # all keys have the same hash
            table = table.append_column(HASH_COLUMN, pa.array(np.full(table.num_rows, 1234567)))
        driven.step(table, chance.randint(0, 3))
        if chance.random() < 0.2:
            driven.rescale(chance.randint(1, 4))
    compare_sequence(naive(rows, window, keyed=bool(by)), emitted_by(driven))


def test_floats_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    rows: list[Row] = [
        ("a", far, None, n) for n, far in enumerate([0.0, math.nan, 1.0, -math.inf, 5.5, math.inf])
    ]
    driven = Driven(logic_of(DeltaWindow(5, "a"), pa.float64()), 1, tmp_path)
    driven.step(table_of(rows, 0, pa.float64()), 0)
    assert [row["all"] for row in driven.emitted] == [[0, 2, 3], [4]]


def test_distances_beyond_the_range_of_numbers_are_no_distances(tmp_path: Path) -> None:
    rows: list[Row] = [("a", far, None, n) for n, far in enumerate([-(2**63), 0, 2**63 - 1, 2**63 - 1])]
    for number, window in enumerate(
        [DeltaWindow(10, "a"), DeltaWindow(10**30, "a"), DeltaWindow(2**63 - 1, "a", 1)]
    ):
        (tmp_path / str(number)).mkdir()
        driven = Driven(logic_of(window, pa.int64()), 1, tmp_path / str(number))
        for first in range(4):
            driven.step(table_of(rows[first : first + 1], first, pa.int64()), 0)
        wanted = [[[0], [1]], [], [[0], [1], [1, 2], [1, 2, 3]]][number]
        assert [row["all"] for row in driven.emitted] == wanted


def test_between_whole_numbers_a_fraction_more_makes_no_difference() -> None:
    assert in_units(2.5, pa.int32()) == in_units(2, pa.int32()) == 2
    assert in_units(Decimal("0.015"), pa.decimal128(10, 2)) == 1
    assert in_units(0.1, pa.decimal128(10, 1)) == 1, "as it is written, not as it is stored"
    assert (
        in_units(1.5, pa.timestamp("us")) == in_units(timedelta(seconds=1.5), pa.timestamp("ns")) == 1_500_000
    )
    assert in_units(timedelta(seconds=1), pa.int64()) is None
    assert in_units(1, pa.string()) is None
    assert in_units(1, pa.decimal128(30, 2)) is None


def test_a_key_has_one_state_row(tmp_path: Path) -> None:
    for shape, window in enumerate([DeltaWindow(3, "a"), DeltaWindow(3, "a", 2), MarkedWindow("end")]):
        (tmp_path / str(shape)).mkdir()
        driven = Driven(logic_of(window, pa.int64()), 1, tmp_path / str(shape))
        for step in range(30):
            rows: list[Row] = [(f"k{n % 11}", step * 30 + n, n % 7 == 0, n) for n in range(30)]
            driven.step(table_of(rows, step * 30, pa.int64()), 0)
        driven.rescale(1)
        assert sum(segment.rows for segment in driven.segments[0]) == 11


# --- whole runs ---


ROWS_IN = [(f"k{n % 5}" if n % 7 else None, n * n % 17 + n, n % 9 == 4, n) for n in range(150)]
SHAPES = [hf.tumbling(delta=12, of="a"), hf.sliding(delta=12, of="a", every=3), hf.tumbling(until="end")]


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    yield name
    hf.MemorySink.clear(name)


class Weak:
    """Passes rows on, and fails in the middle as often as it was told."""

    failures = 0

    def process(self, row: Any, port: int) -> Any:
        if row.total >= 250 and Weak.failures:
            Weak.failures -= 1
            raise ValueError("a passing weakness")
        time.sleep(0.003)
        return (row.k, row.window_rows, row.total)


def attributed(shelf: str, window: Window, rows_per_step: int = 7) -> hf.Topology:
    topology = hf.Topology("attributed")
    rows = hf.Rows(ROWS_IN, "k string, a long, end boolean, v long", rows_per_step=rows_per_step)
    source = topology.source(rows, name="rows").consistent("r", period=0.02, max_consecutive_resets=2)
    made = source.aggregate("k", window=window, total=hf.sum("v"), name="made")
    passed = made.apply(Weak, "k string, window_rows long, total long", name="weak")
    passed.sink(hf.MemorySink(shelf), name="out")
    return topology


@pytest.mark.parametrize("window", SHAPES, ids=["tumbling", "sliding", "marked"])
def test_a_stored_state_goes_on_over_another_number_of_partitions(
    tmp_path: Path, shelf: str, window: Window
) -> None:
    store = f"file:{tmp_path}/store"
    Weak.failures = 1000
    with pytest.raises(RegionParkedError):
        run_local(attributed(shelf, window), store, partitions=3)
    kinds = [event.kind for event in open_store(store).events()]
    assert "epoch.published" in kinds, "there is something to go on from"
    Weak.failures = 0
    run_local(attributed(shelf, window, rows_per_step=5), store, partitions=2)
    wanted = [{"k": r["k"], ROWS: r[ROWS], "total": r["total"]} for r in naive(ROWS_IN, window)]
    # The hosted operator sees the windows in the order of the rows that completed them.
    compare_sequence(wanted, hf.MemorySink.rows(shelf))
