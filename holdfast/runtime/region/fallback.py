"""The newest epoch cannot be read: which epoch a run may begin with instead.

Nearly always: none. Output of the newest epoch may be visible, and going back behind it would write it twice. The run
is refused, naming the file and the safe choices.

There is one case in which going back is safe: the driver died between publishing the epoch and showing its output, and
*every* sink of the region proves that nothing of the epoch is visible (`Sink.is_withheld`). Then the epoch is withdrawn
as if it had never been published, and the run begins with the one before. In doubt: refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from holdfast.checkpoint import savepoints
from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.manifest import Manifest
from holdfast.errors import DamagedError, HoldfastError
from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.protocol.messages import ControllerRecord
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.region.verify import verify
from holdfast.runtime.runs.operator_runs import SinkRun
from holdfast.state.values import codec
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Found:
    """What a region begins with. `withdrawn`: a newer epoch that is damaged and was never visible, with the reason."""

    epoch: Epoch
    record: ControllerRecord | None
    withdrawn: Epoch | None = None
    reason: str = ""


def look(epochs: RegionEpochs, workers: Sequence[Worker]) -> Found:
    """The epoch to begin with, and all that restoring it reads verified. Changes nothing."""
    newest: Manifest | None = None
    try:
        epoch, record = epochs.find()
        newest = epochs.current
        verify(newest, workers, epochs.store, epochs.live, epochs.seen)
        return Found(epoch, record)
    except DamagedError as error:
        if not proves_withheld(newest, workers, epochs.store):
            raise refusal(error, epochs) from error
        assert newest is not None
        return _fall_back(epochs, workers, newest, record, error)


def _fall_back(
    epochs: RegionEpochs,
    workers: Sequence[Worker],
    newest: Manifest,
    record: ControllerRecord | None,
    error: DamagedError,
) -> Found:
    published = epochs.store.epochs(newest.region)
    before = published[-2] if len(published) > 1 else INITIAL_EPOCH
    if newest.previous != before:
        raise refusal(error, epochs) from error  # the epoch that sinks showed last is not there any more
    try:
        epochs.go_back(before)
        verify(epochs.current, workers, epochs.store, epochs.live, epochs.seen)
    except HoldfastError as second:
        epochs.stay()
        raise refusal(error, epochs) from second
    record = record or ControllerRecord(before, newest.epoch, newest.attempt, 0)
    # The number of the withdrawn epoch is never used again.
    record = replace(record, next_epoch=Epoch(max(record.next_epoch, newest.epoch + 1)))
    return Found(before, record, newest.epoch, error.message)


def proves_withheld(newest: Manifest | None, workers: Iterable[Worker], store: Store) -> bool:
    """True if every sink of the region proves that nothing of the newest epoch is visible. Changes nothing."""
    if newest is None or newest.origin is not None:
        return False  # nobody knows what the epoch was to show, or no run established it
    if any(point.epoch == newest.epoch for point in savepoints.read(store, newest.region).values()):
        return False  # somebody relies on it
    sinks = [run for worker in workers for run in worker.runs.values() if isinstance(run, SinkRun)]
    parts = newest.operators()
    try:
        return all(
            run.name in parts
            and run.sink.is_withheld(newest.epoch, codec.decode(get_blob(store, parts[run.name].blob)))
            for run in sinks
        )
    except HoldfastError:
        return False


def refusal(error: DamagedError, epochs: RegionEpochs) -> DamagedError:
    """The error again, with the safe choices."""
    url, region = epochs.store.url, epochs.region
    older = next(
        (epoch for epoch in reversed(epochs.store.epochs(region)[:-1]) if _is_whole(epochs, epoch)), None
    )
    choices = [
        f"Restore the file from a backup (`holdfast checkpoints verify {url}` tells all that is damaged)"
    ]
    if older is not None:
        choices.append(
            f"or begin a new store, with other places for its output, from the older epoch {older}: "
            f"`holdfast checkpoints fork {url} {older} NEW_STORE --region {region}`"
        )
    return DamagedError(error.message, cure=f"Nothing was changed. {', '.join(choices)}.")


def _is_whole(epochs: RegionEpochs, epoch: Epoch) -> bool:
    try:
        epochs.read(epoch)
    except HoldfastError:
        return False
    return True
