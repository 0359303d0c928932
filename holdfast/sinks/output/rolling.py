"""`roll`: when rows of several epochs become one visible file. Pure.

Files of published epochs wait, hidden and durable, until there are enough of them or the oldest has waited for long enough.
What waits after an epoch is written into that epoch; so it is shown exactly once, whatever happens in between (decision 13).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast.durations import Duration, seconds
from holdfast.errors import ConfigError, HoldfastError
from holdfast.sinks.output.planning import Part

RollPart = str | timedelta
_UNITS = {"b": 0, "kb": 10, "mb": 20, "gb": 30, "tb": 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b\s*", re.IGNORECASE)
MOST_WAITING = 8
"""From so many files of a directory on, new ones are joined with the newest of those that wait."""


@dataclass(frozen=True, slots=True)
class Roll:
    """A file is complete with so many bytes, or when its first row has waited for so long; None: does not matter."""

    bytes: int | None
    seconds: float | None
    said: str

    @classmethod
    def of(cls, given: RollPart | Sequence[RollPart]) -> Roll:
        """From what the user said: "128 MB", "10 minutes", or both."""
        if not isinstance(given, str | timedelta | Sequence):
            raise ConfigError(f"roll={given!r} has no unit.", cure=_CURE)
        parts = [given] if isinstance(given, str | timedelta) else list(given)
        sizes = [size for part in parts if (size := bytes_of(part)) is not None]
        times = [_duration(part) for part in parts if bytes_of(part) is None]
        if not parts or len(sizes) > 1 or len(times) > 1 or 0 in sizes:
            raise ConfigError(f"roll={given!r} is no size, no time and no pair of both.", cure=_CURE)
        return cls(next(iter(sizes), None), next(iter(times), None), " or ".join(map(str, parts)))

    def is_large(self, size: int) -> bool:
        """Whether a file of a step is not worth copying into a larger one."""
        return self.bytes is not None and size >= self.bytes / 2


_CURE = "Write roll='128 MB', roll='10 minutes' or roll=('128 MB', '10 minutes')."


def bytes_of(text: Any) -> int | None:
    """ "128 MB" as bytes, 1 KB being 1024; None if it is no size."""
    matched = _SIZE.fullmatch(text) if isinstance(text, str) else None
    return None if matched is None else int(float(matched[1]) * (1 << _UNITS[f"{matched[2].lower()}b"]))


def _duration(given: Duration) -> float:
    if isinstance(given, str | timedelta):
        try:
            return seconds(given, "roll")
        except HoldfastError as error:
            raise ConfigError(f"roll={given!r} is neither a size nor a time.", cure=_CURE) from error
    raise ConfigError(f"roll={given!r} has no unit.", cure=_CURE)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A durable, hidden file of published epochs. `path` is relative to the sink's hidden directory, `shape` tells its columns
    from those that another program writes."""

    path: str
    directory: str
    number: int
    size: int
    crc: int
    since: float
    shape: int

    def plain(self) -> list[Any]:
        return [self.path, self.directory, self.number, self.size, self.crc, self.since, self.shape]


def are_complete(waiting: Sequence[Waiting], roll: Roll | None, shape: int, now: float) -> bool:
    """Whether some of what waits would be shown by an epoch without new rows. `shape`: of what this program writes."""
    if roll is None or any(each.shape != shape for each in waiting):
        return bool(waiting)
    return roll.seconds is not None and any(now - each.since >= roll.seconds for each in waiting)


@dataclass(frozen=True, slots=True)
class Piece:
    """A part, since when it waits, and whether a step has just written it."""

    part: Part
    since: float
    is_new: bool


@dataclass(frozen=True, slots=True)
class Joint:
    """Pieces that become one file: a visible one, or one that waits."""

    pieces: tuple[Piece, ...]
    is_visible: bool

    @property
    def since(self) -> float:
        return min(piece.since for piece in self.pieces)


def plan_rolled(pieces: Sequence[Piece], roll: Roll | None, files: int, now: float) -> list[Joint]:
    """What is done with pieces, those that wait first, oldest first. One in no joint goes on waiting as it is.

    `files`: how many files of a directory are filled at a time. No `roll`: all is shown.
    """
    groups: dict[tuple[str, int], list[Piece]] = defaultdict(list)
    for piece in pieces:
        groups[piece.part.directory, piece.part.number % files].append(piece)
    return [joint for _, group in sorted(groups.items()) for joint in _plan_group(group, roll, now)]


def _plan_group(group: list[Piece], roll: Roll | None, now: float) -> list[Joint]:
    if roll is None:
        return [Joint(tuple(group), True)]
    large = [piece for piece in group if piece.is_new and roll.is_large(piece.part.size)]
    made = [Joint((piece,), True) for piece in large]
    filling: list[Piece] = []
    for piece in (piece for piece in group if piece not in large):
        filling.append(piece)
        if roll.bytes is not None and sum(piece.part.size for piece in filling) >= roll.bytes:
            made.append(Joint(tuple(filling), True))
            filling = []
    if not filling:
        return made
    left = Joint(tuple(filling), True)
    if roll.seconds is not None and now - left.since >= roll.seconds:
        return [*made, left]
    return made + [Joint(tuple(joined), False) for joined in _joined(filling)]


def _joined(filling: list[Piece]) -> list[list[Piece]]:
    """New pieces become one; so many small ones that wait with them that few files remain and bytes are copied a few times
    only: the sizes of those that stay fall by half from one to the next."""
    waiting = [piece for piece in filling if not piece.is_new]
    joined = [piece for piece in filling if piece.is_new]
    size = sum(piece.part.size for piece in joined)
    while joined and len(waiting) >= MOST_WAITING and waiting[-1].part.size <= 2 * size:
        joined.insert(0, waiting.pop())
        size += joined[0].part.size
    return [joined] if joined else []
