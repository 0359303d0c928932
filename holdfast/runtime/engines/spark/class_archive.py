"""The classes of Spark, ready to be mapped: a JVM that has such an archive starts Spark in about half of the processor's time.

Per user and environment (Java, Spark) there is one archive, in the user's cache. The first `holdfast run` on a machine only leaves
a mark there, the second writes the archive when it has ended, and later ones use it; so a container that is thrown away after one run pays nothing.
A JVM ignores an archive of other jars. It would end at once with a torn one: the archive gets its name when it is whole. What is in it is
code, so it is used only if nobody else can have written it. HOLDFAST_CLASS_ARCHIVE=off turns all of this off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTING = "HOLDFAST_CLASS_ARCHIVE"
WRITTEN_S = 120.0
"""How long a JVM may take to write an archive; then there is none."""

_KNOWN_TO_SOME = "-XX:+IgnoreUnrecognizedVMOptions"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


@dataclass(frozen=True)
class Archive:
    """The archive of an environment: `path` once it is whole, `mark` once a run has been here."""

    path: Path
    mark: Path

    @property
    def options(self) -> str:
        """For a JVM that shall use it; nothing if there is none."""
        if not _is_ours(self.path) or not _is_ours(self.path.parent):
            return ""
        return f"{_KNOWN_TO_SOME} -XX:SharedArchiveFile={self.path} {_SILENT}"

    @property
    def draft(self) -> Path:
        """What this process writes, if it does."""
        return self.path.with_name(f"{self.path.stem}.{os.getpid()}.new")

    def options_of_writer(self) -> str:
        """For a JVM that shall write it when it ends; nothing if there is one, or no run has been here."""
        if self.path.exists():
            return ""
        self._remove_drafts()
        if not _is_ours(self.mark):
            with contextlib.suppress(OSError):
                self.mark.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
                self.mark.touch(0o600)
            return ""
        return f"{_KNOWN_TO_SOME} -XX:ArchiveClassesAtExit={self.draft} {_SILENT}"

    def _remove_drafts(self) -> None:
        """Those whose writer was killed, or took too long."""
        for draft in self.path.parent.glob(f"{self.path.stem}.*.new"):
            writer = draft.suffixes[-2].removeprefix(".")
            if not (writer.isdigit() and Path("/proc", writer).exists()):
                draft.unlink(missing_ok=True)

    def finish(self, jvm: subprocess.Popen[Any]) -> bool:
        """Let the JVM end that writes it, and give the archive its name. False: there is none."""
        try:
            if jvm.stdin is not None:
                jvm.stdin.close()  # nobody can speak to it any more: so it ends
            jvm.wait(WRITTEN_S)
            os.chmod(self.draft, 0o600)
            os.replace(self.draft, self.path)
        except (OSError, subprocess.SubprocessError):
            self.draft.unlink(missing_ok=True)
            return False
        return True


def archive_here(java_options: str = "") -> Archive | None:
    """The archive for the Java and Spark that a session would start with these options; None: none is wanted."""
    named = f"{java_options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"
    java, cache = _java(), _cache()
    if (
        "Archive" in named
        or os.environ.get(SETTING) == "off"
        or java is None
        or cache is None
        or " " in str(cache)
    ):
        return None
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    facts = [pyspark.__version__, *(_traits(path) for path in (java, java.parent.parent / "release", jars))]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return Archive(cache / f"spark-{name}.jsa", cache / f"spark-{name}.mark")


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    return None if found is None or not os.path.exists(found) else Path(found).resolve()


def _cache() -> Path | None:
    """The user's cache; None: there is no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    except RuntimeError:
        return None


def _traits(path: Path) -> str:
    """What changes if the file or directory is replaced."""
    try:
        found = path.stat()
    except OSError:
        return f"{path} is not there"
    return f"{path} {found.st_size} {found.st_mtime_ns}"


def _is_ours(path: Path) -> bool:
    """Whether it is there, and nobody else can have written it."""
    try:
        found = path.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
