"""What a run tells of the logs that its sources read and its sinks write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.runtime.telling.metrics_page import families
from holdfast.sources.lists import Rows
from holdfast.testing import run_local


def writing(here: Path, rows: int = 30) -> hf.Topology:
    made = hf.Topology("writes")
    source = made.source(Rows([(n,) for n in range(rows)], "n long"), name="rows").consistent("r")
    source.sink(hf.LogSink(here / "log"), name="clean")
    return made


def reading(here: Path, **options: Any) -> hf.Topology:
    made = hf.Topology("reads")
    rows = made.source(hf.LogSource(here / "log", **options), name="clean_rows").consistent("r")
    rows.sink(hf.MemorySink("standing"), name="out")
    return made


def test_a_sink_tells_what_its_log_holds_and_for_whom(tmp_path: Path) -> None:
    run_local(writing(tmp_path), f"file:{tmp_path}/store")
    hf.Log(tmp_path / "log").consumer("report", 12)
    hf.Log(tmp_path / "log").pin("audit", 20)
    found = run_local(writing(tmp_path), f"file:{tmp_path}/store").as_dict()["logs"]["clean"]
    assert found.pop("bytes") > 0
    assert found == {
        "log": str(tmp_path / "log"), "rows": 30, "end": 30, "waiting": None, "held_by": {"report": 12, "pin audit": 20},
        "written_by": ["clean"], "read_by": [],
    }  # fmt: skip


def test_a_source_tells_how_far_behind_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_local(writing(tmp_path), f"file:{tmp_path}/store")
    hf.Log(tmp_path / "log").consumer("slow", 5)
    status = run_local(reading(tmp_path, consumer="report"), f"file:{tmp_path}/reads").as_dict()
    hf.MemorySink.clear("standing")
    found = status["logs"]["clean_rows"]
    assert (found["waiting"], found["held_by"], found["read_by"]) == (
        0,
        {"report": 30, "slow": 5},
        ["clean_rows"],
    )
    lags = {
        sample.labels["consumer"]: sample.value
        for family in families(status)
        for sample in family.samples
        if sample.name == "holdfast_log_consumer_lag_rows"
    }
    assert lags == {"report": 0, "slow": 25}
    assert run_command(["status", str(tmp_path / "reads")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "log of clean_rows: 30 rows, 0 not read yet; held by report from row 30 on, slow from row 5 on (25 behind)"
        in said
    )


def test_a_log_that_one_run_reads_and_writes_is_told_once(tmp_path: Path) -> None:
    made = writing(tmp_path)
    rows = made.source(hf.LogSource(tmp_path / "log", schema="n long"), name="again").consistent("s")
    rows.sink(hf.MemorySink("standing"), name="out")
    logs = run_local(made, f"file:{tmp_path}/store").as_dict()["logs"]
    hf.MemorySink.clear("standing")
    assert {name: (log["written_by"], log["read_by"]) for name, log in logs.items()} == {
        "clean": (["clean"], ["again"])
    }


def test_a_log_that_is_not_there_yet_or_cannot_be_read_fails_nothing(tmp_path: Path) -> None:
    found = run_local(reading(tmp_path, schema="n long"), f"file:{tmp_path}/store").as_dict()["logs"][
        "clean_rows"
    ]
    assert (found["rows"], found["held_by"]) == (0, {})
    run_local(writing(tmp_path), f"file:{tmp_path}/writes")
    (tmp_path / "log/consumers/broken").write_bytes(b"nothing")
    status = run_local(writing(tmp_path), f"file:{tmp_path}/writes").as_dict()
    assert "broken" in status["logs"]["clean"]["problem"]
    assert list(families(status))


def test_rows_of_all_partitions_count(tmp_path: Path) -> None:
    with hf.Log(tmp_path / "log", partitions=2) as log:
        for partition, rows in enumerate((10, 20)):
            log.append([{"n": n} for n in range(rows)], partition=partition)
        log.consumer("report", {0: 4, 1: 20})
    made = hf.Topology("reads")
    for partition in (0, 1):
        rows = made.source(hf.LogSource(tmp_path / "log", partition=partition), name=f"part_{partition}")
        rows.sink(hf.MemorySink("standing"), name=f"out_{partition}")
    found = run_local(made, f"file:{tmp_path}/store").as_dict()["logs"]["part_0"]
    hf.MemorySink.clear("standing")
    assert (found["rows"], found["waiting"], found["end"], found["held_by"]) == (30, 0, 30, {"report": 24})
