"""`FileSink`: exactly-once csv, json or parquet files. The on-disk format is described in docs/formats/sink-files.md.

Invariants: a file gets its visible name by one rename, after its epoch was published; a visible file is never changed,
renamed or removed by a run; a visible name belongs to one epoch and partition, so doing a commit again finds it.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from holdfast.durable import (
    remove_quietly,
    rename_to_new_name,
    tells_of_no_space,
    translate_os_errors,
    write_staged,
)
from holdfast.errors import ConfigError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import local_path
from holdfast.language.connectors import POSITION_COLUMNS, RowCheck, SinkContext, StepId, TaskWriter
from holdfast.sinks.arrow_files import write_table
from holdfast.sinks.epoch_files import EpochFileSink, partition_of, suffix_of
from holdfast.sinks.merge import data_files, has_rows, parquet_rows
from holdfast.sinks.output.bad_rows import FileRowCheck
from holdfast.sinks.output.compaction import finish_if_alone, visible_files
from holdfast.sinks.output.form import Form
from holdfast.sinks.output.moves import make_visible_directory
from holdfast.sinks.output.partitions import as_read, split
from holdfast.sinks.output.reading import rows_of
from holdfast.sinks.output.rolling import Roll, RollPart
from holdfast.sinks.staging import HIDDEN
from holdfast.sinks.task_files import ParquetTaskWriter, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
PROBE_BYTES = 256 << 10
_NOT_JOINABLE = frozenset({"compression", "codec", "encoding", "charset", "linesep"})
"""Options of text: compressed or re-encoded bytes cannot be put one behind the other."""


class FileSink(EpochFileSink):
    """Files in a directory that every reader can list: rows appear once and never disappear.

    Example::

        orders.sink(hf.FileSink("out/orders", "parquet"), name="orders_out")

    Within a region one file per partition and epoch appears after the epoch is published, named
    `part-<sink>-e000000012-p0000.parquet`; what a step wrote into a file of 4 MB or more stays a file of its own.
    `partition_files` puts an upper bound on the files per epoch (and directory), at any size. `partition_by` names columns
    whose values become directories, `day=2026-01-01/`, as Spark writes and reads them. `options` go to Spark's writer. Outside
    a region every step's files appear at once, under names that carry the run: no run writes over what another one wrote. The
    directory must be one that driver and executors share; other files in it are left alone.

    With `roll="128 MB"`, `roll="10 minutes"` or a pair of both, files of several epochs become one: rows stay hidden, durable
    and exactly-once, until there are enough of them or the first has waited for long enough; the rest shows when the run ends.
    """

    reason: ClassVar[str] = "files are staged per epoch and renamed into place after the epoch is published"

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format = "csv",
        *,
        header: bool = True,
        options: Mapping[str, Any] | None = None,
        partition_by: str | Sequence[str] = (),
        partition_files: int | None = None,
        roll: RollPart | Sequence[RollPart] | None = None,
    ) -> None:
        if format not in ("csv", "json", "parquet"):
            raise ConfigError(f"{format!r} is no format of a file sink.", cure="Use csv, json or parquet.")
        if partition_files is not None and partition_files < 1:
            raise ConfigError(f"an epoch cannot have {partition_files} files.", cure="Give at least 1.")
        self._options = {
            str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in (options or {}).items()
        }
        lowered = {name.lower() for name in self._options}
        if lowered & {"header", "mode", "path"}:
            raise ConfigError(
                "header, mode and path are arguments, not options.", cure="Leave them out of options."
            )
        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if len(set(by)) < len(by) or any(not name or name.startswith(".") for name in by):
            raise ConfigError(
                f"partition_by={list(by)} names a column twice, or one whose directory would be hidden.",
                cure="Name each column once; rename one that begins with a dot.",
            )
        joinable = format == "parquet" or not lowered & _NOT_JOINABLE
        if roll is not None and not joinable:
            raise ConfigError(
                "files of text with a compression, encoding or line separator of their own cannot be rolled.",
                cure="Write parquet, or leave these options or roll out.",
            )
        super().__init__(
            _directory(path),
            Form(format, header and format == "csv", by, joinable),
            partition_files,
            None if roll is None else Roll.of(roll),
        )
        self.let_spark_count = format != "parquet"  # of Parquet the files say it, which costs less

    @staticmethod
    def files(path: str | os.PathLike[str]) -> list[str]:
        """The files of an output whose rows are visible now, each row once: also amid a compaction, and after one that died.
        One that is gone when it is opened was compacted since: list again."""
        return [str(file) for file in visible_files(_directory(path))]

    # --- in a trial ---

    def redirected(self, place: Path) -> FileSink:
        other = copy(self)
        other._directory = place / "files"
        return other

    def visible_rows(self) -> Sequence[Mapping[str, Any]]:
        return rows_of(visible_files(self._directory), self._form, self._directory)

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        if self._roll is not None and context.region is None:
            raise ConfigError(
                f"the sink {context.sink!r} cannot roll files: it is outside of regions, where each step shows at once.",
                cure="Put it into a region with .consistent(), or leave roll out and use `holdfast compact`.",
            )
        hidden = self._directory / HIDDEN
        self._form = replace(self._form, sink=str(context.sink))
        with translate_os_errors(str(self._directory)):
            is_known = self._form.refuse_other(self._directory, hidden)
        finish_if_alone(self._directory)
        super().open(context)
        if not is_known:
            self._form.write(hidden, self._staging.own / "output.tmp")
        # Of all runs, also of those with no store or another one: outside of regions it is in the names of files.
        self._run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"

    def _step_directory(self, step: StepId) -> Path:
        return self._staging.step(step, "" if self.is_staged else self._run_id)

    # --- a step ---

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        directory = self._step_directory(step)
        positions = [name for name in POSITION_COLUMNS if name in frame.columns]
        frame = as_read(frame.drop(*positions) if positions else frame, self._form.partition_by)
        writer = frame.write.format(self._form.format)
        if self._form.format == "csv":
            writer = writer.option("header", str(self._form.header).lower())
        if self._form.partition_by:
            writer = writer.partitionBy(*self._form.partition_by)
        writer = writer.options(**self._options).option(
            "mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"
        )
        with translate_os_errors(str(directory)):
            fp("sink.write")
        try:
            writer.mode("error").save(f"file://{directory}")
        except Exception as error:
            if tells_of_no_space(error):
                self._staging.forget([self._staging.relative(directory)])
                raise NoSpaceError(
                    f"no space left while writing {directory}.", cure="Free some space."
                ) from error
            raise
        rows = None if self.let_spark_count else parquet_rows(directory)
        self._written(directory, step)
        return rows

    def write_arrow(self, table: pa.Table, step: StepId) -> int | None:
        directory = self._step_directory(step)
        keep = [name for name in table.column_names if name not in POSITION_COLUMNS]
        with translate_os_errors(str(directory)):
            fp("sink.write")
            directory.mkdir(parents=True)
            for partition, rows in (
                split(table.select(keep), self._form.partition_by) if table.num_rows else ()
            ):
                target = directory / partition / f"part-00000.{self._form.format}"
                os.makedirs(target.parent, exist_ok=True)
                write_table(rows, target, self._form.format, self._form.header, self._options)
        self._written(directory, step)
        return int(table.num_rows)

    def row_check(self) -> RowCheck | None:
        return FileRowCheck(self._form.format, self._form.partition_by)

    def tasks_may_write(self) -> bool:
        return self._form.format == "parquet" and not set(self._options) - {"compression"}

    def task_writer(self, step: StepId) -> TaskWriter | None:
        if not self.tasks_may_write():
            return None
        directory = self._step_directory(step)
        with translate_os_errors(str(directory)):
            fp("sink.write")
            directory.mkdir(parents=True)
        compression = self._options.get("compression", "snappy")
        return ParquetTaskWriter(str(directory), compression, self._form.partition_by)

    def adopt(self, step: StepId, written: Sequence[Any]) -> None:
        directory = self._step_directory(step)
        sums = show(directory, written)
        if self._run.region is not None:
            self._sums |= sums
        self._written(directory, step)

    def _written(self, directory: Path, step: StepId) -> None:
        if self._run.region is not None:
            self.stage(self._staging.relative(directory))
            return
        self._run.check_owner()
        files = data_files(directory)
        with translate_os_errors(str(self._directory)):
            for number, path in enumerate(files):
                if has_rows(str(path), self._form.format, self._form.header):
                    name = f"t{self._run.token}-r{self._run_id}-a{step.attempt}-s{step.step:09}"
                    target = self._directory / partition_of(path, directory) / self._final(name, number, path)
                    make_visible_directory(target.parent, self._directory)
                    rename_to_new_name(path, target)
        self._staging.forget([self._staging.relative(directory)])

    def _final(self, name: str, number: int, path: Path) -> str:
        return f"part-{self._run.sink}-{name}-p{number:04}{suffix_of(path, self._form.format)}"

    def accepts_writes(self) -> bool:
        probe = self._staging.own / f"probe-{threading.get_ident()}.tmp"
        try:
            write_staged(probe, bytes(PROBE_BYTES))
        except OSError:
            return not self._staging.own.is_dir()  # removed by a newer owner: the next write says so
        finally:
            remove_quietly(probe)
        return True

    def describe(self) -> str:
        rolled = f", rolled at {self._roll.said}" if self._roll is not None else ""
        return f"{self._form} in {self._directory}{rolled}"

    def when_visible(self, epoch: str) -> str:
        if self._roll is None:
            return epoch
        return f"{epoch}, in which {self._roll.said} of rows is complete; the rest when the run ends"


def _directory(path: str | os.PathLike[str]) -> Path:
    cure = "Mount it and give its path, or let Spark write: hf.ForeachBatch(lambda frame, n: frame.write.save(…))."
    return Path(local_path(path, "FileSink writes into", cure)).absolute()
