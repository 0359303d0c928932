"""Who needs which rows of a log: consumers, which move on, and pins, which do not.

Both are small files that anybody may write. A lock keeps them apart from trimming: whoever registers either comes before the
decision and is heeded, or after it and sees the mark that it left.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import durable
from holdfast.errors import ConfigError, StoreError
from holdfast.failpoints import fp
from holdfast.ids import is_safe_name
from holdfast.log import place
from holdfast.log.machines.retention import Holder
from holdfast.log.place import CONSUMERS, PINS, LogFacts
from holdfast.log.reader import TrimmedError
from holdfast.store import sealed_file

_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Registered:
    """A consumer or a pin, as it is stored."""

    name: str
    positions: dict[int, int]
    """By partition: rows from there on are needed."""
    epoch: int | None = None
    """What the consumer published last."""
    expires_s: float | None = None
    """How long after its last word a consumer is taken for dead. None: never."""
    updated: float = 0.0

    def holder(self, partition: int, *, is_pin: bool) -> Holder:
        expires = None if self.expires_s is None or is_pin else round((self.updated + self.expires_s) * 1e6)
        name = f"pin {self.name}" if is_pin else f"consumer {self.name}"
        return Holder(name, self.positions.get(partition, 0), expires, is_pin)


@contextmanager
def trimming_apart(facts: LogFacts) -> Iterator[None]:
    """No consumer registers while somebody decides what goes, and the other way round."""
    durable.make_directory(Path(facts.root) / CONSUMERS)
    path = Path(facts.root) / CONSUMERS / _LOCK
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, durable.FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def write(facts: LogFacts, what: Registered, *, pins: bool = False) -> None:
    """Register, or move on. TrimmedError: rows that it needs are gone already."""
    if not is_safe_name(what.name):
        raise ConfigError(
            f"{what.name!r} cannot be the name of a consumer.",
            cure="Use letters, digits and _.- only, at most 100.",
        )
    data = json.dumps(
        {**asdict(what), "positions": {str(p): at for p, at in what.positions.items()}}
    ).encode()
    sealed = sealed_file.seal("log-pin" if pins else "log-consumer", facts.id, what.name, data)
    with trimming_apart(facts), durable.translate_os_errors(f"consumer {what.name}"):
        for partition, position in what.positions.items():
            low = place.read_low(facts, partition).position
            if position < low:
                raise TrimmedError(
                    f"{what.name!r} needs position {position} of partition {partition}, and rows before {low} were trimmed.",
                    cure=f"Begin at {low}.",
                )
        durable.make_directory(_directory(facts, pins))
        durable.write_file(_directory(facts, pins) / what.name, sealed)
        fp("log.consumer.written")


def read(facts: LogFacts, *, pins: bool = False) -> list[Registered]:
    """All of them, by name. DamagedError: one cannot be read, and so nobody knows what may go."""
    directory = _directory(facts, pins)
    found = []
    for name in sealed_file.list_directory(directory):
        if name.startswith("."):
            continue
        data = sealed_file.read_sealed(
            directory / name, "log-pin" if pins else "log-consumer", facts.id, name
        )
        if data is not None:
            with sealed_file.understood(directory / name):
                fields = json.loads(data)
                fields["positions"] = {int(p): int(at) for p, at in fields["positions"].items()}
                found.append(Registered(**fields))
    return found


def remove(facts: LogFacts, name: str, *, pins: bool = False) -> None:
    if not is_safe_name(name) or not (_directory(facts, pins) / name).exists():
        kind = "pin" if pins else "consumer"
        known = ", ".join(each.name for each in read(facts, pins=pins)) or "none"
        raise StoreError(f"the log {facts.root} has no {kind} {name!r}.", cure=f"There are: {known}.")
    os.unlink(_directory(facts, pins) / name)
    durable.fsync_directory(_directory(facts, pins))


def holders(facts: LogFacts, partition: int) -> list[Holder]:
    found = [each.holder(partition, is_pin=False) for each in read(facts)]
    return found + [each.holder(partition, is_pin=True) for each in read(facts, pins=True)]


def whole(facts: LogFacts, positions: Mapping[int, int] | int) -> dict[int, int]:
    """Positions of all partitions: a number means a log with one."""
    if isinstance(positions, int):
        if facts.partitions != 1:
            raise ConfigError(
                f"the log {facts.root} has {facts.partitions} partitions; one position does not tell where to begin.",
                cure="Give a dict {partition: position}, as reader.position gives it.",
            )
        positions = {0: positions}
    unknown = [p for p in positions if not 0 <= p < facts.partitions]
    if unknown:
        raise ConfigError(f"the log {facts.root} has no partition {unknown[0]}.")
    return dict(positions)


def _directory(facts: LogFacts, pins: bool) -> Path:
    return Path(facts.root) / (PINS if pins else CONSUMERS)
