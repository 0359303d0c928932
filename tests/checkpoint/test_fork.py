"""Fork: a new store begins with an epoch of another; what the other job stores and shows is not touched."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import fabricated
import pytest
from books import REGION, Books
from killing import kill_at_every_call

import holdfast as hf
from holdfast import failpoints
from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.change import offline
from holdfast.checkpoint.change.fork import fork, gone, resolve
from holdfast.checkpoint.change.founding import refuse_unfinished
from holdfast.checkpoint.look.epochs import newest_manifest, read_manifest
from holdfast.checkpoint.parts import KeptBatch
from holdfast.checkpoint.retention import Retention
from holdfast.errors import ConfigError, DamagedError, HoldfastError, MismatchError, RegionParkedError
from holdfast.ids import ConnectionId, Epoch, RegionName
from holdfast.store.files.file_store import FileStore
from holdfast.store.memory import MemoryStore
from holdfast.store.urls import open_store
from holdfast.testing import run_local

WHERE = RegionName(REGION)


@pytest.fixture
def two_epochs(books: Books) -> Books:
    """Epoch 1 after 30 orders, epoch 2 after 50; 55 are there."""
    books.add(30)
    books.run()
    books.add(20)
    books.run()
    books.add(5)
    return books


def snapshot(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# --- going on from an epoch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("back_end", "new"),
    [("file:{}/a", "sqlite:{}/b.db"), ("sqlite:{}/a.db", "file:{}/b"), ("file:{}/a", "file:{}/b"), ("memory:{}", "file:{}/b")],
)  # fmt: skip
def test_a_fork_goes_on_where_the_epoch_was_from_any_back_end_to_any_other(
    books: Books, back_end: str, new: str
) -> None:
    unique = books.root.name if back_end.startswith("memory") else books.root
    old, new = back_end.format(unique), new.format(books.root)
    books.add(30)
    books.run(old)
    books.add(20)
    books.run(old)
    before = books.files()
    made = fork(open_store(old), "1", open_store(new))
    assert dict(made.epochs) == {REGION: 1}
    books.run(new, out="fork")
    assert books.ledger("fork") == [(n + 1, n) for n in range(30, 50)]
    assert books.totals("fork") == books.expected_totals()
    assert books.files() == before
    assert (
        newest_manifest(open_store(new), WHERE).job == made.job != newest_manifest(open_store(old), WHERE).job
    )
    books.run(old)
    assert books.ledger() == [(n + 1, n) for n in range(50)]


def test_a_fork_begins_with_a_savepoint_that_retention_would_have_taken(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    offline.name_newest(store, "before", None, 0.0)
    for _ in range(4):
        two_epochs.add(3)
        two_epochs.run(settings={"keep": 1})
    assert store.epochs(WHERE) == [2, 6]
    fork(store, "before", open_store(str(two_epochs.root / "new")))
    two_epochs.run(str(two_epochs.root / "new"), out="fork")
    assert two_epochs.totals("fork") == two_epochs.expected_totals()
    assert two_epochs.ledger("fork")[0] == (51, 50)


def test_segments_are_linked_not_copied_between_stores_of_files(two_epochs: Books) -> None:
    new = FileStore(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "2", new)
    segments = [p for p in newest_manifest(new, WHERE).pieces() if p.kind == "segment"]
    assert segments
    assert all(new.segment_path(*p.place).stat().st_nlink == 2 for p in segments)


def test_names_of_new_segments_do_not_meet_those_that_were_taken_along(two_epochs: Books) -> None:
    """Attempts go on in a fork, and names carry them."""
    new = str(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "2", open_store(new))
    for _ in range(3):
        two_epochs.run(new, out="fork")
        two_epochs.add(10)
    record = json.loads(open_store(new).load_record(f"controller.{REGION}") or b"")
    assert record["attempt"] > newest_manifest(open_store(two_epochs.store), WHERE).attempt
    two_epochs.run(new, out="fork")
    assert two_epochs.totals("fork") == two_epochs.expected_totals()


def two_regions(books: Books, out: str) -> hf.Topology:
    made = hf.Topology("two")
    for name in ("left", "right"):
        source = hf.Files(str(books.input), "json", "id long, user string, amount long")
        rows = made.source(source, name=name).consistent(f"{name}_region", trigger="manual")
        totals = rows.aggregate("user", n=hf.count(), name=f"{name}_n")
        totals.sink(hf.FileSink(str(books.root / out / name), "json"), name=f"{name}_out")
    return made


def counted(books: Books, out: str, name: str) -> int:
    last: dict[str, int] = {}
    for row in books.written(out, name):
        last[row["user"]] = max(row["n"], last.get(row["user"], 0))
    return sum(last.values())


def test_a_savepoint_of_several_regions_takes_all_of_them_along_and_an_epoch_only_one(books: Books) -> None:
    books.add(4)
    run_local(two_regions(books, "out"), books.store)
    offline.name_newest(open_store(books.store), "both", None, 0.0)
    books.add(6)
    run_local(two_regions(books, "out"), books.store)
    assert set(fork(books.store, "both", books.root / "new").epochs) == {"left_region", "right_region"}
    run_local(two_regions(books, "fork"), str(books.root / "new"))
    assert counted(books, "fork", "left") == counted(books, "fork", "right") == 10
    assert sum(row["n"] for row in books.written("fork", "left")) > 6, (
        "the first four rows were not forgotten"
    )
    with pytest.raises(ConfigError, match="several regions"):
        fork(books.store, 1, books.root / "one")
    fork(books.store, 1, books.root / "one", region="left_region")
    run_local(two_regions(books, "one"), str(books.root / "one"))
    assert counted(books, "one", "left") == counted(books, "one", "right") == 10


# --- another topology -------------------------------------------------------------------------------------------------


def test_rows_that_left_the_region_of_the_other_job_are_not_lost_in_the_fork(tmp_path: Path) -> None:
    def made(out: str) -> hf.Topology:
        topology = hf.Topology("mixed")
        rows = topology.source(hf.Rows([(n,) for n in range(20)], "n long"), name="rows").consistent(REGION)
        rows.autonomous().sink(hf.FileSink(str(tmp_path / out), "json"), name="echo")
        return topology

    old, new = f"file:{tmp_path}/old", f"file:{tmp_path}/new"
    run_local(made("out"), old)
    taken = newest_manifest(open_store(old), WHERE)
    assert [dict(part.borders) for part in taken.parts.values()] == [{"rows.0--echo": {"sent": 20}}]
    fork(open_store(old), str(taken.epoch), open_store(new))
    status = run_local(made("fork"), new)
    assert status["lost_rows"] == {"echo": 0}
    assert "rows.lost" not in [event.kind for event in open_store(new).events()]


def test_an_operator_that_is_new_begins_with_its_initial_state(two_epochs: Books) -> None:
    new = str(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "2", open_store(new))
    two_epochs.run(new, out="fork", extra=True)
    most = {row["user"]: row["most"] for row in two_epochs.written("fork", "most")}
    rows = two_epochs.rows[50:]
    assert most == {u: max(r["amount"] for r in rows if r["user"] == u) for u in {r["user"] for r in rows}}
    assert two_epochs.totals("fork") == two_epochs.expected_totals()


def test_elsewhere_a_new_operator_is_refused_and_the_way_is_named(two_epochs: Books) -> None:
    with pytest.raises(MismatchError, match=r"'most'.*holdfast checkpoints fork"):
        two_epochs.run(extra=True)


def test_once_the_fork_has_an_epoch_of_its_own_new_operators_are_refused(two_epochs: Books) -> None:
    new = str(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "2", open_store(new))
    two_epochs.run(new, out="fork")
    with pytest.raises(MismatchError, match="'most'"):
        two_epochs.run(new, out="fork", extra=True)


def test_an_operator_that_is_gone_must_be_dropped_by_name(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    fork(store, "2", open_store(str(two_epochs.root / "whole")))
    with pytest.raises(MismatchError, match="'ledger'"):
        two_epochs.run(str(two_epochs.root / "whole"), out="fork", ledger=False)
    fork(store, "2", open_store(str(two_epochs.root / "less")), drop=["ledger"])
    two_epochs.run(str(two_epochs.root / "less"), out="less", ledger=False)
    assert two_epochs.totals("less") == two_epochs.expected_totals()


def test_a_dropped_operator_that_is_still_there_begins_anew_and_so_does_a_dropped_source(
    two_epochs: Books,
) -> None:
    store = open_store(two_epochs.store)
    fork(store, "2", open_store(str(two_epochs.root / "again")), drop=["ledger", "orders"])
    two_epochs.run(str(two_epochs.root / "again"), out="again")
    assert two_epochs.ledger("again") == [(n + 1, n) for n in range(55)]


def test_dropping_what_is_not_there_lists_what_is(two_epochs: Books) -> None:
    with pytest.raises(ConfigError, match=r"no operator 'legder'.*ledger, ledger_out, orders"):
        fork(open_store(two_epochs.store), "2", open_store(str(two_epochs.root / "x")), drop=["legder"])
    assert not (two_epochs.root / "x").exists()


def test_rows_on_their_way_along_a_connection_that_is_gone_are_not_lost_silently(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    newest = newest_manifest(store, WHERE)
    parts = {name: replace(part, epoch=Epoch(3)) for name, part in newest.parts.items()}
    first = next(iter(parts))
    parts[first] = replace(parts[first], kept={ConnectionId("orders.0--nowhere"): (KeptBatch(0, ()),)})
    store.acquire()
    store.publish(WHERE, Epoch(3), manifests.encode(replace(newest, epoch=Epoch(3), parts=parts)))
    store.release()
    with pytest.raises(MismatchError, match=r"orders\.0--nowhere.*savepoint"):
        two_epochs.run()


def test_a_new_source_must_not_change_the_numbers_that_stored_rows_carry(books: Books) -> None:
    """Numbers go by the alphabet: a source that comes before the others shifts them."""

    def topology(*more: str, out: str) -> hf.Topology:
        made = hf.Topology("sorted")
        rows = made.source(
            hf.Rows(
                [(datetime.fromtimestamp(3, UTC), "c"), (datetime.fromtimestamp(1, UTC), "a")],
                "at timestamp, v string",
            ),
            name="m",
        ).consistent(REGION)
        rows.sort("at", name="in_order", delay=0).sink(hf.MemorySink(f"{books.root.name}-{out}"), name="out")
        for name in more:
            other = made.source(hf.Rows([(1,)], "n long"), name=name).consistent("other")
            other.sink(hf.MemorySink(f"{books.root.name}-{name}"), name=f"{name}_out")
        return made

    run_local(topology(out="first"), books.store)
    fork(open_store(books.store), "1", open_store(str(books.root / "new")))
    with pytest.raises(MismatchError, match=r"'m' was number 1 .* now it is 2.*alphabet"):
        run_local(topology("a", out="second"), str(books.root / "new"))
    run_local(topology("z", out="third"), str(books.root / "new"))


# --- output -----------------------------------------------------------------------------------------------------------


def test_a_fork_that_writes_where_the_other_job_did_is_refused_and_changes_nothing(two_epochs: Books) -> None:
    new = str(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "1", open_store(new))
    before = two_epochs.files()
    for _ in range(3):  # a token above the other job's must not fence it either
        with pytest.raises(MismatchError, match="another job"):
            two_epochs.run(new, out="out")
    assert two_epochs.files() == before
    two_epochs.run()
    assert two_epochs.ledger() == [(n + 1, n) for n in range(55)]


def test_output_of_the_other_job_that_is_not_visible_yet_is_safe_too(books: Books) -> None:
    books.add(12)
    failpoints.arm("sink.commit.begin=raise@1+")
    with pytest.raises(RegionParkedError):
        books.run(settings={"max_consecutive_resets": 1})
    failpoints.disarm()
    new = str(books.root / "new")
    fork(open_store(books.store), "1", open_store(new))
    for _ in range(3):  # a token above the other job's must not fence it either
        with pytest.raises(MismatchError, match="another job that is not visible yet"):
            books.run(new)
    books.run()
    assert books.ledger() == [(n + 1, n) for n in range(12)]


@pytest.mark.fault("D06", "X06")
def test_visible_files_of_another_job_are_refused_even_if_its_ledger_is_lost(two_epochs: Books) -> None:
    shutil.rmtree(two_epochs.root / "out" / "ledger" / ".holdfast")
    new = str(two_epochs.root / "new")
    fork(open_store(two_epochs.store), "1", open_store(new))
    with pytest.raises(MismatchError, match="was written by another job"):
        two_epochs.run(new, out="out")


def test_a_function_per_epoch_is_not_called_for_two_jobs_with_one_staging_directory(books: Books) -> None:
    calls: dict[str, list[int]] = {"old": [], "new": []}

    def topology(who: str, staging: str) -> hf.Topology:
        made = hf.Topology("calls")
        source = hf.Files(str(books.input), "json", "id long, user string, amount long")
        rows = made.source(source, name="orders").consistent(REGION, trigger="manual")
        sink = hf.ForeachBatch(
            lambda table, epoch: calls[who].extend(table["id"].to_pylist()),
            per="epoch",
            staging=str(books.root / staging),
        )
        rows.sink(sink, name="calls")
        return made

    books.add(3)
    run_local(topology("old", "staging"), books.store)
    fork(books.store, 1, books.root / "new")
    books.add(2)
    with pytest.raises(MismatchError, match="another job"):
        run_local(topology("new", "staging"), str(books.root / "new"))
    run_local(topology("new", "of-the-fork"), str(books.root / "new"))
    run_local(topology("old", "staging"), books.store)
    assert calls == {"old": [0, 1, 2, 3, 4], "new": [3, 4]}


# --- places that are taken --------------------------------------------------------------------------------------------


def test_a_place_that_is_taken_is_refused(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    with pytest.raises(ConfigError, match="itself"):
        fork(store, "1", open_store(two_epochs.store))
    fork(store, "1", open_store(str(two_epochs.root / "new")))
    with pytest.raises(ConfigError, match="a store already"):
        fork(store, "1", open_store(str(two_epochs.root / "new")))
    with pytest.raises(ConfigError, match="neither a store nor empty"):
        fork(store, "1", open_store(str(two_epochs.input)))


def test_an_epoch_or_savepoint_that_is_not_there_lists_those_that_are(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    offline.name_newest(store, "kept", None, 0.0)
    with pytest.raises(ConfigError, match=r"no epoch 7.*1, 2"):
        resolve(store, "7")
    with pytest.raises(ConfigError, match=r"no savepoint 'gone'.*Savepoints are kept"):
        resolve(store, "gone")
    with pytest.raises(ConfigError, match="no epoch of a region 'other'"):
        resolve(store, "1", "other")
    assert resolve(store, "kept") == {WHERE: 2}


def test_an_epoch_that_its_owner_deletes_meanwhile_is_told_as_that(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    epochs = resolve(store, "1")
    offline.prune(open_store(two_epochs.store), Retention(1), None, 0.0)
    assert "savepoint" in str(gone(store, epochs))
    assert gone(store, {WHERE: Epoch(2)}) is None


def test_a_damaged_piece_ends_the_fork_and_the_half_made_store_is_refused(two_epochs: Books) -> None:
    store = open_store(two_epochs.store)
    assert isinstance(store, FileStore)
    piece = next(p for p in newest_manifest(store, WHERE).pieces() if p.kind == "segment")
    path = store.segment_path(*piece.place)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    new = str(two_epochs.root / "new")
    with pytest.raises(DamagedError, match=path.name):
        fork(store, "2", open_store(new))
    with pytest.raises(ConfigError, match="broke off"):
        two_epochs.run(new, out="fork")
    with pytest.raises(ConfigError, match="half of another fork"):
        fork(store, "1", open_store(new))
    path.write_bytes(whole)
    fork(store, "2", open_store(new))
    two_epochs.run(new, out="fork")
    assert two_epochs.totals("fork") == two_epochs.expected_totals()


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failpoint", ["founding.begun", "founding.copied", "ckpt.manifest.renamed", "lease.acquired"]
)
def test_a_fork_that_fails_at_a_step_is_finished_by_doing_it_again(two_epochs: Books, failpoint: str) -> None:
    store, new = open_store(two_epochs.store), str(two_epochs.root / "new")
    failpoints.arm(f"{failpoint}=enospc" if failpoint == "ckpt.manifest.renamed" else f"{failpoint}=raise")
    with pytest.raises((failpoints.FaultInjected, HoldfastError)):
        fork(store, "2", open_store(new))
    assert failpoints.disarm()[failpoint] == 1
    fork(store, "2", open_store(new))
    two_epochs.run(new, out="fork")
    assert two_epochs.totals("fork") == two_epochs.expected_totals()


@pytest.mark.fault("U03")
def test_a_fork_killed_anywhere_is_no_store_or_an_unfinished_one_or_done(here: Path) -> None:
    """Before every call by which the new store changes. A run must never begin with half of it."""
    source = MemoryStore()
    source.open("t")
    source.acquire()
    fabricated.publish(source, 4, {"a", "b"})
    source.release()
    seen = set()
    for place, code in kill_at_every_call(
        None, here / "copies", lambda place: fork(source, "4", open_store(str(place)), wall=1.0)
    ):
        state = state_of(place)
        seen.add(state)
        assert (state == "done") == (code == 0) or state == "done"
        if code == -signal.SIGKILL and state != "done":
            fork(source, "4", open_store(str(place)), wall=1.0)
        new = open_store(str(place))
        refuse_unfinished(new)
        made = read_manifest(new, fabricated.REGION, Epoch(4))
        assert {new.get(*piece.place) for piece in made.pieces()} == {b"a", b"b"}
    assert seen == {"nothing", "begun", "under way", "done"}


def state_of(place: Path) -> str:
    """What is found where a fork was killed."""
    store = FileStore(place)
    try:
        store.read_identity()
    except HoldfastError:
        return "nothing"
    try:
        refuse_unfinished(store)
    except ConfigError:
        return "under way"
    return "done" if store.epochs(fabricated.REGION) else "begun"
