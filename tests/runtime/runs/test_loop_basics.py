"""How a run behaves when operators, rows, settings or people misbehave. Everything here runs without Spark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import ConfigError, InputError, RegionParkedError, StateError
from holdfast.language.operators.aggregates import count
from holdfast.language.topology import Topology
from holdfast.sources import Files
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, compare_changelog, compare_rows, compare_sequence, disarm
from holdfast.testing import run_local as run
from holdfast.testing import submit_local as submit

NUMBERS = [(n,) for n in range(60)]


class Totals:
    """Emits each number with the sum so far."""

    def __init__(self) -> None:
        self.total = 0

    def process(self, row: Any, port: int) -> Any:
        self.total += row.n
        return (row.n, self.total)


TOTALS = [{"n": n, "total": n * (n + 1) // 2} for (n,) in NUMBERS]


@pytest.fixture(autouse=True)
def _no_failpoints() -> Iterator[None]:
    disarm()
    yield
    disarm()


@pytest.fixture
def store(fast_directory: Path, tmp_path: Path) -> Iterator[str]:
    path = fast_directory / f"store-{tmp_path.name}"
    yield f"file:{path}"
    shutil.rmtree(path, ignore_errors=True)


def numbers(
    operator: Any, shelf: str, *, rows: Any = NUMBERS, schema: str = "n long, total long", **region: Any
) -> Topology:
    """rows → operator (an element of its own) → memory, in one region."""
    made = Topology("numbers")
    region.setdefault("period", None if region.get("trigger") else 0.02)
    source = made.source(Rows(rows, "n long", rows_per_step=5), name="numbers").consistent("r", **region)
    source.isolate().apply(operator, schema, name="totals").sink(MemorySink(shelf), name="out")
    return made


def wait(condition: Any, what: str = "it", seconds: float = 20.0) -> None:
    patience = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < patience, f"waited {seconds} s for {what}"
        time.sleep(0.005)


def kinds(store: str) -> list[str]:
    return [event.kind for event in open_store(store).events()]


# --- operators that fail ----------------------------------------------------------------------------------------------


class FailsOnce(Totals):
    failed = False

    def process(self, row: Any, port: int) -> Any:
        if row.n == 33 and not FailsOnce.failed:
            FailsOnce.failed = True
            raise ValueError("a passing weakness")
        time.sleep(0.001)
        return super().process(row, port)


def test_an_exception_in_an_operator_resets_the_region_and_the_result_is_exact(
    store: str, shelf: str
) -> None:
    FailsOnce.failed = False
    status = run(numbers(FailsOnce, shelf), store)
    assert FailsOnce.failed
    assert status["regions"]["r"]["resets"] == 1
    compare_sequence(TOTALS, MemorySink.rows(shelf))
    resets = [event.data for event in open_store(store).events() if event.kind == "reset.begin"]
    assert [reset["consecutive"] for reset in resets] == [0, 1]
    assert "a passing weakness" in resets[1]["reason"]


class Poisoned(Totals):
    poison = True

    def process(self, row: Any, port: int) -> Any:
        if row.n == 33 and Poisoned.poison:
            raise ValueError("cannot digest 33")
        return super().process(row, port)


@pytest.mark.fault("I03", "B05")
def test_a_poison_row_parks_the_region_and_resuming_works_once_the_cause_is_gone(
    store: str, shelf: str
) -> None:
    Poisoned.poison = True
    job = submit(numbers(Poisoned, shelf, max_consecutive_resets=2), store, until="available")
    with pytest.raises(RegionParkedError, match="cannot digest 33"):
        job.await_termination(timeout=30)
    status = job.status()
    assert status["state"] == "parked"
    assert status["regions"]["r"]["phase"] == "parked"
    assert status["regions"]["r"]["resets"] >= 2  # an epoch in between starts the count anew
    Poisoned.poison = False
    job.resume()
    wait(lambda: job.status()["state"] != "parked", "the resume")
    assert job.await_termination(timeout=30)
    compare_sequence(TOTALS, MemorySink.rows(shelf))
    assert "region.parked" in kinds(store)


def test_a_parked_region_goes_on_when_the_job_is_started_again(store: str, shelf: str) -> None:
    Poisoned.poison = True
    with pytest.raises(RegionParkedError, match="is parked after 2 resets"):
        run(numbers(Poisoned, shelf, max_consecutive_resets=2), store)
    Poisoned.poison = False
    run(numbers(Poisoned, shelf, max_consecutive_resets=2), store)
    compare_sequence(TOTALS, MemorySink.rows(shelf))


class KeepsAFile(Totals):
    def process(self, row: Any, port: int) -> Any:
        self.file = open(__file__)  # noqa: SIM115
        return super().process(row, port)


def test_state_that_cannot_be_stored_is_refused_at_the_first_step_naming_operator_and_attribute(
    store: str, shelf: str
) -> None:
    with pytest.raises(StateError) as caught:
        run(numbers(KeepsAFile, shelf, period=60), store)
    assert "'totals'" in str(caught.value)
    assert "file" in str(caught.value)
    assert not MemorySink.rows(shelf)


# --- rows and settings that are wrong ---------------------------------------------------------------------------------


@pytest.mark.fault("I02")
def test_a_malformed_row_ends_the_run_at_once_naming_file_and_line(
    store: str, shelf: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "numbers.csv").write_text("n\n1\n2\nthree\n4\n")
    made = Topology("numbers")
    source = Files(str(tmp_path / "in"), "csv", "n long")
    rows = made.source(source, name="numbers").consistent("r", period=0.02)
    rows.apply(Totals, "n long, total long", name="totals").sink(MemorySink(shelf), name="out")
    with pytest.raises(InputError) as caught:
        run(made, store)
    assert "numbers.csv" in str(caught.value)
    assert "4" in str(caught.value)  # the header is line 1
    assert "run.failed" in kinds(store)
    assert [e for e in open_store(store).events() if e.kind == "reset.begin" and e.data["consecutive"]] == []


def test_a_region_without_a_store_is_an_error_with_its_cure(shelf: str) -> None:
    with pytest.raises(ConfigError, match="needs a store") as caught:
        run(numbers(Totals, shelf))
    assert "store=" in caught.value.cure


# --- stopping and starting again --------------------------------------------------------------------------------------


class Slow(Totals):
    processed = 0

    def process(self, row: Any, port: int) -> Any:
        Slow.processed += 1
        time.sleep(0.004)
        return super().process(row, port)


def test_stop_establishes_a_final_epoch_and_the_next_run_processes_no_row_again(
    store: str, shelf: str
) -> None:
    Slow.processed = 0
    job = submit(numbers(Slow, shelf, period=60), store)
    wait(lambda: Slow.processed >= 12, "some rows")
    job.stop()
    assert job.status()["regions"]["r"]["epoch"] == 1
    first = Slow.processed
    assert len(MemorySink.rows(shelf)) == first
    run(numbers(Slow, shelf, period=60), store)
    assert Slow.processed == len(NUMBERS)
    compare_sequence(TOTALS, MemorySink.rows(shelf))


def test_a_stop_posted_to_the_mailbox_is_obeyed(store: str, shelf: str) -> None:
    job = submit(numbers(Slow, shelf), store)
    open_store(store).post("stop", {})
    assert job.await_termination(timeout=30)
    assert "mail" in kinds(store)
    assert job.status()["regions"]["r"]["phase"] == "stopped"


def test_a_closed_job_leaves_rows_of_no_epoch_behind(store: str, shelf: str) -> None:
    Slow.processed = 0
    job = submit(numbers(Slow, shelf, period=60), store)
    wait(lambda: Slow.processed >= 12, "some rows")
    job.close()
    assert MemorySink.rows(shelf) == []
    run(numbers(Slow, shelf, period=60), store)
    compare_sequence(TOTALS, MemorySink.rows(shelf))


# --- when epochs come -------------------------------------------------------------------------------------------------


def test_an_operator_driven_region_has_an_epoch_per_file(store: str, shelf: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        lines = [str(number * 10 + row) for row in range(10)]
        (tmp_path / "in" / f"{number}.csv").write_text("n\n" + "\n".join(lines) + "\n")
    made = Topology("numbers")
    source = Files(str(tmp_path / "in"), "csv", "n long", max_rows_per_step=4, max_files_per_step=1)
    rows = made.source(source, name="numbers").consistent("r", trigger="operator")
    rows.isolate().apply(Totals, "n long, total long", name="totals").sink(MemorySink(shelf), name="out")
    status = run(made, store)
    assert status["regions"]["r"]["epochs_published"] in (4, 5)  # and the final one, which is empty
    compare_sequence(TOTALS[:40], MemorySink.rows(shelf))


def test_a_manual_region_has_an_epoch_when_asked(store: str, shelf: str) -> None:
    job = submit(numbers(Slow, shelf, trigger="manual"), store)
    time.sleep(0.15)
    assert job.status()["regions"]["r"]["epoch"] == 0
    job.trigger_epoch()
    wait(lambda: job.status()["regions"]["r"]["epoch"] == 1, "the epoch")
    job.stop()
    assert job.status()["regions"]["r"]["epoch"] == 2


def slowly(table: pa.Table) -> pa.Table:
    time.sleep(0.02)
    return table


# --- what stays in the store ------------------------------------------------------------------------------------------


def test_three_epochs_are_kept_and_nothing_that_they_do_not_need(store: str, shelf: str) -> None:
    from holdfast.checkpoint import manifest as manifests
    from holdfast.ids import RegionName

    made = Topology("numbers")
    source = made.source(Rows(NUMBERS * 5, "n long", rows_per_step=5), name="numbers")
    rows = source.consistent("r", period=0.02).map_arrow(slowly, "n long", name="slowly")
    counts = rows.isolate().aggregate("n", times=count(), name="counts")
    counts.sink(MemorySink(shelf), name="out")
    status = run(made, store)
    assert status["regions"]["r"]["epochs_published"] > 4
    place = open_store(store)
    epochs = place.epochs(RegionName("r"))
    assert len(epochs) == 3
    needed = set()
    for epoch in epochs:
        needed |= manifests.references(manifests.decode(place.manifest(RegionName("r"), epoch), ""))
    stored = {(entry, key) for entry in place.entries() for key in place.keys(entry)}
    assert stored == needed
    compare_changelog([{"n": n, "times": 5} for (n,) in NUMBERS], MemorySink.rows(shelf), "n", "times")


def test_the_live_directory_is_empty_after_the_run(store: str, shelf: str, tmp_path: Path) -> None:
    from holdfast.runtime.engines.local import LocalEngine
    from holdfast.runtime.job import Job

    live = tmp_path / "live"
    made = Topology("numbers")
    rows = made.source(Rows(NUMBERS, "n long", rows_per_step=5), name="numbers").consistent("r", period=0.02)
    counts = rows.isolate().aggregate("n", times=count(), name="counts")
    counts.sink(MemorySink(shelf), name="out")
    job = Job(made.graph(), LocalEngine(live=live), open_store(store), until="available").start()
    assert job.await_termination(timeout=30)
    assert [p for p in (live / "batches").rglob("*") if p.is_file()] == []
    assert len([p for p in (live / "state").rglob("*") if p.is_file()]) <= 2 * 20  # the current version only


def test_the_event_log_tells_of_epochs_and_resets(store: str, shelf: str) -> None:
    FailsOnce.failed = False
    run(numbers(FailsOnce, shelf), store)
    told = kinds(store)
    for kind in ("run.started", "reset.begin", "reset.done", "epoch.published", "region.stopped", "summary"):
        assert kind in told, f"{kind} is missing in {sorted(set(told))}"


@pytest.mark.parametrize("kind", ["file", "sqlite", "memory"])
@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_every_store_runs_the_same_topology_through_a_failure_and_a_restart(
    kind: str, mode: str, shelf: str, tmp_path: Path
) -> None:
    where = {
        "file": f"file:{tmp_path}/s",
        "sqlite": f"sqlite:{tmp_path}/s.db",
        "memory": f"memory:{kind}-{mode}",
    }
    place = open_store(where[kind])
    FailsOnce.failed = False
    run(numbers(Totals, shelf, rows=NUMBERS[:20], mode=mode), place)
    compare_sequence(TOTALS[:20], MemorySink.rows(shelf))
    status = run(numbers(FailsOnce, shelf, mode=mode), place if kind == "memory" else where[kind])
    assert status["regions"]["r"]["resets"] == 1
    compare_rows(TOTALS, MemorySink.rows(shelf))


def test_a_region_tells_how_many_bytes_its_epochs_added_to_the_store(store: str, shelf: str) -> None:
    topology = Topology("bytes")
    keys = topology.source(Rows([(n,) for n in range(5_000)], "n long", rows_per_step=5_000), name="rows")
    keys.consistent(period=30).aggregate("n", c=count(), name="counts").sink(MemorySink(shelf), name="out")
    status = run(topology, store=store)
    (region,) = status["regions"].values()
    entries = [path for path in Path(store.removeprefix("file:")).rglob("*counts*") if path.is_file()]
    segments = sum(path.stat().st_size for path in entries)
    assert segments > 5_000 * 16
    assert segments < region["bytes_written"] < 2 * segments
