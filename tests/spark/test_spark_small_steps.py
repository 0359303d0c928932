"""Small steps in the driver give what jobs give, whatever stands between source and sink, and the ways may alternate within a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killed import written

import holdfast as hf
from holdfast.failpoints import arm, disarm
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import small_steps
from holdfast.runtime.engines.spark.small_steps import SETTING, SmallSteps, calls_users
from holdfast.sources.schemas import spark_frame
from holdfast.testing import compare_rows

pytestmark = pytest.mark.spark

STEPS, ROWS = 6, 40
SCHEMA = "k string, v long, x double, at timestamp"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    here = tmp_path / "in"
    here.mkdir()
    for step in range(STEPS):
        rows = [
            {
                "k": f"k{(n * 7 + step) % 11}",
                "v": n - 20,
                "x": n / 4,
                "at": f"2026-01-01T00:{step:02}:{n:02}Z",
            }
            for n in range(ROWS)
        ]
        lines = [
            json.dumps({name: value for name, value in row.items() if (row["v"] + step) % 9 or name != "x"})
            for row in rows
        ]
        (here / f"f{step}.json").write_text("\n".join(lines))
    return here


@pytest.fixture
def driver_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each step in the driver had."""
    done: list[int] = []
    measured = SmallSteps.measured

    def counted(self: SmallSteps, operator: Any, tables: Any, begun: float) -> None:
        if tables is not None:
            done.append(small_steps.rows_in(tables))
        measured(self, operator, tables, begun)

    monkeypatch.setattr(SmallSteps, "measured", counted)
    return done


def build(topology: Topology, files: Path, out: Path) -> None:
    """Aggregates, windows, a join, and expressions between; sinks that tasks write and sinks that they do not."""
    source = hf.Files(files, "json", SCHEMA, max_files_per_step=1)
    rows = topology.source(source, name="in").consistent(name="region", period=0.2)
    sums = rows.aggregate("k", n=hf.count(), total=hf.sum("v"), last=hf.last("x"), name="sums")
    sums.sink(hf.FileSink(out / "sums", "parquet"), name="sums_out")
    chosen = rows.filter("v % 3 <> 0 AND x IS NOT NULL").with_columns(w="v * 2 + 1", name="more")
    chosen.aggregate("k", total=hf.sum("w"), emit="each", name="each").sink(
        hf.FileSink(out / "each", "json"), name="each_out"
    )
    chosen.sink(hf.FileSink(out / "chosen", "parquet"), name="chosen_out")
    windows = rows.rename(v="value").aggregate(
        "k", window=hf.tumbling(15, on="at", delay=0), n=hf.count(), top=hf.max("value"), name="windows"
    )
    windows.sink(hf.FileSink(out / "windows", "parquet"), name="windows_out")
    rows.select("k", "v").dedup("k", name="firsts").sink(
        hf.FileSink(out / "firsts", "csv"), name="firsts_out"
    )


def shown(here: Path, sink: str) -> list[Any]:
    """The rows of a sink; of text its lines, and no headers."""
    texts = [
        path.read_text().splitlines() for path in (here / sink).glob("part-*.*") if path.suffix != ".parquet"
    ]
    return [{"line": line} for lines in texts for line in lines if line != "k,v"] or written(here, sink)


SINKS = ("sums", "each", "chosen", "windows", "firsts")


def run(spark: Any, files: Path, out: Path, faults: str = "") -> None:
    topology = Topology("small")
    build(topology, files, out)
    if faults:
        arm(faults)
    try:
        topology.run(spark, store=f"file:{out}/store", until="available")
    finally:
        hits = disarm() if faults else {}
    assert all(hits.values()), f"{hits}: not every fault fired"


