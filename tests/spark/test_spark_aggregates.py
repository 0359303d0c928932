"""Keyed aggregates on Spark give what Spark's own groupBy gives: values and types."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark.stateless import spark_schema
from holdfast.sources import Rows
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

SCHEMA = (
    "id long, name string, price decimal(12,3), at timestamp, day date, flag boolean, "
    "small int, tiny byte, big long, single float, real double, wide decimal(38,6), raw binary, local timestamp_ntz"
)


def _row(n: int) -> tuple[Any, ...]:
    moment = datetime.datetime(2026, 3, 1 + n % 5, n % 24, 30, 1, n, tzinfo=datetime.UTC)
    values: tuple[Any, ...] = (
        ["ada", "Ada", "bob", "ünï", ""][n % 5],
        Decimal(n * 7919 % 100_000 - 50_000) / 1000,
        moment,
        moment.date(),
        n % 3 == 0,
        n * 31 % 1000 - 500,
        n % 256 - 128,
        n * 2**40,
        n / 4 - 3.5,
        n / 16 - 1.25,
        Decimal(n * 10**20 + n) / 10**6,
        bytes([n % 7, n % 3]),
        moment.replace(tzinfo=None),
    )
    return (n, *(None if (n + i) % 13 == 0 else value for i, value in enumerate(values)))


ROWS = [_row(n) for n in range(120)]
NUMBERS = ("price", "small", "tiny", "big", "single", "real", "wide")
ORDERED = (*NUMBERS, "name", "at", "day", "flag", "raw", "local")
KEYS = [("name",), ("price",), ("at",), ("day",), ("flag",), ("tiny",), ("raw",), ("local",), ("name", "day", "flag"), ("price", "at")]  # fmt: skip


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    table = pa.Table.from_pylist(
        [dict(zip(Rows([], SCHEMA).schema().names, row, strict=True)) for row in ROWS],
        Rows([], SCHEMA).schema(),
    )
    made = spark.createDataFrame(table, spark_schema(table.schema)).cache()
    assert made.count() == len(ROWS)
    return made


def source(topology: Topology, step: int = 50) -> Stream:
    return topology.source(Rows(ROWS, SCHEMA, rows_per_step=step), name="rows").consistent(period=0.05)


def asked() -> dict[str, Any]:
    """Every function over every column that it takes."""
    chosen: dict[str, Any] = {"n": hf.count()}
    chosen |= {f"sum_{c}": hf.sum(c) for c in NUMBERS} | {f"avg_{c}": hf.avg(c) for c in NUMBERS}
    chosen |= {f"min_{c}": hf.min(c) for c in ORDERED} | {f"max_{c}": hf.max(c) for c in ORDERED}
    return chosen


def by_spark(frame: Any, keys: tuple[str, ...], names: list[str]) -> Any:
    def column(name: str) -> Any:
        function, _, over = name.partition("_")
        return F.count("*").alias("n") if name == "n" else getattr(F, function)(over).alias(name)

    return frame.groupBy(*keys).agg(*map(column, names)).toArrow()


def final(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """A changelog merged: of each key the row that counts most."""
    best: dict[Any, Any] = {}
    for row in table.to_pylist():
        key = tuple(row[k] for k in keys)
        if key not in best or row["n"] > best[key]["n"]:
            best[key] = row
    return pa.Table.from_pylist(list(best.values()), table.schema)


@pytest.mark.sampled(keep=3)
@pytest.mark.parametrize("keys", KEYS, ids="-".join)
def test_any_type_may_be_a_key(keys: tuple[str, ...], on_spark: Any, frame: Any) -> None:
    wanted = {"n": hf.count(), "sum_price": hf.sum("price"), "max_at": hf.max("at")}
    wanted = {name: value for name, value in wanted.items() if name.partition("_")[2] not in keys}
    found = on_spark(lambda topology: source(topology).aggregate(keys, name="totals", **wanted))
    compare_rows(by_spark(frame, keys, list(wanted)), final(found, keys), f"by {keys}")


def test_every_function_over_every_type_gives_sparks_values_and_types(on_spark: Any, frame: Any) -> None:
    found = final(
        on_spark(lambda t: source(t).with_columns(k="id % 4").aggregate("k", name="totals", **asked())),
        ("k",),
    )
    wanted = by_spark(frame.withColumn("k", F.expr("id % 4")), ("k",), list(asked()))
    types = {f.name: (str(f.type), str(wanted.schema.field(f.name).type)) for f in found.schema}
    assert {name: pair for name, pair in types.items() if pair[0] != pair[1]} == {}
    compare_rows(wanted, found)


def test_a_key_without_a_single_value_has_null_results(on_spark: Any, frame: Any) -> None:
    def build(topology: Topology) -> Stream:
        nulls = source(topology).with_columns({c: f"cast(null as {t})" for c, t in [("price", "decimal(12,3)"), ("small", "int")]})  # fmt: skip
        return nulls.aggregate(
            "flag", n=hf.count(), s=hf.sum("price"), a=hf.avg("small"), m=hf.min("price"), name="totals"
        )

    found = final(on_spark(build), ("flag",))
    assert {row["flag"]: row["n"] for row in found.to_pylist()} == {
        row["flag"]: row["count"] for row in frame.groupBy("flag").count().collect()
    }
    for row in found.to_pylist():
        assert (row["s"], row["a"], row["m"]) == (None, None, None)


@pytest.mark.parametrize("step", [7, 1000])
def test_each_gives_the_running_values_after_every_row_in_order(step: int, on_spark: Any) -> None:
    found = on_spark(
        lambda t: source(t, step).aggregate(
            ("name", "flag"), "each", name="each", n=hf.count(), s=hf.sum("small"), m=hf.min("at"), a=hf.avg("small")
        )
    )  # fmt: skip
    compare_rows(running(), [tuple(row.values()) for row in found.to_pylist()], f"steps of {step}")


def running() -> list[tuple[Any, ...]]:
    """The same by plain Python, row after row."""
    names = SCHEMA.split(", ")
    columns = [name.split()[0] for name in names]
    state: dict[Any, list[dict[str, Any]]] = {}
    out = []
    for row in (dict(zip(columns, row, strict=True)) for row in ROWS):
        key = (row["name"], row["flag"])
        seen = state.setdefault(key, [])
        seen.append(row)
        small = [r["small"] for r in seen if r["small"] is not None]
        at = [r["at"] for r in seen if r["at"] is not None]
        out.append((*key, len(seen), sum(small) if small else None, min(at, default=None), sum(small) / len(small) if small else None))  # fmt: skip
    return out


def test_changes_tell_each_changed_key_once_a_step(on_spark: Any) -> None:
    found = on_spark(
        lambda t: source(t, 30).with_columns(k="id % 3").aggregate("k", n=hf.count(), name="totals")
    )
    rows = sorted((row["k"], row["n"]) for row in found.to_pylist())
    assert rows == [(k, n) for k, n in itertools.product(range(3), (10, 20, 30, 40))]


def test_state_moves_to_another_number_of_partitions(on_spark: Any, spark: Any, tmp_path: Any) -> None:
    """What one run counted, a run with more partitions goes on counting."""
    data = tmp_path / "data"
    data.mkdir()

    def run(partitions: int) -> list[Any]:
        topology = Topology("moving")
        lines = topology.source(hf.Files(str(data), "json", "k int"), name="lines").consistent(period=1)
        counts = lines.aggregate("k", n=hf.count(), name="counts")
        counts.sink(hf.FileSink(str(tmp_path / "out"), "json"), name="out")
        topology.run(spark, store=f"file:{tmp_path}/store", until="available", partitions=partitions)
        return spark.read.json(str(tmp_path / "out")).groupBy("k").agg(F.max("n").alias("n")).collect()

    for number, partitions in enumerate((1, 3, 2), 1):
        (data / f"{number}.json").write_text("".join(f'{{"k": {k}}}\n' for k in range(40)))
        assert sorted(tuple(row) for row in run(partitions)) == [(k, number) for k in range(40)]
