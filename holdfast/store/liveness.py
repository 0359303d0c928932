"""Does an owner live? For stores that have no lock of the operating system: is its process still running, and the thread
that shows signs of life for it.

A process id alone proves nothing: ids are reused, and other machines and containers have their own. Here a process is
the machine's boot, the id space it was counted in, its number and the moment it started. Only if boot and id space are
this process's own can its end be proven; otherwise nobody but the lease can tell.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.store import locks

logger = logging.getLogger("holdfast")

_BEATS_PER_LEASE = 4
_PRIVATE = ("boot", "space", "started", "nonce")
_ENDED = frozenset("ZXx")


def this_process() -> dict[str, Any]:
    """What an owner record says about the process that writes it."""
    return {**locks.who_am_i(), "boot": _boot(), "space": _id_space(), "started": _started(os.getpid())}


def has_ended(record: Mapping[str, Any]) -> bool:
    """True if the process is provably gone. False: it runs, or nobody here can know."""
    return _is_known(record) and not _runs(record)


def runs_here(record: Mapping[str, Any]) -> bool:
    """True if the process is provably running, in this process's own id space."""
    return _is_known(record) and _runs(record)


def for_people(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record without what only programs compare."""
    return {name: value for name, value in record.items() if name not in _PRIVATE}


def _is_known(record: Mapping[str, Any]) -> bool:
    """Whether the process was counted in this process's own id space."""
    return bool(record.get("boot")) and (record["boot"], record.get("space")) == (_boot(), _id_space())


def _runs(record: Mapping[str, Any]) -> bool:
    return _started(int(record.get("pid", 0))) == record.get("started")


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _id_space() -> str:
    """Containers of one machine share its boot, but not its process ids."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> int | None:
    """When a process started, in ticks since boot. None: there is no such process, or it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name is in parentheses and may hold anything, parentheses too.
    state, *fields = text.rpartition(")")[2].split()
    return None if state in _ENDED else int(fields[18])


class Heart:
    """Beats several times per lease until it is stopped. A beat that fails is logged; the next one comes soon. It refers to
    nothing but what it is given: an owner object that nobody refers to any more can go, and stops it."""

    def __init__(self, lease_s: float, beat: Callable[[float], None], end: Callable[[], None]) -> None:
        """`beat` shows a sign of life for a lease of so many seconds; `end` takes it away."""
        self._lease_s = lease_s
        self._beat = beat
        self._end = end
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No further beats. The lease ends by itself."""
        self._stopped.set()
        self._woken.set()

    def keep(self, lease_s: float) -> None:
        """From now on leases are so long; if they were not, the next beat comes at once, and says so."""
        if lease_s != self._lease_s:
            self._lease_s = lease_s
            self._woken.set()

    def let_go(self) -> None:
        """Stop, and let the lease end now if the store can be reached."""
        self.stop()
        # A beat under way could show the sign again after it was taken away.
        self._thread.join(self._lease_s)
        try:
            self._end()
        except HoldfastError as error:
            logger.info("the lease ends by itself: %s", error.message)

    def _run(self) -> None:
        while True:
            self._woken.wait(self._lease_s / _BEATS_PER_LEASE)
            self._woken.clear()
            if self._stopped.is_set():
                return
            try:
                self._beat(self._lease_s)
            except HoldfastError as error:
                logger.warning("the lease could not be renewed: %s", error.message)
