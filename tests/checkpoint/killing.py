"""Kill a change to a store before each call by which it changes something on disk: the first, the second, …"""

from __future__ import annotations

import os
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

CALLS = ("write", "fsync", "rename", "replace", "link", "unlink", "mkdir", "rmdir")


def kill_at_every_call(
    original: Path | None, copies: Path, change: Callable[[Path], object]
) -> Iterator[tuple[Path, int]]:
    """For n = 1, 2, …: `change` runs in a child, on a copy of `original` (None: on a place where nothing is), and is
    killed before its n-th call. Yields the place and how the child ended, until one came to its end."""
    copies.mkdir()
    for number in count(1):
        place = copies / f"n{number}" / "store"
        place.parent.mkdir()
        if original is not None:
            shutil.copytree(original, place)
        code = _killed_at(number, lambda place=place: change(place))  # type: ignore[misc]
        assert code in (0, -signal.SIGKILL), f"call {number}: exit {code}"
        yield place, code
        shutil.rmtree(place.parent)
        if code == 0:
            assert number > 10, "nothing was killed"
            return


def _killed_at(number: int, change: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _arm(number)
            change()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _arm(number: int) -> None:
    left = [number]

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return called

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))
