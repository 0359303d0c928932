"""Which file a command line names. Kept small: what is wrong with a name is told before anything large is imported."""

from __future__ import annotations

from pathlib import Path

from holdfast.errors import ConfigError


def program_of(target: str) -> tuple[Path, str | None]:
    """The file, and the name of the topology if one is given."""
    head, colon, tail = target.rpartition(":")
    path_text, name = (head, tail) if colon and tail.isidentifier() else (target, None)
    path = Path(path_text)
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path_text}.", cure="Give the path of a Python file with a topology."
        )
    return path, name
