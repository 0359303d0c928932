"""The class archive of an environment: made by the second run, used by later ones, never when somebody else could have written it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.runtime.engines.spark import class_archive
from holdfast.runtime.engines.spark.class_archive import Archive, archive_here

WRITES = "import sys, pathlib; sys.stdin.read(); pathlib.Path(sys.argv[1]).write_bytes(b'classes')"
"""As Java does: when its input ends, and not before."""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    monkeypatch.delenv(class_archive.SETTING, raising=False)


def here() -> Archive:
    found = archive_here()
    assert found is not None
    return found


def jvm(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script, *arguments], stdin=subprocess.PIPE)


def test_the_first_run_leaves_a_mark_the_second_writes_and_the_third_uses() -> None:
    archive = here()
    assert archive.options == ""
    assert archive.options_of_writer() == ""
    assert f"-XX:ArchiveClassesAtExit={archive.draft}" in archive.options_of_writer()
    assert archive.finish(jvm(WRITES, str(archive.draft)))
    assert f"-XX:SharedArchiveFile={archive.path}" in here().options
    assert here().options_of_writer() == ""
    assert archive.path.stat().st_mode & 0o777 == 0o600
    assert {path.suffix for path in archive.path.parent.iterdir()} == {".jsa", ".mark"}


def test_an_archive_that_was_not_written_whole_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "WRITTEN_S", 0.3)
    archive = here()
    archive.options_of_writer()
    assert not archive.finish(jvm("pass"))
    hung = jvm(
        "import sys, time, pathlib; pathlib.Path(sys.argv[1]).write_bytes(b'half'); time.sleep(60)",
        str(archive.draft),
    )
    try:
        assert not archive.finish(hung)
    finally:
        hung.kill()
        hung.wait()
    assert here().options == ""
    assert not archive.draft.exists()


def test_drafts_of_the_dead_are_removed() -> None:
    archive = here()
    archive.options_of_writer()
    gone = jvm("pass")
    gone.communicate()
    draft = archive.path.with_name(f"{archive.path.stem}.{gone.pid}.new")
    draft.write_bytes(b"half")
    archive.draft.write_bytes(b"at work")
    assert archive.options_of_writer()
    assert not draft.exists()
    assert archive.draft.exists()


@pytest.mark.parametrize("of", ["archive", "directory"])
def test_what_others_may_write_is_not_used(of: str) -> None:
    archive = here()
    archive.options_of_writer()
    archive.path.write_bytes(b"classes")
    archive.path.chmod(0o600)
    assert archive.options
    (archive.path if of == "archive" else archive.path.parent).chmod(0o777)
    assert archive.options == ""


def test_another_java_has_an_archive_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    before = here()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    other = here()
    assert other != before
    (tmp_path / "java" / "release").write_text("JAVA_VERSION=21")
    assert here() != other


def test_who_says_something_about_archives_or_wants_none_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive_here("-Xmx2g") is not None
    assert archive_here("-XX:SharedArchiveFile=mine.jsa") is None
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:SharedArchiveFile=mine.jsa")
    assert archive_here() is None
    monkeypatch.delenv("SPARK_SUBMIT_OPTS")
    monkeypatch.setenv(class_archive.SETTING, "off")
    assert archive_here() is None


def test_without_a_place_to_write_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert here().options_of_writer() == ""
    assert here().options == ""
    assert os.listdir(tmp_path) == ["file"]
