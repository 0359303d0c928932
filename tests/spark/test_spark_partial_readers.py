"""A user's function reads the rows it was handed not at all, in part, or again and again: state, counts, other sinks and later epochs are
as if it had read them once; and whoever reads them again finds the same rows, also where they were made by chance."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

pytestmark = pytest.mark.spark

FILES, PER_FILE, BAD = 6, 40, 3
SCHEMA = "id long, k string"
READERS: dict[str, Callable[[Any], object]] = {
    "nothing": lambda rows: None,
    "one row": lambda rows: rows.take(1),
    "whether there are any": lambda rows: rows.isEmpty(),
    "a column": lambda rows: rows.select("k").limit(2).collect(),
    "three times": lambda rows: [rows.collect(), rows.count(), rows.toPandas()],
}


def write_input(here: Path) -> None:
    (here / "in").mkdir()
    for number in range(FILES):
        rows = [json.dumps({"id": number * PER_FILE + n, "k": f"k{n % 5}"}) for n in range(PER_FILE)]
        rows[7:7] = ['{"id": "no number", "k": 1}'] * (number < BAD)
        (here / "in" / f"{number}.json").write_text("\n".join(rows) + "\n")


def visible(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in out.glob("part-*") for line in path.read_text().splitlines()]


@pytest.mark.sampled(keep=2)
@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.fault("X07")
def test_what_a_function_reads_changes_nothing_for_others(
    reader: str, per: Any, spark: Any, tmp_path: Path
) -> None:
    write_input(tmp_path)
    calls: list[int] = []

    def sink(where: str) -> hf.ForeachBatch:
        def read(rows: Any, number: int) -> None:
            calls.append(number)
            READERS[reader](rows)

        return hf.ForeachBatch(read, per=per, staging=str(tmp_path / where) if per == "epoch" else None)

    topology = hf.Topology("shop")
    files = hf.Files(str(tmp_path / "in"), "json", SCHEMA, malformed="drop", max_rows_per_step=60)
    orders = topology.source(files, name="orders").consistent(name="shop", period=0.1)
    orders.sink(sink("raw"), name="raw")
    orders.filter("id % 2 = 0").sink(sink("even"), name="even")
    sums = orders.aggregate("k", n=hf.count(), last=hf.max("id"), name="sums")
    sums.sink(sink("sums"), name="sums_seen")
    sums.sink(hf.FileSink(str(tmp_path / "out"), "json"), name="out")
    status = topology.run(spark, store=f"file:{tmp_path}/store", until="available").as_dict()

    last = {row["k"]: row for row in sorted(visible(tmp_path / "out"), key=lambda row: row["n"])}
    assert last == {
        f"k{k}": {"k": f"k{k}", "n": FILES * PER_FILE // 5, "last": FILES * PER_FILE - 5 + k}
        for k in range(5)
    }
    assert calls, "no function was called"
    assert status["regions"]["shop"]["resets"] == 0
    left_out = [element["counts"].get("orders", {}) for element in status["elements"].values()]
    assert {"malformed": BAD} in left_out


@pytest.mark.parametrize("per", ["step", "epoch"])
@pytest.mark.parametrize("made", ["rand()", "the clock", "a function", "sampled"])
@pytest.mark.fault("X07")
def test_who_reads_again_finds_the_same_rows(made: str, per: Any, spark: Any, tmp_path: Path) -> None:
    write_input(tmp_path)
    found: list[tuple[Any, Any]] = []

    def twice(rows: Any, number: int) -> None:
        found.append((sorted(map(tuple, rows.collect())), sorted(map(tuple, rows.collect()))))

    def chance(table: Any) -> Any:
        import pyarrow as pa

        return table.append_column("r", pa.array([random.SystemRandom().random() for _ in range(len(table))]))

    topology = hf.Topology("shop")
    files = hf.Files(str(tmp_path / "in"), "json", SCHEMA, malformed="drop")
    orders = topology.source(files, name="orders").consistent(name="shop", period=0.1)
    if made == "a function":
        rows = orders.map_arrow(chance, f"{SCHEMA}, r double", name="made")
    elif made == "the clock":
        rows = orders.with_columns(r="current_timestamp()", name="made")
    elif made == "rand()":
        rows = orders.with_columns(r="rand()", name="made")
    else:
        rows = orders.filter("rand() < 0.5", name="made")
    staging = str(tmp_path / "staging") if per == "epoch" else None
    rows.sink(hf.ForeachBatch(twice, per=per, staging=staging), name="out")
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert sum(len(first) for first, _ in found) > FILES * PER_FILE // 4
    assert all(first == second for first, second in found)
