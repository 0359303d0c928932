"""`holdfast top` in a real terminal of 80 and of 160 columns, over a run in another process: it follows, and says so when the run is killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import fired

PROGRAM = Path(__file__).parents[1] / "dashboard" / "page_program.py"
HOLDFAST = [sys.executable, "-c", "from holdfast.cli.main import run; run()"]
LINES = 48

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


class Terminal:
    """One of tmux, on a server of its own."""

    def __init__(self, here: Path, width: int, command: list[str]) -> None:
        program = shutil.which("tmux")
        assert program is not None, "tmux is missing: apt-get install tmux"
        self._tmux = [program, "-S", str(here / f"tmux-{width}"), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", str(width), "-y", str(LINES), *command)

    def _run(self, *arguments: str) -> str:
        # A copy: readline, which pytest imports, gives processes that inherit ours a size of its own.
        around = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, check=True, env=around
        )
        return done.stdout

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    def await_text(self, *wanted: str) -> str:
        deadline = time.monotonic() + 90
        # Without blanks: long paths and sentences are folded anywhere.
        while not all("".join(text.split()) in "".join((seen := self.screen()).split()) for text in wanted):
            assert time.monotonic() < deadline, f"never {wanted!r}:\n{seen}"
            time.sleep(0.2)
        return seen

    def interrupt(self) -> None:
        """Ctrl-C; the session ends with its command."""
        self._run("send-keys", "C-c")
        deadline = time.monotonic() + 30
        while subprocess.run([*self._tmux, "has-session"], capture_output=True).returncode == 0:
            assert time.monotonic() < deadline, "Ctrl-C does not end it"
            time.sleep(0.1)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[dict[int, Terminal]]:
    """By width."""
    command = [*HOLDFAST, "top", f"file:{tmp_path}/store", "--seconds", "0.3"]
    made = {width: Terminal(tmp_path, width, command) for width in (80, 160)}
    yield made
    for terminal in made.values():
        terminal.close()


def test_top_follows_a_run_in_another_process(tmp_path: Path, terminals: dict[int, Terminal]) -> None:
    for terminal in terminals.values():
        terminal.await_text("no run yet")
    run = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path)], stderr=subprocess.DEVNULL)
    try:
        for width, terminal in terminals.items():
            seen = terminal.await_text("running", "heart", "rows", "counts")
            assert max(map(len, seen.splitlines())) <= width
            assert "Traceback" not in seen
            heads = [line.split() for line in seen.splitlines()]
            assert ["region", "mode", "phase", "epoch", "age", "took", "slow", "restore", "resets"] in heads
        before = terminals[160].screen()
        deadline = time.monotonic() + 30
        while terminals[160].screen() == before:
            assert time.monotonic() < deadline, "it stands still"
            time.sleep(0.2)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        fired("driver killed")
        for width, terminal in terminals.items():
            (tmp_path / f"top-{width}.txt").write_text(terminal.await_text("killed"))
            terminal.interrupt()
    finally:
        run.kill()
        run.wait()
