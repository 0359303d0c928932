"""`FileSink`: exactly-once csv, json or parquet files. The on-disk format is described in docs/formats/sink-files.md.

Invariants: a file gets its visible name by one rename, after its epoch was published; a visible file is never changed,
renamed or removed by holdfast; a visible name belongs to one epoch and partition, so doing a commit again finds it.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from holdfast.durable import (
    fsync_directory,
    remove_quietly,
    rename_to_new_name,
    tells_of_no_space,
    translate_os_errors,
    write_staged,
)
from holdfast.errors import ConfigError, MismatchError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, SinkContext, StepId, TaskWriter
from holdfast.sinks.arrow_files import write_table
from holdfast.sinks.merge import MergeTask, data_files, has_rows, merge, part_number
from holdfast.sinks.output.columns import check_columns
from holdfast.sinks.output.form import Form
from holdfast.sinks.output.moves import Moves, make_visible_directory
from holdfast.sinks.output.partitions import split
from holdfast.sinks.output.planning import OneFile, Part, plan_epoch
from holdfast.sinks.staged_files import StagedFileSink
from holdfast.sinks.staging import HIDDEN
from holdfast.sinks.task_files import ParquetTaskWriter, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
PROBE_BYTES = 256 << 10
_NOT_JOINABLE = frozenset({"compression", "codec", "encoding", "charset", "linesep"})
"""Options of text: compressed or re-encoded bytes cannot be put one behind the other."""


class FileSink(StagedFileSink):
    """Files in a directory that every reader can list: rows appear once and never disappear.

    Example::

        orders.sink(FileSink("out/orders", "parquet"), name="orders_out")

    Within a region one file per partition and epoch appears after the epoch is published, named
    `part-<sink>-e000000012-p0000.parquet`; what a step wrote into a file of 4 MB or more stays a file of its own.
    `partition_files` puts an upper bound on the files per epoch (and directory), at any size. `partition_by` names columns
    whose values become directories, `day=2026-01-01/`, as Spark writes and reads them. `options` go to Spark's writer. Outside
    a region every step's files appear at once, under names that carry the run: no run writes over what another one wrote. The
    directory must be one that driver and executors share; other files in it are left alone.
    """

    reason: ClassVar[str] = "files are staged per epoch and renamed into place after the epoch is published"

    def __init__(
        self,
        path: str,
        format: Format = "csv",
        *,
        header: bool = True,
        options: Mapping[str, Any] | None = None,
        partition_by: str | Sequence[str] = (),
        partition_files: int | None = None,
    ) -> None:
        if format not in ("csv", "json", "parquet"):
            raise ConfigError(f"{format!r} is no format of a file sink.", cure="Use csv, json or parquet.")
        if partition_files is not None and partition_files < 1:
            raise ConfigError(f"an epoch cannot have {partition_files} files.", cure="Give at least 1.")
        super().__init__(Path(path.removeprefix("file://")).absolute())
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
        self._form = Form(format, header and format == "csv", by, joinable)
        self._partition_files = partition_files
        self._sums: dict[str, tuple[int, int]] = {}  # of files of these steps and of those being prepared

    def check_columns(self, schema: pa.Schema) -> None:
        check_columns(schema, self._form.format, self._form.partition_by, str(self._directory))

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        hidden = self._directory / HIDDEN
        self._form = replace(self._form, sink=str(context.sink))
        is_known = self._form.refuse_other(self._directory, hidden)
        super().open(context)
        if not is_known:
            self._form.write(hidden, self._staging.own / "output.tmp")
        self._moves = Moves(self._directory, self._staging)
        # Of all runs, also of those with no store or another one: outside of regions it is in the names of files.
        self._run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"

    def _step_directory(self, step: StepId) -> Path:
        return self._staging.step(step, "" if self.is_staged else self._run_id)

    # --- a step ---

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        directory = self._step_directory(step)
        positions = [name for name in POSITION_COLUMNS if name in frame.columns]
        writer = (frame.drop(*positions) if positions else frame).write.format(self._form.format)
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
        self._written(directory, step)
        return None

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

    def task_writer(self, step: StepId) -> TaskWriter | None:
        if self._form.format != "parquet" or set(self._options) - {"compression"}:
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
                    target = self._directory / _partition(path, directory) / self._final(name, number, path)
                    make_visible_directory(target.parent, self._directory)
                    rename_to_new_name(path, target)
        self._staging.forget([self._staging.relative(directory)])

    # --- an epoch ---

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        merged = self._staging.merged(epoch)
        planned = self._tasks(f"e{epoch:09}", sealed, merged)
        try:
            done = self._run.run_tasks(merge, [task for task, _ in planned])
        except NoSpaceError:
            self._staging.forget([self._staging.relative(merged)])
            raise
        files = [
            [self._staging.relative(Path(staged.path)), final, staged.size, staged.crc]
            for (_, final), staged in zip(planned, done, strict=True)
            if staged is not None
        ]
        self._settle_directories(Path(staged.path) for staged in done if staged is not None)
        return {"files": files, "leftovers": [*sealed, self._staging.relative(merged)]}

    def _tasks(self, name: str, steps: list[str], merged: Path) -> list[tuple[MergeTask, str]]:
        """One task per final file, with that file's name."""
        form = self._form
        parts = [part for step in steps for part in parts_of(self._staging.home / step)]
        planned = plan_epoch(parts, form.joinable, bool(form.partition_by), self._partition_files)
        tasks = []
        for one in planned:
            final = os.path.join(one.directory, self._final(name, one.number, Path(one.parts[0].path)))
            tasks.append((self._merge_task(one, merged / final), final))
        return tasks

    def _merge_task(self, one: OneFile, target: Path) -> MergeTask:
        if len(one.parts) > 1:
            os.makedirs(target.parent, exist_ok=True)
        sources = tuple(part.path for part in one.parts)
        sums = {path: self._sums.pop(path) for path in sources if path in self._sums}
        return MergeTask(self._form.format, self._form.header, sources, str(target), sums)

    def _settle_directories(self, files: Iterator[Path]) -> None:
        """Whoever made the files durable did so with their directories: here follow those above, up to the owner's."""
        above = {
            parent
            for file in files
            for parent in file.parents[1:]
            if parent.is_relative_to(self._staging.owned)
        }
        for directory in {self._staging.owned, *above}:
            fsync_directory(directory)

    def _final(self, name: str, number: int, path: Path) -> str:
        return f"part-{self._run.sink}-{name}-p{number:04}{_suffix(path, self._form.format)}"

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        with translate_os_errors(str(self._directory)):
            super().commit(epoch, prepared)

    def show(self, epoch: Epoch, prepared: Any) -> None:
        self._moves.perform(prepared["files"])

    # --- after a failure ---

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        newest = max(self._visible(), key=lambda found: found[1], default=None)
        if newest is not None:
            self._refuse_visible(*newest, epoch, begins=prepared is None and committed is None)
        super().check(epoch, prepared, committed)
        if prepared is not None:
            self._moves.verify(prepared["files"])
            for file in prepared["files"] if committed is None or committed < epoch else ():
                self._moves.of(*file)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        with translate_os_errors(str(self._staging.home)):
            super().restore(epoch, prepared)
        self._sums.clear()

    def is_untouched(self, prepared: Any) -> bool:
        return self._moves.are_untouched(prepared["files"])

    def _refuse_visible(self, path: Path, of_epoch: int, epoch: Epoch, begins: bool) -> None:
        """A visible file of a later epoch means that the store is older than the output, even if the ledger is lost. A
        job that begins here (a fork) has shown nothing at all."""
        if of_epoch > epoch:
            raise MismatchError(
                f"this store is older than the output: {path} is of epoch {of_epoch}, the store has {epoch}.",
                cure=f"Use the newest store of this job, or {self.elsewhere}.",
            )
        if begins:
            raise MismatchError(
                f"{path} was written by another job than this one, which begins here.",
                cure="Write into another directory.",
            )

    def _visible(self) -> Iterator[tuple[Path, int]]:
        """Visible files of this sink's epochs, whoever wrote them."""
        pattern = re.compile(rf"part-{re.escape(self._run.sink)}-e(\d{{9,}})-p\d{{4,}}\..*")
        for path in data_files(self._directory):
            if matched := pattern.fullmatch(path.name):
                yield path, int(matched[1])

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
        return f"{self._form} in {self._directory}"


def parts_of(step: Path) -> list[Part]:
    """What a step wrote."""
    return [
        Part(str(path), _partition(path, step), part_number(path.name), path.stat().st_size)
        for path in data_files(step)
    ]


def _partition(path: Path, step: Path) -> str:
    """The directory of a step's file in the output."""
    return "" if path.parent == step else path.parent.relative_to(step).as_posix()


def _suffix(path: Path, format: str) -> str:
    """ ".csv", ".csv.gz", ".parquet": Spark puts parquet's codec before the suffix and text's behind it."""
    return f".{format}" + path.name.partition(f".{format}")[2]
