"""`bench bulk`, `text` and `cold` run through at a small size, compare what was written, and refuse a side that wrote something else."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest

from holdfast.bench.measure.cpu import OTHERS, WORKERS, spent
from holdfast.bench.registry import BENCHES, run_bench
from holdfast.bench.subjects.changelog import COLUMNS, Totals
from holdfast.bench.whole import child, cold, duel, flink
from holdfast.bench.whole.duel import Done, Ground, best_of, configuration, look, near_the_best
from holdfast.bench.whole.flink import FLINK
from holdfast.bench.whole.many_rows import BULK, TEXT, bench_many_rows, parts_of
from holdfast.bench.whole.processes import started
from holdfast.bench.whole.rows import Format, Size, WholeInputs, size_of
from holdfast.bench.whole.sides import OURS
from holdfast.errors import ConfigError, HoldfastError
from holdfast.testing.processes import TAG, new_tag

SMALL = 0.0001


# --- with Spark -----------------------------------------------------------------------------------------------------


class Here:
    """What a child does, in the session of all tests: starting one takes longer than the rest."""

    def __init__(self, session: Any, capsys: pytest.CaptureFixture[str]) -> None:
        self._session, self._capsys = session, capsys

    def __call__(self, config: dict[str, Any], directory: Path) -> Done:
        self._capsys.readouterr()
        child.measured(config, self._session)
        told = [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]
        warm = [{"warm_up_s"}] if config["warm_up"] else []
        assert [set(line) for line in told] == [*warm, {"seconds", "steps", "epochs", "cpu_s"}]
        assert (directory / "warm-up-out").exists() == bool(warm)
        return Done(told[-1]["seconds"], told[-1]["steps"], told[-1]["epochs"], told[-1]["cpu_s"])


@pytest.fixture
def here(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    monkeypatch.setenv(TAG, new_tag())
    return Here(spark, capsys)


@pytest.mark.spark
@pytest.mark.slow
def test_a_small_bulk_benchmark_runs_through_with_a_process_of_its_own(here: Here) -> None:
    def launch(config: dict[str, Any], directory: Path) -> Done:
        return (here if config["side"] == OURS else duel.launch)(config, directory)

    chosen = ["expressions.whole.10k"]
    found = bench_many_rows(
        "bulk", pairs=1, quiet=True, only=chosen, scale=SMALL, triggers=(10,), launch=launch
    )
    assert found["expressions.whole_ratio_vs_spark.10k"] > 0
    assert len(found["expressions.whole_ratio_vs_spark.10k_interval"]["pairs"]) == 1
    told = found["parts"]["expressions.whole.10k"]
    assert told["best_of_theirs"] == "spark_10"
    assert told["steps"] == {"holdfast": [4], "spark_10": [1]}
    assert min(told["epochs_published"]) > 0
    assert min(told["rows_per_s"].values()) > 0
    assert 0 < told["session_s"]["spark_10"] < told["seconds"]["spark_10"][0]
    cpu = told["cpu_s_per_million_rows"]["spark_10"]
    assert cpu["driver_jvm"] > 0
    assert cpu["driver_python"] > 0
    assert cpu["all"] == pytest.approx(sum(cpu.values()) - cpu["all"], abs=0.01)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.spark
@pytest.mark.slow
def test_a_small_text_benchmark_runs_through_behind_a_warm_up(here: Here) -> None:
    chosen = ["csv.warm.10k", "json.warm.10k"]
    found = bench_many_rows(
        "text", pairs=1, quiet=True, only=chosen, scale=SMALL, triggers=(10,), launch=here
    )
    assert found["outputs_equal"]
    for format in ("csv", "json"):
        assert found[f"text.{format}.warm_ratio_vs_spark.10k"] > 0
        assert found["parts"][f"text.{format}.warm.10k"]["epochs_published"][0] > 0


@pytest.mark.spark
@pytest.mark.slow
def test_a_cold_benchmark_sees_the_first_row_of_both_sides() -> None:
    found = run_bench("cold", pairs=1, seconds=1.0, quiet=True, only=["csv"])
    assert found["outputs_equal"]
    assert found["first_row_ratio"] == found["first_row_ratio.csv"] > 0
    for side in ("holdfast", "spark"):
        assert 0 < found["csv"]["first_row_s"][side]["median"] <= found["csv"]["whole_s"][side]["median"]


def test_a_run_of_a_missing_program_is_refused() -> None:
    assert cold.refused(lambda directory: None) > 0


# --- a side that is wrong -------------------------------------------------------------------------------------------


def written(totals: Totals, out: Path) -> None:
    """As a side writes them."""
    out.mkdir(parents=True)
    keys = np.flatnonzero(totals.n)
    columns = [keys, totals.total[keys], totals.n[keys], totals.top[keys]]
    pq.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True))), out / "a.parquet")


def bulk_of(launch: Any, **options: Any) -> dict[str, Any]:
    return bench_many_rows(
        "bulk", quiet=True, only=["plain.whole.10k"], scale=SMALL, launch=launch, **options
    )


def test_a_side_that_writes_wrong_rows_makes_the_benchmark_fail() -> None:
    def launch(config: dict[str, Any], directory: Path, off: int = 0) -> Done:
        inputs = Path(config["task"]["files"])
        (size,) = {pq.read_metadata(file).num_rows for file in inputs.iterdir()}
        there = WholeInputs(directory / "again", "parquet", 10_000, Size(10, size, 0))
        totals = there.totals(10, expressions=False)
        totals.total[7] += off if config["side"] == OURS else 0
        written(totals, Path(config["task"]["out"]))
        return Done(1.0 if config["side"] == OURS else 2.0, 4, 2)

    assert bulk_of(launch, pairs=2)["plain.whole_ratio_vs_spark.10k"] == 2.0
    with pytest.raises(HoldfastError, match="wrote wrong rows: key 7"):
        bulk_of(lambda config, directory: launch(config, directory, off=1), pairs=1)


def test_flink_takes_part_where_it_is_and_what_it_writes_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def launch(config: dict[str, Any], directory: Path, off: int = 0) -> Done:
        totals = WholeInputs(directory / "again", "csv", 10_000, size_of(SMALL)).totals(10, expressions=False)
        out = Path(config["task"]["out"])
        if config["side"] != FLINK:
            written(totals, out)
            return Done(2.0, 4, 2)
        totals.n[7] += off
        out.mkdir()
        rows = zip(range(10_000), totals.total, totals.n, totals.top, strict=True)
        (out / "part-1-0").write_text("".join(f"{k},{t},{n},{top}\n" for k, t, n, top in rows if n))
        return Done(3.0, 0, 0)

    def text_of(launch: Any) -> dict[str, Any]:
        chosen = ["csv.whole.10k"]
        return bench_many_rows("text", pairs=1, quiet=True, only=chosen, scale=SMALL, launch=launch)

    monkeypatch.setattr(flink, "is_there", lambda: True)
    found = text_of(launch)
    assert found["text.csv.whole_ratio_vs_flink.10k"] == 1.5
    assert found["text.csv.whole_ratio_vs_spark.10k"] == 1.0
    assert found["parts"]["text.csv.whole.10k"]["best_of_theirs"].startswith("spark")
    assert "TO_CHANGELOG" in found["configuration"]["flink"]["query"]
    with pytest.raises(HoldfastError, match="wrote wrong rows: key 7"):
        text_of(lambda config, directory: launch(config, directory, off=1))
    monkeypatch.setattr(flink, "is_there", lambda: False)
    assert not any("flink" in key for key in text_of(launch))


@pytest.mark.chaos
@pytest.mark.parametrize("format", ["csv", "json"])
def test_flink_gives_what_the_input_comes_to(format: Format, tmp_path: Path) -> None:
    if not flink.is_there():
        pytest.skip("Flink is not there; `make flink` puts it into .venv-flink")
    size = size_of(SMALL)
    inputs = WholeInputs(tmp_path / "rows", format, 10_000, size)
    part = next(part for part in TEXT if part.name == f"text.{format}.whole.10k")
    config = configuration(part, Ground(inputs, inputs, size, (), duel.launch, True), FLINK, tmp_path)
    duel.launch(config, tmp_path)
    wanted = inputs.totals(size.files, expressions=False)
    assert look(part, Ground(inputs, inputs, size, (), duel.launch), tmp_path / "out") == wanted.summary()


def test_a_run_without_an_epoch_is_no_result() -> None:
    def launch(config: dict[str, Any], directory: Path) -> Done:
        inputs = WholeInputs(directory / "again", "parquet", 10_000, size_of(SMALL))
        written(inputs.totals(10, expressions=False), Path(config["task"]["out"]))
        return Done(1.0, 4, 0)

    with pytest.raises(HoldfastError, match="published no epoch"):
        bulk_of(launch, pairs=1)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("", "showed no row"),
        ("sys.exit('no such table')", "no such table"),
        ('put({"key": 3, "total": 1, "n": 1, "top": 1})', "wrong rows"),
    ],
)
def test_a_program_that_shows_other_rows_or_none_is_refused(tmp_path: Path, program: str, why: str) -> None:
    inputs = WholeInputs(tmp_path / "rows", "csv", cold.KEYS, Size(1, cold.ROWS, 0))
    put = 'def put(row):\n    os.mkdir("out")\n    open("out/a.json", "w").write(json.dumps(row) + "\\n")\n'
    (tmp_path / "program.py").write_text(f"import json, os, sys\n{put}\n{program}\n")
    with pytest.raises(HoldfastError, match=why):
        cold.first_row([sys.executable, "program.py"], tmp_path)
        cold.look(inputs, tmp_path / "out")


def test_the_first_row_is_seen_before_the_program_ends(tmp_path: Path) -> None:
    steps = [
        'os.mkdir("out"); open("out/_hidden", "w").write("x"); open("out/empty", "w").close(); time.sleep(0.3)',
        'open("out/row", "w").write("x"); time.sleep(0.3)',
    ]
    (tmp_path / "program.py").write_text("\n".join(["import os, time", *steps]))
    shown = cold.first_row([sys.executable, "program.py"], tmp_path)
    assert 0.3 < shown.first_row_s < shown.whole_s - 0.2


# --- what figures are made of ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["parquet", "csv", "json"])
def test_inputs_come_to_what_their_files_hold(tmp_path: Path, format: Format) -> None:
    inputs = WholeInputs(tmp_path, format, 5, Size(3, 40, 0))
    read = {"parquet": pq.read_table, "csv": pa_csv.read_csv, "json": pa_json.read_json}[format]
    rows = [row for file in sorted(inputs.directory(3).iterdir()) for row in read(file).to_pylist()]
    assert len(rows) == 120
    for expressions in (False, True):
        kept = [row for row in rows if not expressions or row["value"] % 7 != 3]
        values = [(row["key"], row["value"] * 2 + 1 if expressions else row["value"]) for row in kept]
        totals = inputs.totals(3, expressions)
        for key in range(5):
            mine = [value for one, value in values if one == key]
            assert (totals.n[key], totals.total[key], totals.top[key]) == (len(mine), sum(mine), max(mine))


def test_the_warm_up_has_other_rows(tmp_path: Path) -> None:
    size = Size(1, 100, 1)
    one, other = (WholeInputs(tmp_path / str(seed), "csv", 5, size, seed) for seed in (0, 1))
    assert (one.directory(1) / "part-00000.csv").read_text() != (
        other.directory(1) / "part-00000.csv"
    ).read_text()


def test_smaller_inputs_keep_enough_files_for_large_triggers() -> None:
    assert size_of(1.0) == Size(30, 1_000_000, 10)
    assert size_of(0.1) == Size(10, 300_000, 4)


def test_triggers_far_from_the_best_are_left_out_and_the_best_is_the_one_with_the_best_median() -> None:
    rates = {OURS: 1.0, "spark_1": 10.0, "spark_3": 20.0, "spark_10": 17.0}
    assert near_the_best(list(rates), rates) == [OURS, "spark_3", "spark_10"]
    rounds = [
        {OURS: Done(1.0, 1, 1), "spark_3": Done(a, 1, 0), "spark_10": Done(b, 1, 0)}
        for a, b in ((1.0, 2.0), (3.0, 2.0), (4.0, 2.1))
    ]
    assert best_of(rounds) == "spark_10"


def test_parts_are_chosen_by_what_they_have_in_common() -> None:
    assert len(parts_of(BULK, None)) == len(parts_of(TEXT, None)) == 8
    assert [part.name for part in parts_of(BULK, ["plain.1m"])] == ["plain.whole.1m", "plain.warm.1m"]
    assert len(parts_of(TEXT, ["csv", "json.warm.10k"])) == 5
    with pytest.raises(ConfigError, match="no part 'csv'"):
        parts_of(BULK, ["csv"])
    with pytest.raises(ConfigError, match="no part 'text'"):
        run_bench("cold", pairs=1, seconds=1.0, quiet=True, only=["text"])
    assert {"bulk", "text", "cold"} <= set(BENCHES)


def test_cpu_of_children_that_ended_counts(tmp_path: Path) -> None:
    work = "x = 0\nfor i in range(3_000_000): x += i\n"
    inner = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {work!r}]); print(1, flush=True); time.sleep(60)"
    with started([sys.executable, "-c", inner], tmp_path) as process:
        while not process.out.read_text():
            assert process.process.poll() is None, process.last_words()
            time.sleep(0.02)
        tag = Path(f"/proc/{process.process.pid}/environ").read_bytes().split(f"{TAG}=".encode())[1]
        cost = spent(tag.split(b"\0")[0].decode(), process.process.pid)
    assert cost["driver_python"] >= 0.05
    assert cost[OTHERS] == cost[WORKERS] == 0
    with pytest.raises(ProcessLookupError):
        os.kill(process.process.pid, 0)
