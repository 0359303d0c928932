"""`holdfast savepoint` and the commands of `holdfast checkpoints` that change a store: sentences, JSON, exit codes."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "checkpoint"))

from books import REGION, Books

from holdfast.cli.checkpoint_changes import seconds
from holdfast.cli.main import run_command
from holdfast.errors import ConfigError
from holdfast.store.urls import open_store

CONFIG, STORE, DAMAGED, OWNED, MISMATCH = 3, 6, 7, 8, 11


@pytest.fixture
def books() -> Iterator[Books]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=where) as name:
        made = Books(Path(name))
        made.add(20)
        made.run()
        yield made


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command that must succeed; its JSON, or its text."""

    def run(*arguments: object, code: int = 0) -> Any:
        capsys.readouterr()
        found = run_command([str(argument) for argument in arguments])
        said = capsys.readouterr()
        assert found == code, said.err
        if code:
            return said.err
        return json.loads(said.out) if "--json" in arguments else said.out

    return run


# --- savepoint --------------------------------------------------------------------------------------------------------


def test_a_store_at_rest_gets_lists_and_loses_a_savepoint(books: Books, ask: Any) -> None:
    assert "named epoch 1 of region books" in ask("savepoint", books.store, "first")
    [point] = ask("savepoint", books.store, "--list", "--json")
    assert (point["name"], point["region"], point["epoch"]) == ("first", REGION, 1)
    assert "first" in ask("savepoint", books.store, "--list")
    assert ask("savepoint", books.store, "--delete", "first", "--json")["deleted"][0]["epoch"] == 1
    assert ask("savepoint", books.store, "--list", "--json") == []


def test_a_live_run_makes_and_deletes_savepoints_when_asked(books: Books, ask: Any) -> None:
    books.add(5)
    job = books.submit()
    try:
        [point] = ask("savepoint", books.store, "live", "--timeout", 30, "--json")["named"]
        assert point["epoch"] == 2
        assert "already: epoch 2" in ask("savepoint", books.store, "live", code=CONFIG)
        assert "no region 'x'" in ask("savepoint", books.store, "other", "--region", "x", code=CONFIG)
        assert "deleted" in ask("savepoint", books.store, "--delete", "live", "--timeout", 30)
        assert ask("savepoint", books.store, "soon", "--no-wait", "--json")["asked"]
        assert "may still come" in ask("savepoint", books.store, "late", "--timeout", 0, code=STORE)
    finally:
        job.stop()


