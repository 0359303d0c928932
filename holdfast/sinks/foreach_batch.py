"""`ForeachBatch`: hand rows to the user's function, per step or per epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durable import checksum_file, translate_os_errors
from holdfast.errors import ConfigError, DamagedError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, RowCheck, SinkContext, StepId
from holdfast.sinks.merge import MergeTask, data_files, merge, parquet_rows
from holdfast.sinks.staged_files import StagedFileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ForeachBatch(StagedFileSink):
    """Calls `fn(rows, id)`; `rows` is a DataFrame (a pyarrow.Table in runs without Spark).

    Example::

        def upsert(df, epoch):
            df.write.mode("append").parquet(f"upserted/epoch={epoch}")  # or a table that remembers `epoch`: `in_transaction`

        orders.sink(hf.ForeachBatch(upsert, per="epoch", staging="staging/upsert"), name="upsert")

    per="step": called for every step with the step's number; after a failure rows may come again under other numbers.
    per="epoch": rows are staged durably in `staging`, and the function is called after the epoch is published with all
    rows of the epoch and its number. If it failed or its success could not be recorded it is called again with the
    same rows and the same number: a function that ignores a number it has done makes the output exactly-once.
    An epoch without rows makes no call.

    The function may read its rows as often as it likes, and finds the same ones each time; what it leaves unread is its own matter.

    With on_error="stream" the function may leave rows out and tell which: `refuse(row, error)` of this sink, with per="step".
    `check(table)`, a function of a pyarrow.Table, answers for each row why it cannot be written, or None; such rows do not
    reach the function at all.
    """

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "at-least-once"

    def __init__(
        self,
        fn: Callable[[Any, int], object],
        per: Literal["step", "epoch"] = "step",
        *,
        staging: str | None = None,
        check: RowCheck | None = None,
    ) -> None:
        if per not in ("step", "epoch"):
            raise ConfigError(f"per={per!r} is unknown.", cure='Use "step" or "epoch".')
        if per == "epoch" and staging is None:
            raise ConfigError(
                'per="epoch" needs a staging directory.', cure="Give staging='some/shared/directory'."
            )
        self._fn, self._per, self._check = fn, per, check
        super().__init__(Path(staging or ".").absolute())
        self._arrow = False
        # The class says when and why in general; an instance can say it precisely.
        self.__dict__["shows_with_epoch"] = per == "epoch"
        self.__dict__["reason"] = (
            "the function is called again after a failure, with the same epoch number and the same rows"
            if per == "epoch"
            else "the function is called again after a failure, with another step number"
        )

    @staticmethod
    def in_transaction(
        connect: Callable[[], Any],
        write: Callable[[Any, Any], object],
        *,
        staging: str,
        ledger: str = "holdfast_epochs",
    ) -> ForeachBatch:
        """Exactly-once into any database that has transactions, by a DB-API driver.

        Example::

            def write(connection, rows):       # do not commit
                connection.cursor().executemany("insert into orders values (?, ?)", rows.select("id", "cents").collect())

            orders.sink(hf.ForeachBatch.in_transaction(connect, write, staging="staging/orders"), name="orders_out")

        `connect()` gives a new connection that does not commit by itself. `write` gets it and all rows of an epoch; what it
        did is committed together with the epoch's number in the table `ledger`, which is made if there is none. An epoch
        that the ledger has is not written again. Runs in the driver, as `fn` does.
        """
        from holdfast.sinks.transactional_batch import TransactionalBatch

        return TransactionalBatch(connect, write, staging, ledger)

    def open(self, context: SinkContext) -> None:
        if self._per == "epoch":
            super().open(context)
        else:
            self._context = context
        self.let_spark_count = not self.is_staged

    @property
    def per_epoch(self) -> bool:
        """The function gets the rows of whole epochs."""
        return self._per == "epoch"

    def row_check(self) -> RowCheck | None:
        return self._check

    def refuse(self, row: Any, error: Exception | str) -> None:
        """Called by the function: this row was not written, for this reason; the others were."""
        self._run.refuse(row, error)

    @property
    def is_staged(self) -> bool:
        """Outside a region there are no epochs: every step is handed over at once."""
        return self._per == "epoch" and super().is_staged

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        fp("sink.write")
        frame = frame.drop(*[name for name in POSITION_COLUMNS if name in frame.columns])
        if not self.is_staged:
            with readable_again(frame) as rows:
                self._fn(rows, step.step)
            return None
        directory = self._staging.step(step)
        frame.write.mode("error").parquet(f"file://{directory}")
        self.stage(self._staging.relative(directory))
        return parquet_rows(directory)

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        fp("sink.write")
        self._arrow = True
        table = table.drop_columns([name for name in POSITION_COLUMNS if name in table.column_names])
        if not self.is_staged:
            self._fn(table, step.step)
            return int(table.num_rows)
        directory = self._staging.step(step)
        with translate_os_errors(str(directory)):
            directory.mkdir(parents=True)
            pq.write_table(table, directory / "part-00000.parquet")
        self.stage(self._staging.relative(directory))
        return int(table.num_rows)

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        files = [path for step in sealed for path in data_files(self._staging.home / step)]
        tasks = [MergeTask("parquet", False, (str(path),), str(path)) for path in files]
        done = [staged for staged in self._run.run_tasks(merge, tasks) if staged is not None]
        entries = [[self._staging.relative(Path(staged.path)), staged.size, staged.crc] for staged in done]
        return {"files": entries, "leftovers": list(sealed), "arrow": self._arrow}

    def show(self, epoch: Epoch, prepared: Any) -> None:
        if prepared["files"]:
            self._fn(self._rows(prepared), int(epoch))

    def _rows(self, prepared: Any) -> Any:
        paths = [self._staging.home / name for name, _, _ in prepared["files"]]
        for path, (_, size, crc) in zip(paths, prepared["files"], strict=True):
            if not path.exists() or checksum_file(path) != (crc, size):
                raise DamagedError(
                    f"{path} is missing or damaged.", cure="Nothing was changed. Put the file back."
                )
        if prepared["arrow"]:
            return pa.concat_tables([pq.read_table(path) for path in paths])
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        return session.read.parquet(*[f"file://{path}" for path in paths])

    def describe(self) -> str:
        return f"{getattr(self._fn, '__name__', 'a function')} per {self._per}"


@contextmanager
def readable_again(frame: DataFrame) -> Iterator[DataFrame]:
    """The rows, for somebody who may read them several times. Spark makes them anew for each reader: they are kept if they could become
    others."""
    if _is_always_the_same(frame):
        yield frame
        return
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _is_always_the_same(frame: DataFrame) -> bool:
    plan: Any = frame._jdf.queryExecution().analyzed()
    patterns: Any = frame.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern  # type: ignore[union-attr]
    by_chance = (patterns.PYTHON_UDF(), patterns.CURRENT_LIKE())  # whatever is in a function; the clock
    return bool(plan.deterministic()) and not any(plan.containsPattern(each) for each in by_chance)
