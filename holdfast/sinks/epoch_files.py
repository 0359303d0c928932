"""`EpochFileSink`: what becomes of the files that steps wrote: merged, made durable, shown with their epoch, or rolled.

Without `roll` all files of an epoch show with it. With it files of published epochs may wait: they are listed in every epoch
until one shows them. What waits when a run ends is shown then: the ledger first says so, and is then obeyed (docs/decisions/0012-rolled-files.md).
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.clock import Clock, SystemClock
from holdfast.durable import checksum, fsync_directory, translate_os_errors
from holdfast.errors import MismatchError, NoSpaceError
from holdfast.failpoints import fp
from holdfast.ids import Epoch
from holdfast.language.connectors import SinkContext
from holdfast.sinks.ledger import Ledger
from holdfast.sinks.merge import MergeTask, data_files, merge, part_number
from holdfast.sinks.output.columns import check_columns
from holdfast.sinks.output.form import Form
from holdfast.sinks.output.missing import GONE_CURE, Shown
from holdfast.sinks.output.moves import Moves, damaged
from holdfast.sinks.output.partitions import escape
from holdfast.sinks.output.planning import Part, plan_epoch
from holdfast.sinks.output.rolling import Joint, Piece, Roll, Waiting, are_complete, plan_rolled
from holdfast.sinks.staged_files import StagedFileSink

logger = logging.getLogger("holdfast.sinks")


class Planned(NamedTuple):
    """One file to be made: of which parts, and its visible name; or since when its rows wait."""

    task: MergeTask
    parts: tuple[Part, ...]
    final: str
    since: float | None


class Made(NamedTuple):
    """What an epoch shows, and what it adds to what waits."""

    files: list[list[Any]]
    waiting: list[Waiting]


class EpochFileSink(StagedFileSink):
    """Steps write files into their directories and call `stage`; their sizes and checksums may be told in `_sums`."""

    def __init__(self, directory: Path, form: Form, files_max: int | None, roll: Roll | None) -> None:
        super().__init__(directory)
        self._form, self._files_max, self._roll = form, files_max, roll
        self._clock: Clock = SystemClock()
        self._sums: dict[str, tuple[int, int]] = {}  # of files of these steps and of those being prepared
        self._waiting: dict[int, tuple[Waiting, ...]] = {}
        """What waits after an epoch: of the last one, and of the one before it, should it be prepared again."""
        self._shown: dict[int, int] = {}
        """How many files were shown up to an epoch, that one included: of the same two epochs."""
        self._restored: Any = None
        self._is_looked_at = False
        self._shape = 0
        """Tells the columns that this run writes from those of others."""

    def open(self, context: SinkContext) -> None:
        super().open(context)
        self._moves = Moves(self._directory, self._staging)
        self._waiting, self._shown, self._is_looked_at = {}, {}, False

    def check_columns(self, schema: pa.Schema) -> None:
        check_columns(schema, self._form.format, self._form.partition_by, str(self._directory))
        self._shape = checksum("\n".join(f"{field.name} {field.type}" for field in schema).encode())

    # --- an epoch ---

    def make_durable(self, epoch: Epoch, sealed: list[Any]) -> dict[str, Any]:
        self._staging.refuse_lost()
        merged = self._staging.merged(epoch)
        parts = [part for step in sealed for part in parts_of(self._staging.home / step)]
        before = max((number for number in self._waiting if number < epoch), default=-1)
        waiting = self._waiting.get(before, ())
        if self._roll is None and not waiting:
            planned = self._plan_epoch(f"e{epoch:09}", parts, merged)
        else:
            planned = self._plan_rolled(f"e{epoch:09}-p", parts, waiting, self._roll, merged)
        made = self._merge(planned, merged)
        taken = {part.path for one in planned for part in one.parts}
        kept = [each for each in waiting if str(self._staging.home / each.path) not in taken]
        gone = [each.path for each in waiting if each not in kept]
        still = (*kept, *made.waiting)
        self._waiting = {before: waiting, int(epoch): still}
        shown = self._shown.get(before, 0)
        self._shown = {before: shown, int(epoch): shown + len(made.files)}
        return {
            "files": made.files,
            "shown": self._shown[int(epoch)],
            "leftovers": [*sealed, self._staging.relative(merged), *gone],
            "waiting": [each.plain() for each in still],
        }

    def _plan_epoch(self, name: str, parts: list[Part], merged: Path) -> list[Planned]:
        form = self._form
        made = plan_epoch(parts, form.joinable, bool(form.partition_by), self._files_max)
        return [
            self._planned(one.parts, f"{name}-p{one.number:04}", merged, final=False, since=None)
            for one in made
        ]

    def _plan_rolled(
        self, name: str, parts: list[Part], waiting: Sequence[Waiting], roll: Roll | None, merged: Path
    ) -> list[Planned]:
        now = self._clock.wall()
        self._sums |= {str(self._staging.home / each.path): (each.crc, each.size) for each in waiting}
        waiters = [(self._part(each), each) for each in waiting]
        other = [Piece(p, w.since, False) for p, w in waiters if w.shape != self._shape]
        pieces = [Piece(p, w.since, False) for p, w in waiters if w.shape == self._shape]
        pieces += [Piece(part, now, True) for part in parts]
        files = self._files_max or 1
        # What a program with other columns left cannot become one with what this one writes.
        joints = [*plan_rolled(other, None, files, now), *plan_rolled(pieces, roll, files, now)]
        numbers: dict[str, Iterator[int]] = defaultdict(count)
        return [self._planned_joint(joint, name, numbers, merged) for joint in joints]

    def _planned_joint(
        self, joint: Joint, name: str, numbers: dict[str, Iterator[int]], merged: Path
    ) -> Planned:
        parts = [piece.part for piece in joint.pieces]
        number = next(numbers[parts[0].directory])
        if joint.is_visible:
            return self._planned(parts, f"{name}{number:04}", merged, final=True, since=None)
        return self._planned(parts, f"{name}{number:04}-waits", merged, final=False, since=joint.since)

    def _part(self, waiting: Waiting) -> Part:
        path = str(self._staging.home / waiting.path)
        return Part(path, waiting.directory, waiting.number, waiting.size)

    def _planned(
        self, parts: Sequence[Part], name: str, merged: Path, *, final: bool, since: float | None
    ) -> Planned:
        file = f"part-{self._run.sink}-{name}{suffix_of(Path(parts[0].path), self._form.format)}"
        target = merged / parts[0].directory / file
        if len(parts) > 1:
            os.makedirs(target.parent, exist_ok=True)
        sources = tuple(part.path for part in parts)
        sums = {path: self._sums.pop(path) for path in sources if path in self._sums}
        task = MergeTask(self._form.format, self._form.header, sources, str(target), sums, final)
        return Planned(task, tuple(parts), str(target.relative_to(merged)), since)

    def _merge(self, planned: list[Planned], merged: Path) -> Made:
        """Do the tasks: what is to be shown, and what is to wait."""
        try:
            done = self._run.run_tasks(merge, [one.task for one in planned])
        except NoSpaceError:
            self._staging.forget([self._staging.relative(merged)])
            raise
        made = Made([], [])
        for one, staged in zip(planned, done, strict=True):
            if staged is None:
                continue
            path, first = self._staging.relative(Path(staged.path)), one.parts[0]
            if one.since is None:
                made.files.append([path, one.final, staged.size, staged.crc])
            else:
                told = (staged.size, staged.crc, one.since, self._shape)
                made.waiting.append(Waiting(path, first.directory, first.number, *told))
        self._settle_directories(Path(staged.path) for staged in done if staged is not None)
        return made

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

    def wants_epoch(self) -> bool:
        waiting = self._waiting.get(self._after, ())
        return are_complete(waiting, self._roll, self._shape, self._clock.wall())

    def commit(self, epoch: Epoch, prepared: Any) -> None:
        with translate_os_errors(str(self._directory)):
            self._staging.refuse_lost()
            super().commit(epoch, prepared)

    def show(self, epoch: Epoch, prepared: Any) -> None:
        self._moves.perform(prepared["files"])

    def forget(self, prepared: Any) -> None:
        self._staging.forget(prepared["leftovers"], [path for path, *_ in prepared.get("waiting", ())])

    # --- the end of a run ---

    def close(self) -> None:
        """Show what waits. All of it is of visible epochs; nothing is done if a later one was begun, or by another owner."""
        if self._context is None or not self.is_staged or not (waiting := self._waiting.get(self._after, ())):
            return
        with translate_os_errors(str(self._directory)):
            fp("roll.close.begin")
            self._run.check_owner()
            found = Ledger.read(self._ledger)
            if found is None or found.epoch != self._after:
                return
            merged = self._staging.merged(Epoch(found.epoch))
            planned = self._plan_rolled(f"e{found.epoch:09}-w", [], waiting, None, merged)
            files = self._merge(planned, merged).files
            leftovers = [self._staging.relative(merged), *(each.path for each in waiting)]
            self.note(replace(found, closing={"files": files, "leftovers": leftovers}))
            fp("roll.close.noted")
            self._finish_closing()

    def _finish_closing(self) -> None:
        found = Ledger.read(self._ledger)
        if found is None or not found.closing:
            return
        self._moves.perform(found.closing["files"])
        fp("roll.close.shown")
        self.note(replace(found, token=int(self._run.token), closing=None, closed=True))
        self._staging.forget(found.closing["leftovers"])
        self._waiting = {found.epoch: ()}

    # --- after a failure ---

    def check(self, epoch: Epoch, prepared: Any | None, committed: Epoch | None) -> None:
        newest = max(self._visible(), key=lambda found: found[1], default=None)
        if newest is None and prepared is not None:
            self._look_for_output(Shown.of(epoch, prepared, committed, self._is_closed()))
        if newest is not None:
            self._refuse_visible(*newest, epoch, begins=prepared is None and committed is None)
        super().check(epoch, prepared, committed)
        if prepared is not None:
            self._moves.verify(prepared["files"])
            for file in prepared["files"] if committed is None or committed < epoch else ():
                self._moves.of(*file)
            for each in self._still_waiting(epoch, prepared):
                self._refuse_unfit(each)
            found = Ledger.read(self._ledger)
            if found is not None and found.closing:
                self._moves.verify(found.closing["files"])
                for file in found.closing["files"]:
                    self._moves.of(*file)

    def _is_closed(self) -> bool:
        """The end of a run has shown what waited."""
        found = Ledger.read(self._ledger)
        return found is not None and found.closed

    def _look_for_output(self, shown: Shown) -> None:
        """No file of this sink is visible. Refuse an output that is gone as a whole; tell, once in a run, of one that is empty."""
        if shown.is_known and shown.files and not self._is_looked_at:
            logger.warning("sink %r: %s", self._run.sink, shown.emptied(self._directory))
        self._is_looked_at = True
        if not shown.is_known and shown.files and not self._staging.unfinished():
            raise MismatchError(shown.gone(self._directory), cure=GONE_CURE)

    def restore(self, epoch: Epoch, prepared: Any | None) -> None:
        self._restored = prepared
        self._shown = {int(epoch): Shown.of(epoch, prepared or {}, epoch, self._is_closed()).files}
        with translate_os_errors(str(self._staging.home)):
            super().restore(epoch, prepared)
        self._sums.clear()

    def abandon(self, epoch: Epoch) -> None:
        self._finish_closing()
        still = self._still_waiting(Epoch(epoch - 1), self._restored)
        self._waiting = {epoch - 1: still}
        self._staging.clear([each.path for each in still])

    def _still_waiting(self, epoch: Epoch, prepared: Any | None) -> tuple[Waiting, ...]:
        """What waits after an epoch, unless the end of a run has shown it, or has begun to."""
        found = Ledger.read(self._ledger)
        if found is not None and found.epoch == epoch and (found.closing or found.closed):
            return ()
        return tuple(Waiting(*each) for each in (prepared or {}).get("waiting", ()))

    def is_untouched(self, prepared: Any) -> bool:
        return self._moves.are_untouched(prepared["files"])

    def _refuse_unfit(self, waiting: Waiting) -> None:
        """What waits must be there as it was written, and fit the form in which it will be shown."""
        path = self._staging.home / waiting.path
        names = [part.partition("=")[0] for part in waiting.directory.split("/") if part]
        if path.suffix != f".{self._form.format}" or names != [escape(n) for n in self._form.partition_by]:
            raise MismatchError(
                f"rows wait for {self._directory} in another form than {self._form}.",
                cure="Run once more with the sink as it was, up to its end; or write into another directory.",
            )
        if not path.exists():
            self._staging.refuse_lost()
            raise damaged(path, "is missing")
        self._moves.verify([(waiting.path, "", waiting.size, waiting.crc)])

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
        pattern = re.compile(rf"part-{re.escape(self._run.sink)}-e(\d{{9,}})-[pwc]\d{{4,}}\..*")
        for path in data_files(self._directory):
            if matched := pattern.fullmatch(path.name):
                yield path, int(matched[1])


def parts_of(step: Path) -> list[Part]:
    """What a step wrote."""
    return [
        Part(str(path), partition_of(path, step), part_number(path.name), path.stat().st_size)
        for path in data_files(step)
    ]


def partition_of(path: Path, step: Path) -> str:
    """The directory of a step's file in the output."""
    return "" if path.parent == step else path.parent.relative_to(step).as_posix()


def suffix_of(path: Path, format: str) -> str:
    """ ".csv", ".csv.gz", ".parquet": Spark puts parquet's codec before the suffix and text's behind it."""
    return f".{format}" + path.name.partition(f".{format}")[2]
