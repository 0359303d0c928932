"""Which files a source has seen: ordinals in listing order, how far and in which state they were read, and what of it
goes into an epoch.

Invariants: an ordinal, once given, always means the same stretch of the same file; a file is known by size and
modification time from the moment it is listed until it is fully read; names of fully read files are never forgotten, so
none is read twice; a file that was renamed keeps its ordinals (`renames`); what changes after it was read is noticed
(`look`). Only a file that may grow has several ordinals:
one for each stretch of whole lines.

What an epoch stores of it is a `FileRecord`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import Any, Literal

from holdfast.errors import InputError, StateError, StepFailed
from holdfast.language.connectors import Lag
from holdfast.sources.known_files.facts import (
    UNKNOWN,
    Fact,
    complete_end,
    fingerprint,
    is_same,
    next_line,
    pack,
    pack_facts,
    time_of,
    unpack,
    unpack_facts,
    what_changed,
)
from holdfast.sources.known_files.listing import Listing, Seen
from holdfast.sources.known_files.record import BLOCK_FILES, FileEntry, FileRecord
from holdfast.sources.known_files.renames import Homes, new_names, unread_compressed
from holdfast.sources.lines import BEGINNING, Mark

Changed = Literal["refuse", "warn", "append"]

LOOK_FILES = 1000
"""So many files are compared with what is known of them whenever a source looks for new ones, in turn."""
NEWEST_FILES = 100
"""And so many of the last ones read, each time."""
WARNINGS = 10
"""So many files are named in warnings at a time; of the others only the number is told."""
_REMEDY = "Put the file back as it was, or start a new job with a new store."
_CURE = (
    'Put the file back as it was and new rows into files of their own. If files only grow, say changed="append"; with '
    'changed="warn" the source goes on without what changed.'
)
RENAMED = "a file was renamed while it was read."
logger = logging.getLogger("holdfast.sources")


class FileMemory:
    """The files of one source. Used by one thread."""

    def __init__(self, listing: Listing, changed: Changed = "refuse") -> None:
        self._listing = listing
        self._changed = changed
        self._only: set[str] | None = None
        self._warned: set[str] = set()
        self.forget()

    def forget(self) -> None:
        """Nothing was seen yet."""
        self._first = self._turn = 0  # ordinal of entries[0]; of the ones before only facts are known
        self._entries: list[FileEntry] = []
        self._names: list[str] = []  # by ordinal
        self._last: dict[str, int] = {}  # by name, the last ordinal
        self._facts: list[Fact] = []  # by ordinal, of files that were fully read when somebody asked last
        self._sealed: list[str] = []
        self._sealed_facts: dict[int, str] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # of files that may grow, size and time
        self._homes = Homes(self._listing.path, self._may_grow)

    @property
    def count(self) -> int:
        """One more than the last ordinal given."""
        return self._first + len(self._entries)

    def path(self, ordinal: int) -> str:
        return self._listing.path(self.entry(ordinal).name)

    def entry(self, ordinal: int) -> FileEntry:
        """The file as listed. Only for files not fully read at the last `load`."""
        if not self._first <= ordinal < self.count:
            raise StateError(
                f"file number {ordinal} of {self._listing.root} was fully read before this position.",
                cure="Only slices cut since the last seek can be read.",
            )
        return self._entries[ordinal - self._first]

    def lag(self, ordinal: int, offset: int) -> Lag:
        """What is left to read from `offset` in a file on."""
        entries = self._entries[max(0, ordinal - self._first) :]
        if not entries:
            return Lag(0, 0, 0.0)
        size = sum(entry.size - entry.begin for entry in entries) - max(0, offset - entries[0].begin)
        return Lag(None, max(0, size), max(0.0, time.time() - min(e.mtime_ns for e in entries) / 1e9))

    def knows(self, name: str) -> bool:
        return name in self._last

    def begin(self, ordinal: int) -> Mark:
        """Where the rows of an ordinal begin in its file."""
        begin = self.entry(ordinal).begin
        return Mark(0, begin, 0) if begin else BEGINNING

    def end(self, ordinal: int) -> int | None:
        """The offset where they end; None: with the file."""
        entry = self.entry(ordinal)
        return entry.size if self._may_grow(entry.name) else None

    # --- what is there now --------------------------------------------------------------------------------------

    def refresh(self, consumed: int = 0) -> Seen:
        """List the place; new files get the next ordinals, by name. Those before `consumed` are fully read. While what it returns
        still holds, there is nothing new."""
        self._note(consumed)
        found = self._listing.names() if self._only is None else self._only
        if any(name not in self._last for name in found):
            self.follow_renamed(found)
        found = found if self._only is None else self._only
        self._add(sorted(name for name in found if name not in self._last))
        return self._listing.seen if self._only is None and all(map(self.knows, found)) else Seen()

    def freeze(self) -> None:
        """From now on only files that exist now are ever seen."""
        self._only = self._listing.names()
        self.refresh()

    def thaw(self) -> None:
        self._only = None

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                entry = self._entry_now(name)
            except FileNotFoundError:
                continue  # vanished while listing: it was never ours
            if entry is not None:
                self._last[name] = self.count
                self._entries.append(entry)
                self._names.append(name)

    def _entry_now(self, name: str) -> FileEntry | None:
        """What there is to read of a file; None: no whole line of one that may grow."""
        path = self._listing.path(name)
        stat = os.stat(path)
        if not self._may_grow(name):
            return FileEntry(name, stat.st_size, stat.st_mtime_ns)
        known = self._last.get(name)
        end = 0 if known is None else self._fact(known).size
        begin = next_line(path, end)
        if begin is None:
            raise InputError(
                f"{path}: its last line had no end when it was read, and goes on now, at byte {end}.",
                cure="Let programs write whole lines before a bounded run, or start a new job with a new store.",
            )
        # A bounded run takes what is there; otherwise a line without an end is one that is still being written.
        size = stat.st_size if self._only is not None else complete_end(path, begin, stat.st_size)
        if size <= begin:
            return None
        return FileEntry(name, size, stat.st_mtime_ns, begin, fingerprint(path, size))

    def _may_grow(self, name: str) -> bool:
        return self._changed == "append" and not name.endswith(".gz")

    # --- where files are now ------------------------------------------------------------------------------------

    def follow_renamed(self, found: set[str] | None = None) -> bool:
        """Find files that were read and have another name now: they keep their ordinals. False if there are none. `found`: the
        names that are there."""
        found = self._listing.names() if found is None else found
        homes = self._homes.find(found, self._names, self._last, self._fact)
        if not homes:
            return False
        for before, now in (map(self._listing.path, home) for home in homes.items()):
            self._warn(f"{before} is {now} now; it goes on under this name.")
        self._names = new_names(self._names, homes)
        self._entries = [
            entry._replace(name=self._names[self._first + n]) for n, entry in enumerate(self._entries)
        ]
        self._sealed.clear()
        self._seen.clear()
        self._last = {name: ordinal for ordinal, name in enumerate(self._names)}
        for old, new in homes.items():
            if new.endswith(".gz") and not old.endswith(".gz"):
                ordinal, path = self._last[new], self._listing.path(new)
                if ordinal >= len(self._facts):
                    raise unread_compressed(path, self._listing.path(old), self.entry(ordinal).begin)
                self._learn(ordinal, os.stat(path))
        if self._only is not None:
            self._only |= set(homes.values())  # the old names may be those of new files by now
        self._add(sorted(name for name in homes.values() if self._may_grow(name)))  # older lines first
        return True

    def _warn(self, told: str) -> None:
        if (
            told not in self._warned
        ):  # positions are sought several times when a run begins, and in every reset
            self._warned.add(told)
            logger.warning("%s", told)

    # --- what is no longer as it was ----------------------------------------------------------------------------

    def verify(self, first: int, last: int, may_be_gone: bool = False) -> None:
        """Refuse if one of the files first..last is not as it was listed."""
        for ordinal in range(first, last + 1):
            try:
                self._verify(ordinal, may_be_gone)
            except InputError:
                if not self.follow_renamed():
                    raise
                if may_be_gone:
                    raise StepFailed(RENAMED) from None
                self._verify(ordinal, may_be_gone)

    def _verify(self, ordinal: int, may_be_gone: bool) -> None:
        entry = self.entry(ordinal)
        path = self._listing.path(entry.name)
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            if may_be_gone:
                return
            raise InputError(f"{path} vanished before it was fully read.", cure=_REMEDY) from None
        if stat.st_size == entry.size and stat.st_mtime_ns == entry.mtime_ns:
            if not entry.check:
                self._entries[ordinal - self._first] = entry._replace(check=fingerprint(path, entry.size))
        elif self._may_grow(entry.name):
            self._verify_beginning(path, Fact(entry.size, check=entry.check), stat)
        else:
            was = f"{entry.size} bytes, modified at {entry.mtime_ns} ns"
            now = f"{stat.st_size} bytes, modified at {stat.st_mtime_ns} ns"
            told = f"{path} changed before it was fully read: {was}; now {now}."
            if self._changed != "warn":
                raise InputError(told, cure=_REMEDY)
            logger.warning("%s It is read as it is now.", told)
            self._entries[ordinal - self._first] = entry._replace(
                size=stat.st_size, mtime_ns=stat.st_mtime_ns, check=0
            )

    def look(self, consumed: int, everything: bool = False) -> None:
        """Compare files that were read, those before ordinal `consumed`, with what is known of them: all, or some in
        turn. What changed is refused, warned of, or, if files may grow, listed as new stretches."""
        self._note(consumed)
        try:
            self._compare(consumed, everything)
        except InputError:
            if self._changed != "append" or not self.follow_renamed():
                raise
            self._compare(consumed, everything)
            self.refresh(consumed)

    def _compare(self, consumed: int, everything: bool) -> None:
        grown, warnings = [], []
        for ordinal in self._turns(self.count if self._changed == "append" else consumed, everything):
            name = self._names[ordinal]
            if self._last[name] != ordinal:
                continue  # another stretch of the same file came later
            try:
                stat = os.stat(self._listing.path(name))
            except FileNotFoundError:
                continue  # what was read may go
            fact = self._fact(ordinal)
            may_grow = self._may_grow(name) and fact.size >= 0
            if may_grow and (fact.check or stat.st_size > fact.size):
                if self._has_grown(name, fact, stat):
                    grown.append(name)
            elif is_same(fact, stat):
                unknown = fact.size < 0 or not fact.time or may_grow
                if unknown and ordinal < len(self._facts):
                    self._learn(ordinal, stat)
            else:
                warnings.append(self._accept_change(ordinal, fact, stat))
        for warning in warnings[:WARNINGS]:
            self._warn(warning)
        if len(warnings) > WARNINGS:
            logger.warning("%d further files were changed after they were read.", len(warnings) - WARNINGS)
        self._add(sorted(grown))

    def _turns(self, count: int, everything: bool) -> Iterable[int]:
        if everything or count <= LOOK_FILES + NEWEST_FILES:
            return range(count)
        turn = self._turn
        self._turn = (turn + LOOK_FILES) % count
        return [*(n % count for n in range(turn, turn + LOOK_FILES)), *range(count - NEWEST_FILES, count)]

    def _has_grown(self, name: str, fact: Fact, stat: os.stat_result) -> bool:
        now = (stat.st_size, stat.st_mtime_ns)
        if self._seen.get(name) == now:
            return False
        self._verify_beginning(self._listing.path(name), fact, stat)
        self._seen[name] = now
        return stat.st_size > fact.size

    def _verify_beginning(self, path: str, fact: Fact, stat: os.stat_result) -> None:
        """Refuse if a file that may grow is not what it was, up to where it was read."""
        if stat.st_size < fact.size or (fact.check and fingerprint(path, fact.size) != fact.check):
            raise InputError(
                f"{path} was overwritten: the {fact.size} bytes that were read are not in it any more; "
                f"{what_changed(fact, stat)}.",
                cure='With changed="append" files may only grow: give a new file a new name, with a dot before it while '
                "it is renamed or copied.",
            )

    def _accept_change(self, ordinal: int, fact: Fact, stat: os.stat_result) -> str:
        """What to warn of; raises if a warning is not enough."""
        told = f"{self._listing.path(self._names[ordinal])} was changed after it was read: {what_changed(fact, stat)}."
        if self._changed != "warn":
            raise InputError(told, cure=_CURE)
        self._learn(ordinal, stat)
        return f"{told} What changed is not read."

    def _learn(self, ordinal: int, stat: os.stat_result) -> None:
        check = fingerprint(self._listing.path(self._names[ordinal]), stat.st_size)
        self._facts[ordinal] = Fact(stat.st_size, time_of(stat.st_mtime_ns), check)
        self._homes.add(ordinal, self._facts[ordinal])
        self._sealed_facts.pop(ordinal // BLOCK_FILES, None)

    def _fact(self, ordinal: int) -> Fact:
        if ordinal < len(self._facts):
            return self._facts[ordinal]
        entry = self.entry(ordinal)
        return Fact(entry.size, time_of(entry.mtime_ns), entry.check)

    def _note(self, consumed: int) -> None:
        """Files before `consumed` are fully read."""
        self._facts += [self._fact(ordinal) for ordinal in range(len(self._facts), consumed)]

    # --- as data ------------------------------------------------------------------------------------------------

    def record(self, consumed: int) -> FileRecord:
        """What is known when the files before ordinal `consumed` are fully read, safe from what follows. Quick."""
        self._note(consumed)
        full = consumed // BLOCK_FILES
        for block in range(full):
            stretch = slice(block * BLOCK_FILES, (block + 1) * BLOCK_FILES)
            if block == len(self._sealed):
                self._sealed.append(pack(self._names[stretch], once=True))
            if block not in self._sealed_facts:
                self._sealed_facts[block] = pack_facts(self._facts[stretch], once=True)
        loose = slice(full * BLOCK_FILES, consumed)
        return FileRecord(
            self._listing.root,
            consumed,
            tuple(self._sealed[:full]),
            tuple(self._sealed_facts[block] for block in range(full)),
            tuple(self._names[loose]),
            tuple(self._facts[loose]),
            tuple(self._entries[consumed - self._first :]),
        )

    def load(self, state: dict[str, Any]) -> None:
        """Back to a record as it was stored, here or in a version that knew neither roots nor facts."""
        self.forget()
        blocks, root = list(state["blocks"]), state.get("root")
        self._first = int(state["consumed"])
        stored = [*(name for block in blocks for name in unpack(block)), *unpack(state["loose"])]
        if len(stored) != self._first:
            raise StateError("a file source's snapshot contradicts itself.", cure="Restore an earlier epoch.")
        self._load_facts(state.get("facts"), root)
        names = self._listing.adopt(stored, root)
        self._sealed = blocks if names == stored else []
        opened = [FileEntry(*entry) for entry in unpack(state["open"])]
        at = self._listing.adopt((entry.name for entry in opened), root)
        self._entries = [entry._replace(name=name) for entry, name in zip(opened, at, strict=True)]
        self._names = [*names, *at]
        self._last = {name: ordinal for ordinal, name in enumerate(self._names)}

    def _load_facts(self, packed: list[str] | None, root: str | None) -> None:
        if packed is None:
            self._facts = [UNKNOWN] * self._first
            return
        for block, text in enumerate(packed):
            left = min(BLOCK_FILES, self._first - block * BLOCK_FILES)
            self._facts += unpack_facts(text, left)
        if root is not None and self._listing.is_moved(root):
            # Copies have other times, but not other sizes.
            self._facts = [fact._replace(time=0) for fact in self._facts]
        else:
            self._sealed_facts = dict(enumerate(packed[:-1]))
