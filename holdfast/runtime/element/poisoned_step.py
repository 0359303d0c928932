"""A step of an operator with `poison=`: if it dies, the row that does it is found and left out. The rim of `protocol/bounds/poison.py`.

All of it happens within one step, from the state before it: whatever was tried on the way leaves nothing behind. So the row is told with
the step's output, once, and in a region with the epoch. After a kill of the driver the step comes again, and so does the search.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.errors import OperatorFailed, WorkerDied
from holdfast.failpoints import fp
from holdfast.language.connectors import POSITION_COLUMNS, POSITION_FIELDS
from holdfast.language.graph import Operator, StreamRef
from holdfast.language.hosted import ERRORS
from holdfast.language.poison import Poison
from holdfast.operators.python.dead_letters import as_json, letter
from holdfast.operators.python.output_rows import OutputForm
from holdfast.protocol.bounds.poison import MAX_FOUND, Search, SearchPhase
from holdfast.runtime.engines.engine import Delivery, Frame, KeyedOutput, KeyedState, StepName
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.runtime.worker_errors import death_of

if TYPE_CHECKING:
    from holdfast.runtime.element.worker import Worker

logger = logging.getLogger("holdfast.element")

NOBODY = Delivery((), frozenset())
"""What is only tried reaches nobody."""


def poison_of(op: Operator) -> Poison | None:
    return getattr(op.spec, "poison", None)


def survive(
    worker: Worker,
    op: Operator,
    poison: Poison,
    run: KeyedRun,
    state: KeyedState,
    frames: Mapping[int, Frame],
    name: StepName,
    request: Delivery,
) -> KeyedOutput:
    """What a keyed step gives without the rows that end its processes. Raises what any step may raise; WorkerDied if it dies and no row
    is to blame, OperatorFailed if there is one and the user wants to look at it."""
    trial = _Trial(worker, op, run, state, frames, name)
    try:
        return trial.of(frames, request)
    except WorkerDied as error:
        death = error
    rows = trial.rows()
    search, deaths = Search(rows.num_rows, poison.after).died(death.is_late), dict[int, WorkerDied]()
    while True:
        fp("poison.try")
        if search.phase is SearchPhase.GIVEN_UP:
            raise _given_up(op, search, death)
        is_whole = search.phase is SearchPhase.WHOLE
        chosen = _chosen(rows, search)
        try:
            result = trial.of(
                {**frames, 0: worker.engine.from_table(chosen)}, request if is_whole else NOBODY
            )
        except WorkerDied as error:
            death, search = error, search.died(error.is_late)
        else:
            if is_whole:
                return trial.with_letters(result, rows, deaths)
            trial.forget(result)
            search = search.lived()
        if len(search.found) > len(deaths):
            deaths[search.found[-1]] = death
            _tell(op, rows.slice(search.found[-1], 1), poison, death)


def _given_up(op: Operator, search: Search, death: WorkerDied) -> Exception:
    if len(search.found) <= MAX_FOUND:
        return death
    many = OperatorFailed(
        f"operator {op.name!r}: more than {MAX_FOUND} rows of one step end their processes: {death.message}",
        cure="Mend the code: these are no single rows.",
    )
    many.__cause__ = death
    return many


def _chosen(rows: pa.Table, search: Search) -> pa.Table:
    wanted = search.attempt
    if not search.found:
        return rows.slice(wanted.start, len(wanted))
    keep = [number for number in wanted if number not in search.found]
    return rows.take(pa.array(keep, pa.int64()))


def _tell(op: Operator, row: pa.Table, poison: Poison, death: WorkerDied) -> None:
    text = f"operator {op.name!r}, at the row {as_json(_values(row))}: {death.message}"
    if poison.then == "park":
        raise OperatorFailed(
            text, cure='Mend what ends the process, or let the row go: poison="quarantine".'
        ) from death
    logger.warning("%s; the row is put into the stream of errors", text)


def _values(row: pa.Table) -> dict[str, object]:
    return dict(row.drop_columns([c for c in POSITION_COLUMNS if c in row.column_names]).to_pylist()[0])


class _Trial:
    """One operator in one step, from the state before it."""

    def __init__(
        self,
        worker: Worker,
        op: Operator,
        run: KeyedRun,
        state: KeyedState,
        frames: Mapping[int, Frame],
        name: StepName,
    ) -> None:
        self._worker, self._op, self._run = worker, op, run
        self._state, self._frames, self._name = state, frames, name

    def of(self, frames: Mapping[int, Frame], request: Delivery) -> KeyedOutput:
        """Try these rows. WorkerDied if a process ended, or did not come to an end."""
        engine, task, late = self._worker.engine, self._run.task, threading.Event()

        def cancel() -> None:
            late.set()
            engine.cancel(self._name.element)

        timer = None if task.limit_s is None else threading.Timer(task.limit_s, cancel)
        try:
            if timer is not None:
                timer.start()
            return engine.keyed_step(task, self._state, frames, self._name, request)
        except Exception as error:
            self._run.remove_leftovers(self._name)
            death = WorkerDied.after(task.limit_s or 0.0) if late.is_set() else death_of(error)
            if death is None:
                raise
            if death is error:
                raise
            raise death from error
        finally:
            if timer is not None:
                timer.cancel()

    def forget(self, result: KeyedOutput) -> None:
        self._run.discard(result.state)
        for hold in result.holds:
            hold.let_go()

    def rows(self) -> pa.Table:
        """The rows of the step, in the driver and in their order."""
        engine, stream = self._worker.engine, self._op.inputs[0].streams[0]
        batch = engine.materialise(self._frames[0], self._name, f"{self._op.name}.poison")
        schema = self._worker.schema_of(stream)
        if batch is None:
            return schema.empty_table()
        try:
            return engine.read_batch(batch, schema, ordered=stream in self._worker.plan.stamped)
        finally:
            batch.hold.let_go()

    def with_letters(
        self, result: KeyedOutput, rows: pa.Table, deaths: Mapping[int, WorkerDied]
    ) -> KeyedOutput:
        """The result of a step without the rows that ended processes, which are told in the stream of errors."""
        if not deaths:
            return result
        found = sorted(deaths)
        told = [letter(self._op.name, _values(rows.slice(n, 1)), deaths[n]) for n in found]
        rows = rows.take(pa.array(found, pa.int64()))
        table = OutputForm(self._op.name, ERRORS).rows(told)
        port, engine = self._op.outputs - 1, self._worker.engine
        if StreamRef(self._op.name, port) in self._worker.plan.stamped:
            for field in POSITION_FIELDS:
                table = table.append_column(field, rows.column(field.name).cast(field.type))
        frame = engine.from_table(table)
        if port in result.frames:
            frame = engine.union([result.frames[port], frame])
        counts = result.state.counting([{"errors": rows.num_rows}])
        return replace(
            result, state=replace(result.state, counts=counts), frames={**result.frames, port: frame}
        )
