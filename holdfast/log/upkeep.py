"""Upkeep of a partition by its owner: closed tails and small segments become larger Parquet ones; what nobody needs goes.

A merged segment gets its name when all its bytes are durable; only then the segments it was made of go. If the owner dies in
between, both are there: the larger one counts, the next owner removes the rest.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from holdfast import durable
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.log import consumers, place, recovery, segments
from holdfast.log.appender import Appender
from holdfast.log.format.frame import NO_TIME
from holdfast.log.format.names import SegmentName, Stretch, index_name, live_name, notes_name
from holdfast.log.format.notes_file import write_notes
from holdfast.log.format.parquet_segment import Footer, SegmentWriter
from holdfast.log.machines.retention import Decision, Holder, Keep, SegmentFacts, decide
from holdfast.log.notes.in_segment import Wanted, notes_in
from holdfast.log.place import LogFacts, Low
from holdfast.log.segments import SegmentRange
from holdfast.store.files.lease import Lease

MERGED_BYTES = 256 << 20
TIER = 4
"""A Parquet segment is merged again only with so much behind it that it is at most this many times as large."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did."""

    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.before + other.before,
            self.after + other.after,
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
        )


def plan_merges(sizes: Sequence[tuple[bool, int]], target: int) -> list[range]:
    """Which neighbours become one, of segments given as (is it a tail, bytes), oldest first."""
    plans: list[range] = []
    end, total, tails = len(sizes), 0, 0

    def close(begin: int) -> None:
        if end - begin > 1 or tails:
            plans.append(range(begin, end))

    for at in range(len(sizes) - 1, -1, -1):
        is_tail, size = sizes[at]
        fits = total + size <= target or at == end - 1
        if fits and (is_tail or (total and size <= TIER * total)):
            total += size
            tails += is_tail
            continue
        if at < end - 1:
            close(at + 1)
        end, total, tails = (at + 1, size, 1) if is_tail else (at, 0, 0)
    if end > 0 and total:
        close(0)
    return plans[::-1]


def compact(appender: Appender, lease: Lease, target: int = MERGED_BYTES, unneeded: int = 0) -> Merged:
    """Merge what is closed and decided. Readers may read meanwhile, and rows be appended. `unneeded`: what begins before this
    position is left as it is, to be let go as a whole: merged with what is needed it would stay as long as that."""
    facts, partition = appender.facts, appender.partition
    now = appender.facts_for(committed=True)
    closed = [
        each
        for each in recovery.layout(facts, partition)
        if each.end is not None and each.end <= now.end and each.name != appender.tail_name
        if each.start >= unneeded
    ]
    sizes = [(each.name.is_tail, _bytes(facts, partition, each.name)) for each in closed]
    done = Merged()
    for plan in plan_merges(sizes, target):
        chosen = [closed[at] for at in plan]
        made = _merge(facts, partition, chosen, now.low, now.withdrawn, lease)
        size = sum(sizes[at][1] for at in plan)
        done += Merged(len(chosen), 1, size, _bytes(facts, partition, made))
    return done


def _merge(
    facts: LogFacts,
    partition: int,
    chosen: Sequence[Stretch],
    low: int,
    withdrawn: tuple[tuple[int, int], ...],
    lease: Lease,
) -> SegmentName:
    directory = facts.directory(partition)
    first, end = max(chosen[0].start, low), chosen[-1].end  # trimmed rows are not written again
    assert end is not None
    t_before = segments.time_before(directory, facts.id, chosen[0].name)
    t_run_max = segments.time_behind(directory, facts.id, chosen[-1].name, end)
    temporary, with_notes = lease.temporary(), lease.temporary()
    with durable.translate_os_errors(str(directory)):
        notes = _merge_notes(facts, partition, chosen, low, withdrawn, with_notes)
        footer = Footer(facts.id, partition, first, end, t_before, t_run_max, facts.time, (), notes)
        writer = SegmentWriter(temporary, facts.schema, footer)
        try:
            for stretch in chosen:
                where = SegmentRange(
                    str(directory / str(stretch.name)),
                    facts.id,
                    max(stretch.start, low),
                    stretch.end or 0,
                    withdrawn,
                )
                for batch in segments.read_range(where):
                    writer.add(batch)
            crc, footer_crc = writer.finish()
        except BaseException:
            durable.remove_quietly(temporary)
            durable.remove_quietly(with_notes)
            raise
        finally:
            writer.close()
        fp("log.merge.written")
        name = SegmentName(first, int(lease.token), end, crc, footer_crc)
        if notes is not None:
            durable.rename_into_place(with_notes, directory / notes_name(name))
            fp("log.notes.shown")
        durable.rename_into_place(temporary, directory / str(name))
        durable.fsync_directory(directory)
        fp("log.merge.shown")
        for stretch in chosen:
            if stretch.name != name:
                remove_segment(directory, stretch.name, lease)
        fp("log.merge.removed")
    return name


