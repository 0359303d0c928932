"""`lookup` from Spark's DataFrames and `async_map` on Spark: against Spark's own join and a loop over rows, with failures in the
middle, and with a driver that is killed."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired

import holdfast as hf
from holdfast import failpoints
from holdfast.operators import lookup
from holdfast.state.columns.key_index import KeyIndex
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("enrichment_program.py")
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = 600
CITIES = {"a": "Rome", "b": None, "c": "Oslo"}


def inputs() -> list[dict[str, Any]]:
    """Ten rows per second, at most two seconds out of order; one key is in no table, some rows have none."""
    keys = itertools.cycle(["a", "b", "c", "d", None, "a", "a"])
    return [
        {"id": n, "at": BEGIN + dt.timedelta(seconds=n / 10 - n * 7 % 20 / 10), "k": next(keys)}
        for n in range(ROWS)
    ]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("k", pa.string())])
    for name in ("in", "cities"):
        (tmp_path / name).mkdir()
    rows = inputs()
    for number in range(3):
        piece = rows[number * ROWS // 3 : (number + 1) * ROWS // 3]
        pq.write_table(pa.Table.from_pylist(piece, schema), tmp_path / "in" / f"part-{number}.parquet")
    table = pa.table({"k": [*CITIES], "city": pa.array(CITIES.values(), pa.string())})
    pq.write_table(table, tmp_path / "cities" / "part-0.parquet")
    return tmp_path


def read(topology: hf.Topology, here: Path) -> hf.Stream:
    source = hf.Files(str(here / "in"), "parquet", "id long, at timestamp, k string", max_rows_per_step=90)
    return topology.source(source, name="in").consistent(period=0.2, max_consecutive_resets=3)


@pytest.fixture
def failing() -> Iterator[None]:
    """One step fails in the middle; what it did is done again."""
    failpoints.arm("step.end=raise@4")
    yield
    assert failpoints.disarm() == {"step.end": 1}, "no step failed"


@pytest.fixture(params=[lookup.LARGEST_JOINED, 0], ids=["joined", "indexed"])
def small_or_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are met by Spark's own join, or by an index that tasks have."""
    monkeypatch.setattr(lookup, "LARGEST_JOINED", request.param)


@pytest.mark.usefixtures("failing", "small_or_large")
@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_dataframe_of_spark_is_looked_up_as_spark_joins_it(on_spark: Any, here: Path, how: str) -> None:
    cities = on_spark.spark.read.parquet(str(here / "cities"))
    found = on_spark(lambda t: read(t, here).lookup(cities, "k", how=how, refresh="1 ms"))
    wanted = on_spark.spark.read.parquet(str(here / "in")).join(cities, "k", how).toArrow()
    compare_rows(wanted.select(found.column_names).to_pylist(), found.to_pylist())


@pytest.mark.usefixtures("failing")
def test_a_table_that_is_read_again_is_one_for_each_step(on_spark: Any, here: Path) -> None:
    """Every read gives another version: rows of one step meet one of them, those of later steps never an older one."""
    spark, versions = on_spark.spark, itertools.count()

    def cities() -> Any:
        version = next(versions)
        return spark.createDataFrame([(k, version) for k in CITIES], "k string, version long")

    found = on_spark(lambda t: read(t, here).lookup(cities, "k", refresh="1 ms"))
    rows = sorted(found.to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(ROWS)), "no row is lost or doubled"
    assert all((row["version"] is None) == (row["k"] not in CITIES) for row in rows)
    met = [row["version"] for row in rows if row["version"] is not None]
    assert met == sorted(met)
    assert len(set(met)) > 3, "it was read again"
    assert len({row["version"] for row in rows[:90]} - {None}) == 1, "the first step has one version"


