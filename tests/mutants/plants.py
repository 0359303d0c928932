"""Defects, one each, and the tests that must turn red when one is planted into the product. What simulators and campaigns plant
by themselves is marked `planted` in their tests; these are the rest, for parts that are tested without a run of their own.

A plant changes the product when it is called, in a process of its own (`planting.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Plant:
    """`about`: what a person would have done wrong; `tests`: of these at least one must fail."""

    about: str
    plant: Callable[[], None]
    tests: tuple[str, ...]


def leave_files_unsynced() -> None:
    from holdfast import durable

    def write_staged(staged: Any, data: bytes, *, failpoints: str = "") -> int:
        with durable.opened(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            durable.write_all(fd, data)
            for step in ("tmp_written", "fsynced"):
                durable._step(failpoints, step)
            return os.fstat(fd).st_ino

    durable.write_staged = write_staged  # type: ignore[assignment]


def leave_directories_unsynced() -> None:
    from holdfast import durable

    durable.fsync_directory = lambda path: None


def ignore_errors_of_fsync() -> None:
    from holdfast import durable

    def quiet(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                return real(*arguments)
            except OSError:
                return None

        return call

    class Quiet:
        """The module `os` as `durable` sees it."""

        def __getattr__(self, name: str) -> Any:
            found = getattr(os, name)
            return quiet(found) if name in ("fsync", "fdatasync") else found

    durable.os = Quiet()  # type: ignore[assignment]


def believe_renames() -> None:
    from holdfast import durable

    durable._rename_and_look = lambda staged, path, inode, data: os.rename(staged, path)


def take_names_that_are_taken() -> None:
    from holdfast import durable

    durable.rename_to_new_name = lambda source, target: os.rename(source, target)


def call_sinks_done_before_they_are() -> None:
    from holdfast.sinks.staged import StagedSink

    StagedSink.commit = lambda self, epoch, prepared: self.note_committed(epoch)  # type: ignore[method-assign]


def forget_what_sinks_have_shown() -> None:
    from holdfast.sinks.database import sqlite

    sqlite._read = lambda connection, entry: None


def show_epochs_in_any_order() -> None:
    from holdfast.sinks import staged

    staged.StagedSink.verify = lambda self, epoch, prepared: None  # type: ignore[method-assign]
    staged._before = lambda prepared: 0


def show_without_asking_the_owner() -> None:
    from holdfast.language.connectors import SinkContext

    SinkContext.check_owner = property(lambda self: lambda: None, lambda self, value: None)  # type: ignore[assignment]


def name_state_without_the_attempt() -> None:
    from holdfast.checkpoint import stored_names

    stored_names.state_key = lambda epoch, attempt, operator: f"e{epoch}+{operator}"
    stored_names.batch_key = lambda epoch, attempt, file: f"e{epoch}={file}"


def collect_by_memory() -> None:
    from holdfast.checkpoint.retention import Collector

    real = Collector._learn

    def learn(self: Any) -> None:
        if not self._walls:
            real(self)

    Collector._learn = learn  # type: ignore[method-assign]


def collect_uploads_under_way() -> None:
    from holdfast.checkpoint import retention

    real = retention.unneeded
    retention.unneeded = lambda existing, is_needed, under_way=(): real(existing, is_needed, ())


def collect_savepoints() -> None:
    from holdfast.checkpoint import retention

    real = retention.choose
    retention.choose = lambda walls, kept, named=(), now=0.0: real(walls, kept, (), now)


def hash_keys_as_python_does() -> None:
    import numpy as np

    from holdfast.state.columns import hashing

    hashing.key_hash = lambda columns: np.array(  # type: ignore[assignment]
        [hash(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)], dtype=np.int64
    )


def let_go_before_an_epoch_does() -> None:
    from holdfast.runtime.runs.operator_runs import SourceRun

    real = SourceRun.pin

    def pin(self: Any, epoch: Any) -> Any:
        pinned = real(self, epoch)
        self.source.kept([pinned], int(epoch))
        return pinned

    SourceRun.pin = pin  # type: ignore[method-assign]


def take_parts_of_other_epochs() -> None:
    from holdfast.checkpoint.manifest import Manifest

    Manifest.misfit = lambda self: None  # type: ignore[method-assign]


def compare_no_checksum() -> None:
    from holdfast.store import sealed_file

    def unseal(data: bytes, path: Any, kind: str, job: str, name: str) -> bytes:
        return data.partition(b"\n")[2]

    sealed_file.unseal = unseal


def make_an_identity_anew() -> None:
    from holdfast.store.files.file_store import FileStore

    FileStore._refuse_leftovers = lambda self: None  # type: ignore[method-assign]


def fence_nobody() -> None:
    from holdfast.store.files.lease import Lease

    Lease.is_fenced = lambda self: False  # type: ignore[method-assign]
    from holdfast.store.files import lease

    lease._remove_earlier = lambda root, token: None


def believe_schemas() -> None:
    from holdfast.store.sqlite import database

    database._schema = lambda connection: frozenset()


def read_letters_of_any_size() -> None:
    from holdfast.store.files import events_and_mail

    events_and_mail.refuse_large = lambda place, size: None
    events_and_mail.SEALED_MAIL_BYTES_MAX = 1 << 31


def obey_what_is_printed() -> None:
    from holdfast.cli import terminal

    terminal.PlainConsole.render = terminal.Console.render  # type: ignore[method-assign]


def ask_no_mode_of_a_store() -> None:
    from holdfast.store import permissions

    permissions._why = lambda found: ""


def make_live_directories_visible_before_their_lock() -> None:
    import fcntl
    import tempfile

    from holdfast.runtime import live_directory as live

    def make(self: Any, root: str | None = None) -> None:
        place = root or os.environ.get(live.ENV) or tempfile.gettempdir()
        live.sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=live.PREFIX, dir=place))
        self._fd = os.open(self.path / live.LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    live.LiveDirectoryLock.__init__ = make  # type: ignore[method-assign]


def let_sources_go_back() -> None:
    from holdfast.runtime.runs.operator_runs import SourceRun

    SourceRun._refuse_going_back = lambda self, piece: None  # type: ignore[method-assign]


def let_replaced_owners_write_into_a_database() -> None:
    from holdfast.store.sqlite.database_store import DatabaseStore

    DatabaseStore._changing = lambda self: self._db.changing()  # type: ignore[method-assign]


def keep_what_operators_may_change() -> None:
    from holdfast.operators.python import output_rows

    output_rows.row_keeper = lambda schema: None
    output_rows.kept_table = lambda table: table


def give_epochs_no_more_time() -> None:
    from holdfast.runtime.region import timers

    timers.MORE_TIME_MAX = 1


def take_an_older_epoch() -> None:
    from holdfast.runtime.region import fallback

    fallback.proves_withheld = lambda newest, workers, store: newest is not None


def take_an_older_epoch_in_silence() -> None:
    from holdfast.runtime.region import fallback

    real = fallback._fall_back
    fallback._fall_back = lambda *given: replace(real(*given), withdrawn=None, reason="")


PLANTS: tuple[Plant, ...] = (
    Plant("files are not synced", leave_files_unsynced, ("test_durable.py",)),
    Plant("directories are not synced", leave_directories_unsynced, ("test_durable.py",)),
    Plant("errors of fsync are ignored", ignore_errors_of_fsync, ("store/test_crash.py::test_a_failed_fsync_is_never_repeated",)),
    Plant("a rename is believed", believe_renames, ("test_durable.py",)),
    Plant("a name that is taken is taken", take_names_that_are_taken, ("test_durable.py",)),
    Plant("sinks are done before they are", call_sinks_done_before_they_are, ("sinks/test_sink_conformance.py::TestCsvSink",)),
    Plant("what a sink has shown is forgotten", forget_what_sinks_have_shown, ("sinks/test_database_conformance.py",)),
    Plant("epochs show in any order", show_epochs_in_any_order, ("sinks/test_sink_files.py", "sinks/test_staged.py")),
    Plant("output shows without asking the owner", show_without_asking_the_owner, ("sinks/test_sink_files.py",)),
    Plant("names without the attempt", name_state_without_the_attempt, ("checkpoint/test_stored_names.py",)),
    Plant("clean-up believes its memory", collect_by_memory, ("checkpoint/test_retention_model.py", "checkpoint/test_retention.py")),
    Plant("clean-up takes what is being uploaded", collect_uploads_under_way, ("checkpoint/test_retention.py",)),
    Plant("clean-up takes savepoints", collect_savepoints, ("checkpoint/test_retention.py",)),
    Plant("keys by Python's hash", hash_keys_as_python_does, ("state/test_hashing.py",)),
    Plant("a log is let go before the epoch is there", let_go_before_an_epoch_does, ("log/test_persist.py",)),
    Plant("parts of other epochs are taken", take_parts_of_other_epochs, ("checkpoint/test_forged_manifests.py",)),
    Plant("no checksum is compared", compare_no_checksum, ("store/test_damage.py",)),
    Plant("an identity is made anew", make_an_identity_anew, ("store/test_identity.py::test_data_without_an_identity_is_damage", "store/test_damage.py")),
    Plant("nobody is fenced", fence_nobody, ("store/test_ownership.py",)),
    Plant("schemas are believed", believe_schemas, ("store/test_sqlite_schema.py",)),
    Plant("letters of any size are read", read_letters_of_any_size, ("store/test_hostile_mail.py",)),
    Plant("what is printed is obeyed", obey_what_is_printed, ("cli/test_terminal.py",)),
    Plant("anybody may write a store", ask_no_mode_of_a_store, ("store/test_permissions.py",)),
    Plant("live directories are seen before their lock", make_live_directories_visible_before_their_lock, ("runtime/test_live_directory.py",)),
    Plant("replaced owners write into a database", let_replaced_owners_write_into_a_database, ("store/test_two_writers.py",)),
    Plant("what operators gave is kept as it is", keep_what_operators_may_change, ("runtime/python_operators/test_given_away.py",)),
    Plant("slow steps are done again for ever", give_epochs_no_more_time, ("runtime/event_time/test_timer_storms.py::test_a_step_that_takes_longer_than_an_epoch_may_comes_to_its_end",)),
    Plant("an older epoch is taken", take_an_older_epoch, ("runtime/regions/test_fallback.py",)),
    Plant("an older epoch is taken in silence", take_an_older_epoch_in_silence, ("runtime/regions/test_fallback.py",)),
    Plant("sources may go back", let_sources_go_back, ("sources/test_wrong_sources.py",)),
)  # fmt: skip
BY_NAME = {each.plant.__name__: each for each in PLANTS}
