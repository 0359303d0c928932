"""Run-time side of operators that have something to remember: sources and sinks here, keyed_run.py, hosted_run.py.

Each can be pinned between steps (`pin`, quick), made durable in the background (`part_of`, may be slow) and restored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.checkpoint.blobs import BlobRef, PairReader, get_blob, put_blobs
from holdfast.checkpoint.parts import OperatorPart
from holdfast.errors import InputError
from holdfast.failpoints import fp
from holdfast.ids import Epoch, OperatorName
from holdfast.language.connectors import Capture, Sink, Slice, Source, Stamp
from holdfast.language.hosted import OnError
from holdfast.operators.bad_rows import Refusals
from holdfast.runtime.persisted.connectors import PersistSink
from holdfast.state.values import codec
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Prepared:
    """An operator's part whose values are not stored yet: the worker does that, those of many operators in one write."""

    part: OperatorPart = field(default_factory=OperatorPart)
    """Segments are durable; `pairs` are those of earlier epochs that a restore needs too."""
    blob: bytes | None = None
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    """New pairs by kind."""


class Remembering(ABC):
    """Run-time side of one operator with state."""

    name: OperatorName

    @abstractmethod
    def pin(self, epoch: Epoch) -> Any:
        """The state as of now, safe from later steps. Called between steps."""

    @abstractmethod
    def part_of(self, epoch: Epoch, pinned: Any) -> Prepared:
        """Make segments durable and encode the rest. Called in the background."""

    def stored(self, epoch: Epoch, pairs: Sequence[BlobRef]) -> None:
        """The pairs of `part_of` are durable, in its order. Called in the background."""

    @abstractmethod
    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        """Go to the state of `part`; None: the initial state. `pairs`: what to read pairs by, if not by the store itself."""

    def state_size(self) -> int:
        """Bytes of the state now, about. Called between steps, often: it must be cheap. Where a source is, or what a sink has
        written, is no state that grows."""
        return 0


CLOSING = Slice(None, None, rows=0, bytes=0)
"""Behind the last rows of a source that closes: no rows, but the end of event time."""


class SourceRun(Remembering):
    """A source and where it is."""

    def __init__(self, name: OperatorName, source: Source, stamp: Stamp | None) -> None:
        self.name = name
        self.source = source
        self.stamp = stamp
        self.dry = False
        """True if the last `next_slice` found nothing, and nothing more comes by itself."""
        self.beginning: Any = None
        """Where it goes on if no epoch knows it: it was outside of regions before."""
        self.closes = False
        """When it is dry, nothing more comes, ever: event time comes to its end."""
        self.closed = False
        self._behind: int | None = None
        """Where the slice before ended, of sources whose positions are numbers."""
        self._known: Capture | None = None
        """Where the newest pin, or the restore, has it."""
        self._finishing = self._is_over = False
        """The run ends in order, and the source has nothing that another run would not find."""

    def finish(self) -> None:
        """The run ends in order: give only what the source has received and cannot give again. It is told once."""
        if not self._finishing:
            self._finishing = True
            self._is_over = not self.source.finish()
            self.dry = self._is_over

    @property
    def counts(self) -> dict[str, int]:
        return self.source.counts()

    def next_slice(self) -> Slice | None:
        if self._is_over:
            return None
        waits = self.source.awaits_more()
        piece = self.source.next_slice()
        if piece is not None:
            self._refuse_going_back(piece)
        is_at_end = piece is None and not waits and not self.source.awaits_more()
        if is_at_end and self.closes and not self.closed:
            self.closed, piece, is_at_end = True, CLOSING, False
        self.dry = is_at_end
        return piece

    def _refuse_going_back(self, piece: Slice) -> None:
        """InputError for rows that come without a step forward: an epoch between them would lose or double them, and a
        source that stands still would be read for ever."""
        before, self._behind = self._behind, piece.end if type(piece.end) is int else None
        if piece.rows and piece.start == piece.end:
            why = f"gave {piece.rows} rows and stayed at {_short(piece.end)}"
        elif type(piece.start) is int and type(piece.end) is int and piece.end < piece.start:
            why = f"went back from {piece.start} to {piece.end} within a slice"
        elif before is not None and type(piece.start) is int and piece.start < before:
            why = f"went back from {before} to {piece.start}"
        else:
            return
        raise InputError(
            f"source {self.name!r} {why}.",
            cure="Each slice has to begin where the one before it ended, and to end behind its rows (docs/language.md).",
        )

    def place_behind(self, piece: Slice) -> tuple[Any, bool]:
        """Where it is behind the slice it gave last; after `go_to` that slice can be read again."""
        is_of_source = piece is not CLOSING
        return self.source.snapshot_with(piece) if is_of_source else self.source.snapshot(), self.closed

    def go_to(self, place: tuple[Any, bool]) -> None:
        snapshot, self.closed = place
        self.seek(snapshot)

    def seek(self, snapshot: Any) -> None:
        """Go on there, wherever it was; None: at the beginning."""
        self._behind = None
        self.source.seek(snapshot)

    @property
    def has_moved(self) -> bool:
        """It is elsewhere than an epoch knows, perhaps without having given a row."""
        return self.source.capture() != self._known

    def pin(self, epoch: Epoch) -> Capture:
        self._known = self.source.capture()
        return self._known

    def part_of(self, epoch: Epoch, pinned: Any) -> Prepared:
        return Prepared(blob=codec.encode(pinned.plain(), path=f"position of source {self.name!r}"))

    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        fp("reset.source.seek")
        self.dry = self.closed = False
        self.seek(self.beginning if part is None else codec.decode(blob_of(pairs or store, part)))
        self._known = self.source.capture()


