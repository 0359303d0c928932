"""A region in which nothing is new has no epochs; whatever has to be stored or shown brings one, at once if its turn has come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rest_program import is_at_rest

import holdfast as hf
from holdfast.clock import ManualClock
from holdfast.runtime.job import Job
from holdfast.runtime.looks import Looks
from holdfast.runtime.telling import events as e
from holdfast.store.objects.bucket import Bucket
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, arm, disarm, submit_local

PERIOD_S = 100.0
TOGETHER = ("async", "token", "drain")


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.002)


class Lines:
    """A directory of json files, which somebody fills."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._count = directory, 0
        directory.mkdir()

    def put(self, *numbers: int) -> None:
        self._count += 1
        hidden = self._directory / ".new"
        hidden.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
        hidden.rename(self._directory / f"{self._count:03}.json")

    def source(self) -> hf.Files:
        return hf.Files(str(self._directory), "json", "n long")


class Runs:
    """Jobs on one store, under a clock that moves by hand."""

    def __init__(self, place: Path) -> None:
        self.clock = ManualClock(1000.0)
        self.store = f"file:{place}/store"
        self.jobs: list[Job] = []
        self.heard: list[Any] = []

    def start(self, topology: hf.Topology, **options: Any) -> Job:
        options = {"clock": self.clock, "rest_s": 0.005, "subscribers": [self.heard.append], **options}
        self.jobs.append(submit_local(topology, self.store, **options))
        return self.jobs[-1]

    @property
    def epochs(self) -> int:
        return sum(isinstance(event, e.EpochPublished) for event in self.heard)

    def to_rest(self, job: Job) -> None:
        """Time passes until epochs are due and none comes."""
        turns = 0

        def rests() -> bool:
            nonlocal turns
            if is_at_rest(job):
                time.sleep(0.05)  # a step may just have ended
                return is_at_rest(job)
            if all(region.controller.phase.value == "running" for region in job.regions.values()):
                turns += 1
                self.clock.advance(PERIOD_S)
                time.sleep(0.02)
            return False

        wait(rests, "rest")

    def stays_idle(self, job: Job) -> None:
        before = self.epochs
        for _ in range(20):
            self.clock.advance(PERIOD_S)
            time.sleep(0.005)
        assert is_at_rest(job)
        assert self.epochs == before


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    disarm()
    for job in made.jobs:
        job.close()


def numbers(shelf: str) -> list[int]:
    return sorted(row["n"] for row in MemorySink.rows(shelf))


SCHEMA = pa.schema([("n", pa.int64())])


def append(path: Path, *numbers: int) -> None:
    """To a log, which is made if it is not there."""
    log = hf.Log(path, schema=SCHEMA)
    log.writer().append(pa.table({"n": numbers}, schema=SCHEMA)).result()
    log.close()


def plain(lines: Lines, shelf: str, **settings: Any) -> hf.Topology:
    """Two elements."""
    topology = hf.Topology("idle")
    rows = topology.source(lines.source(), name="rows").consistent("r", period=PERIOD_S, **settings)
    rows.isolate().aggregate("n", count=hf.count(), name="counts").sink(MemorySink(shelf), name="out")
    return topology


@pytest.mark.parametrize("mode", [*TOGETHER, "independent"])
def test_while_nothing_happens_no_epoch_comes_and_then_one_at_once(
    mode: str, runs: Runs, tmp_path: Path, shelf: str
) -> None:
    lines = Lines(tmp_path / "in")
    lines.put(1, 2)
    job = runs.start(plain(lines, shelf, mode=mode))
    runs.to_rest(job)
    assert numbers(shelf) == [1, 2]
    runs.stays_idle(job)
    lines.put(3)
    wait(lambda: numbers(shelf) == [1, 2, 3], "the row to be visible, though no time passes")
    lines.put(4)
    time.sleep(0.1)
    assert numbers(shelf) == [1, 2, 3], "the next turn has not come"
    runs.to_rest(job)
    assert numbers(shelf) == [1, 2, 3, 4]


