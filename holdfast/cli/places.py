"""Directories for commands that run a program several times: what is there is never touched."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import ConfigError


@contextmanager
def place_beneath(store: str | None, command: str) -> Iterator[Path]:
    """Where the stores of the runs are: an empty directory. Without one named by the user it is removed at the end."""
    if store is None:
        with tempfile.TemporaryDirectory(prefix=f"holdfast-{command}-") as scratch:
            yield Path(scratch)
        return
    if "://" in store or store.startswith("sqlite:"):
        raise ConfigError(
            f"the runs need a directory for their stores, not {store}.",
            cure="Give --store DIRECTORY, or leave it out.",
        )
    yield free_place(Path(store.removeprefix("file:")), command)


def free_place(wanted: Path, command: str) -> Path:
    """The directory itself, if it holds nothing; else one beside it: what is there is never touched."""
    place, number = wanted, 0
    while place.exists() and (not place.is_dir() or any(place.iterdir())):
        number += 1
        place = wanted.with_name(f"{wanted.name}.{command}-{number}")
    place.mkdir(parents=True, exist_ok=True)
    return place