def _short(position: Any) -> str:
    shown = repr(position)
    return shown if len(shown) <= 60 else shown[:60] + "…"


class SinkRun(Remembering):
    """A sink inside a region."""

    def __init__(self, name: OperatorName, sink: Sink, on_error: OnError = "fail") -> None:
        self.name = name
        self.sink = sink
        self.refusals = Refusals(name, on_error)
        self.timed: PersistSink | None = None
        """If it is the end of a log that has event time beside its rows."""

    def pin(self, epoch: Epoch) -> Any:
        return self.sink.seal(epoch)

    def part_of(self, epoch: Epoch, pinned: Any) -> Prepared:
        made = self.sink.prepare(epoch, pinned)
        return Prepared(blob=codec.encode(made, path=f"output of sink {self.name!r}"))

    def restore(
        self, epoch: Epoch, part: OperatorPart | None, store: Store | None, pairs: PairReader | None = None
    ) -> None:
        # An epoch made without a run carries on what an earlier one was to show.
        shown = epoch if part is None else part.epoch or epoch
        self.sink.restore(shown, None if part is None else codec.decode(blob_of(pairs or store, part)))


def store_values(
    store: Store,
    entry: str,
    key_of: Callable[[str], str],
    epoch: Epoch,
    prepared: Mapping[Remembering, Prepared],
) -> dict[str, OperatorPart]:
    """Make the values of prepared parts durable, all in one write; returns the whole parts by operator. `key_of`: what
    the state of an operator is called; its pairs have ~ and the kind behind it."""
    values: dict[str, bytes] = {}
    for run, each in prepared.items():
        values |= {} if each.blob is None else {key_of(run.name): each.blob}
        values |= {f"{key_of(run.name)}~{kind}": data for kind, data in each.pairs.items()}
    refs = put_blobs(store, entry, values)
    parts: dict[str, OperatorPart] = {}
    for run, each in prepared.items():
        pairs = [refs[f"{key_of(run.name)}~{kind}"] for kind in each.pairs]
        if pairs:
            run.stored(epoch, pairs)
        blob = refs.get(key_of(run.name))
        parts[run.name] = replace(each.part, blob=blob, pairs=(*each.part.pairs, *pairs))
    return parts


def blob_of(store: PairReader | None, part: OperatorPart) -> bytes:
    """The bytes of an operator part's blob, verified."""
    assert store is not None
    fp("reset.op.load")
    data = get_blob(store, part.blob)
    fp("reset.op.loaded")
    return data
