"""The notes of a writer in a partition, from the newest to the oldest, as its readers find them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from holdfast.errors import DamagedError
from holdfast.log import recovery
from holdfast.log.format import tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.note import Note, is_withdrawn
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.notes import in_segment
from holdfast.log.notes.in_segment import Wanted
from holdfast.log.reader import Source

TRIES = 100
PAUSE_S = 0.001


def newest_first(source_of: Callable[[], Source], writer: str, committed: bool) -> Iterator[Note]:
    """Lazily: whoever stops early has read little more than what it got. What is appended meanwhile is not among them; merges
    may go on. If all of them were trimmed, the newest one."""
    last: int | None = None
    for _ in range(TRIES):
        try:
            source = source_of()
            now = source.facts_for(committed)
            for note in _walk(source, writer, now):
                if last is None or note.sequence < last:
                    last = note.sequence
                    yield note
            carried = _carried(source, writer) if last is None else None
            if carried is not None and not is_withdrawn(carried, now.withdrawn):
                yield carried
            return
        except FileNotFoundError:  # merged, or another owner: what was found so far stays true
            time.sleep(PAUSE_S)
    raise DamagedError(
        f"segments of {source.facts.directory(source.partition)}, or files with their notes, are missing.",
        cure="Restore them from a backup.",
    )


def _walk(source: Source, writer: str, now: Facts) -> Iterator[Note]:
    wanted = Wanted(writer, now.low, now.end, now.withdrawn)
    edge = source.edge
    if edge is None:
        return
    stretches = recovery.layout(source.facts, source.partition)
    if not stretches or stretches[-1].name != edge[0]:
        raise FileNotFoundError(str(edge[0]))
    for stretch in reversed(stretches):
        limit = edge[1] if stretch.name == edge[0] else None
        for _, note in in_segment.notes_in(source.facts, source.partition, stretch, wanted, limit):
            yield note


def _carried(source: Source, writer: str) -> Note | None:
    if source.edge is None:
        return None
    name = source.edge[0]
    path = source.facts.directory(source.partition) / str(name)
    with FileBytes(path) as file:
        return tail.decode_header(file, path, source.facts.id, name).notes.decided.get(writer)
