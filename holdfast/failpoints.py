"""Named places where a test may make the program fail.

A failpoint costs one dictionary look-up when none is armed. They are armed by `arm()` in the same process or by
the environment variable HOLDFAST_FP, which reaches Spark's workers too:

    HOLDFAST_FP="ckpt.manifest.renamed=kill@2;sink.commit.begin=raise"

Actions: kill (SIGKILL to self), exit, raise, sleep:SECONDS, late:SECONDS (goes on when another thread next stores an
element's part of an epoch, or so long after), stop (SIGSTOP to self), eio, enospc, drop (the caller sees True and leaves
its work undone, where it asks), log (count only).
`@n` fires at the n-th hit (default 1), `@n+` at every hit from the n-th on.

With HOLDFAST_FP_LOG set to a path, every hit of any failpoint appends a line "name pid"; every firing a line
"!name action pid". Tests use it to prove that a fault really fired.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from dataclasses import dataclass

ENV = "HOLDFAST_FP"
ENV_LOG = "HOLDFAST_FP_LOG"

NAMES: tuple[str, ...] = (
    "lease.acquire", "lease.acquired",
    "drain.begin", "drain.op.flush", "drain.op.ack", "drain.all_acked",
    "step.begin", "step.end", "entered.record", "entered.recorded", "poison.try",
    "ckpt.op.serialize", "ckpt.op.put", "ckpt.op.put_done",
    "ckpt.manifest.tmp_written", "ckpt.manifest.fsynced", "ckpt.manifest.renamed", "ckpt.dir.fsynced",
    "ckpt.epoch.published",
    "sink.write", "sink.prepare", "sink.prepared",
    "sink.commit.begin", "sink.commit.applied", "sink.commit.recorded",
    "roll.close.begin", "roll.close.noted", "roll.close.shown",
    "compact.merged", "compact.noted", "compact.hidden", "compact.shown",
    "gc.list", "gc.select", "gc.pieces", "gc.delete",
    "savepoint.name", "founding.begun", "founding.copied",
    "reset.begin", "reset.choose_epoch", "reset.op.load", "reset.op.loaded", "reset.source.seek",
    "reset.sink.rollback", "reset.resume",
    "log.owned", "log.recovered", "log.tail.made", "log.write", "log.written", "log.synced", "log.acknowledged",
    "log.merge.written", "log.merge.shown", "log.merge.removed", "log.trim.marked", "log.trim.removed",
    "log.consumer.written", "log.index.written", "log.preserved", "log.notes.written", "log.notes.shown", "log.format.raised", "persist.appended",
    "persist.held", "persist.to_log", "persist.in_log", "persist.taken", "persist.released",
    "replay.begun", "replay.done", "replay.whole",
    "eventual.note", "eventual.noted", "eventual.scanned", "eventual.replayed", "eventual.pinned",
)  # fmt: skip
"""Every failpoint of the product. `fp()` refuses other names, so that a test cannot wait for a typo."""

MAY_DROP = ("gc.delete", "ckpt.op.put")
"""Whose caller asks whether to leave its work undone."""

ACTIONS = ("kill", "exit", "raise", "sleep", "late", "stop", "eio", "enospc", "drop", "log")

_PART = re.compile(
    r"(?P<name>[a-z_.]+)="
    rf"(?P<action>{'|'.join(ACTIONS)})(?::(?P<argument>\d+(?:\.\d+)?))?"
    r"(?:@(?P<at>[1-9]\d*)(?P<onwards>\+)?)?"
)


class FaultInjected(Exception):
    """What the action `raise` raises. Never caught by name in the product: it must look like any bug."""


@dataclass
class _Armed:
    action: str
    argument: str
    at: int
    onwards: bool
    hits: int = 0
    fired: int = 0


_armed: dict[str, _Armed] | None = None
_known = frozenset(NAMES)
_lock = threading.Lock()
_PART_BEGINS = "ckpt.op.serialize"
_parts_begun = 0
_next_part = threading.Condition()
"""What `late` waits for."""


def parse(text: str) -> dict[str, _Armed]:
    """Read the HOLDFAST_FP syntax. Raises ValueError naming the part that is wrong."""
    result: dict[str, _Armed] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        found = _PART.fullmatch(part)
        if not found or found["name"] not in _known or found["name"] in result:
            raise ValueError(f"{part!r} is not NAME=ACTION[:ARG][@N[+]] with a known name (once) and action")
        onwards = found["onwards"] == "+"
        result[found["name"]] = _Armed(
            found["action"], found["argument"] or "", int(found["at"] or 1), onwards
        )
    return result


def arm(text: str) -> None:
    """Arm failpoints in this process, replacing what was armed."""
    global _armed
    with _lock:
        _armed = parse(text)


def disarm() -> dict[str, int]:
    """Disarm everything; return how often each armed failpoint fired."""
    global _armed
    with _lock:
        fired = {name: armed.fired for name, armed in (_armed or {}).items()}
        _armed = {}
        return fired


def fired() -> dict[str, int]:
    """How often each armed failpoint fired so far, in this process."""
    with _lock:
        return {name: armed.fired for name, armed in (_armed or {}).items()}


def fp(name: str) -> bool:
    """A named step is reached. Returns True if the caller must leave the step's work undone (action `drop`)."""
    global _armed
    if name not in _known:
        raise ValueError(f"{name!r} is not a known failpoint")
    if _armed is None:
        with _lock:
            if _armed is None:
                _armed = parse(os.environ.get(ENV, ""))
    if ENV_LOG in os.environ:
        _log(f"{name} {os.getpid()}\n")
    if not _armed:
        return False
    return _hit(name)


def _hit(name: str) -> bool:
    if name == _PART_BEGINS:
        _tell_the_late()
    with _lock:
        armed = (_armed or {}).get(name)
        if armed is None:
            return False
        armed.hits += 1
        if armed.hits != armed.at and not (armed.onwards and armed.hits > armed.at):
            return False
        armed.fired += 1
    _log(f"!{name} {armed.action} {os.getpid()}\n")
    return _act(name, armed)


def _act(name: str, armed: _Armed) -> bool:
    match armed.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # the signal is on its way; nothing after this line may run
        case "exit":
            os._exit(int(float(armed.argument or 70)))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(float(armed.argument or 1))
        case "late":
            _be_late(float(armed.argument or 1))
        case "raise":
            raise FaultInjected(f"failpoint {name} raised on purpose (hit {armed.hits})")
        case "eio":
            raise OSError(errno.EIO, f"failpoint {name}: input/output error on purpose")
        case "enospc":
            raise OSError(errno.ENOSPC, f"failpoint {name}: no space on purpose")
        case "drop":
            return True
    return False


def _tell_the_late() -> None:
    global _parts_begun
    with _next_part:
        _parts_begun += 1
        _next_part.notify_all()


def _be_late(seconds: float) -> None:
    with _next_part:
        before = _parts_begun
        _next_part.wait_for(lambda: _parts_begun > before, seconds)


def _log(line: str) -> None:
    path = os.environ.get(ENV_LOG)
    if path:
        # O_APPEND: lines of several processes never overwrite each other.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
