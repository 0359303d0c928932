"""Power cuts: what a process writes lies on a file system of its own, in an image file that is copied while the process stands still.
What was not made durable is in the page cache only, and so not in the copy: mounted, it is the disk that a machine finds after its power
was cut at that moment.

All happens in mount namespaces of child processes, so nobody else sees these mounts, and they end with the processes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
from small_disk import enter_namespace

SIZE = "24M"
HUNG_S = 120.0


def make_image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(int(SIZE[:-1]) << 20)
    command = ["mkfs.ext4", "-q", "-F", "-O", "^metadata_csum_seed", "-m", "0", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def mount(image: Path, where: Path) -> None:
    """Nothing reaches the image by itself for a long time: neither the journal nor dirty pages."""
    where.mkdir(parents=True, exist_ok=True)
    options = "loop,commit=600,data=ordered,noatime"
    subprocess.run(["mount", "-o", options, str(image), str(where)], check=True, capture_output=True)


def skip_without_images(scratch: Path) -> None:
    """Says why, where images of file systems cannot be mounted."""
    if os.getuid() != 0:
        pytest.skip("needs root, to mount images of file systems")
    if forked.finish(forked.start(_try_mount, scratch / "tried", scratch / "here"), 30):
        pytest.skip("needs mkfs.ext4, loop devices and private mount namespaces")


def _try_mount(image: Path, where: Path) -> None:
    enter_namespace()
    mount(make_image(image), where)
    os._exit(0)


class Watch:
    """Takes the place of the failpoints' log: stands still at the chosen hits, after telling where, and what `facts` says."""

    def __init__(self, wanted: set[str], told: Path, facts: Callable[[str], Any]) -> None:
        self._wanted, self._told, self._facts = wanted, told, facts
        self._hits: Counter[str] = Counter()
        self._one = threading.Lock()
        """Threads hit failpoints at the same moment: each of them gets its picture."""

    def __call__(self, line: str) -> None:
        name = line.split()[0]
        with self._one:
            facts = self._facts(name)
            self._hits[name] += 1
            if f"{name}@{self._hits[name]}" not in self._wanted:
                return
            self._told.write_text(json.dumps([f"{name}@{self._hits[name]}", facts]))
            os.kill(os.getpid(), signal.SIGSTOP)
            while self._told.exists():
                time.sleep(0.001)


def pictures(life: Callable[[], None], image: Path, told: Path, outside: Path) -> list[tuple[Path, str, Any]]:
    """Copies of the image, each with where a child stood still (`Watch`) and its facts. It goes on behind each."""
    pid = fork(life)
    found: list[tuple[Path, str, Any]] = []
    deadline = time.monotonic() + HUNG_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
        if not done:
            time.sleep(0.001)
        elif os.WIFSTOPPED(status):
            at, facts = json.loads(told.read_text())
            told.unlink()
            copy = outside / f"cut-{len(found)}"
            shutil.copyfile(image, copy)
            found.append((copy, at, facts))
            os.kill(pid, signal.SIGCONT)
        else:
            return found
    _end(pid)
    raise AssertionError("the run did not come to an end")


def came_to_its_end(life: Callable[[], None]) -> bool:
    """Of a child; False: it hung."""
    pid = fork(life)
    deadline = time.monotonic() + HUNG_S
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            _end(pid)
            return False
        time.sleep(0.002)
    return True


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(98)
    return pid