@pytest.mark.parametrize("mode", TOGETHER)
def test_epochs_that_somebody_asks_for_come_all_the_same(
    mode: str, runs: Runs, tmp_path: Path, shelf: str
) -> None:
    lines = Lines(tmp_path / "in")
    lines.put(1)
    job = runs.start(plain(lines, shelf, mode=mode))
    runs.to_rest(job)
    before = runs.epochs
    job.trigger_epoch()
    wait(lambda: runs.epochs == before + 1, "an epoch that was asked for")
    job.savepoint("named", timeout=60)
    assert runs.epochs == before + 2
    job.stop()
    assert runs.epochs == before + 3, "the final one"


def test_where_a_source_begins_is_stored_before_anything_comes(
    runs: Runs, tmp_path: Path, shelf: str
) -> None:
    """It begins at the live edge. A run that dies before the first row comes must not begin at another one next time."""
    append(tmp_path / "log", 1)

    def topology() -> hf.Topology:
        made = hf.Topology("idle")
        rows = made.source(hf.LogSource(tmp_path / "log", from_="now"), name="rows")
        rows.consistent("r", period=PERIOD_S).sink(MemorySink(shelf), name="out")
        return made

    first = runs.start(topology())
    runs.to_rest(first)
    assert runs.epochs == 1
    first.close()
    append(tmp_path / "log", 2)
    second = runs.start(topology())
    runs.to_rest(second)
    assert numbers(shelf) == [2]


def test_a_run_that_goes_on_has_no_epoch_unless_the_program_is_another(
    runs: Runs, tmp_path: Path, shelf: str
) -> None:
    lines = Lines(tmp_path / "in")
    lines.put(1)
    first = runs.start(plain(lines, shelf))
    runs.to_rest(first)
    first.close()
    before = runs.epochs
    second = runs.start(plain(lines, shelf))
    runs.to_rest(second)
    assert runs.epochs == before
    assert second.status().regions["r"].idle_since is not None
    second.close()
    changed = hf.Topology("idle")
    rows = changed.source(lines.source(), name="rows").consistent("r", period=PERIOD_S)
    counts = rows.isolate().aggregate("n", count=hf.count(), least=hf.min("n"), name="counts")
    counts.sink(MemorySink(shelf), name="out")
    third = runs.start(changed)
    runs.to_rest(third)
    assert runs.epochs == before + 1, "its epoch is of this program"


# --- what is new although no row came -----------------------------------------------------------------------------------


def test_files_that_waited_for_long_enough_show_although_nothing_comes(runs: Runs, tmp_path: Path) -> None:
    lines = Lines(tmp_path / "in")
    lines.put(1)

    def topology(sink: hf.FileSink) -> hf.Topology:
        made = hf.Topology("idle")
        sink._clock = runs.clock
        rows = made.source(lines.source(), name="rows").consistent("r", period=PERIOD_S)
        rows.sink(sink, name="out")
        return made

    def visible() -> int:
        return len(list((tmp_path / "out").glob("part-*")))

    def one_turn() -> None:
        runs.clock.advance(PERIOD_S)
        time.sleep(0.05)

    sink = hf.FileSink(tmp_path / "out", "json", roll=f"{10 * PERIOD_S:g} seconds")
    job = runs.start(topology(sink))
    wait(lambda: runs.epochs or one_turn(), "the first epoch")
    assert visible() == 0
    for _ in range(4):
        one_turn()
    assert (visible(), runs.epochs) == (0, 1)
    wait(lambda: visible() or one_turn(), "the file")
    assert runs.clock.wall() >= 1000 + 10 * PERIOD_S
    runs.stays_idle(job)
    assert runs.epochs == 2
    lines.put(2)
    wait(lambda: runs.epochs == 3, "the second file to wait")
    sink.close = lambda: None  # type: ignore[method-assign]  # as after a kill: the end of a run shows what waits
    job.close()
    assert visible() == 1
    runs.to_rest(runs.start(topology(hf.FileSink(tmp_path / "out", "json"))))
    assert visible() == 2, "a program that does not roll any more shows what waits"


class Timer(hf.Operator):
    """Counts in a thread of its own, and tells nobody."""

    let_go = 0

    def __init__(self) -> None:
        self.count = 0

    def run(self, context: Any) -> None:
        while True:
            if type(self).let_go > self.count:
                with context.permit():
                    self.count += 1
            time.sleep(0.002)

    def process(self, row: Any, port: int) -> Any:
        return {"n": self.count}


