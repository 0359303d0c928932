"""`FileSink`: exactly-once csv, json or parquet files. The on-disk format is described in docs/formats/sink-files.md.

Invariants: a file gets its visible name by one rename, after its epoch was published; a visible file is never changed,
renamed or removed by holdfast; a visible name belongs to one epoch and partition, so doing a commit again finds it.
"""

from __future__ import annotations

import re
import threading
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
    tells_of_no_space,
    translate_os_errors,
    write_staged,
)
from holdfast.errors import ConfigError, DamagedError, FencedError, MismatchError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import POSITION_COLUMNS, Sink, SinkContext, StepId, TaskWriter
from holdfast.sinks import ledger as ledgers
from holdfast.sinks.arrow_files import write_table
from holdfast.sinks.merge import MergeTask, data_files, has_rows, merge, part_number, runs_of
from holdfast.sinks.staging import HIDDEN, Staging
from holdfast.sinks.task_files import ParquetTaskWriter, show

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["csv", "json", "parquet"]
PROBE_BYTES = 256 << 10


class FileSink(Sink):
    """Files in a directory that every reader can list: rows appear once and never disappear.

    Example::

        orders.sink(FileSink("out/orders", "parquet"), name="orders_out")

    Within a region one file per partition and epoch appears after the epoch is published, named
    `part-<sink>-e000000012-p0000.parquet`; what a step wrote into a file of 4 MB or more stays a file of its own.
    `partition_files` puts an upper bound on the files per epoch, at any size. `options` go to Spark's writer. Outside a
    region every step's files appear at once. The directory must be one that driver and executors share; other files in it
    are left alone.
    """

    guarantee: ClassVar[Literal["exactly-once", "at-least-once"]] = "exactly-once"
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
        self._output = Path(path.removeprefix("file://")).absolute()
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
        self._context: SinkContext | None = None
        self._steps: list[str] = []
        self._sums: dict[str, tuple[int, int]] = {}  # of files of these steps and of those being prepared
        self._after = 0  # the epoch prepared or restored last: it must be visible before the next one

    # --- a run ---

    def open(self, context: SinkContext) -> None:
        self._context = context
        self._ledger = self._output / HIDDEN / context.sink / ledgers.NAME
        if context.region is not None:
            ledgers.refuse_foreign(ledgers.Ledger.read(self._ledger), context, self._ledger)
        self._staging = Staging.open(self._output, context.sink, context.token, context.job_id)
        self._steps = []

    @property
    def _run(self) -> SinkContext:
        assert self._context is not None, "open() comes first"
        return self._context

    # --- a step ---

    def write_spark(self, frame: DataFrame, step: StepId) -> int | None:
        directory = self._staging.step(step)
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
        directory = self._staging.step(step)
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
        directory = self._staging.step(step)
        with translate_os_errors(str(directory)):
            fp("sink.write")
            directory.mkdir(parents=True)
        return ParquetTaskWriter(str(directory), self._options.get("compression", "snappy"))

    def adopt(self, step: StepId, written: Sequence[Any]) -> None:
        directory = self._staging.step(step)
        sums = show(directory, written)
        if self._run.region is not None:
            self._sums |= sums
        self._written(directory, step)

    def _written(self, directory: Path, step: StepId) -> None:
        if self._run.region is not None:
            self._steps.append(self._staging.relative(directory))
            return
        self._run.check_owner()
        files = data_files(directory)
        with translate_os_errors(str(self._output)):
            for number, path in enumerate(files):
                if has_rows(str(path), self._format, self._header):
                    name = f"t{self._run.token}-a{step.attempt}-s{step.step:09}"
                    rename_into_place(path, self._output / self._final(name, number, path))
        self._staging.forget([self._staging.relative(directory)])

    # --- an epoch ---

    def seal(self, epoch: Epoch) -> Any:
        sealed, self._steps = self._steps, []
        return sealed

    def prepare(self, epoch: Epoch, sealed: Any) -> Any:
        with translate_os_errors(str(self._staging.owned)):
            fp("sink.prepare")
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
            fp("sink.prepared")
        after, self._after = self._after, int(epoch)
        return {"files": files, "leftovers": [*sealed, self._staging.relative(merged)], "after": after}

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
        with translate_os_errors(str(self._output)):
            fp("sink.commit.begin")
            self._run.check_owner()
            found = ledgers.Ledger.read(self._ledger)
            ledgers.check_writer(found, self._run, self._ledger)
            if found is not None and found.epoch >= epoch:
                return  # visible already; readers may even have taken the files away
            self._refuse_gap(found, epoch, prepared["after"])
            todo = [move for file in prepared["files"] if (move := self._move(*file))]
            for source, target in todo:
                rename_into_place(source, target)
            for directory in {self._output, *(source.parent for source, _ in todo)}:
                fsync_directory(directory)
            fp("sink.commit.applied")
            self._record(epoch)
            fp("sink.commit.recorded")
        self._staging.forget(prepared["leftovers"])

    def _refuse_gap(self, found: ledgers.Ledger | None, epoch: Epoch, after: int) -> None:
        """Epochs become visible in order: showing this one would make an earlier one count as done.

        Without a ledger nothing can be said (it may have been lost), so only a known gap is refused.
        """
        if found is not None and found.epoch < after:
            raise DamagedError(
                f"epoch {epoch} cannot be shown in {self._output}: epoch {after} before it is not visible yet "
                f"(the ledger has {found.epoch}).",
                cure="Nothing was changed or removed. Restore epoch by epoch, or report this as a bug.",
            )

    def _move(self, staged: str, final: str, size: int, crc: int) -> tuple[Path, Path] | None:
        """What gives one file its visible name; None if it has it already. Refuses before anything is changed."""
        source, target = self._staging.home / staged, self._output / final
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

    def _record(self, epoch: Epoch) -> None:
        context = self._run
        if not self._staging.own.is_dir():
            raise FencedError(f"{self._staging.own} was removed by a newer owner.", cure="Stop this run.")
        entry = ledgers.Ledger(context.job_id, context.sink, int(epoch), int(context.token))
        entry.write(self._ledger, self._staging.own / "ledger.tmp")

    # --- after a failure ---

    def verify(self, epoch: Epoch, prepared: Any | None) -> None:
        self._run.check_owner()
        found = ledgers.Ledger.read(self._ledger)
        ledgers.check(found, self._run, self._ledger, epoch)
        begins = prepared is None and epoch > 0 and found is None
        self._refuse_later_files(epoch)
        if begins:
            self._refuse_files_of_others()
            self._staging.refuse_unfinished()
        self._staging.refuse_newer_owner()
        if prepared is not None:
            self._verify(prepared)
            for file in prepared["files"] if found is None or found.epoch < epoch else ():
                self._move(*file)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        self.verify(epoch, prepared)
        if prepared is not None:
            self.commit(epoch, prepared)
        elif epoch > 0:
            self._record(epoch)  # from here on this output is this job's
        with translate_os_errors(str(self._staging.home)):
            fp("reset.sink.rollback")
            self._steps, self._after = [], int(epoch)
            self._sums.clear()
            self._staging.clear()

    def is_withheld(self, epoch: Epoch, prepared: Any) -> bool:
        """Every file of the epoch still lies where it was staged, and the epoch before is the last that was shown."""
        found = ledgers.Ledger.read(self._ledger)
        shown = 0 if found is None else found.epoch
        return shown == prepared["after"] and all(
            _size(self._staging.home / staged) == size and _size(self._output / final) is None
            for staged, final, size, _crc in prepared["files"]
        )

    def _verify(self, prepared: Any) -> None:
        """Staged bytes are checked before they are rolled forward: they may have lain there for long."""
        for staged, _final, size, crc in prepared["files"]:
            source = self._staging.home / staged
            if source.exists() and checksum_file(source) != (crc, size):
                raise _damaged(source, "is not what was written: its checksum differs")

    def _refuse_later_files(self, epoch: Epoch) -> None:
        """Visible files of a later epoch mean that the store is older than the output, even if the ledger is lost."""
        for path, of_epoch in self._visible():
            if of_epoch > epoch:
                raise MismatchError(
                    f"this store is older than the output: {path} is of epoch {of_epoch}, the store has {epoch}.",
                    cure="Use the newest store of this job, or write into another directory.",
                )

    def _refuse_files_of_others(self) -> None:
        """A job that begins here (a fork) has shown nothing at all."""
        for path, _ in self._visible():
            raise MismatchError(
                f"{path} was written by another job than this one, which begins here.",
                cure="Write into another directory.",
            )

    def _visible(self) -> Iterator[tuple[Path, int]]:
        """Visible files of this sink's epochs, whoever wrote them."""
        pattern = re.compile(rf"part-{re.escape(self._run.sink)}-e(\d{{9,}})-p\d{{4,}}\..*")
        for path in self._output.iterdir():
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
        return f"{self._format} files in {self._output}"


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
