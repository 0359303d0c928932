"""Live directories: one per run, removed at its end, swept away after its death."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime.live_directory import LiveDirectoryLock, sweep

DIES = "from holdfast.runtime.live_directory import LiveDirectoryLock; import os, signal, sys; "
DIES += "LiveDirectoryLock(sys.argv[1]); os.kill(os.getpid(), signal.SIGKILL)"


def test_a_live_directory_goes_with_its_run(tmp_path: Path) -> None:
    live = LiveDirectoryLock(str(tmp_path))
    (live.path / "segment").write_text("x")
    live.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("O07")
def test_the_directory_of_a_killed_run_is_swept_by_the_next_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    live = LiveDirectoryLock(str(tmp_path))
    assert list(tmp_path.iterdir()) == [live.path]
    live.release()


def test_the_directory_of_a_live_run_is_left_alone(tmp_path: Path) -> None:
    live = LiveDirectoryLock(str(tmp_path))
    assert sweep(str(tmp_path)) == 0
    assert live.path.is_dir()
    live.release()
