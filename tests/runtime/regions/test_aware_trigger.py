"""Regions whose epochs are timed by the size of their state: one epoch per period, at its minimum; nothing is lost by it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from aware_program import FULL, ROWS, Pool, build, wanted
from killed import killed_and_finished, written
from paced import Pace, PacedRows, run_paced

import holdfast as hf
from holdfast.cli.status.show import show_store
from holdfast.cli.status.store_status import read_status
from holdfast.clock import ManualClock
from holdfast.errors import RegionParkedError, StateError
from holdfast.ids import Epoch
from holdfast.protocol.turning_points import Turn
from holdfast.runtime.element.epochs.size_watch import SizeWatch
from holdfast.runtime.job import Job
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.runs.operator_runs import Remembering
from holdfast.runtime.telling import events as e
from holdfast.runtime.telling.stored_events import decode
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, run_local, submit_local

PROGRAM = Path(__file__).with_name("aware_program.py")
STEP, STEP_S, PERIOD_S = 20, 0.1, 3.0
"""A pool is full after 2 s."""


def rows(count: int = ROWS) -> list[tuple[int]]:
    return [(n,) for n in range(count)]


def paced_run(
    store: str, sink: str, look: Any = None, count: int = ROWS, **settings: Any
) -> list[e.RunEvent]:
    pace, heard = Pace(STEP_S), list[e.RunEvent]()
    source = PacedRows(pace, rows(count), "v long", rows_per_step=STEP)
    made = build(source, MemorySink(sink), period=PERIOD_S, **settings)
    run_paced(made, pace, store, look, subscribers=[heard.append])
    return heard


def of(kind: type[Any], heard: list[e.RunEvent]) -> list[Any]:
    return [event for event in heard if isinstance(event, kind)]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[e.RunEvent]]:
    """A run over twenty periods: its store, and what it told."""
    store = f"file:{tmp_path_factory.mktemp('aware')}/store"
    heard = paced_run(store, "paced")
    found = [(row["number"], row["total"]) for row in MemorySink.rows("paced")]
    MemorySink.clear("paced")
    assert found == wanted()
    return store, heard


def test_epochs_come_at_minima_once_it_is_known_where_they_are(paced: tuple[str, list[e.RunEvent]]) -> None:
    decided = of(e.EpochDecided, paced[1])
    full = 3 * FULL
    assert [event.reason for event in decided[:3]] == ["profiling"] * 3
    assert max(event.size for event in decided[:3]) > full / 4
    known = decided[3:]
    assert len(known) >= 14
    # On a busy machine a turning point may be seen only when its period is over.
    assert [event.reason for event in known].count("end of period") <= len(known) // 4
    small = [event.size for event in known if event.reason == "foreseen increase"]
    assert max(small) < full / 4, "a few steps behind the minimum"
    assert all(event.size <= event.state_bytes for event in decided)


def test_no_period_has_two_epochs_and_none_is_without(paced: tuple[str, list[e.RunEvent]]) -> None:
    times = [event.at for event in of(e.EpochDecided, paced[1])]
    for number in range(1, 19):
        inside = [at for at in times if number * PERIOD_S < at - STEP_S <= (number + 1) * PERIOD_S]
        assert len(inside) <= 2, "a forced one at the end of the period before may be a step late"
    assert 18 <= len(times) <= 21, "twenty periods"
    assert len(of(e.EpochPublished, paced[1])) == len(times) + 1, "and the last one"


def test_the_threshold_is_told_and_found_again(paced: tuple[str, list[e.RunEvent]]) -> None:
    profiled = of(e.TimingProfiled, paced[1])
    assert len(profiled) == 2, "after three periods, and again after ten more"
    for event in profiled:
        assert event.dynamic == ("pool",)
        assert event.s_min * 1.2 <= event.s_max < event.average / 2


def test_the_event_log_has_the_curve_as_turning_points(paced: tuple[str, list[e.RunEvent]]) -> None:
    store, _ = paced
    logged = [decode(event.kind, event.data) for event in open_store(store).events()]
    curves = [event for event in logged if isinstance(event, e.StateSizes)]
    points = [tuple(point) for event in curves for point in event.curves["pool"]]
    assert len(points) == len(set(points)), "none twice"
    assert 2 * (ROWS // FULL) - 4 <= len(points) <= 2 * (ROWS // FULL) + 2 * len(curves), "not every sample"
    assert max(size for _, size in points) == pytest.approx(3 * FULL, rel=0.2)
    assert min(size for _, size in points) < 100
    # a decision lies on the curve's lower end
    assert len([event for event in logged if isinstance(event, e.EpochDecided)]) >= 18


def test_status_tells_sizes_threshold_and_the_last_decisions(
    paced: tuple[str, list[e.RunEvent]], capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_status(paced[0])
    timing = found["summary"]["regions"]["pools"]["timing"]
    assert timing["s_max"] > 0
    assert timing["dynamic"] == ["pool"]
    assert timing["alert"] in (True, False)
    assert [reason for reason, *_ in timing["decisions"]].count("foreseen increase") >= 4
    assert 2 <= len(timing["curve"]) <= 40
    show_store(found)
    said = capsys.readouterr().out
    assert "on the alert below" in said
    assert "foreseen increase" in said


def test_after_a_restart_profiling_begins_anew(tmp_path: Path) -> None:
    store = f"file:{tmp_path}/store"
    paced_run(store, "first", count=3000)
    heard = paced_run(store, "first", count=ROWS // 2)
    found = [(row["number"], row["total"]) for row in MemorySink.rows("first")]
    MemorySink.clear("first")
    assert found == wanted()[: ROWS // 2 // FULL]
    assert of(e.EpochDecided, heard)[0].reason == "profiling"


def test_an_epoch_that_somebody_asks_for_is_the_one_of_its_period(tmp_path: Path) -> None:
    def look(job: Job) -> None:
        assert job.savepoint("mine") == {"pools": 1}

    heard = paced_run(f"file:{tmp_path}/store", "asked", look, count=1000)
    MemorySink.clear("asked")
    first = of(e.EpochDecided, heard)
    assert not first or first[0].at > PERIOD_S + 1, "not in the first period"


# --- what is asked for its size ---


def test_the_size_of_keyed_state_is_that_of_its_segments(tmp_path: Path) -> None:
    topology = hf.Topology("sums")
    stream = topology.source(
        hf.Rows([(n % 50, n) for n in range(5000)], "k long, v long", rows_per_step=100), name="rows"
    )
    stream.consistent("r", trigger="aware", period=0.05).aggregate("k", total=hf.sum("v"), name="sums").sink(
        MemorySink("sums"), name="out"
    )
    job = submit_local(topology, f"file:{tmp_path}/store", "available")
    assert job.await_termination(60)
    MemorySink.clear("sums")
    (run,) = [r for loop in job.loops.values() for r in loop.worker.runs.values() if isinstance(r, KeyedRun)]
    pinned = run.pin(Epoch(99))
    assert run.state_size() == sum(s.bytes for partition in pinned.state.partitions for s in partition) > 1000
    timing = job.status()["regions"]["r"]["timing"]
    assert timing["state_bytes"] > 1000


class Says(Pool):
    """Knows its size, and is wrong sometimes."""

    asked = 0

    def state_size(self) -> Any:
        Says.asked += 1
        return 7 if Says.asked < 2 else "much"


def test_an_operator_that_says_nonsense_about_its_size_is_named(tmp_path: Path) -> None:
    topology = hf.Topology("says")
    stream = topology.source(hf.Rows(rows(4000), "v long", rows_per_step=5), name="rows")
    stream = stream.consistent("r", trigger="aware", period=0.05)
    stream.apply(Says, "number long, total long", name="says").sink(MemorySink("says"), name="out")
    with pytest.raises(StateError, match=r"state_size\(\) of Says returned 'much'") as caught:
        run_local(topology, f"file:{tmp_path}/store")
    MemorySink.clear("says")
    assert Says.asked >= 2
    assert "says" in str(caught.value)


def test_a_region_without_state_that_changes_has_periodic_epochs(tmp_path: Path) -> None:
    pace, heard = Pace(STEP_S), list[e.RunEvent]()
    topology = hf.Topology("plain")
    source = topology.source(PacedRows(pace, rows(3000), "v long", rows_per_step=20), name="rows")
    source.consistent("r", trigger="aware", period=2.0).sink(MemorySink("plain"), name="out")
    run_paced(topology, pace, f"file:{tmp_path}/store", subscribers=[heard.append])
    assert [row["v"] for row in MemorySink.rows("plain")] == list(range(3000))
    MemorySink.clear("plain")
    decided = of(e.EpochDecided, heard)
    assert {event.reason for event in decided} == {"profiling", "end of period"}
    assert {event.s_max for event in decided} == {None}
    assert [round(event.at / 2) for event in decided] == list(range(1, len(decided) + 1))


# --- failures ---


class Fails(Pool):
    """Breaks once, in the middle of a pool."""

    broken = False

    def process(self, row: Any, port: int) -> Any:
        if row.v == 7000 and not Fails.broken:
            Fails.broken = True
            raise ValueError("once")
        return super().process(row, port)


def test_after_a_reset_timing_goes_on_with_what_it_knows(tmp_path: Path) -> None:
    pace, heard = Pace(STEP_S), list[e.RunEvent]()
    topology = hf.Topology("fails")
    source = topology.source(PacedRows(pace, rows(), "v long", rows_per_step=STEP), name="rows")
    stream = source.consistent("r", trigger="aware", period=PERIOD_S)
    stream.apply(Fails, "number long, total long", name="pool").sink(MemorySink("fails"), name="out")
    run_paced(topology, pace, f"file:{tmp_path}/store", subscribers=[heard.append])
    found = [(row["number"], row["total"]) for row in MemorySink.rows("fails")]
    MemorySink.clear("fails")
    assert found == wanted()
    (again,) = [event for event in of(e.ResetBegun, heard) if event.consecutive]
    after = heard[heard.index(again) :]
    assert "profiling" not in {event.reason for event in of(e.EpochDecided, after)}
    assert [event.reason for event in of(e.EpochDecided, after)].count("foreseen increase") >= 4


class Poison(Pool):
    """Breaks at the same row, always."""

    def process(self, row: Any, port: int) -> Any:
        if row.v == 900:
            raise ValueError("poison")
        return super().process(row, port)


def test_a_region_that_is_parked_decides_nothing_any_more(tmp_path: Path) -> None:
    pace, heard = Pace(STEP_S), list[e.RunEvent]()
    topology = hf.Topology("poison")
    source = topology.source(PacedRows(pace, rows(2000), "v long", rows_per_step=STEP), name="rows")
    stream = source.consistent("r", trigger="aware", period=1.0)
    stream.apply(Poison, "number long, total long", name="pool").sink(MemorySink("poison"), name="out")
    given = {"clock": pace.clock, "rest_s": 0.001, "subscribers": [heard.append]}
    job = submit_local(topology, f"file:{tmp_path}/store", "available", **given)
    pace.attach(job)
    with pytest.raises(RegionParkedError):
        job.await_termination(60)
    decided = len(of(e.EpochDecided, heard))
    assert decided
    for _ in range(20):
        pace.clock.advance(1.0)
        time.sleep(0.01)
    assert len(of(e.EpochDecided, heard)) == decided
    job.close()
    MemorySink.clear("poison")


KILLS = {
    "async": ["step.end=kill@150", "ckpt.epoch.published=kill@2", "sink.commit.begin=kill@1"],
    "token": ["drain.op.ack=kill@5"],
    "drain": ["step.end=kill@150"],
}


@pytest.mark.sampled(keep=1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", KILLS)
def test_killed_again_and_again_it_loses_nothing(tmp_path: Path, mode: str) -> None:
    killed_and_finished(PROGRAM, tmp_path, KILLS[mode], mode)
    assert sorted((row["number"], row["total"]) for row in written(tmp_path, "out")) == wanted()


# --- what looking costs ---


class Slow(Remembering):
    """Takes a while to tell its size."""

    def __init__(self, clock: ManualClock, takes_s: float) -> None:
        self._clock, self._takes_s, self.asked = clock, takes_s, 0

    def state_size(self) -> int:
        self.asked += 1
        self._clock.advance(self._takes_s)
        return self.asked % 3

    def pin(self, epoch: Any) -> Any: ...

    def part_of(self, epoch: Any, pinned: Any) -> Any: ...

    def restore(self, epoch: Any, part: Any, store: Any) -> None: ...


@pytest.mark.parametrize(("takes_s", "least"), [(0.0, 450), (0.0001, 450), (0.01, 15), (1.0, 1)])
def test_looking_takes_two_per_cent_of_the_time_at_most(takes_s: float, least: int) -> None:
    clock, turns = ManualClock(), list[Turn]()
    slow = Slow(clock, takes_s)
    watch = SizeWatch([slow], clock, turns.append, measure=clock.monotonic)
    watch.anew()
    while clock.monotonic() < 10:
        clock.advance(0.001)
        watch.look()
    assert least <= slow.asked <= 501, "at most one look in 20 ms"
    assert watch.spent_s <= 0.02 * clock.monotonic() + takes_s + 1e-6
    assert len(turns) <= slow.asked


def test_a_look_between_steps_never_takes_the_place_of_the_one_behind_a_step() -> None:
    clock = ManualClock()
    state = Slow(clock, 0.0)
    watch = SizeWatch([state], clock, lambda turn: None, measure=clock.monotonic)
    watch.anew()
    clock.advance(1.0)
    watch.look_again()
    assert state.asked == 1, "nothing has happened since"
    watch.look()
    assert state.asked == 2
    clock.advance(0.001)
    watch.look()
    assert state.asked == 2, "too early"
    clock.advance(1.0)
    watch.look_again()
    assert state.asked == 3, "what was left out is made up for"
    watch = SizeWatch([state], clock, lambda turn: None, by_itself=True, measure=clock.monotonic)
    watch.anew()
    clock.advance(1.0)
    watch.look_again()
    assert state.asked == 5, "threads of an operator may have changed it"
