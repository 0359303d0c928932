"""The hidden directory of a sink: `<output>/.holdfast/<sink>/t<token>/…`.

    t<token>/own/                     made when the owner opens the sink; temporary files of the ledger
    t<token>/own/job-<job>/           whose it is; empty
    t<token>/a<attempt>/s<step>/      what one step wrote
    t<token>/a<attempt>-r<run>/s<step>/   the same outside of regions, where owners of different stores may have one token
    t<token>/e<epoch>-<try>/          files merged from several steps of one epoch

With `roll`, files that wait to become part of a larger one stay where they are, also those of older owners.

Names carry owner, attempt and step, so no two writers ever use the same one. A newer owner removes older owners'
directories; `own` is never made again by anyone, so an old owner cannot write its ledger after that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from holdfast.durable import make_directory, remove_quietly, translate_os_errors
from holdfast.errors import ConfigError, FencedError, MismatchError, StoreError
from holdfast.ids import Epoch, OwnerToken, is_safe_name
from holdfast.language.connectors import StepId

HIDDEN = ".holdfast"
JOB = "job-"


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging of one sink under one owner."""

    home: Path
    token: OwnerToken
    job: str

    @classmethod
    def open(cls, output: Path, sink: str, token: OwnerToken, job: str) -> Staging:
        """Make what is missing. The output directory itself is an ordinary one; ours inside is private."""
        if not is_safe_name(sink):
            raise ConfigError(
                f"the sink's name {sink!r} cannot be part of a file name.", cure="Rename the sink."
            )
        with translate_os_errors(str(output)):
            os.makedirs(output, exist_ok=True)
            staging = cls(output / HIDDEN / sink, token, job)
            make_directory(staging.own / f"{JOB}{job}")
        return staging

    @property
    def owned(self) -> Path:
        """Everything of this owner."""
        return self.home / f"t{self.token}"

    @property
    def own(self) -> Path:
        return self.owned / "own"

    def step(self, step: StepId, run: str = "") -> Path:
        """Where a step writes, outside of regions of which run. Not made here: Spark wants to make it itself."""
        return self.owned / f"a{step.attempt}{run and '-r'}{run}" / f"s{step.step}"

    def merged(self, epoch: Epoch) -> Path:
        """A new directory for an epoch's merged files; a second try of the same epoch gets another one."""
        for number in count():
            path = self.owned / f"e{epoch:09}-{number}"
            if not path.exists():
                path.mkdir()
                return path
        raise AssertionError

    def relative(self, path: Path) -> str:
        return path.relative_to(self.home).as_posix()

    def refuse_unfinished(self) -> None:
        """A job that has shown nothing here yet has staged nothing either: what is there is another job's."""
        for entry in self.unfinished():
            if entry == self.owned:
                continue
            raise MismatchError(
                f"{entry} holds output of another job that is not visible yet.",
                cure="Write into another directory.",
            )

    def unfinished(self) -> list[Path]:
        """Directories of owners, this one or others, that have staged something."""
        return [entry for entry in self._tokens() if {path.name for path in entry.iterdir()} - {"own"}]

    def refuse_lost(self) -> None:
        """Nobody but a newer owner removes what an owner made first; if there is none, a person has removed it."""
        if not self.own.is_dir():
            if any(self._newer_owners()):
                raise FencedError(f"{self.own} was removed by a newer owner.", cure="Stop this run.")
            raise StoreError(
                f"{self.home.parent.parent} was deleted, wholly or in part, while this run wrote into it.",
                cure="Put it back; or begin anew, with another output directory and another store.",
            )

    def refuse_newer_owner(self) -> None:
        """A directory of a newer token means that this owner was replaced."""
        for entry in self._newer_owners():
            raise FencedError(
                f"{entry} belongs to a newer owner of this output.",
                cure="Stop this run; the newer one goes on.",
            )

    def _newer_owners(self) -> Iterator[Path]:
        for entry in self._tokens():
            if int(entry.name[1:]) > self.token and not self._is_foreign(entry):
                yield entry

    def clear(self, keep: Collection[str] = ()) -> None:
        """Remove what older owners left, and all of this owner but `own` and the files to keep (relative to the home)."""
        self.refuse_newer_owner()
        spared = {self.home / path for path in keep}
        for entry in self._tokens():
            if int(entry.name[1:]) < self.token:
                shutil.rmtree(
                    entry / "own", ignore_errors=True
                )  # first: from here on its owner records nothing
                _remove(entry, spared)
        for entry in list(self.owned.iterdir()) if self.owned.is_dir() else []:
            if entry.name != "own":
                _remove(entry, spared)

    def forget(self, relative: Iterable[str], keep: Collection[str] = ()) -> None:
        """Remove files, and directories of steps, that are not needed any more."""
        spared = {self.home / path for path in keep}
        for path in relative:
            _remove(self.home / path, spared)
            self._remove_empty((self.home / path).parent)

    def _remove_empty(self, directory: Path) -> None:
        """Directories of steps and epochs whose last file is gone. Nobody writes there any more."""
        while len(parts := directory.relative_to(self.home).parts) > 2 or (parts[1:2] and parts[1][0] == "e"):
            try:
                directory.rmdir()
            except OSError:
                return  # not empty, or gone
            directory = directory.parent

    def _is_foreign(self, entry: Path) -> bool:
        """True if another job made it: its tokens are numbers of another store and say nothing here."""
        marks = [path.name for path in (entry / "own").glob(f"{JOB}*")]
        return bool(marks) and f"{JOB}{self.job}" not in marks

    def _tokens(self) -> list[Path]:
        found = [] if not self.home.is_dir() else list(self.home.iterdir())
        return [entry for entry in found if entry.name[:1] == "t" and entry.name[1:].isdecimal()]


def _remove(path: Path, spared: set[Path]) -> None:
    """Remove a file or a directory, but for files that are spared."""
    if path in spared:
        return
    if not path.is_dir():
        remove_quietly(path)
    elif not any(file.is_relative_to(path) for file in spared):
        shutil.rmtree(path, ignore_errors=True)
    else:
        for entry in list(path.iterdir()):
            _remove(entry, spared)
