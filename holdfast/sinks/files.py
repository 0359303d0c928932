"""`FileSink`: exactly-once csv, json or parquet files. The on-disk format is described in docs/formats/sink-files.md.

Invariants: a file gets its visible name by one rename, after its epoch was published; a visible file is never changed,
renamed or removed by holdfast; a visible name belongs to one epoch and partition, so doing a commit again finds it.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from holdfast.durable import (
    checksum_file,
    fsync_directory,
    remove_quietly,
    rename_into_place,
    rename_to_new_name,
    tells_of_no_space,
    translate_os_errors,
    write_staged,
)
from holdfast.errors import ConfigError, DamagedError, FencedError, MismatchError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, SinkContext, StepId, TaskWriter
from holdfast.sinks.arrow_files import write_table
from holdfast.sinks.merge import MergeTask, data_files, has_rows, merge, part_number, runs_of
from holdfast.sinks.staged_files import StagedFileSink
from holdfast.sinks.task_files import ParquetTaskWriter, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
PROBE_BYTES = 256 << 10


class FileSink(StagedFileSink):
    """Files in a directory that every reader can list: rows appear once and never disappear.

    Example::

        orders.sink(FileSink("out/orders", "parquet"), name="orders_out")

    Within a region one file per partition and epoch appears after the epoch is published, named
    `part-<sink>-e000000012-p0000.parquet`; what a step wrote into a file of 4 MB or more stays a file of its own.
    `partition_files` puts an upper bound on the files per epoch, at any size. `options` go to Spark's writer. Outside a
    region every step's files appear at once, under names that carry the run: no run writes over what another one wrote. The
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
        partition_files: int | None = None,
    ) -> None:
        if format not in ("csv", "json", "parquet"):
            raise ConfigError(f"{format!r} is no format of a file sink.", cure="Use csv, json or parquet.")
        if partition_files is not None and partition_files < 1:
            raise ConfigError(f"an epoch cannot have {partition_files} files.", cure="Give at least 1.")
        super().__init__(Path(path.removeprefix("file://")).absolute())
        self._format, self._header = format, header and format == "csv"
        self._options = {
            str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in (options or {}).items()
        }
        lowered = {name.lower() for name in self._options}
        if lowered & {"header", "mode", "path"}:
            raise ConfigError(
                "header, mode and path are arguments, not options.", cure="Leave them out of options."
            )
        # Compressed or re-encoded text cannot be joined byte by byte.
        self._joinable = format == "parquet" or not lowered & {
            "compression",
            "codec",
            "encoding",
            "charset",
            "linesep",
        }
        self._partition_files = partition_files
        self._sums: dict[str, tuple[int, int]] = {}  # of files of these steps and of those being prepared

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        super().open(context)
        # Of all runs, also of those with no store or another one: outside of regions it is in the names of files.
        self._run_id = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"

    def _step_directory(self, step: StepId) -> Path:
        return self._staging.step(step, "" if self.is_staged else self._run_id)

    # --- a step ---

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        directory = self._step_directory(step)
        positions = [name for name in POSITION_COLUMNS if name in frame.columns]
        writer = (frame.drop(*positions) if positions else frame).write.format(self._format)
        if self._format == "csv":
            writer = writer.option("header", str(self._header).lower())
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
            if table.num_rows:
                target = directory / f"part-00000.{self._format}"
                write_table(table.select(keep), target, self._format, self._header, self._options)
        self._written(directory, step)
        return int(table.num_rows)

    def task_writer(self, step: StepId) -> TaskWriter | None:
        if self._format != "parquet" or set(self._options) - {"compression"}:
            return None
        directory = self._step_directory(step)
        with translate_os_errors(str(directory)):
            fp("sink.write")
            directory.mkdir(parents=True)
        return ParquetTaskWriter(str(directory), self._options.get("compression", "snappy"))

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
                if has_rows(str(path), self._format, self._header):
                    name = f"t{self._run.token}-r{self._run_id}-a{step.attempt}-s{step.step:09}"
                    rename_to_new_name(path, self._directory / self._final(name, number, path))
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
        fsync_directory(self._staging.owned)
        return {"files": files, "leftovers": [*sealed, self._staging.relative(merged)]}

    def _tasks(self, name: str, steps: list[str], merged: Path) -> list[tuple[MergeTask, str]]:
        """One task per final file, with that file's name."""
        parts: dict[int, list[Path]] = defaultdict(list)
        for step in steps:
            for path in data_files(self._staging.home / step):
                number = part_number(path.name)
                if not self._joinable:
                    number = len(parts)  # every file stays one of its own
                elif self._partition_files is not None:
                    number %= self._partition_files
                parts[number].append(path)
        # A number asked for is kept at any size.
        runs = {n: runs_of(p) if self._partition_files is None else [p] for n, p in sorted(parts.items())}
        more = count(max(runs, default=0) + 1)
        numbered = [(next(more) if i else n, run) for n, of in runs.items() for i, run in enumerate(of)]
        tasks = []
        for number, paths in numbered:
            final = self._final(name, number, paths[0])
            sources = tuple(str(path) for path in paths)
            sums = {path: self._sums.pop(path) for path in sources if path in self._sums}
            tasks.append((MergeTask(self._format, self._header, sources, str(merged / final), sums), final))
        return tasks

    def _final(self, name: str, number: int, path: Path) -> str:
        return f"part-{self._run.sink}-{name}-p{number:04}{_suffix(path, self._format)}"

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        with translate_os_errors(str(self._directory)):
            super().commit(epoch, prepared)

    def show(self, epoch: Epoch, prepared: Any) -> None:
        todo = [move for file in prepared["files"] if (move := self._move(*file))]
        for source, target in todo:
            rename_into_place(source, target)
        for directory in {self._directory, *(source.parent for source, _ in todo)}:
            fsync_directory(directory)

    def _move(self, staged: str, final: str, size: int, crc: int) -> tuple[Path, Path] | None:
        """What gives one file its visible name; None if it has it already. Refuses before anything is changed."""
        source, target = self._staging.home / staged, self._directory / final
        here, there = _size(source), _size(target)
        if there is not None:
            if here is not None:
                raise _damaged(target, "is there although its epoch is not visible yet")
            if there != size:
                raise _damaged(target, f"has {there} bytes instead of {size}")
            return None
        if here is None and not self._staging.own.is_dir():
            raise FencedError(f"{self._staging.own} was removed by a newer owner.", cure="Stop this run.")
        if here != size:
            raise _damaged(source, "is missing" if here is None else f"has {here} bytes instead of {size}")
        return source, target

    # --- after a failure ---

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        newest = max(self._visible(), key=lambda found: found[1], default=None)
        if newest is not None:
            self._refuse_visible(*newest, epoch, begins=prepared is None and committed is None)
        super().check(epoch, prepared, committed)
        if prepared is not None:
            self._verify(prepared)
            for file in prepared["files"] if committed is None or committed < epoch else ():
                self._move(*file)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        with translate_os_errors(str(self._staging.home)):
            super().restore(epoch, prepared)
        self._sums.clear()

    def is_untouched(self, prepared: Any) -> bool:
        """Every file of the epoch still lies where it was staged."""
        return all(
            _size(self._staging.home / staged) == size and _size(self._directory / final) is None
            for staged, final, size, _crc in prepared["files"]
        )

    def _verify(self, prepared: Any) -> None:
        """Staged bytes are checked before they are rolled forward: they may have lain there for long."""
        for staged, _final, size, crc in prepared["files"]:
            source = self._staging.home / staged
            if source.exists() and checksum_file(source) != (crc, size):
                raise _damaged(source, "is not what was written: its checksum differs")

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
        for path in self._directory.iterdir():
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
        return f"{self._format} files in {self._directory}"


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _suffix(path: Path, format: str) -> str:
    """ ".csv", ".csv.gz", ".parquet": Spark puts parquet's codec before the suffix and text's behind it."""
    return f".{format}" + path.name.partition(f".{format}")[2]


def _damaged(path: Path, what: str) -> DamagedError:
    return DamagedError(
        f"{path} {what}.",
        cure="Nothing else was changed. Put the file back, or start again in another directory.",
    )
