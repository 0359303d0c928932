"""A Python worker is stopped in the middle of a task (SIGSTOP), somebody else does its work, and it goes on (SIGCONT): what it writes then is
late, and nobody looks there.

`make test` has the one whose driver is replaced; on a cluster, where its executor is, in `make chaos`.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from faults import DRIVER_KILLED, fired
from numbered_lives import Numbered

from holdfast.testing import processes

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def stopped(lives: Numbered) -> int:
    """The worker that stands still; 0: none yet."""
    try:
        pid = int((lives.here / "stopped").read_text() or 0)
    except FileNotFoundError:
        return 0
    worker = processes.look(pid) if pid else None
    return pid if worker is not None and worker.state == "T" else 0


def let_go_on(lives: Numbered, pid: int, tag: str) -> None:
    (lives.here / "go-on").touch()
    assert processes.send(pid, tag, signal.SIGCONT), "the stopped worker is gone: nothing comes late"
    fired("a worker stopped, replaced, and going on")


def gone(lives: Numbered, pid: int) -> bool:
    """It went on, to its end."""
    return (lives.here / "went-on").exists() and processes.look(pid) is None


@pytest.mark.fault("P06")
def test_a_worker_that_goes_on_after_its_driver_was_replaced_changes_nothing(tmp_path: Path) -> None:
    with Numbered(tmp_path, 500) as lives:
        first = lives.start("local[2]", STOPS="1", PACE_S="0.1")
        lives.until(first, lambda: stopped(lives), "a worker that stands still")
        pid, tag, before = stopped(lives), lives.tag, lives.epoch()
        first.kill()
        first.wait()
        fired(DRIVER_KILLED)
        assert processes.left_after(tag, 30, but=lambda each: each.pid == pid) == []
        following = lives.start("local[2]", PACE_S="0.2")
        lives.until_epoch(following, before)
        let_go_on(lives, pid, tag)
        lives.until(following, lambda: gone(lives, pid), "the end of the late worker")
        lives.finished(following)


@pytest.mark.chaos
@pytest.mark.fault("P06")
def test_a_worker_that_goes_on_after_its_executor_was_replaced_changes_nothing(tmp_path: Path) -> None:
    """The driver is the same, and its token: attempts tell the late writer from the one that took its place."""
    with Numbered(tmp_path, 900) as lives:
        driver = lives.start("local-cluster[2,1,1024]", STOPS="1", PACE_S="0.3")
        lives.until(driver, lambda: stopped(lives), "a worker that stands still")
        pid, before = stopped(lives), lives.epoch()
        worker = processes.look(pid)
        assert worker is not None
        daemon = processes.look(worker.parent)
        assert daemon is not None
        assert processes.send(daemon.parent, lives.tag), "its executor is gone"
        fired("executor killed")
        lives.until_epoch(driver, before)
        let_go_on(lives, pid, lives.tag)
        lives.until(driver, lambda: gone(lives, pid), "the end of the late worker")
        assert lives.finished(driver)["resets"] >= 1
