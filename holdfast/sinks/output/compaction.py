"""`compact`: small visible files of an output become large ones, while runs write and readers read.

    merge into <output>/.holdfast/compact/ → journal: what goes, what comes → remove the small → show the large → journal: done

From the journal on the rows are those of the large file, before it those of the small ones; `visible_files` reads it so. Whoever
comes after a death finishes what the journal says. Only files count whose epoch the ledger has: no restore looks for them any more.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq

from holdfast.durable import (
    checksum,
    fsync_directory,
    make_directory,
    opened,
    remove_quietly,
    rename_to_new_name,
    translate_os_errors,
    write_file,
)
from holdfast.errors import ConfigError, DamagedError, OwnedError
from holdfast.failpoints import fp
from holdfast.sinks.ledger import NAME as LEDGER
from holdfast.sinks.ledger import Ledger
from holdfast.sinks.merge import MergeTask, data_files, merge, shape_of
from holdfast.sinks.output.form import Form
from holdfast.sinks.output.moves import damaged, size_of
from holdfast.sinks.staging import HIDDEN

PLACE = "compact"
JOURNAL = "journal.json"
_OURS = re.compile(
    r"part-(?P<sink>.+)-(?:e(?P<epoch>\d{9,})-[pwc]|t\d+-r.+-p|free-c)\d{4,}\.(csv|json|parquet)"
)


@dataclass(frozen=True, slots=True)
class Swap:
    """Small files that one large file replaces; names relative to the output, `staged` in the place of compaction."""

    old: tuple[str, ...]
    staged: str
    final: str
    size: int


@dataclass(frozen=True, slots=True)
class Journal:
    """How many swaps there were, and the one that is under way, or was when somebody died. No file: there never was one."""

    number: int = 0
    swap: Swap | None = None

    @classmethod
    def read(cls, output: Path) -> Journal:
        path = output / HIDDEN / PLACE / JOURNAL
        try:
            found = json.loads(path.read_bytes())
            number, swap = found["journal"]
            if found["crc"] != checksum(json.dumps(found["journal"], sort_keys=True).encode()):
                raise ValueError("checksum")
            return cls(number, None if swap is None else Swap(**{**swap, "old": tuple(swap["old"])}))
        except FileNotFoundError:
            return cls()
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DamagedError(
                f"{path} is damaged.", cure="Nothing was changed. Restore it from a copy."
            ) from error

    def write(self, output: Path) -> None:
        body = [self.number, None if self.swap is None else {**asdict(self.swap), "old": list(self.swap.old)}]
        crc = checksum(json.dumps(body, sort_keys=True).encode())
        write_file(output / HIDDEN / PLACE / JOURNAL, json.dumps({"crc": crc, "journal": body}).encode())


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did: so many files became so many, with so many bytes."""

    before: int = 0
    after: int = 0
    bytes: int = 0


def compact(output: Path, to: int) -> Compacted:
    """Merge small files of every directory into ones of about `to` bytes."""
    hidden = output / HIDDEN
    form = Form.read(hidden) if hidden.is_dir() else None
    if form is None:
        raise ConfigError(
            f"{output} is no output of a file sink, or of one of an earlier version.",
            cure="Name the directory that was given to FileSink; run the job once more if it is an old one.",
        )
    if not form.joinable:
        raise ConfigError(
            f"the {form} in {output} are compressed or encoded, and cannot be joined.", cure="Write parquet."
        )
    with translate_os_errors(str(output)), _alone(output):
        finish(output)
        done = Compacted()
        for group in small_files(output, form, to):
            made = _swap(output, form, group)
            done = Compacted(done.before + len(group), done.after + 1, done.bytes + made.size)
        return done


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """One compaction at a time; the lock goes with its process."""
    place = output / HIDDEN / PLACE
    make_directory(place)
    with opened(place / "lock", os.O_RDWR | os.O_CREAT) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OwnedError(
                f"{output} is being compacted already.", cure="Wait until that is done."
            ) from error
        yield


def finish_if_alone(output: Path) -> None:
    """A run begins: finish what a compaction left that died. One that lives is left alone."""
    if Journal.read(output).swap is not None:
        try:
            with translate_os_errors(str(output)), _alone(output):
                finish(output)
        except OwnedError:
            return


def finish(output: Path) -> None:
    """Do the rest of a swap that the journal tells of, and remove what was merged for others."""
    if (found := Journal.read(output)).swap is not None:
        _perform(output, found.number, found.swap)
    place = output / HIDDEN / PLACE
    for path in place.iterdir():
        if path.name not in ("lock", JOURNAL):
            remove_quietly(path)


