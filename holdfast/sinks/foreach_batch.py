"""`ForeachBatch`: hand rows to the user's function, per step or per epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.durable import checksum_file, translate_os_errors
from holdfast.errors import ConfigError, DamagedError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, Sink, SinkContext, StepId
from holdfast.sinks import ledger as ledgers
from holdfast.sinks.merge import MergeTask, data_files, merge
from holdfast.sinks.staging import HIDDEN, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ForeachBatch(Sink):
    """Calls `fn(rows, id)`; `rows` is a DataFrame (a pyarrow.Table in runs without Spark).

    Example::

        def upsert(df, epoch):
            df.write.jdbc(…)               # remember `epoch` in the same transaction

        orders.sink(ForeachBatch(upsert, per="epoch", staging="staging/upsert"), name="upsert")

    per="step": called for every step with the step's number; after a failure rows may come again under other numbers.
    per="epoch": rows are staged durably in `staging`, and the function is called after the epoch is published with all
    rows of the epoch and its number. If it failed or its success could not be recorded it is called again with the
    same rows and the same number: a function that ignores a number it has done makes the output exactly-once.
    An epoch without rows makes no call.
    """

    def __init__(
        self,
        fn: Callable[[Any, int], object],
        per: Literal["step", "epoch"] = "step",
        *,
        staging: str | None = None,
    ) -> None:
        if per not in ("step", "epoch"):
            raise ConfigError(f"per={per!r} is unknown.", cure='Use "step" or "epoch".')
        if per == "epoch" and staging is None:
            raise ConfigError(
                'per="epoch" needs a staging directory.', cure="Give staging='some/shared/directory'."
            )
        self._fn, self._per = fn, per
        self._directory = Path(staging or ".").absolute()
        self._steps: list[str] = []
        self._arrow = False
        # The class says why in general; an instance can say it precisely.
        self.__dict__["reason"] = (
            "the function is called again after a failure, with the same epoch number and the same rows"
            if per == "epoch"
            else "the function is called again after a failure, with another step number"
        )

    def open(self, context: SinkContext) -> None:
        self._context = context
        if self._per == "epoch":
            self._ledger = self._directory / HIDDEN / context.sink / ledgers.NAME
            if context.region is not None:
                ledgers.refuse_foreign(ledgers.Ledger.read(self._ledger), context, self._ledger)
            self._staging = Staging.open(self._directory, context.sink, context.token, context.job_id)
        self._steps = []

    @property
    def _staged(self) -> bool:
        """Outside a region there are no epochs: every step is handed over at once."""
        return self._per == "epoch" and self._context.region is not None

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        fp("sink.write")
        frame = frame.drop(*[name for name in POSITION_COLUMNS if name in frame.columns])
        if not self._staged:
            self._fn(frame, step.step)
            return None
        directory = self._staging.step(step)
        frame.write.mode("error").parquet(f"file://{directory}")
        self._steps.append(self._staging.relative(directory))
        return None

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        fp("sink.write")
        self._arrow = True
        table = table.drop_columns([name for name in POSITION_COLUMNS if name in table.column_names])
        if not self._staged:
            self._fn(table, step.step)
            return int(table.num_rows)
        directory = self._staging.step(step)
        with translate_os_errors(str(directory)):
            directory.mkdir(parents=True)
            pq.write_table(table, directory / "part-00000.parquet")
        self._steps.append(self._staging.relative(directory))
        return int(table.num_rows)

    def seal(self, epoch: Epoch) -> Any:
        sealed, self._steps = self._steps, []
        return sealed

    def prepare(self, epoch: Epoch, sealed: Any) -> Any:
        if self._per != "epoch":
            return None
        with translate_os_errors(str(self._directory)):
            fp("sink.prepare")
            files = [path for step in sealed for path in data_files(self._staging.home / step)]
            tasks = [MergeTask("parquet", False, (str(path),), str(path)) for path in files]
            done = [staged for staged in self._context.run_tasks(merge, tasks) if staged is not None]
            fp("sink.prepared")
        entries = [[self._staging.relative(Path(staged.path)), staged.size, staged.crc] for staged in done]
        return {"files": entries, "leftovers": list(sealed), "arrow": self._arrow}

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        if prepared is None:
            return
        fp("sink.commit.begin")
        self._context.check_owner()
        found = ledgers.Ledger.read(self._ledger)
        ledgers.check_writer(found, self._context, self._ledger)
        if found is not None and found.epoch >= epoch:
            return
        if prepared["files"]:
            self._fn(self._rows(prepared), int(epoch))
        fp("sink.commit.applied")
        self._record(epoch)
        fp("sink.commit.recorded")
        self._staging.forget(prepared["leftovers"])

    def _record(self, epoch: Epoch) -> None:
        entry = ledgers.Ledger(self._context.job_id, self._context.sink, int(epoch), int(self._context.token))
        entry.write(self._ledger, self._staging.own / "ledger.tmp")

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

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        if self._per != "epoch":
            return
        found = ledgers.Ledger.read(self._ledger)
        ledgers.check(found, self._context, self._ledger, epoch)
        self._staging.refuse_newer_owner()
        if prepared is not None:
            self.commit(epoch, prepared)
        elif epoch > 0 and found is None:
            self._staging.refuse_unfinished()
            self._record(epoch)  # from here on these rows are this job's
        fp("reset.sink.rollback")
        self._steps = []
        self._staging.clear()

    def describe(self) -> str:
        return f"{getattr(self._fn, '__name__', 'a function')} per {self._per}"
