"""Work in a process of its own, for what may end the process it runs in."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.errors import StepFailed, WorkerDied

T = TypeVar("T")
_CHUNK = 1 << 16


def apart(work: Callable[[], T], limit_s: float | None = None) -> T:
    """What `work` gives or raises, done in a fork of this process. WorkerDied if the fork ends without an answer, or has none after
    `limit_s` seconds. Files that it wrote are there; whatever else it changed is not."""
    inlet, outlet = os.pipe()
    with warnings.catch_warnings():
        # Other threads of this process are not in the fork, which takes no lock that they may hold.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(inlet)
        _answer(work, outlet)
    os.close(outlet)
    try:
        data = _read(inlet, limit_s)
    finally:
        os.close(inlet)
    if data is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if data is None:
        raise WorkerDied.after(limit_s or 0.0)
    if os.WIFSIGNALED(status):
        raise WorkerDied(f"its process was ended by {signal.Signals(os.WTERMSIG(status)).name}")
    if status or not data:
        raise WorkerDied(f"its process ended with code {os.WEXITSTATUS(status)}")
    is_well, answer = pickle.loads(data)
    if not is_well:
        raise answer
    return answer  # type: ignore[no-any-return]


def _answer(work: Callable[[], Any], outlet: int) -> None:
    """Body of the fork."""
    code = 1
    try:
        try:
            answer: tuple[bool, Any] = (True, work())
        except Exception as error:
            answer = (False, error)
        try:
            data = pickle.dumps(answer)
        except Exception:
            data = pickle.dumps((False, StepFailed(f"{type(answer[1]).__name__}: {answer[1]}")))
        with os.fdopen(outlet, "wb") as file:
            file.write(data)
        code = 0
    finally:
        os._exit(code)


def _read(inlet: int, limit_s: float | None) -> bytes | None:
    """All that comes; None: not within the limit."""
    until = None if limit_s is None else time.monotonic() + limit_s
    found: list[bytes] = []
    ready = select.poll()  # select() knows no more than 1,024 descriptors
    ready.register(inlet, select.POLLIN)
    while True:
        left = None if until is None else max(0.0, until - time.monotonic())
        if not ready.poll(None if left is None else 1000 * left):
            return None
        piece = os.read(inlet, _CHUNK)
        if not piece:
            return b"".join(found)
        found.append(piece)