def test_every_mixture_of_ways_gives_the_same_rows(
    spark: Any, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_steps: list[int]
) -> None:
    found = {}
    for said in ("jobs", "driver", "turns"):
        monkeypatch.setenv(SETTING, said)
        driver_steps.clear()
        faults = "" if said == "jobs" else "step.end=raise@3;ckpt.op.put=raise@2;sink.commit.begin=raise@1"
        run(spark, files, tmp_path / said, faults)
        found[said] = len(driver_steps)
        for sink in SINKS:
            rows = shown(tmp_path / said, sink)
            assert rows
            compare_rows(shown(tmp_path / "jobs", sink), rows, f"{sink}, {said}")
    assert found["jobs"] == 0
    assert found["driver"] > found["turns"] > 0


def test_the_cheaper_way_is_taken_by_itself_and_left_as_steps_grow(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_steps: list[int]
) -> None:
    monkeypatch.setenv(SETTING, "cost")
    (tmp_path / "in").mkdir()
    sizes = (3, 5, 30_000, 4)
    for number, size in enumerate(sizes):
        lines = "".join(f'{{"k":{n % 5},"v":{n}}}\n' for n in range(size))
        (tmp_path / "in" / f"f{number}.json").write_text(lines)
    topology = Topology("growing")
    source = hf.Files(tmp_path / "in", "json", "k long, v long", max_files_per_step=1)
    sums = topology.source(source, name="in").consistent(period=0.2).aggregate("k", n=hf.count(), name="sums")
    sums.sink(hf.FileSink(tmp_path / "out", "parquet"), name="out")
    topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    assert driver_steps == [3, 5, 4]
    last = {row["k"]: row["n"] for row in sorted(written(tmp_path, "out"), key=lambda row: row["n"])}
    assert sum(last.values()) == sum(sizes)


def test_what_is_malformed_is_told_as_before(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, "driver")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"k":1}\n{"k":2}\n')
    (tmp_path / "in" / "b.json").write_text('{"k":3}\n{"k":"x"}\n')
    for malformed in ("fail", "drop"):
        topology = Topology("bad")
        source = hf.Files(tmp_path / "in", "json", "k long", malformed=malformed, max_files_per_step=1)  # type: ignore[arg-type]
        rows = topology.source(source, name="in").consistent(period=0.2, max_consecutive_resets=1)
        rows.aggregate("k", n=hf.count(), name="n").sink(
            hf.FileSink(tmp_path / malformed, "parquet"), name="out"
        )
        if malformed == "fail":
            with pytest.raises(hf.HoldfastError, match=r"b\.json.*line 2"):
                topology.run(spark, store=f"file:{tmp_path}/store-fail", until="available")
        else:
            status = topology.run(spark, store=f"file:{tmp_path}/store-drop", until="available")
            assert sorted(row["k"] for row in written(tmp_path, malformed)) == [1, 2, 3]
            assert any(of["counts"].get("in") == {"malformed": 1} for of in status["elements"].values())


def test_the_users_code_is_found_wherever_it_is() -> None:
    from holdfast.compiler.analyse import ArrowAnalyser
    from holdfast.compiler.compile import compile_graph, logic_of

    def logic(make: Any) -> Any:
        topology = Topology("logic")
        rows: Stream = topology.source(hf.Rows([{"k": 1, "v": 2}], "k long, v long"), name="in")
        make(rows).sink(hf.MemorySink("nowhere"), name="out")
        plan = compile_graph(topology.graph(), ArrowAnalyser())
        return logic_of(next(op for op in plan.graph.operators.values() if op.name == "op"), plan)

    assert not calls_users(logic(lambda rows: rows.aggregate("k", n=hf.sum("v"), name="op")))
    assert not calls_users(logic(lambda rows: rows.dedup("k", name="op")))
    mine = hf.udaf(lambda v: v.to_numpy().sum(), "v", type="long")
    assert calls_users(logic(lambda rows: rows.aggregate("k", n=mine, name="op")))


def test_no_row_is_lost_behind_empty_pieces_of_a_table(spark: Any) -> None:
    schema = pa.schema([("v", pa.int64())])
    empty, full = (
        pa.record_batch([pa.array(values, pa.int64())], schema=schema) for values in ([], [1, 2, 3])
    )
    table = pa.Table.from_batches([empty, empty, full], schema)
    assert spark_frame(spark, table).toArrow()["v"].to_pylist() == [1, 2, 3]
