"""Python operators with threads: permits, epochs that they ask for, resets, failures, ends."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local, submit_local


@pytest.fixture(autouse=True)
def no_failpoints() -> Any:
    yield
    disarm()


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


class Count(hf.Operator):
    """Numbers up to `last`."""

    replayable = True
    last = 400
    seen: ClassVar[set[int]] = set()

    def __init__(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                type(self).seen.add(threading.get_ident())
                if self.n >= self.last:
                    return
                context.submit({"n": self.n})
                self.n += 1
            time.sleep(0.0005)


def counted(operator: Any, shelf: str, **settings: Any) -> hf.Topology:
    topology = hf.Topology("counts")
    made = topology.operator(operator, [], schema="n long", name="count")
    if settings:
        made = made.consistent("r", **settings)
    made.sink(MemorySink(shelf), name="out")
    return topology


def store(shelf: str) -> str:
    return "memory:" + re.sub(r"\W", "_", shelf)


def numbers(shelf: str) -> list[int]:
    return [row["n"] for row in MemorySink.rows(shelf)]


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_a_reset_takes_a_thread_back_and_it_is_the_same_thread(mode: str, shelf: str) -> None:
    class Fresh(Count):
        seen: ClassVar[set[int]] = set()

    arm("step.end=raise@20")
    status = run_local(counted(Fresh, shelf, period=0.03, mode=mode), store(shelf))
    assert status["regions"]["r"]["resets"] == 1
    assert sorted(numbers(shelf)) == list(range(400))
    assert len(Fresh.seen) == 1, "the thread went on, no other took its place"


def test_a_thread_that_had_ended_begins_again_if_its_state_went_back(shelf: str) -> None:
    class Quick(Count):
        last = 50
        seen: ClassVar[set[int]] = set()

    arm("drain.all_acked=raise@1")
    run_local(counted(Quick, shelf, trigger="manual"), store(shelf))
    assert sorted(numbers(shelf)) == list(range(50))


def test_outside_of_regions_it_is_best_effort(shelf: str) -> None:
    status = run_local(counted(Count, shelf))
    assert sorted(numbers(shelf)) == list(range(400))
    assert status["elements"]["count"]["rows"] == 400


def test_rows_of_a_step_that_fails_outside_of_regions_are_counted(shelf: str) -> None:
    arm("sink.write=raise@5")
    status = run_local(counted(Count, shelf), store(shelf))
    lost = status["lost_rows"]["out"]
    assert lost > 0
    assert len(numbers(shelf)) + lost == 400


def test_a_start_that_cannot_replay_is_refused(shelf: str) -> None:
    class Forgetful(Count):
        replayable = False

    with pytest.raises(TopologyError, match="a Forgetful cannot replay rows"):
        run_local(counted(Forgetful, shelf, period=1), store(shelf))


@pytest.mark.fault("R02")
def test_to_submit_without_a_permit_is_refused(shelf: str) -> None:
    class Hasty(hf.Operator):
        def run(self, context: Any) -> None:
            context.submit({"n": 1})

    with pytest.raises(hf.HoldfastError, match="without a permit"):
        run_local(counted(Hasty, shelf))
    assert numbers(shelf) == []


def test_submit_of_the_operator_itself_needs_a_permit_too(shelf: str) -> None:
    class Sly(Count):
        def run(self, context: Any) -> None:
            self.submit({"n": 1})

    with pytest.raises(TopologyError, match="without a permit"):
        run_local(counted(Sly, shelf, period=0.1), store(shelf))


def test_permits_are_had_alone_so_a_sum_is_right_without_a_lock(shelf: str) -> None:
    class Sum(hf.Operator):
        threads = 6
        total = hf.Value(int, default=0)
        over = hf.Value(int, default=0)

        def run(self, context: Any) -> None:
            for _ in range(200):
                with context.permit():
                    before = self.total
                    time.sleep(0)  # lets others go first, if they may
                    self.total = before + 1
            with context.permit():
                self.over += 1
                if self.over == 6:
                    context.submit({"n": self.total})

    run_local(counted(Sum, shelf))
    assert numbers(shelf) == [1200]


def test_shared_permits_are_had_together(shelf: str) -> None:
    class Meet(hf.Operator):
        threads = 3
        _together: ClassVar[threading.Barrier] = threading.Barrier(3)

        def run(self, context: Any) -> None:
            with context.permit(shared=True):
                type(self)._together.wait(30)
                context.submit({"n": context.thread})

    run_local(counted(Meet, shelf))
    assert sorted(numbers(shelf)) == [0, 1, 2]


class Timed(hf.Operator):
    """A time-driven aggregator: what came since the last time, told again and again by a thread."""

    def __init__(self) -> None:
        self.count = 0
        self.told = 0

    def process(self, row: Any, port: int) -> None:
        self.count += 1

    def run(self, context: Any) -> None:
        while not context.wait(0.005):
            with context.permit():
                if self.count:
                    context.submit({"n": self.count})
                    self.told += self.count
                    self.count = 0

    def drain(self) -> Any:
        found, self.count = self.count, 0
        return [{"n": found}] if found else None


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_an_operator_in_the_middle_has_a_thread(mode: Any, shelf: str) -> None:
    topology = hf.Topology("timed")
    rows = topology.source(Rows([(n,) for n in range(3000)], "n long", rows_per_step=20), name="rows")
    timed = rows.consistent("r", period=0.03, mode=mode).apply(Timed, "n long", name="timed")
    timed.sink(MemorySink(shelf), name="out")
    arm("step.end=raise@50")
    status = run_local(topology, store(shelf))
    assert status["regions"]["r"]["resets"] == 1
    assert sum(numbers(shelf)) == 3000


class Scan(hf.Operator):
    """Reads the files of a directory, in the order of their names; asks for an epoch after each."""

    replayable = True
    where: ClassVar[Path]
    stops_after: ClassVar[int] = 99
    _stopped: ClassVar[threading.Event] = threading.Event()

    def __init__(self) -> None:
        self.done: list[str] = []

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                left = sorted(path for path in self.where.iterdir() if path.name not in self.done)
                if not left:
                    return
                for line in left[0].read_text().split():
                    context.submit({"n": int(line)})
                self.done.append(left[0].name)
                context.make_consistent()


def files_in(directory: Path, count: int) -> Path:
    directory.mkdir()
    for n in range(count):
        (directory / f"f{n}").write_text(" ".join(str(n * 10 + k) for k in range(10)))
    return directory


def test_make_consistent_brings_an_epoch_right_there(shelf: str, tmp_path: Path) -> None:
    class Mine(Scan):
        where = files_in(tmp_path / "in", 6)

    topology = counted(Mine, shelf, trigger="operator")
    epochs: list[int] = []

    def hear(event: Any) -> None:
        if type(event).__name__ == "EpochPublished":
            epochs.append(len(numbers(shelf)))

    job = submit_local(topology, store(shelf), until="available", subscribers=[hear])
    assert job.await_termination()
    assert sorted(numbers(shelf)) == list(range(60))
    assert job.status()["regions"]["r"]["epoch"] >= 6
    # What was visible when the next epoch was published: whole files only.
    assert all(rows % 10 == 0 for rows in epochs), epochs
    assert {0, 10, 20, 30, 40, 50} <= set(epochs)


def test_make_consistent_and_failures(shelf: str, tmp_path: Path) -> None:
    class Mine(Scan):
        where = files_in(tmp_path / "in", 8)

    arm("drain.all_acked=raise@3;step.end=raise@5")
    run_local(counted(Mine, shelf, trigger="operator"), store(shelf))
    assert sorted(numbers(shelf)) == list(range(80))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "outside of regions"),
        ({"period": 1}, "trigger='periodic'"),
        ({"trigger": "manual"}, "trigger='manual'"),
    ],
)
def test_make_consistent_is_refused_where_it_has_no_meaning(
    settings: Any, why: str, shelf: str, tmp_path: Path
) -> None:
    class Mine(Scan):
        where = files_in(tmp_path / "in", 1)

    with pytest.raises(TopologyError, match=why):
        run_local(counted(Mine, shelf, **settings), store(shelf))


def test_what_a_thread_raises_parks_the_region_if_it_comes_again(shelf: str) -> None:
    class Fails(Count):
        def run(self, context: Any) -> None:
            with context.permit():
                raise ValueError("no such luck")

    with pytest.raises(RegionParkedError, match="no such luck") as parked:
        run_local(counted(Fails, shelf, period=0.1), store(shelf))
    assert "operator 'count', run()" in str(parked.value)


def test_a_thread_that_failed_once_begins_again_with_the_restored_state(shelf: str) -> None:
    class Weak(Count):
        failures: ClassVar[list[int]] = []

        def run(self, context: Any) -> None:
            while True:
                with context.permit():
                    if self.n == 100 and not Weak.failures:
                        Weak.failures.append(1)
                        raise ValueError("once")
                    if self.n >= 200:
                        return
                    context.submit({"n": self.n})
                    self.n += 1

    status = run_local(counted(Weak, shelf, period=0.02), store(shelf))
    assert status["regions"]["r"]["resets"] == 1
    assert sorted(numbers(shelf)) == list(range(200))


def test_a_thread_that_keeps_its_permit_is_left_behind(shelf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.runs.hosted.own_threads.PATIENCE_S", 0.3)

    class Keeps(Count):
        hung: ClassVar[threading.Event] = threading.Event()
        release: ClassVar[threading.Event] = threading.Event()

        def run(self, context: Any) -> None:
            while True:
                with context.permit():
                    if self.n == 30 and not Keeps.hung.is_set():
                        Keeps.hung.set()
                        Keeps.release.wait()
                        context.submit({"n": -1})
                    if self.n >= 60:
                        return
                    context.submit({"n": self.n})
                    self.n += 1

    try:
        run_local(counted(Keeps, shelf, period=0.02, drain_timeout=1), store(shelf))
        assert sorted(numbers(shelf)) == list(range(60))
    finally:
        Keeps.release.set()


def test_a_permit_that_is_out_for_long_is_named(shelf: str) -> None:
    class Keeps(Count):
        release: ClassVar[threading.Event] = threading.Event()

        def run(self, context: Any) -> None:
            with context.permit():
                Keeps.release.wait()

    job = submit_local(counted(Keeps, shelf, period=30), store(shelf), until="available")
    try:
        wait(
            lambda: "a permit of operator count, for" in job.status()["elements"]["count"]["waiting"],
            "its name",
        )
    finally:
        Keeps.release.set()
        job.close()


@pytest.mark.fault("O07")
def test_threads_hear_that_the_run_ends_and_do_not_outlive_it(shelf: str) -> None:
    class Endless(Count):
        threads = 2

        def run(self, context: Any) -> None:
            while not context.stopping:
                with context.permit():
                    context.submit({"n": 0})
                context.wait(0.01)

    job = submit_local(counted(Endless, shelf, period=0.05), store(shelf))
    wait(lambda: job.status()["regions"]["r"]["epoch"] >= 2, "two epochs")
    job.stop()
    wait(lambda: not [t for t in threading.enumerate() if t.name.startswith("own-count")], "threads to end")


@pytest.mark.fault("I10")
def test_a_slow_reader_holds_the_threads_back(shelf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.runs.hosted.permits.BACKLOG_ROWS", 50)
    most: list[int] = []

    class Fast(Count):
        last = 2000

        def run(self, context: Any) -> None:
            while True:
                with context.permit():
                    most.append(context._slot.permits.backlog)
                    if self.n >= self.last:
                        return
                    context.submit({"n": self.n})
                    self.n += 1

    class Slow:
        def process(self, row: Any, port: int) -> Any:
            time.sleep(0.0002)
            return row

    topology = hf.Topology("slow")
    made = topology.operator(Fast, [], schema="n long", name="count").consistent("r", period=0.05)
    made.apply(Slow, "n long", name="slow").sink(MemorySink(shelf), name="out")
    run_local(topology, store(shelf))
    assert max(most) <= 50
    assert sorted(numbers(shelf)) == list(range(2000))


def test_inputs_need_process_and_threads_cannot_have_a_stream_of_errors() -> None:
    topology = hf.Topology("odd")
    rows = topology.source(Rows([(1,)], "n long"), name="rows")
    rows.apply(Count, "n long", name="count").sink(MemorySink("odd"), name="out")
    with pytest.raises(TopologyError, match="has inputs, but neither process"):
        run_local(topology)
    with pytest.raises(TopologyError, match="threads of its own"):
        rows.apply(Timed, "n long", name="timed", on_error="stream")

    class Wrong(Count):
        threads = 0

    with pytest.raises(TopologyError, match="threads is 0"):
        rows.apply(Wrong, "n long", name="wrong")
