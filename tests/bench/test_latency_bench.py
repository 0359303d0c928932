"""`bench latency`: the observer tells when rows are visible, a side that shows others is refused, and a small run goes through."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.bench.subjects.changelog import totals_of
from holdfast.bench.waiting.latency import bench_latency, look
from holdfast.bench.waiting.observer import Observer, Pace
from holdfast.errors import HoldfastError

PACE = Pace("json", 4, 3, 50.0, 5)


def shown(pace: Pace, files: int) -> pa.Table:
    """What an aggregate over the first files shows."""
    totals = totals_of(((pace.keys_of(f), pace.values_of(f)) for f in range(files)), pace.keys)
    table = pa.table({"key": list(range(pace.keys)), "total": totals.total, "n": totals.n, "top": totals.top})
    return table.filter(pa.compute.greater(table["n"], 0))


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_the_observer_waits_until_all_rows_of_a_file_are_counted(tmp_path: Path, format: str) -> None:
    pace = Pace(format, 4, 3, 50.0, 5)
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    out.mkdir()

    def answer() -> None:
        while len(list(source.glob("f*"))) < pace.files:
            time.sleep(0.005)
        for files in (2, 4):  # nothing is shown of files 0 and 2 by themselves
            pq.write_table(shown(pace, files), out / f".{files}")
            (out / f".{files}").rename(out / f"{files}.parquet")
            time.sleep(0.1)

    side = threading.Thread(target=answer)
    side.start()
    seen = Observer(pace, source, out, 20.0).run()
    side.join()
    assert len(seen.latencies_s) == pace.files
    assert seen.latencies_s[2] + 2 / pace.per_s > seen.latencies_s[1] + 1 / pace.per_s
    assert all(waited > 0 for waited in seen.latencies_s)


def test_a_side_that_shows_too_little_is_refused(tmp_path: Path) -> None:
    pq.write_table(shown(PACE, 3), tmp_path / "a.parquet")
    with pytest.raises(HoldfastError, match="wrote wrong rows"):
        look(PACE, tmp_path)
    pq.write_table(shown(PACE, 4), tmp_path / "b.parquet")
    assert look(PACE, tmp_path)["rows"] == 12


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.usefixtures("shared_session")
def test_a_small_latency_benchmark_runs_through() -> None:
    result = bench_latency(pairs=1, seconds=0.4, quiet=True, only=["json", "parquet"], warm_up_s=0.2)
    assert result["outputs_equal"]
    for kind in result["kinds"].values():
        assert kind["epochs"] > 0
        assert kind["visible_p50_ratio"] > 0
        assert kind["budget_step_ms"]["whole_step"] > 0
        assert kind["budget_epoch_ms"]["publish"] > 0
