"""`StagedFileSink`: staged sinks that keep rows in a directory until they are shown, and the shown epoch in a ledger beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.durable import translate_os_errors
from holdfast.ids import Epoch
from holdfast.language.connectors import SinkContext
from holdfast.sinks import ledger as ledgers
from holdfast.sinks.staged import StagedSink
from holdfast.sinks.staging import HIDDEN, Staging


class StagedFileSink(StagedSink):
    """Steps write into directories of `Staging`; what is staged is such a directory, relative to the staging's home. What
    `make_durable` returns names under "leftovers" the directories that go when the epoch is visible."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory

    def open(self, context: SinkContext) -> None:
        super().open(context)
        self._ledger = self._directory / HIDDEN / context.sink / ledgers.NAME
        if context.region is not None:
            ledgers.refuse_foreign(ledgers.Ledger.read(self._ledger), context, self._ledger)
        self._staging = Staging.open(self._directory, context.sink, context.token, context.job_id)

    def committed_epoch(self) -> Epoch | None:
        found = ledgers.Ledger.read(self._ledger)
        ledgers.check_writer(found, self._run, self._ledger)
        return None if found is None else Epoch(found.epoch)

    def prepare(self, epoch: Epoch, sealed: Any) -> Any:
        with translate_os_errors(str(self._directory)):
            return super().prepare(epoch, sealed)

    def note_committed(self, epoch: Epoch) -> None:
        self.note(ledgers.Ledger(self._run.job_id, self._run.sink, int(epoch), int(self._run.token)))

    def note(self, entry: ledgers.Ledger) -> None:
        """Write the ledger, unless this owner was replaced."""
        self._staging.refuse_lost()
        entry.write(self._ledger, self._staging.own / "ledger.tmp")

    def forget(self, prepared: Any) -> None:
        self._staging.forget(prepared["leftovers"])

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        if prepared is None and epoch > 0 and committed is None:
            self._staging.refuse_unfinished()
        self._staging.refuse_newer_owner()

    def abandon(self, epoch: Epoch) -> None:
        self._staging.clear()