def _merge_notes(
    facts: LogFacts,
    partition: int,
    chosen: Sequence[Stretch],
    low: int,
    withdrawn: tuple[tuple[int, int], ...],
    path: Path,
) -> tuple[int, int] | None:
    """The notes of segments, made durable in one file. None: there are none."""
    wanted = Wanted(None, low, chosen[-1].end or 0, withdrawn, backwards=False)
    found = (pair for stretch in chosen for pair in notes_in(facts, partition, stretch, wanted))
    try:
        made = write_notes(path, found)
    except BaseException:
        durable.remove_quietly(path)
        raise
    if made is not None:
        fp("log.notes.written")
    return made


def remove_segment(directory: Path, name: SegmentName, lease: Lease) -> None:
    lease.discard(directory / str(name))
    for side in (index_name(name), live_name(name) if name.is_tail else notes_name(name)):
        lease.discard(directory / side)


# --- what may go ---


def look(appender: Appender, keep: Keep, now: int) -> Decision:
    """What retention would do. `now`: µs since 1970."""
    facts, partition = appender.facts, appender.partition
    at = appender.facts_for(committed=True)
    closed = [each for each in recovery.layout(facts, partition) if each.end is not None]
    found = [
        SegmentFacts(
            each.start,
            each.end or 0,
            _bytes(facts, partition, each.name),
            0
            if keep.seconds is None
            else _newest(facts.directory(partition), facts.id, each.name, each.end or 0),
        )
        for each in closed
        if (each.end or 0) <= at.end
    ]
    # Not later than the newest append: a clock that jumps ahead while nothing comes lets nothing go.
    newest = appender.state.wall_max if facts.time is None else appender.state.t_run_max
    moment = min(now, newest) if newest != NO_TIME else NO_TIME
    held = [_by_wall(each, now, appender.state.wall_max) for each in consumers.holders(facts, partition)]
    return decide(keep, found, appender.tail_bytes, at.end, at.low, held, moment)


@lru_cache(maxsize=1 << 16)
def _newest(directory: Path, log: str, name: SegmentName, end: int) -> int:
    """The greatest time up to the end of a segment that is closed: it does not change any more."""
    return segments.time_behind(directory, log, name, end)


def _by_wall(holder: Holder, now: int, wall_max: int) -> Holder:
    """Consumers expire by the writers' clock, never by the times of rows: what is not expired by then is not."""
    if holder.expires is None or holder.expires <= min(now, wall_max):
        return replace(holder, expires=None if holder.expires is None else NO_TIME)
    return replace(holder, expires=None)


def retain(appender: Appender, keep: Keep, now: int, wall: float, lease: Lease) -> Decision:
    """Let go what retention allows."""
    with consumers.trimming_apart(appender.facts):
        found = look(appender, keep, now)
        if found.low > appender.low:
            place.write_low(appender.facts, appender.partition, Low(found.low, found.because, wall), lease)
            fp("log.trim.marked")
    if found.low > appender.low:
        drop_below(appender, found.low, lease)
    return found


def drop_below(appender: Appender, low: int, lease: Lease) -> None:
    """Remove the segments that lie before a mark that is durable."""
    appender.raise_low(low)
    recovery.remove_superfluous(appender.facts, appender.partition, lease)
    fp("log.trim.removed")


def _bytes(facts: LogFacts, partition: int, name: SegmentName) -> int:
    try:
        return os.path.getsize(facts.directory(partition) / str(name))
    except FileNotFoundError:
        return 0


def is_worth_merging(appender: Appender, bytes_min: int, segments_min: int) -> bool:
    """Whether so much of the log is in closed tails."""
    facts, partition = appender.facts, appender.partition
    at = appender.facts_for(committed=True)
    found = [
        each.name
        for each in recovery.layout(facts, partition)
        if each.name.is_tail and each.end is not None and each.end <= at.end
    ]
    return len(found) >= segments_min or sum(_bytes(facts, partition, name) for name in found) >= bytes_min


def trim(appender: Appender, position: int, because: str, wall: float, lease: Lease, *, force: bool) -> int:
    """Let go what lies before a position, unless somebody needs it; where rows begin now. Pins are never broken."""
    facts, partition = appender.facts, appender.partition
    with consumers.trimming_apart(facts):
        low = max(appender.low, min(position, appender.facts_for(committed=True).end))
        for holder in consumers.holders(facts, partition):
            if appender.low < low > holder.position and (holder.is_pin or not force):
                raise StoreError(
                    f"{holder.name} needs the rows from position {holder.position} of partition {partition} on.",
                    cure="Remove the pin first."
                    if holder.is_pin
                    else "Trim less, or force it: the consumer is told.",
                )
        if low > appender.low:
            place.write_low(facts, partition, Low(low, because, wall), lease)
            fp("log.trim.marked")
    if low > appender.low:
        drop_below(appender, low, lease)
    return low
