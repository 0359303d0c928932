"""`MemorySink`: rows in this process, for tests and notebooks."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, SinkContext, StepId
from holdfast.sinks.staged import StagedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class _Shelf:
    """What one name holds. `sealed`: epochs that are not visible yet."""

    job: str = ""
    visible: list[pa.Table] = field(default_factory=list)
    sealed: dict[int, list[pa.Table]] = field(default_factory=dict)
    committed: Epoch | None = None


_shelves: dict[str, _Shelf] = {}
_lock = threading.Lock()


class MemorySink(StagedSink):
    """Keeps rows in a process-wide shelf under `name`; rows of a region are visible once their epoch is committed.

    Example::

        counts.sink(hf.MemorySink("counts"), name="counts_out")
        topology.run(spark, store="store", until="available")
        hf.MemorySink.rows("counts")         # [{"word": "to", "count": 2}, …]
        hf.MemorySink.table("counts")        # the same as a pyarrow.Table
        hf.MemorySink("counts").to_pandas()   # the same as a pandas DataFrame; to_arrow() as a pyarrow.Table

    A run of another job under the same name starts with an empty shelf. After a restart of the process the shelf is
    empty too: rows of earlier epochs are not written again.
    """

    reason: ClassVar[str] = (
        "rows are shown when their epoch is published; they are gone when the process ends"
    )

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.elsewhere = f"call MemorySink.clear({name!r})"

    @staticmethod
    def table(name: str) -> pa.Table | None:
        """The visible rows in the order of their commits; None if there are none."""
        with _lock:
            tables = list(_shelves[name].visible) if name in _shelves else []
        return pa.concat_tables(tables, promote_options="default") if tables else None

    @staticmethod
    def rows(name: str) -> list[dict[str, Any]]:
        """The visible rows as dicts."""
        table = MemorySink.table(name)
        return [] if table is None else list(table.to_pylist())

    def to_arrow(self) -> pa.Table:
        """The visible rows of this sink's name; a table without columns if there are none."""
        table = MemorySink.table(self._name)
        return pa.table({}) if table is None else table

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    @staticmethod
    def clear(name: str) -> None:
        """Forget everything under the name."""
        with _lock:
            _shelves.pop(name, None)

    def open(self, context: SinkContext) -> None:
        super().open(context)
        with _lock:
            if name_is_foreign(self._name, context.job_id):
                _shelves[self._name] = _Shelf(context.job_id)
            _shelves[self._name].sealed = {}

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        return self.write_arrow(frame.toArrow(), step)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        fp("sink.write")
        kept = table.drop_columns([name for name in POSITION_COLUMNS if name in table.column_names])
        if self.is_staged:
            self.stage(kept)
        else:
            with _lock:
                _shelves[self._name].visible.append(kept)
        return int(table.num_rows)

    def committed_epoch(self) -> Epoch | None:
        with _lock:
            return _shelves[self._name].committed

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        with _lock:
            _shelves[self._name].sealed[int(epoch)] = sealed
        return {"rows": sum(table.num_rows for table in sealed)}

    def show(self, epoch: Epoch, prepared: Any) -> None:
        with _lock:
            shelf = _shelves[self._name]
            shelf.visible += shelf.sealed.pop(int(epoch), [])
            shelf.committed = epoch

    def note_committed(self, epoch: Epoch) -> None:
        with _lock:
            _shelves[self._name].committed = epoch

    def abandon(self, epoch: Epoch) -> None:
        with _lock:
            _shelves[self._name].sealed = {}

    def is_withheld(self, epoch: Epoch, prepared: Any) -> bool:
        return (self.committed_epoch() or 0) < epoch

    def describe(self) -> str:
        return f"memory {self._name!r}"


def name_is_foreign(name: str, job: str) -> bool:
    """No shelf of that name belongs to the job. The caller holds the lock."""
    return name not in _shelves or _shelves[name].job != job
