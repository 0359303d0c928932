"""What an epoch stores, as values: of an operator, of an element; and one walk over all pieces of it.

    ElementPart ── OperatorPart of each of its operators with state
                └─ KeptBatch: rows on their way, by connection

`pieces` is the only code that knows where references lie: whoever keeps, verifies, copies, counts or prints what is stored
goes through it. The classes are the stored format as well (typed_json.py, docs/formats/manifest.md): a field that is renamed
here, or gets another default, makes stored epochs unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from holdfast.checkpoint.adaptive import Form, History
from holdfast.checkpoint.blobs import BlobRef
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.store.base import SegmentRef

Place = tuple[str, str]
"""(entry, key) in a store."""
Segments = tuple[tuple[SegmentRef, ...], ...]
"""Per partition its segments, oldest first."""
PieceKind = Literal["blob", "pair", "segment", "kept batch", "captured batch"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Something stored that a restore reads."""

    kind: PieceKind
    owner: str
    """Operator, or connection of a batch."""
    ref: BlobRef | SegmentRef
    partition: int | None = None

    @property
    def place(self) -> Place:
        return self.ref.entry, self.ref.key

    @property
    def names(self) -> list[Place]:
        """All it consists of in the store: a blob may be cut into chunks."""
        keys = self.ref.keys if isinstance(self.ref, BlobRef) else [self.ref.key]
        return [(self.ref.entry, key) for key in keys]


# --- in which form an operator is stored --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything anew each time."""

    kind: Literal["full"] = "full"
    deltas: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Chained:
    """A base, or a delta behind one. The next checkpoint goes by the history."""

    kind: Form
    history: History
    predicted_s: float
    """How long restoring the operator was predicted to take."""

    @property
    def deltas(self) -> int:
        """Since the base."""
        return self.history.deltas


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows that do not need each other, each stored once. `rows`: how many, by key of the segment."""

    rows: Mapping[str, int]
    kind: Literal["groups"] = "groups"
    deltas: ClassVar[int] = 0


StoredForm = Whole | Chained | Groups


# --- parts --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """What is stored of one operator."""

    blob: BlobRef | None = None
    """Small state as one value."""
    pairs: tuple[BlobRef, ...] = ()
    """Variables as a base and deltas: see chain.py."""
    segments: Segments = ()
    form: StoredForm | None = None
    epoch: Epoch | None = None
    """The earlier epoch in which a run took it; None: in the epoch that has the part. See reset_operator.py."""

    @property
    def values(self) -> tuple[BlobRef, ...]:
        """All that is not a segment."""
        return self.pairs if self.blob is None else (self.blob, *self.pairs)

    @property
    def bytes(self) -> int:
        return sum(piece.ref.size for piece in self.pieces(""))

    def pieces(self, operator: str) -> Iterator[Piece]:
        if self.blob is not None:
            yield Piece("blob", operator, self.blob)
        yield from (Piece("pair", operator, ref) for ref in self.pairs)
        for number, partition in enumerate(self.segments):
            yield from (Piece("segment", operator, ref, number) for ref in partition)

    def moved(self, refs: Mapping[Place, BlobRef]) -> OperatorPart:
        """The same in another store, which cuts values otherwise. `refs`: what became of each value."""
        blob = None if self.blob is None else refs[self.blob.entry, self.blob.key]
        return replace(self, blob=blob, pairs=tuple(refs[ref.entry, ref.key] for ref in self.pairs))


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """Rows on their way between two elements, as files. `skip`: the first of them, which are in a state already."""

    rows: int
    files: tuple[SegmentRef, ...]
    skip: int = 0

    def __post_init__(self) -> None:
        if self.skip > self.rows:
            raise ValueError(f"skips {self.skip} of {self.rows} rows")


Kept = Mapping[ConnectionId, tuple[KeptBatch, ...]]


@dataclass(frozen=True, slots=True)
class ElementPart:
    """What an element stores of an epoch. Must hold: all of it was taken in this epoch and attempt, except operators that
    tell another epoch."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt
    operators: Mapping[str, OperatorPart] = field(default_factory=dict)
    kept: Kept = field(default_factory=dict)
    """What it sent after its own token and before its pin: a restore sends it again, first and in this order."""
    captured: Kept = field(default_factory=dict)
    """What waited in its inputs behind a token that went ahead."""
    borders: Mapping[ConnectionId, Mapping[str, int]] = field(default_factory=dict)
    """Counters of connections that cross the region's border."""

    def pieces(self) -> Iterator[Piece]:
        for name, part in self.operators.items():
            yield from part.pieces(name)
        yield from _batches("kept batch", self.kept)
        yield from _batches("captured batch", self.captured)

    def moved(self, refs: Mapping[Place, BlobRef]) -> ElementPart:
        """The same in another store; see `OperatorPart.moved`."""
        return replace(self, operators={name: part.moved(refs) for name, part in self.operators.items()})

    def without(self, operators: Collection[str]) -> ElementPart:
        left = {name: part for name, part in self.operators.items() if name not in operators}
        return replace(self, operators=left)


def _batches(kind: PieceKind, kept: Kept) -> Iterator[Piece]:
    for connection, batches in kept.items():
        yield from (Piece(kind, connection, ref) for batch in batches for ref in batch.files)


def places(pieces: Iterable[Piece]) -> set[Place]:
    return {name for piece in pieces for name in piece.names}
