"""Which staged files become one file of the output. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from holdfast.sinks import merge


@dataclass(frozen=True, slots=True)
class Part:
    """A file that a step wrote: `directory` is its partition in the output, "" where there are none."""

    path: str
    directory: str
    number: int
    size: int


@dataclass(frozen=True, slots=True)
class OneFile:
    """Parts that become one file, in this order, and its number among those of the directory."""

    directory: str
    number: int
    parts: tuple[Part, ...]


def plan_epoch(
    parts: Sequence[Part], joinable: bool, partitioned: bool, files_max: int | None
) -> list[OneFile]:
    """All files of an epoch, without `roll`.

    Files of one task number of the steps become one, in directories of partitions those of all numbers: these are many and
    small. Large ones stay alone, unless a number of files was asked for: that is kept at any size.
    """
    groups: dict[str, dict[int, list[Part]]] = defaultdict(lambda: defaultdict(list))
    for part in parts:
        there = groups[part.directory]
        number = 0 if partitioned else part.number
        if not joinable:
            number = len(there)  # every file stays one of its own
        elif files_max is not None:
            number = part.number % files_max
        there[number].append(part)
    made = []
    for directory, there in sorted(groups.items()):
        more = count(max(there) + 1)
        for number, group in sorted(there.items()):
            runs = runs_of(group) if files_max is None else [group]
            made += [
                OneFile(directory, next(more) if again else number, tuple(run))
                for again, run in enumerate(runs)
            ]
    return made


def runs_of(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that become one: small ones that follow each other, and each large one."""
    runs: list[list[Part]] = []
    joining = False
    for part in parts:
        large = part.size >= merge.LARGE_BYTES
        if joining and not large:
            runs[-1].append(part)
        else:
            runs.append([part])
        joining = not large
    return runs
