"""Replays: a stretch of a log through a topology, into files; twice the same, also under kills; the real run is not touched."""

from __future__ import annotations

import os
import random
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import replay_program
from killed import killed_and_finished, written
from replay_program import BEGIN, ROWS, make_log, replay

import holdfast as hf
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError
from holdfast.failpoints import arm, disarm
from holdfast.runtime.engines.local import LocalEngine
from holdfast.sources.logs.replay_source import TICK_S, ReplayRange, ReplaySource
from holdfast.sources.logs.ticks import Ticks
from holdfast.testing import MemorySink, Rows

SINKS = ("changes", "each", "sink_1")


def rows_of(place: Path) -> dict[str, list[Any]]:
    return {name: sorted(tuple(row.values()) for row in written(place, name)) for name in SINKS}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[Any]]]:
    here = tmp_path_factory.mktemp("golden")
    make_log(here / "log")
    done = replay(here)
    assert done.is_whole
    assert set(done.sinks) == set(SINKS)
    return here, rows_of(here / "into")


def test_a_replay_gives_what_the_topology_makes_of_the_rows(
    golden: tuple[Path, dict[str, list[Any]]],
) -> None:
    _, found = golden
    assert found["sink_1"] == [(2 * n, n + 1) for n in range(ROWS)]
    assert found["each"] == sorted((f"k{n % 5}", n // 5 + 1) for n in range(ROWS))
    last = {k: (times, total) for k, times, total in found["changes"]}
    assert last == {f"k{k}": (120, sum(range(k, ROWS, 5))) for k in range(5)}


def test_twice_is_the_same(golden: tuple[Path, dict[str, list[Any]]]) -> None:
    here, found = golden
    done = replay(here, "again")
    assert rows_of(here / "again") == found
    assert not (here / "again" / ".replay" / "store").exists(), "what was needed to go on is gone"
    assert done.seconds > 0
    once_more = replay(here, "again")
    assert (once_more.seconds, once_more.sinks) == (0.0, done.sinks)
    assert rows_of(here / "again") == found


KILLS = {
    "beginning": ["replay.begun=kill@1", "ckpt.epoch.published=kill@1"],
    "stepping": ["step.end=kill@5", "sink.commit.begin=kill@1", "step.begin=kill@9"],
    "ending": ["sink.commit.applied=kill@1", "replay.done=kill@1", "replay.whole=kill@1"],
}


@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS)
@pytest.mark.sampled(keep=1)
def test_killed_and_gone_on_with_it_is_the_same(
    golden: tuple[Path, dict[str, list[Any]]], tmp_path: Path, kills: list[str]
) -> None:
    make_log(tmp_path / "log")
    killed_and_finished(Path(replay_program.__file__), tmp_path, kills)
    assert rows_of(tmp_path / "into") == golden[1]


def test_a_replay_goes_on_with_its_own_end_though_rows_have_come(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 100)
    arm("step.end=raise@2+")
    with pytest.raises(hf.HoldfastError):
        replay(tmp_path)
    assert all(disarm().values())
    with hf.Log(tmp_path / "log") as log:
        log.append([replay_program.row(1000)])
    assert replay(tmp_path).is_whole
    assert [n for n, _ in rows_of(tmp_path / "into")["sink_1"]] == [2 * n for n in range(100)]


def test_a_stretch_of_it(golden: tuple[Path, dict[str, list[Any]]]) -> None:
    here, _ = golden
    times = {"start": BEGIN + timedelta(seconds=1), "end": BEGIN + timedelta(seconds=3)}
    replay(here, "times", **times)
    assert [n // 2 for n, _ in rows_of(here / "times")["sink_1"]] == list(range(100, 300))
    first = hf.Log(here / "log").reader(times["start"]).position[0]
    replay(here, "positions", start=first, end=first + 50)
    assert [n // 2 for n, _ in rows_of(here / "positions")["sink_1"]][:1] == [100]


def test_other_arguments_are_refused_and_other_directories_left_alone(
    golden: tuple[Path, dict[str, list[Any]]], tmp_path: Path
) -> None:
    here, _ = golden
    with pytest.raises(ConfigError, match=r"has a replay with end=\d+, not 10"):
        replay(here, end=10)
    with pytest.raises(ConfigError, match=r"speed=None, not 2\.0"):
        replay(here, speed=2.0)
    make_log(tmp_path / "log", 50)
    (tmp_path / "into").mkdir()
    (tmp_path / "into" / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="no replay"):
        replay(tmp_path)
    for wrong in (
        {"speed": 0.0},
        {"speed": -1.0},
        {"start": 40, "end": 10},
        {"start": 10**6},
        {"source": "other"},
    ):
        with pytest.raises(ConfigError):
            replay(tmp_path, "other", **wrong)
        assert not (tmp_path / "other").exists()


def test_sources_that_are_not_replayed(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 20)

    def two(other: hf.Source) -> hf.Topology:
        made = hf.Topology("two")
        made.source(replay_program.Live(), name="orders").sink(MemorySink("never"), name="a")
        made.source(other, name="other").sink(MemorySink("never"), name="b")
        return made

    def run(other: hf.Source, into: str, source: str | None) -> None:
        place = tmp_path / into
        hf.replay(
            two(other), tmp_path / "log", into=place, source=source, format="parquet", engine=LocalEngine(2)
        )

    with pytest.raises(ConfigError, match="several sources") as told:
        run(Rows([(1,)], "n long"), "one", None)
    assert "orders, other" in str(told.value.cure)
    with pytest.raises(ConfigError, match="takes in rows by itself"):
        run(hf.TcpLines(0), "one", "orders")
    with pytest.raises(ConfigError, match="rows of the real run"):
        run(hf.Preserved(hf.TcpLines(0), tmp_path / "lines"), "one", "orders")
    run(Rows([(1,), (2,)], "n long"), "one", "orders")
    assert len(written(tmp_path / "one", "a")) == 20
    assert sorted(row["n"] for row in written(tmp_path / "one", "b")) == [1, 2]
    assert MemorySink.rows("never") == []


def test_logs_of_the_real_run_are_not_written(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 60)
    made = hf.Topology("logs")
    kept = made.source(replay_program.Live(), name="orders").consistent("in")
    kept = kept.persist("kept", path=tmp_path / "real-kept")
    windows = kept.aggregate("k", window=hf.tumbling(rows=5), times=hf.count(), name="windows")
    windows.checkpoint(form=hf.eventual(every=1)).sink(hf.LogSink(tmp_path / "real-windows"), name="out")
    hf.replay(made, tmp_path / "log", into=tmp_path / "into", format="parquet", engine=LocalEngine(2))
    assert len(written(tmp_path / "into", "out")) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["into", "log"]


def test_progress_is_told(golden: tuple[Path, dict[str, list[Any]]]) -> None:
    here, _ = golden
    told: list[hf.ReplayProgress] = []
    replay(here, "told", on_progress=told.append)
    assert told[-1].at <= told[-1].end
    assert told[-1].at > told[-1].end - 7


# --- at a speed ---


def pieces_of(source: ReplaySource, clock: ManualClock) -> list[tuple[float, int, int]]:
    """(when, first, behind) of all slices."""
    found = []
    while True:
        piece = source.next_slice()
        if piece is not None:
            found.append((round(clock.monotonic(), 3), piece.start, piece.end))
        elif source.awaits_more():
            clock.advance(0.01)
        else:
            return found


def paced(path: Path, speed: float, clock: ManualClock, rows_per_step: int = 1000) -> ReplaySource:
    end = hf.Log(path).bounds().end
    made = ReplaySource(
        ReplayRange(str(path), 0, 0, end),
        Rows([], "n long"),
        speed=speed,
        rows_per_step=rows_per_step,
        clock=clock,
    )
    made.seek(None)
    return made


@pytest.mark.parametrize("speed", [0.5, 1.0, 4.0])
def test_at_a_speed_rows_come_when_they_came(tmp_path: Path, speed: float) -> None:
    make_log(tmp_path / "log", 200)  # two seconds
    clock = ManualClock()
    begin, source = clock.monotonic(), paced(tmp_path / "log", speed, clock)
    rows = 0
    for when, start, end in pieces_of(source, clock):
        got = source.read_arrow(hf.Slice(start, end), None).column("n").to_pylist()
        assert got == list(range(rows, rows + len(got)))
        rows += len(got)
        assert abs(when - begin - 0.01 * rows / speed) <= TICK_S + 0.02
    assert rows == 200
    assert source.is_at_end


@pytest.mark.parametrize("rows_per_step", [1000, 7])
def test_steps_are_cut_alike_wherever_it_goes_on(tmp_path: Path, rows_per_step: int) -> None:
    with hf.Log(tmp_path / "log", schema=replay_program.SCHEMA, time="at") as log:
        dice = random.Random(1)
        for first in range(0, 300, 10):
            made = [replay_program.row(n) for n in range(first, first + 10)]
            for each in made:  # late ones, jumps, and rows without a time
                each["at"] += timedelta(milliseconds=dice.choice([0, 0, -200, 300]))
                each["at"] = None if dice.random() < 0.1 else each["at"]
            log.append(made)
    clock = ManualClock()
    whole = [piece[1:] for piece in pieces_of(paced(tmp_path / "log", 2.0, clock, rows_per_step), clock)]
    assert len(whole) > 5
    assert [whole[0][0], whole[-1][1]] == [0, 300]
    source, states = paced(tmp_path / "log", 2.0, clock, rows_per_step), []
    while len(states) < len(whole):
        states.append(source.snapshot())
        while source.next_slice() is None:
            assert source.snapshot() == states[-1], "what is only planned is not behind it"
            clock.advance(0.01)
    for number, state in enumerate(states):
        source.seek(state)
        assert [piece[1:] for piece in pieces_of(source, clock)] == whole[number:]


def test_ticks_do_not_depend_on_how_rows_come() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        times = [dice.choice([None, *range(0, 50, 3)]) for _ in range(30)]

        def cut(sizes: int, times: list[Any] = times, dice: random.Random = dice) -> list[int]:
            ticks, found, at, tick = Ticks(10), [], 0, None
            while at < len(times):
                part = pa.array(times[at : at + dice.randint(1, sizes)], pa.int64()).cast(
                    pa.timestamp("us", "UTC")
                )
                done = ticks.cut(part, tick)
                tick = done.tick if done.rows else None
                if not done.rows:
                    continue
                found += [done.tick] * done.rows
                at += done.rows
                if done.rows < len(part):
                    tick = None
            return found

        assert cut(30) == cut(4) == cut(1), f"seed {seed}"


def test_a_replay_at_a_speed_is_the_same(golden: tuple[Path, dict[str, list[Any]]]) -> None:
    here, _ = golden
    replay(here, "fast", speed=20.0)
    replay(here, "faster", speed=20.0)
    assert rows_of(here / "fast") == rows_of(here / "faster")
    assert len(rows_of(here / "fast")["each"]) == ROWS


def test_a_replay_that_is_stopped_goes_on(golden: tuple[Path, dict[str, list[Any]]]) -> None:
    here, _ = golden

    def interrupt(now: hf.ReplayProgress) -> None:
        if not told and now.at > now.start:
            told.append(now)
            os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C

    told: list[hf.ReplayProgress] = []
    done = replay(here, "stopped", speed=5.0, on_progress=interrupt)
    assert told
    assert not done.is_whole
    assert done.start < done.at < done.end
    assert replay(here, "stopped", speed=5.0).is_whole
    assert [n // 2 for n, _ in rows_of(here / "stopped")["sink_1"]] == list(range(ROWS))
