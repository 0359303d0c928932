"""A step of an operator with `poison=`: if it dies, the row that does it is found and left out. The rim of `protocol/bounds/poison.py`.

All of it happens within one step, from the state before it: whatever was tried on the way leaves nothing behind. So the row is told with
the step's output, once, and in a region with the epoch. After a kill of the driver the step comes again, and so does the search.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from holdfast.errors import OperatorFailed, PoisonFound, WorkerDied
from holdfast.failpoints import fp
from holdfast.ids import ElementName
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import Operator
from holdfast.language.hosted import ERRORS, Poison
from holdfast.operators.python.dead_letters import as_json, letter
from holdfast.operators.python.output_rows import OutputForm
from holdfast.protocol.bounds.poison import MAX_FOUND, Search, SearchPhase
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.worker_errors import death_of

logger = logging.getLogger("holdfast.element")

R = TypeVar("R")


def poison_of(op: Operator) -> Poison | None:
    return getattr(op.spec, "poison", None)


class Trial(ABC, Generic[R]):
    """One operator in one step, from the state before it."""

    @abstractmethod
    def first(self) -> R:
        """The step as it is. WorkerDied if a process ended, or did not come to an end."""

    @abstractmethod
    def rows(self) -> pa.Table:
        """The rows of the step, in the driver and in their order, with positions if they have some."""

    @abstractmethod
    def of(self, rows: pa.Table, is_whole: bool) -> R:
        """The step with these rows. Otherwise than as a `is_whole` one it is only tried, and reaches nobody."""

    @abstractmethod
    def forget(self, result: R) -> None:
        """What was only tried leaves nothing behind."""


@dataclass(frozen=True)
class Survived(Generic[R]):
    """What a step gave, the rows that it was given without, in their order, and a letter about each."""

    result: R
    rows: pa.Table | None = None
    letters: pa.Table | None = None


def survive(op: Operator, poison: Poison, trial: Trial[R]) -> Survived[R]:
    """What a step gives without the rows that end its processes. Raises what any step may raise; WorkerDied if it dies and no row
    is to blame, OperatorFailed if there is one and the user wants to look at it."""
    try:
        return Survived(trial.first())
    except WorkerDied as error:
        death = error
    rows = trial.rows()
    search, deaths = Search(rows.num_rows, poison.after).died(death.is_late), dict[int, WorkerDied]()
    while True:
        fp("poison.try")
        if search.phase is SearchPhase.GIVEN_UP:
            raise _given_up(op, search, death)
        is_whole = search.phase is SearchPhase.WHOLE
        try:
            result = trial.of(_chosen(rows, search), is_whole)
        except WorkerDied as error:
            death, search = error, search.died(error.is_late)
        else:
            if is_whole:
                return _survived(op, result, rows, deaths)
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
        raise PoisonFound(
            text, cure='Mend what ends the process, or let the row go: poison="quarantine".'
        ) from death
    logger.warning("%s; the row is put into the stream of errors", text)


def _survived(op: Operator, result: R, rows: pa.Table, deaths: Mapping[int, WorkerDied]) -> Survived[R]:
    if not deaths:
        return Survived(result)
    found = sorted(deaths)
    letters = [letter(op.name, _values(rows.slice(n, 1)), deaths[n]) for n in found]
    return Survived(result, rows.take(pa.array(found, pa.int64())), OutputForm(op.name, ERRORS).rows(letters))


def _values(row: pa.Table) -> dict[str, object]:
    return dict(row.drop_columns([c for c in POSITION_COLUMNS if c in row.column_names]).to_pylist()[0])


def answered(engine: Engine, element: ElementName, limit_s: float | None, work: Callable[[], R]) -> R:
    """What `work` gives, which runs jobs of an element. WorkerDied if a process of them ended, or it took longer than the limit."""
    late = threading.Event()

    def cancel() -> None:
        late.set()
        engine.cancel(element)

    timer = None if limit_s is None else threading.Timer(limit_s, cancel)
    try:
        if timer is not None:
            timer.start()
        return work()
    except Exception as error:
        death = WorkerDied.after(limit_s or 0.0) if late.is_set() else death_of(error)
        if death is None or death is error:
            raise
        raise death from error
    finally:
        if timer is not None:
            timer.cancel()