def _swap(output: Path, form: Form, group: list[Path]) -> Swap:
    place = output / HIDDEN / PLACE
    final = _final_name(group)
    made = merge(
        MergeTask(form.format, form.header, tuple(map(str, group)), str(place / final.name), final=True)
    )
    assert made is not None, "visible files have rows"
    old = tuple(path.relative_to(output).as_posix() for path in group)
    swap = Swap(old, final.name, final.relative_to(output).as_posix(), made.size)
    _count_rows(form, group, Path(made.path))
    fp("compact.merged")
    number = Journal.read(output).number + 1
    Journal(number, swap).write(output)
    fp("compact.noted")
    _perform(output, number, swap)
    return swap


def _count_rows(form: Form, group: list[Path], made: Path) -> None:
    """Before the small files go, the large one is known to have all of their rows."""
    if form.format == "parquet":
        before = sum(pq.read_metadata(path).num_rows for path in group)
        if (rows := pq.read_metadata(made).num_rows) != before:
            raise damaged(made, f"has {rows} rows instead of {before}")


def _perform(output: Path, number: int, swap: Swap) -> None:
    """From here on nothing is undone: remove the small files, show the large one, then forget. Each may have been done."""
    staged, final = output / HIDDEN / PLACE / swap.staged, output / swap.final
    here = size_of(staged)
    if here != swap.size and not (here is None and size_of(final) == swap.size):
        raise damaged(staged, "is missing" if here is None else f"has {here} bytes instead of {swap.size}")
    for name in swap.old:
        with suppress(FileNotFoundError):
            os.unlink(output / name)
    fp("compact.hidden")
    if here is not None:
        rename_to_new_name(staged, final)
    fsync_directory(final.parent)
    fp("compact.shown")
    Journal(number).write(output)


def _final_name(group: list[Path]) -> Path:
    """The name of what these become: of the newest epoch in it, so that a store that is older is still found out."""
    matched = [_OURS.fullmatch(path.name) for path in group]
    newest = max((int(m["epoch"]) for m in matched if m and m["epoch"]), default=None)
    sink = matched[0]["sink"] if matched[0] else ""
    stem = f"part-{sink}-" + ("free" if newest is None else f"e{newest:09}")
    taken = {path.name for path in group[0].parent.iterdir()}
    for number in range(len(taken) + 1):
        name = f"{stem}-c{number:04}{group[0].suffix}"
        if name not in taken:
            return group[0].parent / name
    raise AssertionError


def small_files(output: Path, form: Form, to: int) -> Iterator[list[Path]]:
    """Files that become one: of one directory, sink and columns, in the order of their names; below half of the size."""
    groups: dict[tuple[Path, str, bool, int], list[Path]] = defaultdict(list)
    committed: dict[str, int] = {}
    for path in data_files(output):
        matched = _OURS.fullmatch(path.name)
        if matched is None or path.suffix != f".{form.format}" or path.stat().st_size >= to / 2:
            continue
        sink, epoch = matched["sink"], matched["epoch"]
        if epoch is not None:
            if sink not in committed:
                found = Ledger.read(output / HIDDEN / sink / LEDGER)
                committed[sink] = -1 if found is None else found.epoch - bool(found.closing)
            if int(epoch) > committed[sink]:
                continue  # a restore may still look for it
        groups[path.parent, sink, epoch is None, shape_of(str(path), form.format, form.header)].append(path)
    for _, group in sorted(groups.items()):
        yield from _filled(group, to)


def _filled(group: list[Path], to: int) -> Iterator[list[Path]]:
    """Runs of at least two files with about `to` bytes together."""
    run: list[Path] = []
    size = 0
    for path in group:
        run.append(path)
        size += path.stat().st_size
        if size >= to:
            yield run
            run, size = [], 0
    if len(run) > 1:
        yield run


def visible_files(output: Path) -> list[Path]:
    """The files whose rows are the output's now, each row once, also amid a compaction or after one that died."""
    while True:
        journal = Journal.read(output)
        files = data_files(output)
        if Journal.read(output) == journal:  # its number changes with every swap
            break
    if (swap := journal.swap) is None:
        return files
    staged = output / HIDDEN / PLACE / swap.staged
    hidden = {output / name for name in (*swap.old, swap.final)}
    shown = [path for path in files if path not in hidden]
    return [*shown, staged if staged.exists() else output / swap.final]
