"""Giving staged files their visible names, once: what a commit does, and what is looked at before and after a crash.

A staged file is told as `[staged, final, size, crc]`: relative to the sink's hidden directory, and to the output.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.durable import checksum_file, fsync_directory, rename_into_place
from holdfast.errors import DamagedError
from holdfast.sinks.staging import Staging

StagedFile = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Moves:
    """From one sink's staging into the output directory."""

    output: Path
    staging: Staging

    def perform(self, files: Iterable[StagedFile]) -> None:
        """Show all files that are not visible yet. Refuses before anything is changed."""
        todo = [move for file in files if (move := self.of(*file))]
        targets = {target.parent for _, target in todo}
        for directory in sorted(targets):
            make_visible_directory(directory, self.output)
        for source, target in todo:
            rename_into_place(source, target)
        for directory in {self.output, *targets, *(source.parent for source, _ in todo)}:
            fsync_directory(directory)

    def of(self, staged: str, final: str, size: int, crc: int) -> tuple[Path, Path] | None:
        """What gives one file its visible name; None if it has it already."""
        source, target = self.staging.home / staged, self.output / final
        here, there = size_of(source), size_of(target)
        if there is not None:
            if here is not None:
                raise damaged(target, "is there although its epoch is not visible yet")
            if there != size:
                raise damaged(target, f"has {there} bytes instead of {size}")
            return None
        if here is None:
            self.staging.refuse_lost()
        if here != size:
            raise damaged(source, "is missing" if here is None else f"has {here} bytes instead of {size}")
        return source, target

    def are_untouched(self, files: Iterable[StagedFile]) -> bool:
        """Every file still lies where it was staged."""
        return all(
            size_of(self.staging.home / staged) == size and size_of(self.output / final) is None
            for staged, final, size, _crc in files
        )

    def verify(self, files: Iterable[StagedFile]) -> None:
        """Staged bytes are checked before they are rolled forward: they may have lain there for long."""
        for staged, _final, size, crc in files:
            source = self.staging.home / staged
            if source.exists() and checksum_file(source) != (crc, size):
                raise damaged(source, "is not what was written: its checksum differs")


def make_visible_directory(directory: Path, output: Path) -> None:
    """A partition's directory, for everybody to read as the output itself, and durable."""
    if directory == output or directory.is_dir():
        return
    make_visible_directory(directory.parent, output)
    os.makedirs(directory, exist_ok=True)
    fsync_directory(directory.parent)


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"{path} {what}.",
        cure="Nothing else was changed. Put the file back, or start again in another directory.",
    )
