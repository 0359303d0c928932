"""A fuzzer: mutated seeds, given to a decoder in a child process with little memory and a clock. A crash, a hang, an error that
is not ours, or memory out of proportion is a finding; the input that caused it is told.

Mutations are drawn by a seed, so that a run can be done again. What is being decoded lies in memory that both processes see:
whatever ends the child, the parent knows the input.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fuzz.targets import TARGETS
from holdfast.errors import HoldfastError

LIMIT_S = 5.0
"""No decoder needs so long for some kilobytes."""
MEMORY = 512 << 20
LARGEST = 1 << 17
NUMBERS = (0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
WORDS = (b"null", b"-1", b"1e999", b"NaN", b"[[[[[[[[", b'{"a":' * 40, b'"\\ud800"', b"\xff\xfe", b"\0", b"%s", b"../", b"\n", b" ", b"999999999999999999999")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """What a decoder did that it must not do, and with what."""

    target: str
    what: str
    data: bytes


def mutated(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """Some changes to some bytes."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        place = chance.randrange(len(made) + 1)
        match chance.randrange(9):
            case 0 if made:
                made[place % len(made)] ^= 1 << chance.randrange(8)
            case 1 if made:
                made[place % len(made)] = chance.randrange(256)
            case 2:
                del made[place : place + chance.choice((1, 2, 4, 8, 64))]
            case 3:
                made[place:place] = chance.randbytes(chance.choice((1, 2, 4, 16)))
            case 4:
                made[place:place] = made[place : place + chance.choice((1, 4, 16, 200))]
            case 5:
                form = chance.choice(("<B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
                number = chance.choice(NUMBERS) % (1 << 8 * struct.calcsize(form))
                made[place : place + struct.calcsize(form)] = struct.pack(form, number)
            case 6:
                made[place:place] = chance.choice(WORDS)
            case 7:
                del made[place:]
            case _:
                other = chance.choice(others)
                begin = chance.randrange(len(other) + 1)
                made[place : place + chance.choice((4, 16, 64))] = other[
                    begin : begin + chance.choice((4, 16, 64))
                ]
    return bytes(made[:LARGEST])


def fuzz(
    name: str, seed: int, count: int = 0, seconds: float = 0.0, most: int = 5
) -> tuple[int, list[Finding]]:
    """Try `count` inputs, or for so long; at most so many findings, each of another kind. Returns how many were tried."""
    findings: dict[str, Finding] = {}
    seeds = TARGETS[name].seeds()
    assert seeds, f"nothing to begin with for {name}"
    tried, deadline = 0, time.monotonic() + seconds

    def many(beat: Beat) -> None:
        chance, left = random.Random(f"{seed}-{tried}"), count - tried
        while left > 0 if count else time.monotonic() < deadline:
            data = mutated(chance.choice(seeds), seeds, chance)
            left -= 1
            beat.next(data)
            if _try(name, data, beat, set(findings)):
                return

    while (tried < count or time.monotonic() < deadline) and len(findings) < most:
        done, found = _in_a_child(many, name)
        tried += max(done, 1)
        if found is not None:
            findings.setdefault(found.what, found)
    return tried, list(findings.values())


def replay(name: str, inputs: list[bytes]) -> list[Finding]:
    """Each of these inputs once."""
    found = []
    for data in inputs:

        def one(beat: Beat, data: bytes = data) -> None:
            beat.next(data)
            _try(name, data, beat, set())

        finding = _in_a_child(one, name)[1]
        found += [finding] if finding is not None else []
    return found


class Beat:
    """Memory that parent and child share: how many were tried, the input under way, and what was found."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, LARGEST + (1 << 17))

    def next(self, data: bytes) -> None:
        self._shared[:8] = struct.pack("<II", self.tried + 1, len(data))
        self._shared[16 : 16 + len(data)] = data
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)

    def tell(self, what: str) -> None:
        text = what.encode("utf-8", "backslashreplace")[:4096]
        self._shared[8:12] = struct.pack("<I", len(text))
        self._shared[LARGEST + 64 : LARGEST + 64 + len(text)] = text

    @property
    def tried(self) -> int:
        return int(struct.unpack("<I", self._shared[:4])[0])

    @property
    def data(self) -> bytes:
        return self._shared[16 : 16 + int(struct.unpack("<I", self._shared[4:8])[0])]

    @property
    def told(self) -> str:
        size = int(struct.unpack("<I", self._shared[8:12])[0])
        return self._shared[LARGEST + 64 : LARGEST + 64 + size].decode()


def _try(name: str, data: bytes, beat: Beat, known: set[str]) -> bool:
    """True if it did what it must not do, and nobody knew."""
    try:
        TARGETS[name].decode(data, HERE)
    except HoldfastError:
        return False
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}"
        if what in known:
            return False
        beat.tell(what)
        return True
    return False


HERE = Path()
"""A directory of the child."""


def _in_a_child(work: Callable[[Beat], None], name: str) -> tuple[int, Finding | None]:
    global HERE
    beat = Beat()
    place = Path(
        tempfile.mkdtemp(prefix="holdfast-fuzz-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    )
    pid = os.fork()
    if pid == 0:
        HERE = place
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.disable()  # what ends the child is told by the parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        code = 97
        try:
            work(beat)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    shutil.rmtree(place, ignore_errors=True)
    if code == 0 and not beat.told:
        return beat.tried, None
    what = beat.told or ("hung" if code == -signal.SIGALRM else f"ended the process ({code})")
    return beat.tried, Finding(name, what, beat.data)
