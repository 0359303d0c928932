"""Which epochs are wanted of a region, and whether there is anything new for one. Part of its controller. Pure.

    stop       a final epoch, whatever happens: until it is committed
    end        a final epoch at the end of the input: until a reset, after which the input has to be read to its end again
    asked      by somebody: a source, an operator, a person; also if nothing is new. `drained`: with nothing in flight
    in turn    the period is over, say: as soon as there is something new

New is what the next epoch would store or show and the newest does not. Elements say behind which of their pins they stirred
(`NewSince`); these messages may come late, or in any order. So one number tells all: the newest epoch that is known to lack
something. Must hold: whatever an epoch lacks is told under its number or a later one, so that it is new as long as no later epoch is
published; and a wish in turn is forgotten by the beginning of an epoch only.
"""

from __future__ import annotations

from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.protocol.messages import EpochDue, Start


class Wishes:
    """Of one controller."""

    def __init__(self) -> None:
        self.stop = False
        self.end = False
        self.drained = False
        self._asked = False
        self._in_turn = False
        self._new_since: Epoch | None = None
        """The newest epoch that is known to lack something; None: none is."""
        self._outdated: Epoch | None = None
        """An epoch that has to be followed by another one, whatever happens."""

    @property
    def final(self) -> bool:
        return self.stop or self.end

    def started(self, event: Start) -> None:
        # Where sources begin is stored before anything comes: another run might find another beginning.
        is_outdated = event.outdated or event.published == INITIAL_EPOCH
        self._outdated = event.published if is_outdated else None

    def wish(self, event: EpochDue, is_at_work: bool, is_parked: bool) -> bool:
        """False if that is void as the region stands. `is_at_work`: sources are where elements left them."""
        if event.final and event.sticky:
            self.stop = True
        elif event.final:
            self.end |= is_at_work
            return is_at_work
        elif is_parked:
            return False
        elif event.if_new:
            self._in_turn = True
        else:
            self._asked = True
            self.drained |= event.drained
        return True

    def lacks(self, epoch: Epoch) -> None:
        """There is something that `epoch` does not have."""
        self._new_since = max(epoch, self._new_since or INITIAL_EPOCH)

    def went_back(self) -> None:
        """All elements go back to the newest epoch: nothing is new, and no input is read to its end."""
        self._new_since = None
        self.end = False

    def is_new(self, published: Epoch) -> bool:
        """True if there is something that `published`, the newest epoch, does not have."""
        return self._outdated == published or (self._new_since is not None and self._new_since >= published)

    def is_due(self, published: Epoch) -> bool:
        """True if an epoch should begin now."""
        return self.final or self._asked or (self._in_turn and self.is_new(published))

    def begun(self) -> None:
        """An epoch begins, which is the one that was wanted. A final one stays wanted until it is committed."""
        self._asked = self._in_turn = self.drained = False
