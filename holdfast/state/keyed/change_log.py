"""What the steps of one partition changed since a checkpoint: the segments of which its next delta is made.

A step's own rows are a segment each. Live merging joins them too, so a merge that is done and had nothing but logged
segments to join takes their place in the log: joining them twice would cost as much again.

Must hold: the segments of the log, the newest row of a key counting, are the rows changed since. Merges that reach back
behind the checkpoint are of no use, and those of segments that a checkpoint under way has pinned come too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.state.keyed.layout import Merge, Run, begun_with, blocks_of, is_change, is_done
from holdfast.state.keyed.segment import Segment

Segments = tuple[Segment, ...]


class ChangeLog:
    """Of one partition. It hears of every step."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        """Oldest first."""
        self._pinned: frozenset[Segment] = frozenset()
        self._joined: dict[Segment, frozenset[Segment]] = {}
        """What pieces of merges were made of; a segment without an entry stands for itself."""

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    def pin(self) -> Segments:
        """What a checkpoint of now has to store."""
        self._pinned |= frozenset(self.segments)
        return tuple(self.segments)

    def stored(self, pinned: Segments) -> None:
        """The checkpoint that pinned these is stored."""
        done = frozenset(pinned)
        self.segments = [segment for segment in self.segments if segment not in done]
        self._pinned -= done

    def step(self, before: Segments, after: Segments) -> None:
        """The partition's segments before and after a step."""
        known = {segment.name for segment in before}
        fresh = [segment for segment in after if segment.name not in known]
        changed = [segment for segment in fresh if is_change(segment)]
        self.segments += changed
        if len(changed) == len(fresh):  # no merge went on
            return
        for run, inputs in _grown(before, after):
            sources = frozenset[Segment]().union(*(self._joined.get(s, frozenset((s,))) for s in inputs))
            self._joined.update(dict.fromkeys(run.segments, sources))
            if is_done(run):
                self._replace(sources, run.segments)
        current = frozenset(after)
        self._joined = {segment: of for segment, of in self._joined.items() if segment in current}

    def _replace(self, sources: frozenset[Segment], joined: Segments) -> None:
        places = [place for place, segment in enumerate(self.segments) if segment in sources]
        if len(places) != len(sources) or sources & self._pinned:
            return
        if places[-1] - places[0] != len(places) - 1:  # others lie between them
            return
        self.segments[places[0] : places[-1] + 1] = joined
        for segment in joined:
            self._joined.pop(segment, None)


class ChangeLogs:
    """Of all partitions of an operator, or of none: not while the next checkpoint is to be a base anyway."""

    def __init__(self, partitions: int) -> None:
        self._logs = [ChangeLog() for _ in range(partitions)]
        self.are_kept = False
        """Every step since the checkpoint before is in the logs."""

    def clear(self, are_kept: bool = False) -> None:
        """Forget all; `are_kept`: what comes from now on is all that has changed."""
        self._logs = [ChangeLog() for _ in self._logs]
        self.are_kept = are_kept

    @property
    def segments(self) -> list[Segment]:
        return [segment for log in self._logs for segment in log.segments]

    @property
    def bytes(self) -> int:
        return sum(log.bytes for log in self._logs)

    def pin(self) -> tuple[Segments, ...]:
        return tuple(log.pin() for log in self._logs)

    def stored(self, pinned: Sequence[Segments]) -> None:
        for log, changes in zip(self._logs, pinned, strict=True):
            log.stored(changes)

    def step(self, before: Sequence[Segments], after: Sequence[Segments]) -> None:
        for log, segments_before, segments_after in zip(self._logs, before, after, strict=True):
            log.step(segments_before, segments_after)


def _grown(before: Segments, after: Segments) -> Iterator[tuple[Run, Segments]]:
    """Merges to which a step added pieces, newest first: all pieces so far, and what they were made of, of which pieces
    from before stand for the rest."""
    known, rest = {segment.name for segment in before}, before
    for block in reversed(blocks_of(after)):
        pieces = block.pieces if isinstance(block, Merge) else block
        old = tuple(piece for piece in pieces.segments if piece.name in known)
        if len(old) == len(pieces.segments):
            rest = rest[: -len(block.segments)]
        elif old:
            rest = rest[: -len(blocks_of(rest)[-1].segments)]
            yield pieces, old
        elif not is_change(pieces.segments[0]):
            inputs = begun_with(pieces.segments[0])
            if inputs is None:  # a name that this version does not give: nothing older is known
                return
            rest, taken = rest[:-inputs], rest[-inputs:]
            yield pieces, taken
