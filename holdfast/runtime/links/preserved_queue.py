"""A queue whose batches can be had again: between elements that restart alone, and into regions by `.replayable()`. What it
means: `protocol/preserved.py`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from holdfast.errors import StateError
from holdfast.ids import ConnectionId
from holdfast.protocol.messages import Marker
from holdfast.protocol.preserved import NotRepeated, Preserved
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.links.connection import Interrupted, Parcel, Signals, never
from holdfast.runtime.links.queue import Queue

LEAST_BYTES = 16 << 10
"""What a batch counts at least against what may be kept: a file, its record in the store, and its handle in memory."""


@dataclass(frozen=True, slots=True)
class WhenParked:
    """What becomes of what is sent while the receiver's region is parked. `keep_bytes`: so much is kept, then `waits` says whether the
    sender waits, or rows are thrown away and counted; None: the sender waits when the queue is full, as ever. `stores_rest`: what waits is
    stored when the run ends, and the sender is outside of regions: what it has in hand then may be put here over all bounds."""

    keep_bytes: int | None = None
    waits: bool = True
    stores_rest: bool = False


WAIT = WhenParked()


@dataclass(frozen=True, slots=True)
class Place:
    """How far a sender or a receiver has come."""

    batches: int
    rows: int


class PreservedQueue(Queue):
    """Batches that were taken stay in their files until an epoch of the receiver covers them. No markers travel in it."""

    def __init__(
        self,
        id: ConnectionId,
        signals: Signals,
        *,
        unbounded: bool = False,
        repeats: bool = True,
        parked: WhenParked = WAIT,
    ) -> None:
        """`repeats`: the sender may go back and send again. `parked`: what becomes of what is sent while the receiver's region is."""
        super().__init__(id, signals, unbounded=unbounded)
        self._repeats, self._parked = repeats, parked
        self._is_parked = self._is_ending = False
        self._kept: Preserved[Parcel] = Preserved()
        self._items = cast("deque[Parcel | Marker]", self._kept.waiting)
        self._ever_taken = 0
        """Batches that were taken once, or that an earlier run had recorded."""

    # --- the sender's side --------------------------------------------------------------------------------------

    def put_batch(self, batch: Batch, give_up: Callable[[], bool], hurry: Callable[[], bool] = never) -> None:
        with self._signals.condition:
            is_repeated = self._kept.sent < self._kept.highest
            while not is_repeated and self._full() and not hurry():
                if give_up():
                    if self._parked.stores_rest:
                        break  # the run ends
                    raise Interrupted
                self._signals.condition.wait(1.0)
            parcel = Parcel(batch, self.sent + batch.rows)
            self.sent = parcel.end
            if self._throws_away or (self._is_parked and not self._parked.waits and self._is_kept_full()):
                self._throw(parcel)
                return
            if self._put(parcel):
                self._count(batch, 1)
            else:
                batch.hold.let_go()
            if not self._repeats:
                self._kept.sent_for_good(self._kept.sent)
            self._signals.condition.notify_all()

    def _put(self, parcel: Parcel) -> bool:
        try:
            return self._kept.put(parcel, parcel.batch.rows)
        except NotRepeated as error:
            raise StateError(
                f"what was to be sent along {self.id} again is not what was sent before: {error}.",
                cure="In mode='independent' an element does its steps again after a failure, so its operators must give the"
                " same rows for the same input; use another mode if they cannot.",
            ) from error

    @property
    def place_of_sender(self) -> Place:
        return Place(self._kept.sent, self.sent)

    @property
    def may_come_again(self) -> list[int]:
        """Rows of each batch that was sent since the sender's newest epoch."""
        return self._kept.may_come_again

    def send_again(self, place: Place) -> None:
        """The sender went back: what it sent since comes again, and is let go of."""
        with self._signals.condition:
            self._kept.send_again(place.batches)
            self.sent = place.rows

    def sent_for_good(self, place: Place) -> None:
        """An epoch of the sender holds it."""
        with self._signals.condition:
            self._kept.sent_for_good(place.batches)

    def rewind(self, row: int) -> None:
        assert not self._repeats, "what waits here is never sent anew"
        with self._signals.condition:
            waits = [parcel.end for parcel in self._kept.uncovered]
            stay = [end for end in waits if end <= row]
            first = self._kept.highest - len(waits)
            for parcel in self._kept.drop_behind(max(self._ever_taken, first + len(stay))):
                self._count(parcel.batch, -1)
                parcel.batch.hold.let_go()
            left = self._kept.uncovered
            self.sent = max(row, left[-1].end if left else self.taken)

    # --- the receiver's side ------------------------------------------------------------------------------------

    def pop(self) -> Parcel | Marker:
        parcel = self._kept.take()
        parcel.batch.hold.take()  # one for the step, one for the case that it must be done again
        self._ever_taken = max(self._ever_taken, self._kept.taken)
        self._count(parcel.batch, -1)
        self.taken = parcel.end
        self._signals.condition.notify_all()
        return parcel

    def take_just(self, batches: int) -> list[Parcel]:
        """The next batches: they are here."""
        return [cast(Parcel, self.pop()) for _ in range(batches)]

    @property
    def place_of_receiver(self) -> Place:
        return Place(self._kept.taken, self.taken)

    def take_back(self, place: Place) -> None:
        """The receiver went back: what it took since waits again."""
        with self._signals.condition:
            for parcel in self._kept.take_back(place.batches):
                self._count(parcel.batch, 1)
            self.taken = place.rows

    def cover(self, place: Place) -> None:
        """An epoch of the receiver holds what it made of the rows up to there."""
        with self._signals.condition:
            for parcel in self._kept.cover(place.batches):
                parcel.batch.hold.let_go()

    def put_first(self, parcels: Sequence[Parcel]) -> None:
        raise AssertionError("steps take whole batches here, or they could not be done again")

    def throw_away(self, now: bool) -> None:
        """The region is parked, or not any more: what is sent is kept for it, up to a bound, or thrown away."""
        if self._parked.keep_bytes is None:
            return
        with self._signals.condition:
            self._is_parked = now
            self._throws_away = now and not self._parked.keep_bytes
            for parcel in self._kept.drop_behind(self._ever_taken) if self._throws_away else ():
                self._count(parcel.batch, -1)
                self._throw(parcel)
            self._signals.condition.notify_all()

    @property
    def is_parked(self) -> bool:
        """What is sent is kept for a region that is parked."""
        return self._is_parked

    def waiting_behind(self, is_known: Callable[[Batch], bool]) -> list[Parcel]:
        """What nobody has taken behind the last batch that is known, in order."""
        with self._signals.condition:
            new = list(
                itertools.takewhile(lambda each: not is_known(each.batch), reversed(self._kept.waiting))
            )
        return new[::-1]

    def _full(self) -> bool:
        if not self._is_parked:
            return super()._full()
        return self._parked.waits and not self._is_ending and self._is_kept_full()

    def let_all_in(self) -> bool:
        """The run ends: what is on its way is put here over all bounds, and stored. True if somebody waits for that."""
        with self._signals.condition:
            is_waiting = self._is_parked and self._full()
            self._is_ending = self._parked.stores_rest
            self._signals.condition.notify_all()
        return is_waiting and self._is_ending

    def _is_kept_full(self) -> bool:
        kept = max(self._bytes, len(self._kept.waiting) * LEAST_BYTES)
        return self._parked.keep_bytes is not None and kept >= self._parked.keep_bytes

    def _throw(self, parcel: Parcel) -> None:
        self.thrown_away += parcel.batch.rows
        parcel.batch.hold.let_go()

    # --- from run to run ----------------------------------------------------------------------------------------

    @property
    def uncovered(self) -> list[Parcel]:
        """What no epoch of the receiver covers, in order."""
        with self._signals.condition:
            return self._kept.uncovered

    def go_on_with(self, parcels: Sequence[Parcel], taken: int, sent: int, sizes: Sequence[int]) -> None:
        """What an earlier run left: see `Preserved.go_on_with`. Comes after `open`."""
        self._kept.go_on_with(parcels, taken, sent, sizes)
        self._ever_taken = taken + len(parcels)
        for parcel in parcels:
            self._count(parcel.batch, 1)