def test_a_run_that_ends_before_it_has_named_is_told_as_not_done(
    books: Books, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is alive when it is asked, and gone when it is looked for again."""
    owner = open_store(books.store)
    owner.acquire()
    from holdfast.store.files.file_store import FileStore

    real = FileStore.post

    def post_and_die(self: FileStore, command: str, data: Any) -> None:
        real(self, command, data)
        owner.close()

    monkeypatch.setattr(FileStore, "post", post_and_die)
    assert "ended before savepoint 'lost' was done" in ask("savepoint", books.store, "lost", code=STORE)
    assert ask("savepoint", books.store, "--list", "--json") == []


@pytest.mark.parametrize("arguments", [(), ("a", "--list"), ("a", "--delete", "b")])
def test_a_savepoint_needs_exactly_one_thing_to_do(
    books: Books, ask: Any, arguments: tuple[str, ...]
) -> None:
    assert "one of NAME" in ask("savepoint", books.store, *arguments, code=CONFIG)


# --- prune ------------------------------------------------------------------------------------------------------------


def test_prune_tells_before_it_deletes_and_keeps_savepoints(books: Books, ask: Any) -> None:
    ask("savepoint", books.store, "first")
    for _ in range(2):
        books.add(3)
        books.run()
    would = ask("checkpoints", "prune", books.store, "--keep", 1, "--dry-run", "--json")["regions"][REGION]
    assert would["epochs"] == [2]
    assert open_store(books.store).epochs(REGION) == [1, 2, 3]  # type: ignore[arg-type]
    assert (
        ask("checkpoints", "prune", books.store, "--keep", 1, "--older-than", "1h", "--json")["regions"][
            REGION
        ]["epochs"]
        == []
    )
    assert "epochs that went: 2" in ask("checkpoints", "prune", books.store, "--keep", 1)
    assert open_store(books.store).epochs(REGION) == [1, 3]  # type: ignore[arg-type]
    books.run()
    assert books.totals() == books.expected_totals()


@pytest.mark.parametrize(
    ("text", "wanted"), [("90", 90.0), ("90s", 90.0), ("1.5m", 90.0), ("2h", 7200.0), ("1d", 86400.0)]
)
def test_times_are_written_with_a_unit(text: str, wanted: float) -> None:
    assert seconds(text) == wanted


@pytest.mark.parametrize("text", ["", "h", "-1s", "1w", "1 h x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not a time"):
        seconds(text)


# --- fork, export, import, reset --------------------------------------------------------------------------------------


def test_fork_export_and_import_tell_what_the_new_store_begins_with(books: Books, ask: Any) -> None:
    new, file, third = books.root / "new", books.root / "x.tar", f"sqlite:{books.root / 'third.db'}"
    made = ask("checkpoints", "fork", books.store, 1, new, "--drop", "ledger", "--json")
    assert (made["epochs"], made["dropped"]) == ({REGION: 1}, ["ledger"])
    assert ask("checkpoints", "export", books.store, 1, file, "--json")["bytes"] == file.stat().st_size
    assert "begins with epoch 1 of region books" in ask("checkpoints", "import", file, third)
    books.add(10)
    books.run(third, out="third")
    assert books.totals("third") == books.expected_totals()


def test_reset_operator_asks_and_takes_no_answer_for_no(
    books: Books, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert "nobody confirmed" in ask("checkpoints", "reset-operator", books.store, "totals", code=CONFIG)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "nobody confirmed" in ask("checkpoints", "reset-operator", books.store, "totals", code=CONFIG)
    assert open_store(books.store).epochs(REGION) == [1]  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert "epoch 2 is epoch 1 with totals" in ask("checkpoints", "reset-operator", books.store, "totals")
    assert ask("checkpoints", "reset-operator", books.store, "ledger", "--yes", "--json")["epoch"] == 3


# --- errors -----------------------------------------------------------------------------------------------------------


CHANGES = [
    ("savepoint", "{store}", "name"),
    ("checkpoints", "prune", "{store}"),
    ("checkpoints", "fork", "{store}", "1", "{new}"),
    ("checkpoints", "export", "{store}", "1", "{new}"),
    ("checkpoints", "reset-operator", "{store}", "totals", "--yes"),
]


def filled(command: tuple[str, ...], store: object, new: object) -> list[str]:
    return [word.format(store=store, new=new) for word in command]


@pytest.mark.parametrize("command", CHANGES, ids=lambda c: c[-3] if "fork" in c else c[1])
def test_a_wrong_place_is_one_sentence_and_makes_nothing(
    command: tuple[str, ...], books: Books, ask: Any
) -> None:
    new = books.root / "made"
    absent = ask(*filled(command, books.root / "absent", new), code=STORE)
    assert "there is no store at" in absent
    assert ask(*filled(command, "ftp://x", new), code=CONFIG).startswith("error: there is no kind of store")
    assert "neither a store nor empty" in ask(*filled(command, books.input, new), code=CONFIG)
    path = books.root / "store" / "identity"
    path.write_bytes(path.read_bytes().replace(b"identity 1 ", b"identity 9 "))
    assert "format 9" in ask(*filled(command, books.store, new), code=MISMATCH)
    assert not new.exists()
    assert not (books.root / "absent").exists()


@pytest.mark.parametrize("command", [CHANGES[1], CHANGES[4]], ids=["prune", "reset-operator"])
def test_a_live_owner_is_named_with_the_way_to_stop_it(
    command: tuple[str, ...], books: Books, ask: Any
) -> None:
    owner = open_store(books.store)
    owner.acquire()
    said = ask(*filled(command, books.store, ""), code=OWNED)
    assert str(os.getpid()) in said
    assert "holdfast stop" in said
    owner.release()


def test_a_place_that_cannot_be_written_is_one_sentence(books: Books, ask: Any) -> None:
    (books.root / "file").write_text("x")
    said = ask("checkpoints", "fork", books.store, 1, books.root / "file" / "new", code=DAMAGED)
    assert str(books.root / "file") in said
    assert "is a file" in ask("checkpoints", "fork", books.store, 1, books.root / "file", code=CONFIG)
    said = ask("checkpoints", "export", books.store, 1, books.root / "absent" / "x.tar", code=STORE)
    assert "No such file or directory" in said


@pytest.mark.parametrize("command", CHANGES, ids=lambda c: c[-3] if "fork" in c else c[1])
def test_a_read_only_disk_is_one_sentence(
    command: tuple[str, ...], books: Books, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def read_only(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *args, **kwargs)

    def no_directory(path: Any, *args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", read_only)
        patched.setattr(os, "mkdir", no_directory)
        said = ask(*filled(command, books.store, books.root / "made"), code=STORE)
    assert "Read-only file system" in said
    assert not (books.root / "made").exists()
