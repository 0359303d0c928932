"""`DatabaseSink`: rows in a table of a database, once.

    tasks fill a stage → settle: folded, checked, durable → the epoch is published → one transaction moves the rows and sets
    the ledger's row to the epoch

Invariants: a row is in the table only if the ledger's row says so, for both change in one transaction; what an attempt staged
that did not win is never read; a stage belongs to one epoch of one owner and is gone when the epoch shows, or when a later owner
begins.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.errors import ConfigError, DamagedError, MismatchError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import SinkContext, StepId, TaskWriter
from holdfast.sinks.database.address import Address
from holdfast.sinks.database.backend import GONE_CURE, Backend, Staged, StageWriter, accept
from holdfast.sinks.database.columns import Columns, Mode, Wanted, columns_of
from holdfast.sinks.database.statements import Entry
from holdfast.sinks.staged import StagedSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("holdfast.run")

_LEFT_S = 24 * 3600.0
_ANSWER = "writer long, rows long"


class DatabaseSink(StagedSink):
    """Rows in a table of PostgreSQL (`postgresql://…`, needs `holdfast[postgres]`) or SQLite (`sqlite:file.db`).

    Example::

        orders.sink(hf.DatabaseSink(url, "orders", create=True), name="orders_out")
        spent.sink(hf.DatabaseSink(url, "spent", mode="upsert", key="customer", create=True), name="spent_out")

    mode="append" adds every row. mode="upsert" keeps one row per key, the last one; it takes the changes of a running
    aggregate as they come. mode="changelog" also deletes: the column `op` says what a row does ("insert", "update",
    "delete"; or a boolean, true: delete) and is not written.

    In a region rows show with their epoch, all at once. Columns are found by name; nested ones become JSON. `create=True`
    makes the table if there is none. `staging` is the schema for staging tables and the ledger; by default that of the table.
    """

    reason: ClassVar[str] = (
        "rows are staged, and one transaction shows them and records the epoch in holdfast_ledger"
    )
    alone: ClassVar[str] = (
        "the ledger has no epoch of it: each step is a transaction of its own, and one whose end is not known is not tried again"
    )

    def __init__(
        self,
        url: str,
        table: str,
        mode: Mode = "append",
        *,
        key: str | Sequence[str] | None = None,
        op: str = "op",
        create: bool = False,
        staging: str | None = None,
    ) -> None:
        super().__init__()
        self._address = Address.of(url)
        self._wanted = Wanted.of(table, mode, key, op, create)
        if self._address.server == "sqlite" and ("." in table or staging is not None):
            raise ConfigError(
                "SQLite has no schemas.", cure="Give the plain name of a table, and no staging=."
            )
        self._staging_schema = staging
        self._columns: Columns | None = None
        self._backend_: Backend | None = None
        self._stage: str | None = None
        self._stages = 0
        self._clock: Clock = SystemClock()
        self._shown: Epoch | None = None
        self._total = 0
        """Rows that were prepared for the table, over all epochs."""
        self._is_looked_at = False
        self.wants_positions = mode != "append"
        self.elsewhere = "write into another table"

    # --- before a run, and when it begins ---

    def redirected(self, place: Path) -> DatabaseSink | None:
        """Into a SQLite file of its own, if it is one; nobody but the user can give it another server."""
        if self._address.server != "sqlite":
            return None
        place.mkdir(parents=True, exist_ok=True)
        (place / "trial.db").touch()
        other = copy(self)
        other._address = Address.of(f"sqlite:{place / 'trial.db'}")
        other._wanted = replace(self._wanted, create=True)
        return other

    def visible_rows(self) -> Sequence[Mapping[str, Any]]:
        from holdfast.sinks.database.sqlite import all_rows

        return all_rows(self._address, self._wanted.table)

    def check_columns(self, schema: pa.Schema) -> None:
        self._columns = columns_of(schema, self._wanted, self.describe())

    def open(self, context: SinkContext) -> None:
        super().open(context)
        self._is_looked_at = False
        self._backend_ = self._make_backend()
        self._run_id = secrets.token_hex(4)
        self._entry = Entry(
            context.topology,
            context.sink,
            self._wanted.table,
            context.job_id,
            context.region or "",
            0,
            int(context.token),
        )
        self._entry = self._backend.start(self._entry if self.is_staged else None) or self._entry
        whose = f"hf_{_digest(context.topology, context.sink, self._entry.target)}_"
        self._prefix = f"{whose}{_digest(context.job_id)}_" if self.is_staged else f"{whose}now_"
        if not self.is_staged:
            self._backend.drop([name for name in self._backend.stages(self._prefix) if self._is_old(name)])

    def _is_old(self, stage: str) -> bool:
        """Outside of regions: left behind by a run that died. Others of the same name may run beside this one."""
        began = int(stage.removeprefix(self._prefix).partition("_")[0], 16)
        return self._clock.wall() - began > _LEFT_S

    def _make_backend(self) -> Backend:
        assert self._columns is not None, "check_columns() comes first"
        if self._address.server == "sqlite":
            from holdfast.sinks.database.sqlite import SqliteBackend

            return SqliteBackend(self._address, self._wanted, self._columns)
        from holdfast.sinks.database.postgres.postgres import PostgresBackend

        return PostgresBackend(self._address, self._wanted, self._columns, self._staging_schema)

    @property
    def _backend(self) -> Backend:
        assert self._backend_ is not None, "open() comes first"
        return self._backend_

    # --- a step ---

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        fp("sink.write")
        task = _StageTask(self._writer(step))
        answers = [list(row) for row in frame.mapInArrow(task, _ANSWER).collect()]
        return self._take(answers)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        fp("sink.write")
        if not table.num_rows:
            return 0
        return self._take([self._writer(step)(table, 0, 0)])

    def task_writer(self, step: StepId) -> TaskWriter | None:
        fp("sink.write")
        return self._writer(step)

    def task_columns(self) -> Sequence[str] | None:
        # With a key rows need their positions, which only some have.
        return None if self.wants_positions else self._backend.columns.names

    def adopt(self, step: StepId, written: Sequence[Any]) -> None:
        self._take(written)

    def _writer(self, step: StepId) -> StageWriter:
        """How rows of a step are staged. All steps between two epochs share a stage; outside of regions each has its own."""
        if self._stage is None:
            self._stages += 1
            token = f"t{self._run.token}_" if self.is_staged else f"{int(self._clock.wall()):x}_"
            name = f"{self._prefix}{token}{self._run_id}_{self._stages}"
            self._backend.make_stage(name, durable=self.is_staged)
            self._stage = name
        return StageWriter(self._backend.ingest(), self._stage, self._backend.columns, step.step)

    def _take(self, written: Sequence[Any]) -> int:
        """The step consists of these rows."""
        assert self._stage is not None
        staged = [Staged(self._stage, int(writer), int(rows)) for writer, rows in written if rows]
        count = sum(one.rows for one in staged)
        if self.is_staged:
            for one in staged:
                self.stage(one)
            return count
        stage, self._stage = self._stage, None
        if staged:
            self._run.check_owner()
            self._backend.show_now(stage, [one.writer for one in staged])
        self._backend.drop([stage, f"{stage}_f"])
        return count

    # --- an epoch ---

    def seal(self, epoch: Epoch) -> Any:
        sealed, self._stage = (self._stage, super().seal(epoch)), None
        return sealed

    def make_durable(self, epoch: Epoch, sealed: Any) -> dict[str, Any]:
        stage, staged = cast(tuple[str | None, list[Staged]], sealed)
        writers = [one.writer for one in staged]
        rows = sum(one.rows for one in staged)
        self._total += rows
        folded = self._backend.settle(stage, writers, rows) if stage is not None and rows else None
        made = {
            "table": self._wanted.table,
            "mode": self._wanted.mode,
            "columns": list(self._backend.columns.names),
        }
        return {
            **made,
            "staged": folded or (stage if rows else "") or "",
            "writers": writers,
            "rows": rows,
            "shown": self._total,
            "leftover": stage or "",
        }

    def show(self, epoch: Epoch, prepared: Any) -> None:
        self._refuse_other(epoch, prepared)
        self._backend.show(self._at(epoch), prepared["staged"], prepared["writers"])
        self._shown = epoch

    def note_committed(self, epoch: Epoch) -> None:
        if self._shown != epoch:
            self._backend.note(self._at(epoch))

    def committed_epoch(self) -> Epoch | None:
        found = self._backend.read_entry(self._entry)
        accept(found, self._entry, self.describe())
        return None if found is None or not found.epoch else Epoch(found.epoch)

    def _at(self, epoch: Epoch) -> Entry:
        return replace(self._entry, epoch=int(epoch))

    def forget(self, prepared: Any) -> None:
        self._backend.drop([name for name in {prepared["staged"], prepared["leftover"]} if name])

    # --- after a failure ---

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        self._total = 0 if prepared is None else int(prepared.get("shown", 0))
        super().restore(epoch, prepared)

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        if prepared is not None and prepared["table"] == self._wanted.table:
            is_shown = (committed or 0) >= epoch
            rows = int(prepared.get("shown", 0)) - (0 if is_shown else int(prepared["rows"]))
            self._look_for_rows(rows, prepared.get("after", 0) if not is_shown else epoch, committed)
        if prepared is None or not prepared["staged"] or (committed or 0) >= epoch:
            return
        self._refuse_other(epoch, prepared)
        if not self._backend.stages(prepared["staged"]):
            raise DamagedError(
                f"epoch {epoch} is not in {self.describe()} yet, and its staging table {prepared['staged']} is gone.",
                cure="Nothing was changed. Use the database and table that this store wrote into.",
            )

    def _look_for_rows(self, rows: int, epoch: int, committed: Epoch | None) -> None:
        """Refuse a table whose ledger has forgotten what was written; tell, once in a run, of one that was emptied."""
        if rows <= 0 or self._is_looked_at:
            return
        if committed is None:
            raise MismatchError(
                f"{rows} rows were written into {self.describe()} up to epoch {epoch}, and its ledger knows nothing of them: "
                "the table is gone, or it is another one.",
                cure=GONE_CURE,
            )
        self._is_looked_at = True
        if self._wanted.mode != "changelog" and self._backend.is_empty():
            logger.warning(
                "sink %r: %s rows were written into %s up to epoch %s, and none is there any more. The run goes on behind them. If "
                "they should be there, put them back, or run with a new store and another table to write all rows again.",
                self._run.sink, rows, self.describe(), epoch,
            )  # fmt: skip

    def _refuse_other(self, epoch: Epoch, prepared: Any) -> None:
        """What an earlier program staged is shown by one that writes the same columns in the same way."""
        now = (self._wanted.mode, list(self._backend.columns.names))
        then = (prepared["mode"], list(prepared["columns"]))
        if prepared["staged"] and now != then:
            raise DamagedError(
                f"epoch {epoch} waits for {self.describe()} with mode={then[0]!r} and the columns {', '.join(then[1])}; the program "
                f"now has mode={now[0]!r} and {', '.join(now[1])}.",
                cure="Nothing was changed. Run the program as it was until it ends or is stopped, then change it.",
            )

    def abandon(self, epoch: Epoch) -> None:
        self._stage = None
        self._backend.note(self._entry)  # from now on older owners are refused
        self._backend.drop(self._backend.stages(self._prefix))

    def is_untouched(self, prepared: Any) -> bool:
        return True  # the ledger says it exactly

    def close(self) -> None:
        if self._backend_ is not None:
            self._backend_.close()

    def describe(self) -> str:
        how = (
            ""
            if self._wanted.mode == "append"
            else f" ({self._wanted.mode} by {', '.join(self._wanted.key)})"
        )
        return f"table {self._wanted.table} of {self._address.shown}{how}"


@dataclass(frozen=True)
class _StageTask:
    """What Spark runs over each partition: its rows go into the stage, an answer comes back."""

    writer: StageWriter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        answer = self.writer.write((pa.Table.from_batches([batch]) for batch in batches), partition)
        yield pa.record_batch(
            {"writer": pa.array(answer[:1], pa.int64()), "rows": pa.array(answer[1:], pa.int64())}
        )


def _digest(*texts: str) -> str:
    """Short, for names of tables."""
    return blake2b("\0".join(texts).encode(), digest_size=5).hexdigest()
