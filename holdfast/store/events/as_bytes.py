"""Events and mails as bytes: JSON, bounded in size. Alike in every back end, but for what stands before them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, StoreError
from holdfast.store import sealed_file
from holdfast.store.events.values import Mail

EVENT_BYTES_MAX = 16 << 10
"""Larger ones come in parts (large.py)."""
MAIL_BYTES_MAX = 1 << 16
SEALED_MAIL_BYTES_MAX = 2 * MAIL_BYTES_MAX
"""With what stands before it. A larger one was not posted by holdfast; it is refused before it is read."""
T = TypeVar("T")


def encode_event(kind: str, data: Mapping[str, Any], *before: object) -> bytes:
    """[*before, wall, kind, data]. Data that is too large is replaced by its size."""
    value = _event(before, kind, data)
    if len(value) > EVENT_BYTES_MAX:
        value = _event(before, kind[:100], {"left_out_bytes": len(value)})
    return value


def _event(before: tuple[object, ...], kind: str, data: Mapping[str, Any]) -> bytes:
    fields = [*before, time.time(), kind, dict(data)]
    return json.dumps(fields, default=str, separators=(",", ":")).encode()


def encode_mail(command: str, data: Mapping[str, Any], *before: object) -> bytes:
    """[*before, command, data]. StoreError if it is too large."""
    payload = json.dumps([*before, command, dict(data)]).encode()
    if len(payload) > MAIL_BYTES_MAX:
        raise StoreError(
            f"the command {command[:40]!r} has {len(payload)} bytes; {MAIL_BYTES_MAX} are allowed."
        )
    return payload


def decode_mail(payload: bytes, place: Path | str) -> Mail:
    """The command in a mail whose bytes were verified. DamagedError if it holds none."""
    try:
        found = json.loads(payload)
        if not isinstance(found, list):
            raise TypeError("no list")
        *_, command, data = found
        if not isinstance(command, str) or not isinstance(data, dict):
            raise TypeError("no command with its data")
        return command, data
    except (ValueError, TypeError, RecursionError) as error:
        raise sealed_file.damaged(place, "does not hold a command") from error


def refuse_large(place: Path | str, size: int) -> None:
    """DamagedError for a mail that nobody could have posted, before a byte of it is read."""
    if size > SEALED_MAIL_BYTES_MAX:
        raise sealed_file.damaged(place, f"has {size} bytes; a command has at most {MAIL_BYTES_MAX}")


def open_mails(values: Iterable[T], open_one: Callable[[T], Mail]) -> tuple[list[Mail], list[str]]:
    """The commands in some mails, and a sentence for each that is damaged."""
    mails: list[Mail] = []
    refused: list[str] = []
    for value in values:
        try:
            mails.append(open_one(value))
        except HoldfastError as error:
            refused.append(error.message)
    return mails, refused
