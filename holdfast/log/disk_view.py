"""A partition as those see it who do not own it: other processes, or this one before it appends.

While an owner lives, its tail counts as far as it says (`.live`). When nobody owns the log, the tail counts as far as it is
whole, and is made durable before a row of it is shown. Of a tail whose owner was replaced, what it had acknowledged counts
until the newer owner's tail says where the old one ends.
"""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.log import place, recovery
from holdfast.log.format import tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.names import SegmentName
from holdfast.log.format.note import Note
from holdfast.log.machines.partition_state import PartitionState
from holdfast.log.machines.reader_machine import Facts
from holdfast.log.place import LogFacts
from holdfast.log.rows import LogBatch
from holdfast.log.tail_file import read_confirmed
from holdfast.store import locks
from holdfast.store.files import lease

TRIES = 50


class DiskView:
    """Not safe for several threads: each reader has its own."""

    is_quick = False

    def __init__(self, facts: LogFacts, partition: int) -> None:
        self.facts = facts
        self.partition = partition
        self.low = 0
        self.state = PartitionState()
        self._file: FileBytes | None = None
        self._name: SegmentName | None = None
        self._offset = 0
        self._settled = -1

    def facts_for(self, committed: bool) -> Facts:
        self.refresh()
        end = self.state.committed if committed else self.state.next
        return Facts(self.low, end, end, tuple(self.state.withdrawn))

    def from_memory(self, start: int, end: int) -> LogBatch | None:
        return None

    def notes_in_memory(self, writer: str, start: int, end: int) -> list[Note] | None:
        return None

    @property
    def tail_name(self) -> SegmentName | None:
        return self._name

    @property
    def edge(self) -> tuple[SegmentName, int] | None:
        """The newest tail, and the offset up to which it counts."""
        return None if self._name is None else (self._name, self._offset)

    def refresh(self) -> None:
        """Look again. Files may go while one looks: then once more."""
        for _ in range(TRIES):
            found = recovery.layout(self.facts, self.partition)
            self.low = place.read_low(self.facts, self.partition).position
            if not found:
                return
            try:
                self._follow(found[-1].name)
                return
            except FileNotFoundError:
                continue
        raise StoreError(
            f"the tail of {self.facts.directory(self.partition)} vanishes whenever it is looked at."
        )

    def _follow(self, name: SegmentName) -> None:
        if not name.is_tail:
            raise recovery.no_tail(self.facts.directory(self.partition))
        path = self.facts.directory(self.partition) / str(name)
        if name != self._name or self._file is None:
            self._open(path, name)
        assert self._file is not None
        limit = self._limit(name)
        if limit is None and self._file.size > self._settled:
            self._file.limit = None
            self._file.settle()
            self._settled = self._file.size
        self._file.limit = limit
        self._read_on(path, name, limit)

    def _open(self, path: Path, name: SegmentName) -> None:
        file = FileBytes(path)
        try:
            header = tail.decode_header(file, path, self.facts.id, name)
        except BaseException:
            file.close()
            raise
        self.close()
        self._file, self._name, self.state, self._offset = file, name, header.state, header.bytes
        self._settled = -1

    def _limit(self, name: SegmentName) -> int | None:
        """The offset up to which the tail counts. None: as far as it is whole."""
        root = Path(self.facts.root)
        # Neither its owner lives, nor one that came after it and is about to begin a tail of its own.
        tokens = {name.token, lease.highest_token(root)}
        if not any(locks.is_held(root / lease.OWNER / f"{lease.token_name(each)}.lock") for each in tokens):
            return None
        confirmed = read_confirmed(self.facts.directory(self.partition), name)
        return self._offset if confirmed is None else max(self._offset, confirmed.offset)

    def _read_on(self, path: Path, name: SegmentName, limit: int | None) -> None:
        file = self._file
        assert file is not None
        size = file.size
        at = tail.start_at(self._offset, self.state.next, name, self.partition)
        for placed in tail.scan(file, size, at, self.facts.id_bytes, payloads=limit is None):
            self.state.apply(placed.frame)
            self._offset = placed.offset + placed.frame.bytes
        torn = self._offset < size and limit is None
        if torn and tail.proof_of_damage(file, size, self._offset, self.facts.id_bytes) is None:
            return
        if self._offset < size:
            raise tail.damaged(path, self._offset, self.state.next)

    def wait(self, timeout_s: float) -> None:
        """Other processes do not call: look now and then."""
        time.sleep(timeout_s)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
