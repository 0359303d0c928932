"""Child processes of the crash campaigns: they cost a fork, not an import, and a hang is a failure."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HUNG_S = 60.0
PRELOADED = ["mutants.planting", "campaign", "holdfast.testing.sink_conformance", "pyarrow.parquet", "pandas"]
"""What children find imported; the first one only if tests of the runtime are in this run."""

_context: Any = None


def forkserver() -> Any:
    """The context that starts children."""
    global _context
    if _context is None:
        _context = multiprocessing.get_context("forkserver")
        _context.set_forkserver_preload(PRELOADED)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        try:
            from multiprocessing import forkserver as server

            server.ensure_running()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
    return _context


_children = threading.Lock()
"""multiprocessing polls all children from whichever thread starts one, and two polls at once lose the exit code."""


def start(body: Callable[..., None], *arguments: Any) -> Any:
    """A child that runs `body`."""
    with _children:
        process = forkserver().Process(target=body, args=arguments)
        process.start()
    return process


def finish(process: Any, timeout: float = HUNG_S) -> int:
    """Wait for a child; its exit code, negative if a signal ended it."""
    patience = time.monotonic() + timeout
    while (code := _exit_code(process)) is None:
        if time.monotonic() > patience:
            stacks = _stacks(process.pid)
            process.kill()
            raise AssertionError(f"the driver hung for {timeout} s\n{stacks}")
        time.sleep(0.005)
    return int(code)


def _exit_code(process: Any) -> int | None:
    with _children:
        code: int | None = process.exitcode
    return code


def _stacks(pid: int) -> str:
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        return ""
    done = subprocess.run([str(spy), "dump", "--pid", str(pid)], capture_output=True, text=True, timeout=30)
    return done.stdout + done.stderr
