"""Who writes the notes of an operator with eventual checkpoints, and finds out from them how it stood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from holdfast.errors import MismatchError
from holdfast.state.eventual import records
from holdfast.state.eventual.records import Note, Part, Standing

F = TypeVar("F")
"""What its scan finds."""


class Recorder(ABC, Generic[F]):
    """Of one operator. Used by one thread."""

    def __init__(self, made: str) -> None:
        self.made = made
        """What the operator is."""
        self.number = 0
        """Of the newest note."""

    @abstractmethod
    def asking(self, meta: Any, wall_us: int) -> Any:
        """The `meta` with which a step begins: with the windows that are to be checked in it."""

    @abstractmethod
    def noted(
        self, told: Sequence[pa.Table], has_results: bool, stands: tuple[Standing, Standing],
        counts: Mapping[str, int], wall_us: int,
    ) -> list[bytes]:  # fmt: skip
        """The note of a step, in parts; none if there is nothing to note. `told`: what all partitions gave beside results; `stands`:
        before and after the step."""

    @abstractmethod
    def first(self, stands: Standing) -> list[bytes]:
        """The note of a log in which nothing happened so far."""

    @property
    @abstractmethod
    def oldest_needed(self) -> int:
        """The number of the oldest note that a scan would have to read."""

    @abstractmethod
    def scan(self, notes: Iterable[bytes]) -> F | None:
        """What the notes of a log tell, newest first; reads no more of them than it needs. None: there is none."""

    @abstractmethod
    def resume(self, found: F | None) -> None:
        """Go on behind the newest note; None: from the beginning."""

    def to_store(self, meta: Any) -> Any:
        """The `meta` without what was asked of a step."""
        return meta

    def parts(self, notes: Iterable[bytes]) -> Iterator[Part]:
        """The notes that are of windows. MismatchError if another operator has written them."""
        for data in notes:
            part = records.decode(data)
            if part is None:
                continue
            if part.note is not None:
                self._compare(part.note)
            yield part

    def _compare(self, note: Note) -> None:
        if note.made != self.made:
            raise MismatchError(
                f"the log has records of {note.made}; now the operator is {self.made}.",
                cure="Undo the change, or begin another log. Nothing was changed.",
            )
