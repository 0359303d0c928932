"""The plan of kills, the feeder's gate, and what the store tells."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.demo.feeder import Feeder
from holdfast.demo.generate import KINDS, Volume, write_input
from holdfast.demo.nemesis import plan_kills
from holdfast.demo.topology import CLICKS
from holdfast.demo.watch import Watch
from holdfast.store.base import Event
from holdfast.store.urls import open_store
from holdfast.testing import processes


def test_a_plan_depends_on_its_seed_and_alternates() -> None:
    plan = plan_kills(7, 5, 80)
    assert plan == plan_kills(7, 5, 80) != plan_kills(8, 5, 80)
    assert [kill.kind for kill in plan] == ["worker", "driver", "worker", "driver", "worker"]
    assert [kill.tick for kill in plan] == sorted({kill.tick for kill in plan})
    assert plan[-1].tick < 70
    assert plan_kills(7, 0, 80) == ()


def test_files_arrive_whole_and_not_beyond_what_is_allowed(tmp_path: Path) -> None:
    write_input(tmp_path / "pool", 1, Volume(ticks=4, orders_per_tick=5, clicks_per_tick=5))
    feeder = Feeder(tmp_path / "pool", tmp_path / "in", ticks=4, pause_s=0.01)
    feeder.allow(2)
    feeder.start()
    time.sleep(0.3)
    assert feeder.released == 2
    assert feeder.ended_at is None
    feeder.allow(99)
    feeder.join(5)
    assert feeder.ended_at is not None
    for kind in KINDS:
        arrived = {path.name: path.read_bytes() for path in (tmp_path / "in" / kind).iterdir()}
        assert arrived == {path.name: path.read_bytes() for path in (tmp_path / "pool" / kind).iterdir()}


def test_a_stopped_feeder_ends(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path / "pool", tmp_path / "in", ticks=4, pause_s=0.01)
    feeder.start()
    feeder.stop()
    feeder.join(5)
    assert not feeder.is_alive()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_only_processes_with_the_tag_are_found_and_killed() -> None:
    tag = processes.new_tag("demo")
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(command, env={**os.environ, processes.TAG: tag})
    other = subprocess.Popen(command, env={**os.environ, processes.TAG: tag + "x"})
    try:
        while not processes.carries(ours.pid, tag):
            time.sleep(0.01)
        assert [process.pid for process in processes.members(tag)] == [ours.pid]
        assert not processes.send(other.pid, tag)
        assert processes.kill_all(tag) == []
        assert ours.wait(5) == -9
        assert other.poll() is None
        assert not processes.send(ours.pid, tag)
    finally:
        other.kill()
        other.wait()


def summary(rows: int, steps: int, waiting: str = "step", lost: int = 0) -> tuple[str, dict[str, object]]:
    element = {"rows": rows, "rows_per_s": 1, "steps": steps, "waiting": waiting, "lost_rows": lost}
    return "summary", {"elements": {CLICKS: element}, "regions": {}}


def test_the_story_of_two_drivers_is_one_story(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"
    watch = Watch(url)
    watch.poll()
    assert (watch.rows, watch.epoch, watch.age_s) == (0, 0, None)
    store = open_store(url)
    store.open("shop")
    store.acquire()
    first = [("run.started", {}), ("reset.begin", {}), ("epoch.published", {"epoch": 1}), summary(10, 1)]
    store.append_events([*first, ("reset.begin", {}), summary(15, 2)])
    watch.poll()
    assert (watch.rows, watch.epoch, len(watch.resets), watch.restores) == (15, 1, 1, 0)
    store.append_events([("run.started", {}), ("reset.begin", {}), summary(7, 1, lost=3)])
    watch.poll()
    assert (watch.rows, len(watch.resets), watch.restores, watch.lost_rows) == (22, 1, 1, 3)
    assert watch.age_s is not None
    store.release()


def test_a_run_is_settled_after_several_summaries_without_a_step() -> None:
    watch = Watch("memory:none")
    for number in range(4):
        assert not watch.settled_since(0.0)
        kind, data = summary(5, 1, waiting="input")
        watch._take(Event(number, 10.0 + number, kind, data))
    assert watch.settled_since(0.0)
    assert not watch.settled_since(12.0)
    watch._take(Event(9, 20.0, *summary(6, 2, waiting="input")))
    assert not watch.settled_since(0.0)
