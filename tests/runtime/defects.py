"""Defects to plant into a driver: each must turn the campaign red, or the campaign is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.runtime.element import worker
from holdfast.runtime.region import epochs
from holdfast.runtime.runs import keyed_run
from holdfast.runtime.runs import operator_runs as operators
from holdfast.runtime.runs.hosted import hosted_run
from holdfast.sinks.files import FileSink
from holdfast.sinks.staged import StagedSink
from holdfast.store.files.file_store import FileStore


def restore_without_seeking_the_source() -> None:
    original = operators.SourceRun.restore

    def restore(self: Any, epoch: Any, part: Any, *rest: Any) -> None:
        if part is None:
            original(self, epoch, part, *rest)

    operators.SourceRun.restore = restore  # type: ignore[method-assign]


def skip_one_operator_in_a_reset() -> None:
    original = hosted_run.HostedRun.restore

    def restore(self: Any, *given: Any) -> None:
        if self.instance is None:
            original(self, *given)

    hosted_run.HostedRun.restore = restore  # type: ignore[method-assign]


def forget_keyed_state() -> None:
    original = keyed_run.KeyedRun.restore

    def restore(self: Any, epoch: Any, part: Any, *rest: Any) -> None:
        original(self, epoch, None, *rest)

    keyed_run.KeyedRun.restore = restore  # type: ignore[method-assign]


def send_no_kept_batch_again() -> None:
    epochs.RegionEpochs._fetch_kept = lambda self, kept, attempt: {}  # type: ignore[method-assign]


def commit_output_before_its_epoch_is_published() -> None:
    original = StagedSink.prepare

    def prepare(self: Any, epoch: Any, sealed: Any) -> Any:
        prepared = original(self, epoch, sealed)
        self.commit(epoch, prepared)
        return prepared

    StagedSink.prepare = prepare  # type: ignore[method-assign]


def never_withdraw_staged_output() -> None:
    original = FileSink.restore

    def restore(self: Any, *given: Any) -> None:
        steps = self._steps
        original(self, *given)
        self._steps = steps

    FileSink.restore = restore  # type: ignore[method-assign]
    FileSink.abandon = lambda self, epoch: None  # type: ignore[method-assign]


def publish_the_manifest_before_the_data() -> None:
    """The data comes with the next epoch only."""
    late: list[Any] = []
    original = FileStore.put

    def put(self: Any, entry: str, pairs: Any) -> None:
        late.append((entry, dict(pairs)))
        while len(late) > 8:
            original(self, *late.pop(0))

    FileStore.put = put  # type: ignore[method-assign]


def pin_before_the_step_is_in_the_state() -> None:
    """The state is one epoch old, the positions are not."""
    original = worker.Worker.pin
    before: dict[Any, Any] = {}

    def pin(self: Any, *given: Any) -> Any:
        pinned = original(self, *given)
        for name, run in self.runs.items():
            if isinstance(run, hosted_run.HostedRun):
                now = pinned.operators[name]
                pinned.operators[name] = before.get(name, now)
                before[name] = now
        return pinned

    worker.Worker.pin = pin  # type: ignore[method-assign]


DEFECTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (
        restore_without_seeking_the_source,
        skip_one_operator_in_a_reset,
        forget_keyed_state,
        send_no_kept_batch_again,
        commit_output_before_its_epoch_is_published,
        never_withdraw_staged_output,
        publish_the_manifest_before_the_data,
        pin_before_the_step_is_in_the_state,
    )
}
