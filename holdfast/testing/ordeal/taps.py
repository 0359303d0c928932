"""Sources of a trial, with a tap on each: how far the run is in its input is known outside, and it goes no further than it may.

How far is counted in rows, over all lives of a run: what a source said of its position when so many rows had been given is noted, so that a
later life that goes back there knows how many that were.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from holdfast.language.connectors import Captured, Slice, Source

_NOTE = struct.Struct("<16sq")
_SHARE = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Gate:
    """How much of the input may be given: any amount up to `allowed`, then, up to `most`, a slice every `beat_s`. Shares."""

    allowed: float
    most: float
    beat_s: float

    def lets(self, share: float, since_s: float) -> bool:
        """Whether the next slice may come, so long after the last one."""
        return (
            share < self.allowed
            or self.most >= 1.0 <= self.allowed
            or (share < self.most and since_s >= self.beat_s)
        )


class Taps:
    """All sources of one life."""

    def __init__(self, place: Path, totals: Mapping[str, int] | None, gate: Gate, pace_s: float) -> None:
        self.gate = gate
        self.slices = 0
        self._last: dict[str, float] = {}
        self._place, self._totals, self._pace_s = place, totals, pace_s
        self._given: dict[str, int] = {}
        self._lock = threading.Lock()
        self._progress = os.open(place / "progress", os.O_RDWR | os.O_CREAT, 0o600)

    @property
    def given(self) -> dict[str, int]:
        """Rows that each source gave."""
        return dict(self._given)

    def put_on(self, name: str, source: Source) -> None:
        """Change `source`, which nobody else has."""
        notes = _Notes(self._place / f"given-{name}")
        ask, seek, snapshot, more = source.next_slice, source.seek, source.snapshot, source.awaits_more
        with_piece = source.snapshot_with
        self._given[name] = 0

        def given(state: Any | None) -> None:
            self._given[name] = 0 if state is None else notes.rows_at(state, self._given[name])
            self._tell()
            seek(state)

        def noted() -> Any:
            return notes.note(snapshot(), self._given[name])

        def noted_with(piece: Slice) -> Any:
            return notes.note(with_piece(piece), self._given[name])

        def next_slice() -> Slice | None:
            if self._is_shut(name):
                return None
            piece = ask()
            if piece is not None:
                rows = source.count_rows(piece)
                self._given[name] += 1 if rows is None else rows  # nobody knows: slices count
                with self._lock:
                    self.slices += 1
                self._last[name] = time.monotonic()
                self._tell()
                time.sleep(self._pace_s)
            return piece

        source.seek = given  # type: ignore[method-assign]
        source.snapshot = noted  # type: ignore[method-assign]
        source.capture = lambda: Captured(noted())  # type: ignore[method-assign]
        source.snapshot_with = noted_with  # type: ignore[method-assign]
        source.next_slice = next_slice  # type: ignore[method-assign]
        source.awaits_more = lambda: self._is_shut(name) or more()  # type: ignore[method-assign]

    def _is_shut(self, name: str) -> bool:
        whole = (self._totals or {}).get(name, 0)
        since_s = time.monotonic() - self._last.get(name, 0.0)
        return whole > 0 and not self.gate.lets(self._given[name] / whole, since_s)

    def _tell(self) -> None:
        whole = sum((self._totals or {}).values())
        if whole:
            os.pwrite(self._progress, _SHARE.pack(min(sum(self._given.values()) / whole, 1.0)), 0)


def share_told(place: Path) -> float:
    """How far the run in this place is: 0 to 1."""
    try:
        return float(_SHARE.unpack((place / "progress").read_bytes()[: _SHARE.size])[0])
    except (OSError, struct.error):
        return 0.0


class _Notes:
    """How many rows had been given at the positions that a source told, in a file that outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = b""

    def note(self, state: Any, rows: int) -> Any:
        key = _key(state)
        if key != self._last:
            self._last = key
            with self._path.open("ab", buffering=0) as file:
                file.write(_NOTE.pack(key, rows))
        return state

    def rows_at(self, state: Any, otherwise: int) -> int:
        """If it was never noted, `otherwise`."""
        key, found = _key(state), otherwise
        data = self._path.read_bytes() if self._path.exists() else b""
        for at, rows in _NOTE.iter_unpack(data[: len(data) - len(data) % _NOTE.size]):
            found = rows if at == key else found
        return found


def _key(state: Any) -> bytes:
    return blake2b(json.dumps(state, sort_keys=True, default=repr).encode(), digest_size=16).digest()
