"""How the flat list of a version's segments is to be read: runs, and merges under way.

    [ base  a b c  | p0 p1 |  d e ]        oldest first; a key's state is its row in the newest segment that has it

A *run* is a segment, or the pieces of one merge: segments whose hash ranges do not overlap and ascend. A *merge*
replaces several neighbouring runs, its inputs, by one; it is done in *pieces* over several steps, from the lowest
hash to the highest. The pieces lie directly behind the inputs, before whatever came later. A piece holds, for every
key of its hash range, the newest row among the inputs; so the rule for the newest segment holds at every moment,
whether or not anybody knows that a merge is under way.

Names alone say what is under way, since only they travel with a checkpoint: `…-merge<m>-left<n>` is a piece of
merge m, and when it was written n segments directly before the first piece of m were still inputs: those with rows
above the piece's last hash. The newest piece counts. n = 0: the merge is done and its pieces are one run.
Whoever loses the names loses the progress of merges and nothing else.

Names also tell after which checkpoint rows were changed, `…-e<n>`, of a piece the newest of its inputs: merges do not reach
across the last checkpoint, so that the next delta can use what they join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast.state.keyed.segment import Segment

_PIECE = re.compile(r"-merge([0-9]{1,18})-left([0-9]{1,9})\Z")
_FIRST = re.compile(r"-from([0-9]{1,9})-merge[0-9]{1,18}-left[0-9]{1,9}\Z")
_AGE = re.compile(r"-e([0-9]{1,18})(?=-|\Z)")
_CHANGE = re.compile(r"-delta(-[0-9]+-merge[0-9]+-left0)?\Z")


@dataclass(frozen=True, slots=True)
class Run:
    """Segments whose hash ranges ascend without overlap: a look-up finds a key in at most one of them."""

    segments: tuple[Segment, ...]

    @property
    def rows(self) -> int:
        return sum(segment.rows for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge under way: rows of the inputs up to the last piece's last hash count no more."""

    number: int
    inputs: tuple[Run, ...]
    pieces: Run

    @property
    def segments(self) -> tuple[Segment, ...]:
        return (*(segment for run in self.inputs for segment in run.segments), *self.pieces.segments)


Block = Run | Merge


def blocks_of(segments: Sequence[Segment]) -> list[Block]:
    """The blocks of a version, oldest first; their segments in order are the version."""
    blocks: list[Block] = []
    end = len(segments)
    while end:
        block = _last_block(segments[:end])
        blocks.append(block)
        end -= len(block.segments)
    return blocks[::-1]


def _last_block(segments: Sequence[Segment]) -> Block:
    piece = _piece(segments[-1])
    if piece is None:
        return Run((segments[-1],))
    number, left = piece
    first = len(segments) - 1
    while first and (older := _piece(segments[first - 1])) and older[0] == number:
        first -= 1
    pieces = Run(tuple(segments[first:]))
    if not 0 < left <= first:
        return pieces
    inputs = blocks_of(segments[first - left : first])
    # Inputs of a merge are not themselves being merged: a list that says so was not written by `advance`.
    runs = tuple(block for block in inputs if isinstance(block, Run) and is_done(block))
    return Merge(number, runs, pieces) if len(runs) == len(inputs) else pieces


def is_done(run: Run) -> bool:
    """False if its segments are pieces of a merge that has not read all of its inputs."""
    piece = _piece(run.segments[-1])
    return piece is None or piece[1] == 0


def piece_name(prefix: str, merge: int, left: int) -> str:
    """The name of the next piece of `merge`, after which `left` segments are still its inputs."""
    return f"{prefix}-merge{merge}-left{left}"


def aged(prefix: str, age: int) -> str:
    """The prefix for names of segments whose rows were changed after checkpoint number `age`."""
    return f"{prefix}-e{age}"


def age_of(name: str) -> int | None:
    """After which checkpoint the newest rows under a name were changed; None: it does not tell."""
    found = _AGE.findall(name)
    return int(found[-1]) if found else None


def first_name(prefix: str, inputs: int) -> str:
    """The prefix for pieces of a merge that begins with `inputs` segments."""
    return f"{prefix}-from{inputs}"


def begun_with(piece: Segment) -> int | None:
    """How many segments the merge began with, if this is one of its first pieces."""
    found = _FIRST.search(piece.name)
    return int(found[1]) if found else None


def change_name(prefix: str, part: int | None = None) -> str:
    """The name of a segment with the rows a step changed; of a part of them if they are many."""
    return f"{prefix}-delta" if part is None else f"{prefix}-delta-{part}"


def is_change(segment: Segment) -> bool:
    """True if the segment holds rows that one step changed, and no others."""
    return _CHANGE.search(segment.name) is not None


def free_number(segments: Iterable[Segment]) -> int:
    """A number that no merge in the version has."""
    return 1 + max((piece[0] for segment in segments if (piece := _piece(segment))), default=-1)


def is_piece(segment: Segment) -> bool:
    """True if its name says that it is a piece of a run or of a merge under way."""
    return _piece(segment) is not None


def _piece(segment: Segment) -> tuple[int, int] | None:
    """(merge, inputs left) if the segment is a piece."""
    found = _PIECE.search(segment.name)
    return (int(found[1]), int(found[2])) if found else None