def test_a_large_table_is_indexed_and_sent_once(
    on_spark: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of several columns, times among them; rows keep their positions; nothing is made for each step."""
    monkeypatch.setattr(lookup, "LARGEST_JOINED", 2)
    made: list[Any] = []
    monkeypatch.setattr(
        lookup,
        "KeyIndex",
        lambda keys: made.append(KeyIndex(keys)) or made[-1],  # type: ignore[func-returns-value]
    )
    chosen = [row for row in inputs() if row["id"] % 3 == 0 and row["k"] is not None]
    table = pa.Table.from_pylist(
        [{"key": row["k"], "when": row["at"], "third": row["id"]} for row in chosen],
        pa.schema([("key", pa.string()), ("when", pa.timestamp("us", tz="UTC")), ("third", pa.int64())]),
    )

    def build(topology: hf.Topology) -> hf.Stream:
        found = read(topology, here).lookup(table, {"k": "key", "at": "when"}, how="inner", name="found")
        return found.aggregate("k", ids=hf.collect("id"), thirds=hf.collect("third"), name="all")

    for row in sorted(on_spark(build).to_pylist(), key=lambda row: len(row["ids"]))[-4:]:
        wanted = [each["id"] for each in chosen if each["k"] == row["k"]]
        assert row["ids"] == row["thirds"] == wanted[: len(row["ids"])], "in the order of positions"
    assert len(row["ids"]) == Counter(each["k"] for each in chosen).most_common(1)[0][1]
    assert len(made) == 1, "once for all steps"


def test_a_function_sees_files_that_come_and_a_dataframe_does_not(on_spark: Any, here: Path) -> None:
    """As the documentation says of a DataFrame over files: it knows those of which it was made."""
    spark, calls = on_spark.spark, itertools.count()
    frame = spark.read.parquet(str(here / "cities"))

    def cities() -> Any:
        if next(calls) == 1:  # after the compiler's look: before the first step
            more = pa.table({"k": ["d"], "city": ["Bonn"]})
            pq.write_table(more, here / "cities" / "part-1.parquet")
        return spark.read.parquet(str(here / "cities"))

    def build(topology: hf.Topology) -> list[hf.Stream]:
        rows = read(topology, here)
        return [rows.lookup(table, "k", refresh="1 ms") for table in (cities, frame)]

    by_function, by_frame = on_spark.several(build)
    ends = [
        {row["city"] for row in table.to_pylist() if row["k"] == "d" and row["id"] > ROWS - 90}
        for table in (by_function, by_frame)
    ]
    assert ends == [{"Bonn"}, {None}]


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("ordered", [True, False])
def test_calls_are_made_for_rows_that_spark_filtered(on_spark: Any, here: Path, ordered: bool) -> None:
    """Each row leaves once, whatever a failed step called; in order, if that was asked for."""
    calls: Counter[int] = Counter()

    async def ask(row: dict[str, Any]) -> Any:
        calls[row["id"]] += 1
        await asyncio.sleep(0)
        return {"id": row["id"], "twice": 2 * row["id"]}

    def build(topology: hf.Topology) -> hf.Stream:
        chosen = read(topology, here).filter("k = 'a'")
        return chosen.async_map(ask, "id long, twice long", concurrency=9, ordered=ordered, name="ask")

    found = on_spark(build).to_pylist()
    wanted = [row["id"] for row in inputs() if row["k"] == "a"]
    assert set(calls) == set(wanted)
    compare_rows([{"id": n, "twice": 2 * n} for n in wanted], found)
    if ordered:
        assert [row["id"] for row in found] == wanted


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_driver_is_killed_between_lookup_and_calls(here: Path) -> None:
    """What its successor leaves is what a loop over rows gives, windows behind the calls among it."""
    for failpoint in ("step.end=kill@6", ""):
        child = subprocess.run(
            [sys.executable, str(PROGRAM), str(here)],
            env={**os.environ, "HOLDFAST_FP": failpoint},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert child.returncode == (-signal.SIGKILL if failpoint else 0), child.stderr[-3000:]
        fired(DRIVER_KILLED, int(bool(failpoint)))
    rows = [
        {"id": row["id"], "at": row["at"], "city": CITIES.get(row["k"]), "twice": 2 * row["id"]}
        for row in inputs()
    ]
    compare_rows(rows, written(here / "rows"))
    windows: dict[tuple[Any, dt.datetime], list[int]] = {}
    for row in rows:
        windows.setdefault((row["city"], row["at"].replace(microsecond=0)), []).append(row["twice"])
    wanted = [
        {"city": city, "window_start": start, "window_end": start + dt.timedelta(seconds=1),
         "n": len(of), "total": sum(of)}
        for (city, start), of in windows.items()
    ]  # fmt: skip
    compare_rows(wanted, written(here / "seconds"))


def written(directory: Path) -> list[dict[str, Any]]:
    return [row for path in directory.glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
