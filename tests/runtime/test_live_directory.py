"""Live directories: private, visible only with their lock held, swept when their run is dead, never while it starts."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast.runtime import live_directory
from holdfast.runtime.live_directory import BEING_MADE, LOCK, OLD_S, PREFIX, LiveDirectoryLock, sweep


@pytest.mark.fault("SR11", "SR18")
def test_it_is_private_and_goes_with_its_run(tmp_path: Path) -> None:
    lock = LiveDirectoryLock(str(tmp_path))
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o700
    assert sweep(str(tmp_path)) == 0
    lock.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("S15", "SR18")
def test_a_sweep_leaves_a_starting_run_alone_at_each_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others sweep in each call that makes the directory; before the lock came first, what they found there was removed."""
    swept: list[int] = []

    def watched(module: object, name: str) -> None:
        original = getattr(module, name)

        def call(*arguments: object, **options: object) -> object:
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=lambda: swept.append(sweep(str(tmp_path))))
                other.start()
                other.join()
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    monkeypatch.setattr(live_directory, "sweep", lambda place: 0)
    for module, name in ((os, "open"), (live_directory.fcntl, "flock"), (os, "rename")):
        watched(module, name)
    lock = LiveDirectoryLock(str(tmp_path))
    monkeypatch.undo()
    assert len(swept) >= 3
    assert sum(swept) == 0
    assert (lock.path / LOCK).exists()
    lock.release()


def test_what_killed_processes_leave_is_swept(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from holdfast.runtime.live_directory import LiveDirectoryLock as L;"
        "lock = L(sys.argv[1]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert died.returncode == -9
    (unfinished := tmp_path / f"{BEING_MADE}abc").mkdir()
    (young := tmp_path / f"{BEING_MADE}def").mkdir()
    past = time.time() - OLD_S - 10
    os.utime(unfinished, (past, past))
    assert sweep(str(tmp_path)) == 2
    assert list(tmp_path.iterdir()) == [young]


@pytest.mark.fault("SR07")
def test_a_link_in_the_place_of_one_leads_nowhere(tmp_path: Path) -> None:
    (victim := tmp_path / "victim").mkdir()
    (victim / LOCK).touch()
    (victim / "kept").touch()
    place = tmp_path / "place"
    place.mkdir()
    (place / f"{PREFIX}x").symlink_to(victim)
    sweep(str(place))
    assert (victim / "kept").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_those_of_other_users_are_left_alone(tmp_path: Path) -> None:
    (other := tmp_path / f"{PREFIX}x").mkdir()
    (other / LOCK).touch()
    os.chown(other, 12345, 12345)
    assert sweep(str(tmp_path)) == 0
    assert other.exists()
