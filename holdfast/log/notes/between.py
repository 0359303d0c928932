"""The notes of a writer about a stretch of a partition, in order."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.errors import DamagedError
from holdfast.log import recovery
from holdfast.log.format.note import Note, is_withdrawn
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.notes import in_segment
from holdfast.log.notes.in_segment import Wanted
from holdfast.log.reader import Source

TRIES = 100
PAUSE_S = 0.001


def between(
    source_of: Callable[[], Source], writer: str, start: int, end: int, committed: bool
) -> list[Note]:
    """Those that came with rows of [start, end), or stand alone from `start` to `end`: as far as they count."""
    for _ in range(TRIES):
        source = source_of()
        now = source.facts_for(committed)
        try:
            found = source.notes_in_memory(writer, start, end)
            found = _on_disk(source, writer, start, end, now) if found is None else found
        except FileNotFoundError:  # merged, or another owner
            time.sleep(PAUSE_S)
            continue
        return [note for note in found if _counts(note, now)]
    raise DamagedError(
        f"segments of {source.facts.directory(source.partition)}, or files with their notes, are missing.",
        cure="Restore them from a backup.",
    )


def _counts(note: Note, now: Facts) -> bool:
    return not (note.rows and note.position >= now.end) and not is_withdrawn(note, now.withdrawn)


def _on_disk(source: Source, writer: str, start: int, end: int, now: Facts) -> list[Note]:
    edge = source.edge
    if edge is None:
        return []
    wanted = Wanted(writer, 0, now.end, now.withdrawn, backwards=False, begin=start)
    found: list[Note] = []
    for stretch in recovery.layout(source.facts, source.partition):
        if stretch.start > end or (stretch.end is not None and stretch.end <= start):
            continue
        limit = edge[1] if stretch.name == edge[0] else None
        for _, note in in_segment.notes_in(source.facts, source.partition, stretch, wanted, limit):
            if note.position > end:
                break
            if note.touches(start, end):
                found.append(note)
    return found
