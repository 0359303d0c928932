"""How steps of operators with `poison=` are tried: keyed operators, and functions over tables. What for: `poisoned_step.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.language.connectors import POSITION_FIELDS
from holdfast.language.graph import Operator, StreamRef
from holdfast.language.hosted import Poison
from holdfast.runtime.element.poison.poisoned_step import Survived, Trial, answered, survive
from holdfast.runtime.engines.engine import Delivery, Engine, Frame, KeyedOutput, KeyedState, StepName
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.runs.keyed_run import KeyedRun

if TYPE_CHECKING:
    from holdfast.runtime.element.worker import Worker

NOBODY = Delivery((), frozenset())
"""What is only tried reaches nobody."""


def collected(worker: Worker, op: Operator, frame: Frame, name: StepName) -> pa.Table:
    """The rows of an operator's input, in the driver and in their order."""
    engine, stream = worker.engine, op.inputs[0].streams[0]
    batch = engine.materialise(frame, name, f"{op.name}.poison")
    if batch is None:
        return worker.streams.schema_of(stream).empty_table()
    try:
        return engine.read_batch(
            batch, worker.streams.schema_of(stream), ordered=stream in worker.plan.stamped
        )
    finally:
        batch.hold.let_go()


@dataclass(frozen=True)
class KeyedStep:
    """A step of a keyed operator: from which state, over which rows, and who gets what it makes."""

    run: KeyedRun
    state: KeyedState
    frames: Mapping[int, Frame]
    name: StepName
    request: Delivery

    def perform(self, engine: Engine) -> KeyedOutput:
        return engine.keyed_step(self.run.task, self.state, self.frames, self.name, self.request)


class KeyedTrial(Trial[KeyedOutput]):
    """The same, tried."""

    def __init__(self, worker: Worker, op: Operator, step: KeyedStep) -> None:
        self._worker, self._op, self._step = worker, op, step

    def first(self) -> KeyedOutput:
        return self._tried(self._step)

    def rows(self) -> pa.Table:
        return collected(self._worker, self._op, self._step.frames[0], self._step.name)

    def of(self, rows: pa.Table, is_whole: bool) -> KeyedOutput:
        frames = {**self._step.frames, 0: self._worker.engine.from_table(rows)}
        request = self._step.request if is_whole else NOBODY
        return self._tried(replace(self._step, frames=frames, request=request))

    def forget(self, result: KeyedOutput) -> None:
        self._step.run.discard(result.state)
        for hold in result.holds:
            hold.let_go()

    def _tried(self, step: KeyedStep) -> KeyedOutput:
        engine = self._worker.engine
        try:
            return answered(engine, step.name.element, step.run.task.limit_s, partial(step.perform, engine))
        except Exception:
            step.run.remove_leftovers(step.name)
            raise


def keyed_without(worker: Worker, op: Operator, poison: Poison, step: KeyedStep) -> KeyedOutput:
    """A keyed step without the rows that end its processes; these are told in the stream of errors, and counted."""
    found = survive(op, poison, KeyedTrial(worker, op, step))
    result = found.result
    if found.rows is None:
        return result
    port, frame = op.outputs - 1, _letters(worker, op, found)
    if port in result.frames:
        frame = worker.engine.union([result.frames[port], frame])
    counts = result.state.counting([{"errors": found.rows.num_rows}])
    return replace(result, state=replace(result.state, counts=counts), frames={**result.frames, port: frame})


def _letters(worker: Worker, op: Operator, found: Survived[KeyedOutput]) -> Frame:
    """With the positions of the rows they are about, if somebody orders by them."""
    table = found.letters
    assert found.rows is not None
    assert table is not None
    if StreamRef(op.name, op.outputs - 1) in worker.plan.stamped:
        for field in POSITION_FIELDS:
            table = table.append_column(field, found.rows.column(field.name).cast(field.type))
    return worker.engine.from_table(table)


class MappedTrial(Trial[Batch | None]):
    """A step of a function over tables. What it gives is computed at once, or nobody would know that it died."""

    def __init__(
        self, worker: Worker, op: Operator, frame: Frame, name: StepName, limit_s: float | None
    ) -> None:
        self._worker, self._op, self._frame, self._name = worker, op, frame, name
        self._limit_s = limit_s
        self._tries = 0

    def first(self) -> Batch | None:
        return self._tried(self._frame)

    def rows(self) -> pa.Table:
        return collected(self._worker, self._op, self._frame, self._name)

    def of(self, rows: pa.Table, is_whole: bool) -> Batch | None:
        return self._tried(self._worker.engine.from_table(rows))

    def forget(self, result: Batch | None) -> None:
        if result is not None:
            result.hold.let_go()

    def _tried(self, frame: Frame) -> Batch | None:
        engine = self._worker.engine
        self._tries += 1
        label = f"{self._op.name}.try-{self._tries}"

        def work() -> Batch | None:
            (out,) = engine.stateless(self._op, [frame], False)
            return engine.materialise(out, self._name, label)

        return answered(engine, self._name.element, self._limit_s, work)


def mapped_without(
    worker: Worker, op: Operator, poison: Poison, frame: Frame, name: StepName
) -> tuple[Batch | None, pa.Table | None]:
    """What a function over tables makes of a step without the rows that end its processes, and the letters about these."""
    found = survive(op, poison, MappedTrial(worker, op, frame, name, poison.timeout_s))
    return found.result, found.letters