def test_what_threads_change_under_a_permit_is_stored(runs: Runs, tmp_path: Path, shelf: str) -> None:
    Timer.let_go = 0
    lines = Lines(tmp_path / "in")

    def topology() -> hf.Topology:
        made = hf.Topology("idle")
        rows = made.source(lines.source(), name="rows").consistent("r", period=PERIOD_S)
        rows.apply(Timer, "n long", name="timer").sink(MemorySink(shelf), name="out")
        return made

    first = runs.start(topology())
    runs.to_rest(first)
    Timer.let_go = 1
    wait(lambda: runs.epochs == 2, "an epoch with what the thread changed")
    runs.to_rest(first)
    runs.stays_idle(first)
    first.close()
    Timer.let_go = 0
    second = runs.start(topology())
    lines.put(7)
    runs.to_rest(second)
    assert numbers(shelf) == [1]


class Skipping(hf.Rows):
    """Moves on over what nobody wants."""

    skipped = 0

    def snapshot(self) -> Any:
        return [super().snapshot(), type(self).skipped]

    def seek(self, state: Any | None) -> None:
        super().seek(None if state is None else state[0])


def test_a_source_that_moves_on_without_rows_has_its_position_stored(
    runs: Runs, shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Skipping, "skipped", 0)
    made = hf.Topology("idle")
    rows = made.source(Skipping([(1,)], "n long"), name="rows").consistent("r", period=PERIOD_S)
    rows.sink(MemorySink(shelf), name="out")
    job = runs.start(made)
    runs.to_rest(job)
    before = runs.epochs
    Skipping.skipped = 5

    def is_stored() -> bool:
        runs.clock.advance(1.0)  # sources are looked at now and then
        return runs.epochs == before + 1

    wait(is_stored, "an epoch")
    runs.to_rest(job)
    runs.stays_idle(job)


