"""What people write for a place in a log: a word, a position, or a time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.log.log import Log
    from holdfast.log.place import LogFacts


def opened(path: Path, take_over: bool = False) -> Log:
    from holdfast.log.log import Log

    facts_of(path)
    return Log(path, upkeep_every=None, take_over=take_over)


def facts_of(path: Path) -> LogFacts:
    from holdfast.log import place

    found = place.load(path.absolute())
    if found is None:
        raise ConfigError(f"there is no log at {path}.", cure="`holdfast logs list DIR` finds logs.")
    return found


def place_of(text: str) -> Any:
    """A word, a position, or a time."""
    if text in ("beginning", "now"):
        return text
    return int(text) if text.isdigit() else time_of(text, "neither a position nor a time", "120 or ")


def time_of(text: str, wrong: str = "no time", instead: str = "") -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is {wrong}.", cure=f"Write {instead}2024-05-01T12:00.") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
