"""The one process that may write a log: its lease, its partitions at work, and the upkeep in the background."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from holdfast import durable
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, OwnedError
from holdfast.failpoints import fp
from holdfast.log import upkeep
from holdfast.log.appender import Appender, Sizes
from holdfast.log.machines.retention import Decision, Keep
from holdfast.log.place import LogFacts
from holdfast.log.upkeep import Merged
from holdfast.store.files import lease

logger = logging.getLogger("holdfast.log")

MERGE_FROM_BYTES = 256 << 20
MERGE_FROM_SEGMENTS = 8
"""In the background, tails wait until so much of them is closed: merging writes every byte a second time."""
_NICE = 10


class Owner:
    """Made by the first append. Safe for several threads."""

    def __init__(
        self, facts: LogFacts, clock: Clock, sizes: Sizes, keep: Keep, upkeep_s: float | None, take_over: bool
    ) -> None:
        self.facts = facts
        self.keep = keep
        self.pid = os.getpid()
        """A fork has its memory, but not its threads and locks."""
        self._clock = clock
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self._lease = acquire(facts, take_over=take_over)
        self.appenders: list[Appender] = []
        self._at_work = threading.Lock()
        """Upkeep is done by one thread at a time."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            fp("log.owned")
            for partition in range(facts.partitions):
                self.appenders.append(
                    Appender(facts, partition, self._lease, clock, sizes, lock, self.changed)
                )
        except BaseException:
            self.close()
            raise
        if upkeep_s is not None:
            self._thread = threading.Thread(
                target=self._run, args=(upkeep_s,), name="holdfast-log-upkeep", daemon=True
            )
            self._thread.start()

    def compact(self, target: int = upkeep.MERGED_BYTES) -> Merged:
        with self._at_work:
            return sum((upkeep.compact(each, self._lease, target) for each in self.appenders), Merged())

    def retain(self, keep: Keep | None = None) -> list[Decision]:
        now = self._clock.wall()
        with self._at_work:
            return [
                upkeep.retain(each, keep or self.keep, round(now * 1e6), now, self._lease)
                for each in self.appenders
            ]

    def trim(self, positions: dict[int, int], because: str, force: bool) -> dict[int, int]:
        """Let go what lies before these positions; where rows begin now."""
        with self._at_work:
            return {
                partition: upkeep.trim(
                    self.appenders[partition], position, because, self._clock.wall(), self._lease, force=force
                )
                for partition, position in positions.items()
            }

    def look(self) -> list[Decision]:
        now = round(self._clock.wall() * 1e6)
        return [upkeep.look(each, self.keep, now) for each in self.appenders]

    def _run(self, every_s: float) -> None:
        try:  # a thread of its own has its own niceness on Linux
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        except OSError:
            pass
        while not self._stop.wait(every_s):
            try:
                self.look_after()
            except HoldfastError as error:
                logger.warning("upkeep of the log %s: %s", self.facts.root, error)
            except OSError as error:
                if not self._lease.is_fenced():
                    logger.warning("upkeep of the log %s: %s", self.facts.root, error)

    def look_after(self) -> None:
        """Let go what may go, then merge what is worth it."""
        decided = self.retain()
        with self._at_work:
            for each, found in zip(self.appenders, decided, strict=True):
                if upkeep.is_worth_merging(each, MERGE_FROM_BYTES, MERGE_FROM_SEGMENTS):
                    upkeep.compact(each, self._lease, unneeded=found.unneeded)

    def close(self) -> None:
        """In order: what was appended is written, and the next owner needs no proof of death."""
        if self.pid != os.getpid():
            return
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for each in self.appenders:
            each.close()
        try:
            self._lease.release()
        except (HoldfastError, OSError):
            self._lease.abandon()

    def abandon(self) -> None:
        """Let go as a dying process would. For tests."""
        self._stop.set()
        self._lease.abandon()


def acquire(facts: LogFacts, *, take_over: bool) -> lease.Lease:
    root = Path(facts.root)
    for name in (lease.OWNER, lease.TMP):  # whoever copies a log may leave empty directories behind
        durable.make_directory(root / name)
    try:
        return lease.acquire(root, facts.id, take_over=take_over)
    except OwnedError as error:
        info = lease.owner_info(root, facts.id) or {}
        raise OwnedError(
            f"the log {root} is being written by process {info.get('pid', '?')} on {info.get('host', '?')}.",
            cure="Close that one, or open the log with take_over=True: the other is then refused every further append.",
        ) from error