class Merge(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        return row


def test_rows_that_a_reset_cost_are_stored_as_lost(runs: Runs, tmp_path: Path, shelf: str) -> None:
    """They entered the region by an autonomous port. Nothing comes any more, and the next run has to know of them."""
    exact, loose = Lines(tmp_path / "exact"), Lines(tmp_path / "loose")

    def topology() -> hf.Topology:
        made = hf.Topology("idle")
        rows = made.source(exact.source(), name="exact").consistent("r", period=PERIOD_S)
        others = made.source(loose.source(), name="loose")
        merged = made.operator(Merge, inputs=[rows, others.autonomous()], schema="n long", name="merge")
        merged.sink(MemorySink(shelf), name="out")
        return made

    exact.put(1)
    job = runs.start(topology())
    runs.to_rest(job)
    job.trigger_epoch()
    loose.put(2, 3)
    wait(
        lambda: numbers(shelf) == [1, 2, 3] or job.status().elements["merge"].rows == 3, "rows in the region"
    )
    runs.to_rest(job)
    loose.put(4, 5)
    arm("drain.all_acked=raise@1")
    wait(lambda: job.status().regions["r"].resets == 1, "a reset")
    disarm()
    before = runs.epochs
    runs.to_rest(job)
    assert runs.epochs == before + 1, "nothing but the loss is new"
    assert numbers(shelf) == [1, 2, 3]
    assert job.status().lost_rows["out"] == 2
    job.close()
    assert runs.start(topology()).status().lost_rows["out"] == 2, "as the newest epoch knows"


# --- what goes although no epoch comes ----------------------------------------------------------------------------------


def test_epochs_whose_time_is_over_go_while_nothing_happens(runs: Runs, tmp_path: Path, shelf: str) -> None:
    lines = Lines(tmp_path / "in")
    job = runs.start(plain(lines, shelf, keep=1, keep_for=20 * PERIOD_S))
    for n in range(4):
        lines.put(n)
        wait(lambda n=n: job.status().elements["counts"].rows == n + 1, "the row")
        runs.to_rest(job)
    store = open_store(runs.store)
    assert len(store.epochs("r")) >= 4

    def are_gone() -> bool:
        runs.clock.advance(PERIOD_S)
        time.sleep(0.01)
        return len(store.epochs("r")) == 1

    before = runs.epochs
    wait(are_gone, "old epochs to go")
    assert runs.epochs == before


def test_consumers_of_logs_move_on_to_the_end_and_then_nothing_happens(
    runs: Runs, tmp_path: Path, shelf: str
) -> None:
    """Of three epochs that are kept the oldest says what a log must keep. So as many come behind the last rows."""
    append(tmp_path / "log", 1, 2, 3)
    made = hf.Topology("idle")
    rows = made.source(hf.LogSource(tmp_path / "log", consumer="me"), name="rows")
    rows.consistent("r", period=PERIOD_S).sink(MemorySink(shelf), name="out")
    job = runs.start(made)
    runs.to_rest(job)
    append(tmp_path / "log", 4, 5)
    wait(lambda: job.status().elements["rows"].rows == 5, "the rows")
    runs.to_rest(job)
    (me,) = hf.Log(tmp_path / "log").consumers()
    assert me.positions == {0: 5}
    assert runs.epochs == 1 + 3
    runs.stays_idle(job)


def test_an_idle_run_writes_nothing_into_a_store_of_objects_but_its_sign_of_life(
    runs: Runs, tmp_path: Path, shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request is paid for there."""
    written: list[str] = []
    write = Bucket._write

    def noting(self: Bucket, name: str, *given: Any, **how: Any) -> None:
        written.append(name)
        write(self, name, *given, **how)

    runs.store = f"objects+file://{tmp_path}/objects"
    lines = Lines(tmp_path / "in")
    lines.put(1)
    job = runs.start(plain(lines, shelf))
    runs.to_rest(job)
    runs.stays_idle(job)  # rates of rows fall, and that is told
    monkeypatch.setattr(Bucket, "_write", noting)
    runs.stays_idle(job)
    assert [name for name in written if not name.startswith("alive/")] == []
    lines.put(2)
    wait(lambda: numbers(shelf) == [1, 2], "the row to be visible")
    assert any(name.startswith("blobs/") for name in written)


def test_an_idle_run_asks_a_store_of_objects_for_little(
    runs: Runs, tmp_path: Path, shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Looks, "due", noted(Looks.due, asked))
    runs.store = f"objects+file://{tmp_path}/objects?commands=30"
    lines = Lines(tmp_path / "in")
    lines.put(1)
    job = runs.start(plain(lines, shelf))
    runs.to_rest(job)
    runs.stays_idle(job)
    requests: list[str] = []
    for name in ("_write", "_ask"):
        monkeypatch.setattr(Bucket, name, counted(getattr(Bucket, name), requests))

    def looked(often: int) -> bool:
        runs.clock.advance(1.0)
        return len(asked) >= often

    asked.clear()
    before = runs.clock.monotonic()
    wait(lambda: looked(10), "ten looks")
    passed_s = runs.clock.monotonic() - before
    assert passed_s >= 9 * 30, "ten looks, each after as long as the setting says"
    others = [request for request in requests if "alive/" not in request]
    assert len(others) <= 3 * (len(asked) + 1), f"{passed_s} s: {others}"
    lines.put(2)
    wait(lambda: numbers(shelf) == [1, 2], "the row to be visible")
    open_store(runs.store).post("stop", {})
    wait(lambda: looked(1) and job.status().state == "ended", "the run to end")


def noted(due: Callable[[Looks], bool], asked: list[str]) -> Callable[[Looks], bool]:
    def note(looks: Looks) -> bool:
        found = due(looks)
        asked.extend(["mail"] * found)
        return found

    return note


def counted(call: Callable[..., Any], requests: list[str]) -> Callable[..., Any]:
    def count(bucket: Bucket, *given: Any, **how: Any) -> Any:
        requests.append(str(given[0]))
        return call(bucket, *given, **how)

    return count


# --- what people see ----------------------------------------------------------------------------------------------------


def test_a_status_says_since_when_nothing_is_new(runs: Runs, tmp_path: Path, shelf: str) -> None:
    lines = Lines(tmp_path / "in")
    lines.put(1)
    job = runs.start(plain(lines, shelf))
    assert job.status().regions["r"].idle_since is None, "its first epoch is due"
    runs.to_rest(job)
    region = job.status().regions["r"]
    assert region.idle_since == region["published_wall"]
    lines.put(2)
    wait(lambda: job.status().elements["counts"].rows == 2, "the row")
    runs.to_rest(job)
    assert (job.status().regions["r"].idle_since or 0.0) > region.idle_since
