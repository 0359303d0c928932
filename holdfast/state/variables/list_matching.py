"""Which elements of a list are still those of an earlier version of it, and where they stand now. Pure.

The list is described from its beginning as a row of pieces: so many elements of the old version, taken over from a
place on, or so many new ones. What lies behind the last piece is new, so appending changes nothing here. An element
that was replaced where it stood is remembered by its old place instead of cutting a piece in two.
"""

from __future__ import annotations

from collections.abc import Iterator

PIECES_MAX = 1024
"""Every change walks over the pieces; with more of them the whole list is the cheaper thing to store."""

NEW = -1
"""In place of the old place: these elements are new."""


class Pieces:
    """The pieces of one list. `scattered`: there were too many changes to follow, nothing is known any more."""

    __slots__ = ("_pieces", "covered", "replaced", "scattered")

    def __init__(self, length: int) -> None:
        self._pieces: list[tuple[int, int]] = [(0, length)] if length else []
        self.covered = length
        """Elements the pieces describe; those behind are new."""
        self.replaced: set[int] = set()
        """Old places whose elements were replaced. Some of them may be gone meanwhile."""
        self.scattered = False

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(old place or NEW, length) from the beginning of the list."""
        return iter(self._pieces)

    def replace(self, index: int) -> None:
        """The element at `index` was replaced."""
        if index >= self.covered:
            return
        for start, length in self._pieces:
            if index < length:
                if start != NEW:
                    self.replaced.add(start + index)
                return
            index -= length

    def splice(self, begin: int, end: int, count: int) -> None:
        """`count` new elements took the place of those from `begin` to `end`."""
        if begin >= self.covered:
            return
        if end >= self.covered:
            self._pieces = self._upto(begin)
        else:
            fresh = [(NEW, count)] if count else []
            self._pieces = _joined([*self._upto(begin), *fresh, *self._from(end)])
        self.covered = sum(length for _, length in self._pieces)
        self.scattered = len(self._pieces) > PIECES_MAX

    def _upto(self, end: int) -> list[tuple[int, int]]:
        found = []
        for start, length in self._pieces:
            if end <= 0:
                break
            found.append((start, min(length, end)))
            end -= length
        return found

    def _from(self, begin: int) -> list[tuple[int, int]]:
        found = []
        for start, length in self._pieces:
            cut = min(max(begin, 0), length)
            if cut < length:
                found.append((start if start == NEW else start + cut, length - cut))
            begin -= length
        return found


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same with neighbours made one where they go on with each other."""
    joined: list[tuple[int, int]] = []
    for start, length in pieces:
        before, size = joined[-1] if joined else (0, 0)
        if joined and (start == before == NEW or (before != NEW and start == before + size)):
            joined[-1] = (before, size + length)
        else:
            joined.append((start, length))
    return joined
