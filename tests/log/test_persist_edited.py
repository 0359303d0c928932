"""Programs whose persisted streams come, go, move or change their kind between two runs: rows are found again, or the run is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import persist_program
import pytest
from killed import lived

import holdfast as hf
from holdfast.errors import HoldfastError, MismatchError
from holdfast.testing import MemorySink, run_local

NUMBERS = "n long"


def numbers(path: Path) -> list[int]:
    log = hf.Log(path)
    return log.reader().read_all().column("n").to_pylist() if log.exists else []


def source(topology: hf.Topology, rows: int = 60) -> Any:
    data = hf.Rows([(n,) for n in range(rows)], NUMBERS, rows_per_step=5)
    return topology.source(data, name="numbers")


def edited(here: Path, persisted: bool, **settings: Any) -> hf.Topology:
    made = hf.Topology("t")
    rows = source(made)
    rows = rows.persist(settings.pop("name", "middle"), **settings) if persisted else rows
    rows.isolate().map_arrow(lambda table: table, NUMBERS, name="same").sink(
        hf.LogSink(here / "out"), name="out"
    )
    return made


def test_rows_in_a_log_that_the_program_has_no_use_for_any_more_are_not_forgotten(tmp_path: Path) -> None:
    run_local(edited(tmp_path, True), store=f"file:{tmp_path}/store")
    with hf.Log(tmp_path / "store/logs/middle") as log:
        log.append([{"n": n} for n in range(60, 65)])  # as if the run had ended before they were read
    for other in (edited(tmp_path, False), edited(tmp_path, True, name="another")):
        with pytest.raises(MismatchError, match="'middle' is not persisted any more, and 5 rows"):
            run_local(other, store=f"file:{tmp_path}/store")
    with pytest.raises(MismatchError, match="goes through another log now"):
        run_local(edited(tmp_path, True, path=tmp_path / "elsewhere"), store=f"file:{tmp_path}/store")
    run_local(edited(tmp_path, True), store=f"file:{tmp_path}/store")
    assert numbers(tmp_path / "out") == list(range(65))
    run_local(edited(tmp_path, False), store=f"file:{tmp_path}/store")  # all of it was read
    assert numbers(tmp_path / "out") == list(range(65))


def test_persist_put_into_a_region_that_has_epochs_is_refused_by_name(tmp_path: Path) -> None:
    def topology(persisted: bool) -> hf.Topology:
        made = hf.Topology("t")
        rows = source(made).consistent("r")
        rows = rows.persist("middle") if persisted else rows
        rows.apply(persist_program.Numbered, "n long, count long, total long", name="numbered").sink(
            hf.LogSink(tmp_path / "out"), name="out"
        )
        return made

    run_local(topology(False), store=f"file:{tmp_path}/store")
    with pytest.raises(MismatchError, match=r"'middle\.log'|'numbered'|'out'"):
        run_local(topology(True), store=f"file:{tmp_path}/store")
    shutil.rmtree(tmp_path / "out")
    run_local(topology(True), store=f"file:{tmp_path}/other")
    with pytest.raises(MismatchError, match=r"'middle\.log'|'numbered'|'out'"):
        run_local(topology(False), store=f"file:{tmp_path}/other")


def test_the_log_of_another_stream_is_refused_and_a_store_that_was_moved_is_not(tmp_path: Path) -> None:
    run_local(edited(tmp_path, True), store=f"file:{tmp_path}/store")
    shutil.move(tmp_path / "store", tmp_path / "moved")
    run_local(edited(tmp_path, True), store=f"file:{tmp_path}/moved")
    assert numbers(tmp_path / "out") == list(range(60))
    log = tmp_path / "moved/logs/middle"
    with pytest.raises(MismatchError, match="output of 'middle'"):
        run_local(edited(tmp_path, True, name="another", path=log), store=f"file:{tmp_path}/third")
    assert numbers(log) == list(range(60))
    shutil.rmtree(log)
    with pytest.raises(HoldfastError, match="not the log that was read before"):
        run_local(edited(tmp_path, True), store=f"file:{tmp_path}/moved")


@pytest.mark.parametrize("then", ["region", "two ends", "one end again"])
def test_a_program_that_changes_after_a_kill_goes_on_behind_the_last_rows_in_the_log(
    tmp_path: Path, then: str
) -> None:
    """The store lags behind the log: what the log notes counts, as long as its last rows came with a note."""
    assert lived(Path(persist_program.__file__), tmp_path, "persist.appended=kill@6", "sr") != 0
    log = tmp_path / "store/logs/middle"
    assert numbers(log)

    def run(first: bool, ends: int, rows: int) -> None:
        made = hf.Topology("persisting")
        stream = made.source(hf.Rows([(n,) for n in range(rows)], NUMBERS, rows_per_step=10), name="numbers")
        stream = stream.consistent("first") if first else stream
        stream = stream.map_arrow(persist_program.some, NUMBERS, name="some")
        for number in range(ends):
            stream.sink(MemorySink(f"{tmp_path.name}-{number}"), name=f"end_{number}")
        behind = stream.persist("middle").consistent("second", period=0.02)
        behind.apply(persist_program.Numbered, "n long, count long, total long", name="numbered").sink(
            hf.LogSink(tmp_path / "out"), name="out"
        )
        run_local(made, store=f"file:{tmp_path}/store")

    if then == "region":
        run(True, 0, persist_program.ROWS)
    else:
        run(False, 1, 200)
        run(False, 1 if then == "two ends" else 0, persist_program.ROWS)
    assert numbers(log) == persist_program.kept()
    assert numbers(tmp_path / "out") == persist_program.kept()
