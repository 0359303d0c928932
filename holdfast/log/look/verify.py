"""Looking at a log without changing it: what there is, and whether every byte of it is what was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import HoldfastError
from holdfast.log import consumers, place, recovery
from holdfast.log.disk_view import DiskView
from holdfast.log.format.names import Stretch
from holdfast.log.machines.partition_state import PartitionState, rows_in
from holdfast.log.notes.in_segment import Wanted, notes_in
from holdfast.log.place import LogFacts
from holdfast.log.rows import shown_time
from holdfast.log.segments import SegmentRange, read_range, time_behind
from holdfast.store import sealed_file
from holdfast.store.files import lease

Progress = Callable[[int], None]
"""Told how many bytes have been read since it was last told."""


@dataclass
class Verified:
    """What a look at every byte found."""

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    notes: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """A segment for people."""

    partition: int
    name: str
    form: str
    first: int
    end: int
    bytes: int
    time: str | None
    """The greatest time up to its end."""


def state_of(facts: LogFacts, partition: int) -> tuple[PartitionState, int]:
    """How a partition stands, and its lowest position."""
    view = DiskView(facts, partition)
    try:
        view.refresh()
        return view.state, view.low
    finally:
        view.close()


def verify(facts: LogFacts, progress: Progress = lambda _: None) -> Verified:
    """Read every row. Problems are told, not raised: one damaged segment does not hide another."""
    found = Verified()
    for partition in range(facts.partitions):
        try:
            state, _ = state_of(facts, partition)
            stretches = recovery.layout(facts, partition)
        except HoldfastError as error:
            found.problems.append(error.message)
            continue
        wanted = Wanted(None, 0, state.next, tuple(state.withdrawn), backwards=False)
        for stretch in stretches:
            end = state.next if stretch.end is None else stretch.end
            start = max(stretch.start, 0)
            path = facts.directory(partition) / str(stretch.name)
            found.segments += 1
            try:
                size = os.path.getsize(path)
                found.bytes += size
                _check_sum(path, stretch)
                where = SegmentRange(str(path), facts.id, start, end, tuple(state.withdrawn))
                if start < end:
                    found.rows += sum(batch.rows.num_rows for batch in read_range(where))
                found.notes += sum(1 for _ in notes_in(facts, partition, stretch, wanted))
                progress(size)
            except HoldfastError as error:
                found.problems.append(error.message)
            except (OSError, ValueError) as error:
                found.problems.append(f"{path} cannot be read: {error}.")
    for pins in (False, True):
        try:
            consumers.read(facts, pins=pins)
        except HoldfastError as error:
            found.problems.append(error.message)
    return found


def _check_sum(path: Path, stretch: Stretch) -> None:
    if stretch.name.is_tail:
        return
    crc, _ = durable.checksum_file(path)
    if crc != stretch.name.crc:
        raise sealed_file.damaged(path, "does not match the checksum in its name")


def segments_of(facts: LogFacts) -> Iterator[SegmentLook]:
    """What there is, oldest first, partition by partition."""
    for partition in range(facts.partitions):
        state, low = state_of(facts, partition)
        for each in recovery.layout(facts, partition):
            end = state.next if each.end is None else each.end
            directory = facts.directory(partition)
            newest = (
                state.t_run_max if each.end is None else time_behind(directory, facts.id, each.name, each.end)
            )
            form = "Parquet" if not each.name.is_tail else "tail" if each.end is None else "frames"
            size = os.path.getsize(directory / str(each.name))
            yield SegmentLook(
                partition, str(each.name), form, max(each.start, low), end, size, shown_time(newest)
            )


def describe(facts: LogFacts) -> dict[str, Any]:
    """A log for people and programs: what it is, how its partitions stand, who writes it, who needs what."""
    info = lease.owner_info(Path(facts.root), facts.id)
    parts = []
    for partition in range(facts.partitions):
        state, low = state_of(facts, partition)
        directory = facts.directory(partition)
        names = [each.name for each in recovery.layout(facts, partition)]
        parts.append({
            "partition": partition, "low": low, "next": state.next, "committed": state.committed,
            "rows": rows_in(low, state.next, state.withdrawn),
            "sealed": state.sealed, "segments": len(names),
            "bytes": sum(os.path.getsize(directory / str(name)) for name in names),
            "time": shown_time(state.t_run_max), "appended": shown_time(state.wall_max),
            "trimmed_because": place.read_low(facts, partition).because,
            "held_by": _slowest(facts, partition),
            "writers": {name: sequence for name, (sequence, _) in sorted(state.writers.items())},
        })  # fmt: skip
    return {
        "path": facts.root,
        "id": facts.id,
        "origin": {"topology": facts.origin.topology, "operator": facts.origin.operator, "port": facts.origin.port},
        "columns": {column.name: str(column.type) for column in facts.schema},
        "time": facts.time,
        "writer": None if info is None or not info.get("alive") else {"pid": info["pid"], "host": info["host"]},
        "partitions": parts,
    }  # fmt: skip


def _slowest(facts: LogFacts, partition: int) -> str:
    found = consumers.holders(facts, partition)
    return min(found, key=lambda each: each.position).name if found else ""
