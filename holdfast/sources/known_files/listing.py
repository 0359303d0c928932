"""Where a source's files are, and the one name each of them has: relative to a *root*, with symbolic links resolved.

The root is the real path of the directory, or of the part of a glob before its first wildcard. So a directory, a glob of
the same directory and a symbolic link to it find the same files under the same names, and a link to a file is that file.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from holdfast.errors import ConfigError, InputError, MismatchError
from holdfast.ids import local_path

logger = logging.getLogger("holdfast.sources")

_BRACES = re.compile(r"\{[^{}/]*,[^{}/]*\}")
"""As Spark's globs have them."""

GRAIN_NS = 2_000_000_000
"""A directory that changed so shortly before it was listed may have changed again since, at the same time as file systems count it."""
TRUSTED_S = 1.0
"""So long a directory's time is trusted: over networks it may be an old one."""
SPARE = 100
"""Directories that take long to list are trusted for so many times as long."""


@dataclass(slots=True)
class Seen:
    """Directories as they were when they were listed."""

    times: dict[str, int] = field(default_factory=dict)
    """When each was changed last, ns."""
    at_ns: int = field(default_factory=time.time_ns)
    begun: float = field(default_factory=time.monotonic)
    trusted_until: float = 0.0

    def note(self, directory: str) -> None:
        """Before it is listed."""
        self.times[directory] = os.stat(directory).st_mtime_ns

    def done(self) -> None:
        took = time.monotonic() - self.begun
        self.trusted_until = self.begun + max(TRUSTED_S, SPARE * took)

    def still_holds(self) -> bool:
        """True if listing them again would find the same."""
        if not self.times or time.monotonic() >= self.trusted_until:
            return False
        try:
            return all(_is_as_before(place, then, self.at_ns) for place, then in self.times.items())
        except OSError:
            return False


def _is_as_before(directory: str, then: int, listed_at: int) -> bool:
    return listed_at - then > GRAIN_NS and os.stat(directory).st_mtime_ns == then


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
        self.seen = Seen()
        """What `names` looked at last."""

    def check(self) -> None:
        """Refuse a directory that is not there, also below a glob. A glob that finds nothing yet is told."""
        if not os.path.isdir(self.root):
            if _BRACES.search(self._given):
                raise _braces(self._given)
            raise _no_directory(self.root)
        if self._is_glob and next(glob.iglob(self._pattern, recursive=True), None) is None:
            if _BRACES.search(self._given):
                raise _braces(self._given)
            logger.warning("no file is called %s yet", self._given)

    def path(self, name: str) -> str:
        """Where a file lies."""
        return (
            os.path.normpath(os.path.join(self.root, name))
            if name.startswith("..")
            else f"{self.root}/{name}"
        )

    def names(self) -> set[str]:
        """The files that are there now. Names that begin with a dot or an underscore do not count."""
        self.seen = Seen()
        found = self._found()
        self.seen.done()
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
        directory = os.path.dirname(self._pattern)
        if not glob.has_magic(directory) and os.path.isdir(directory):
            self.seen.note(directory)
        found: set[str] = set()
        directories: dict[str, str] = {}
        for path in glob.iglob(self._pattern, recursive=True):
            if os.path.isdir(path):
                found.update(self._walk(os.path.realpath(path), visited))
            elif not hidden(os.path.basename(path)) and os.path.isfile(path):
                found.add(self._canonical(path, directories))
        return found

    def adopt(self, names: Iterable[str], root: str | None) -> list[str]:
        """Names stored under a root, as they are now. MismatchError if that was another place and nobody said so."""
        if root is None:
            # Positions without a root: names in a directory, links not resolved; or whole paths, of a glob.
            directories: dict[str, str] = {}
            return [self._canonical(os.path.join(self.root, name), directories) for name in names]
        if root == self.root:
            return list(names)
        if self.is_moved(root):
            return self._moved(list(names), root)
        raise MismatchError(
            f"the position of this source is one in {root}, but {self._given} is in {self.root} now: files that were "
            "read there would be read again here, others left out for their names.",
            cure=f"If the files were moved, say moved_from={root!r}; else read {root!r} again, and other places by "
            "another source.",
        )

    def _moved(self, names: list[str], root: str) -> list[str]:
        """The names. MismatchError if one directory is in the other and a file has not moved: it would be read again by another name."""
        if os.path.commonpath([root, self.root]) in (root, self.root):
            new = self.names().difference(names)
            for path in (os.path.join(root, name) for name in names):
                if (now := os.path.relpath(path, self.root)) in new:
                    raise MismatchError(
                        f"{path} was read and is still there, so it did not move from {root} to {self.root}: it would be "
                        f"read again as {now}.",
                        cure=f"Move it, or read {root!r} again, and what else is in {self.root} by another source.",
                    )
        return names

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
            if directory == self.root or self.seen.times:  # not below directories that a glob finds
                self.seen.note(directory)
            found = list(os.scandir(directory))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _no_directory(directory) from error
        there = os.path.relpath(directory, self.root)
        prefix = "" if there == "." else f"{there}/"
        for item in found:
            if hidden(item.name):
                continue
            if item.is_symlink():
                # One that leads nowhere, or in circles, is not there: nor does it raise, as item.is_dir() would.
                if self.recursive and os.path.isdir(item.path):
                    yield from self._walk(os.path.realpath(item.path), visited)
                elif os.path.isfile(item.path):
                    yield os.path.relpath(os.path.realpath(item.path), self.root)
            elif item.is_dir():
                if self.recursive:
                    yield from self._walk(os.path.realpath(item.path), visited)
            elif item.is_file():  # no pipe or socket, whose reader would wait for ever
                yield prefix + item.name


def _braces(path: str) -> ConfigError:
    return ConfigError(
        f"nothing is called {path}, and globs have no braces.",
        cure="Write * or [ab], or a source for each and a.union(b).",
    )


def _no_directory(path: str) -> InputError:
    what = "is not a directory" if os.path.exists(path) else "does not exist"
    return InputError(f"the directory {path} {what}.", cure="Create it, or correct the path.")


def hidden(name: str) -> bool:
    """Names Spark and we never read: beginning with a dot or an underscore."""
    return name.startswith((".", "_"))


def _absolute(path: str) -> str:
    cure = "Mount it and give its path, or let Spark read it: hf.from_spark(spark.readStream…load({!r}), 'name')."
    return os.path.abspath(local_path(path, "Files reads", cure.format(path)))


def _fixed(path: str, is_file: bool) -> str:
    """The directory before the first wildcard."""
    parts = os.path.dirname(path).split(os.sep)
    return (
        os.sep.join(parts if is_file else takewhile(lambda part: not glob.has_magic(part), parts)) or os.sep
    )
