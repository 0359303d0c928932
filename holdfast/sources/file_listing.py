"""Where a source's files are, and the one name each of them has: relative to a *root*, with symbolic links resolved.

The root is the real path of the directory, or of the part of a glob before its first wildcard. So a directory, a glob of
the same directory and a symbolic link to it find the same files under the same names, and a link to a file is that file.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from itertools import takewhile

from holdfast.errors import InputError, MismatchError


class Listing:
    """The files of one directory, glob or single file."""

    def __init__(self, path: str, recursive: bool = False, moved_from: str | None = None) -> None:
        self.recursive = recursive
        self._given = _absolute(path)
        self._moved_from = moved_from
        is_file = os.path.isfile(self._given)
        self._is_glob = is_file or (glob.has_magic(self._given) and not os.path.isdir(self._given))
        self._pattern = glob.escape(self._given) if is_file else self._given
        self._fixed = _fixed(self._given, is_file) if self._is_glob else self._given
        self.root = os.path.realpath(self._fixed)
        self.only: frozenset[str] | None = None
        """Other files do not count, if this is said."""

    def check(self) -> None:
        """Refuse a directory that is not there."""
        if not self._is_glob and not os.path.isdir(self.root):
            raise _no_directory(self.root)

    def path(self, name: str) -> str:
        """Where a file lies."""
        return (
            os.path.normpath(os.path.join(self.root, name))
            if name.startswith("..")
            else f"{self.root}/{name}"
        )

    def names(self) -> set[str]:
        """The files that are there now. Names that begin with a dot or an underscore do not count."""
        found = self._found()
        return found if self.only is None else found & self.only

    def _found(self) -> set[str]:
        if (there := os.path.realpath(self._fixed)) != self.root:
            raise InputError(
                f"{self._fixed} led to {self.root} when the run began and leads to {there} now.",
                cure="Let it lead where it did, or start the program again.",
            )
        visited: set[str] = set()
        if not self._is_glob:
            return set(self._walk(self.root, visited))
        found: set[str] = set()
        directories: dict[str, str] = {}
        for path in glob.iglob(self._pattern, recursive=True):
            if os.path.isdir(path):
                found.update(self._walk(os.path.realpath(path), visited))
            elif not hidden(os.path.basename(path)):
                found.add(self._canonical(path, directories))
        return found

    def adopt(self, names: Iterable[str], root: str | None) -> list[str]:
        """Names stored under a root, as they are now. MismatchError if that was another place and nobody said so."""
        if root is None:
            # Positions without a root: names in a directory, links not resolved; or whole paths, of a glob.
            directories: dict[str, str] = {}
            return [self._canonical(os.path.join(self.root, name), directories) for name in names]
        if root == self.root or self.is_moved(root):
            return list(names)
        raise MismatchError(
            f"the position of this source is one in {root}, but {self._given} is in {self.root} now: files that were "
            "read there would be read again here, others left out for their names.",
            cure=f"If the files were moved, say moved_from={root!r}; else read {root!r} again, and other places by "
            "another source.",
        )

    def is_moved(self, root: str) -> bool:
        """Whether the user said that the files were there before."""
        if self._moved_from is None or root == self.root:
            return False
        before = _absolute(self._moved_from)
        fixed = _fixed(before, False) if glob.has_magic(before) else before
        return root in (fixed, os.path.realpath(fixed))

    def _canonical(self, path: str, directories: dict[str, str]) -> str:
        if os.path.islink(path):
            return os.path.relpath(os.path.realpath(path), self.root)
        directory, name = os.path.split(path)
        if directory not in directories:
            there = os.path.relpath(os.path.realpath(directory), self.root)
            directories[directory] = "" if there == "." else f"{there}/"
        return directories[directory] + name

    def _walk(self, directory: str, visited: set[str]) -> Iterator[str]:
        """The files of a real directory, each directory once: links may lead in circles."""
        if directory in visited:
            return
        visited.add(directory)
        try:
            found = list(os.scandir(directory))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _no_directory(directory) from error
        there = os.path.relpath(directory, self.root)
        prefix = "" if there == "." else f"{there}/"
        for item in found:
            if hidden(item.name):
                continue
            if item.is_dir():
                if self.recursive:
                    yield from self._walk(os.path.realpath(item.path), visited)
            elif item.is_symlink():
                yield os.path.relpath(os.path.realpath(item.path), self.root)
            else:
                yield prefix + item.name


def _no_directory(path: str) -> InputError:
    what = "is not a directory" if os.path.exists(path) else "does not exist"
    return InputError(f"the directory {path} {what}.", cure="Create it, or correct the path.")


def hidden(name: str) -> bool:
    """Names Spark and we never read: beginning with a dot or an underscore."""
    return name.startswith((".", "_"))


def _absolute(path: str) -> str:
    return os.path.abspath(path.removeprefix("file://"))


def _fixed(path: str, is_file: bool) -> str:
    """The directory before the first wildcard."""
    parts = os.path.dirname(path).split(os.sep)
    return (
        os.sep.join(parts if is_file else takewhile(lambda part: not glob.has_magic(part), parts)) or os.sep
    )
