"""`StagedSink`: rows become visible epoch by epoch, once. What all sinks have in common that can withhold rows.

    write_*, stage → seal(e) → prepare(e): durable, not visible → the epoch is published → commit(e): visible

What shows the rows also remembers the epoch it shows, in the same change if it can: `committed_epoch`. After a failure the run
begins with the epoch of the newest manifest, and `fate_of` decides from these two numbers alone.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from holdfast.errors import DamagedError, MismatchError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import Sink, SinkContext

Fate = Literal["commit", "drop", "refuse"]


def fate_of(staged: int, epoch: int, committed: int | None) -> Fate:
    """What becomes of a staged epoch when a run begins with `epoch`, its newest published one, and the output shows all up to
    `committed` (None: the output does not know).

    commit: published, and not visible yet. drop: never published, so its rows come again; or visible already. refuse: the
    output is ahead of the store, or an epoch was published and left out.
    """
    if committed is not None and committed > epoch:
        return "refuse"
    if staged > epoch or (committed is not None and staged <= committed):
        return "drop"
    if staged == epoch:
        return "commit"
    return "drop" if committed is None else "refuse"


class StagedSink(Sink):
    """A sink whose rows are withheld until their epoch is published.

    A subclass hands what it wrote to `stage`, and implements the abstract methods. In a region the calls are those of `Sink`;
    outside of regions every write is final, and none of the methods here is called.
    """

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
    elsewhere = "write into another directory"
    """What people can do if the output is ahead of the store."""

    def __init__(self) -> None:
        self._context: SinkContext | None = None
        self._steps: list[Any] = []
        self._after = 0
        """The epoch prepared or restored last: it must be visible before the next one."""

    # --- what a subclass says ---

    @abstractmethod
    def committed_epoch(self) -> Epoch | None:
        """The newest epoch that the output shows; None: it does not know. Refuses an output that is another's."""

    @abstractmethod
    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        """Make what was staged durable, not visible; plain data for `show`. May run while later steps write."""

    @abstractmethod
    def show(self, epoch: Epoch, prepared: Any) -> None:
        """Make the rows visible. It may have been done, or begun, before."""

    @abstractmethod
    def note_committed(self, epoch: Epoch) -> None:
        """From now on `committed_epoch` is `epoch`. A sink that does so in `show` does nothing here."""

    @abstractmethod
    def abandon(self, epoch: Epoch) -> None:
        """Drop what is staged of this epoch and all later ones; nothing staged of earlier ones is needed either."""

    def forget(self, prepared: Any) -> None:
        """The epoch is visible for good: remove what was needed to show it."""

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        """Refuse what cannot be shown or went wrong, before anything is changed."""

    @property
    def is_staged(self) -> bool:
        return self._run.region is not None

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        self._context = context
        self._steps = []

    @property
    def _run(self) -> SinkContext:
        assert self._context is not None, "open() comes first"
        return self._context

    def stage(self, what: Any) -> None:
        """Something was written that belongs to the next epoch."""
        self._steps.append(what)

    # --- an epoch ---

    def seal(self, epoch: Epoch) -> Any:
        sealed, self._steps = self._steps, []
        return sealed

    def prepare(self, epoch: Epoch, sealed: Any) -> Any:
        if not self.is_staged:
            return None
        fp("sink.prepare")
        made = self.make_durable(epoch, sealed)
        fp("sink.prepared")
        after, self._after = self._after, int(epoch)
        return {**made, "after": after}

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        if prepared is None:
            return
        fp("sink.commit.begin")
        self._run.check_owner()
        committed = self.committed_epoch()
        if committed is not None and committed >= epoch:
            return  # readers may even have taken the rows away
        after = _before(prepared)
        if fate_of(after, epoch, committed) == "refuse":
            raise DamagedError(
                f"epoch {epoch} cannot be shown in {self.describe()}: epoch {after} before it is not visible yet "
                f"(the newest there is {committed}).",
                cure="Nothing was changed or removed. Restore epoch by epoch, or report this as a bug.",
            )
        self.show(epoch, prepared)
        fp("sink.commit.applied")
        self.note_committed(epoch)
        fp("sink.commit.recorded")
        self.forget(prepared)

    # --- after a failure ---

    def verify(self, epoch: Epoch, prepared: Any | None) -> None:
        if not self.is_staged:
            return
        self._run.check_owner()
        committed = self.committed_epoch()
        if fate_of(epoch, epoch, committed) == "refuse":
            raise MismatchError(
                f"this store is older than the output: {self.describe()} has epoch {committed}, the store has {epoch}.",
                cure=f"Use the newest store of this job, or {self.elsewhere}.",
            )
        self.check(epoch, prepared, committed)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        if not self.is_staged:
            return
        self.verify(epoch, prepared)
        if prepared is not None:
            self.commit(epoch, prepared)
        elif epoch > 0 and self.committed_epoch() != epoch:
            self.note_committed(epoch)  # a job that begins here: from now on this output is its own
        fp("reset.sink.rollback")
        self._steps, self._after = [], int(epoch)
        self.abandon(Epoch(epoch + 1))

    def is_withheld(self, epoch: Epoch, prepared: Any) -> bool:
        return (self.committed_epoch() or 0) == _before(prepared) and self.is_untouched(prepared)

    def is_untouched(self, prepared: Any) -> bool:
        """True if it is certain that `show` has not begun."""
        return False


def _before(prepared: Any) -> int:
    """The epoch that must be visible before; 0: none, or an earlier version did not say."""
    return int(prepared.get("after", 0))
