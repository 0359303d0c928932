"""`reset-operator`: one operator begins anew, everything else goes on, and nothing is shown twice or lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from books import REGION, Books
from killing import kill_at_every_call

import holdfast as hf
from holdfast import failpoints
from holdfast.checkpoint.change.reset_operator import plan_reset, reset_operator
from holdfast.checkpoint.look.epochs import newest_manifest
from holdfast.checkpoint.stored_names import own_record
from holdfast.errors import ConfigError, OwnedError, RegionParkedError
from holdfast.ids import RegionName
from holdfast.language.topology import Topology
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local

WHERE = RegionName(REGION)


@pytest.fixture
def stopped(books: Books) -> Books:
    books.add(30)
    books.run()
    return books


def test_the_operator_counts_from_zero_and_the_others_go_on(stopped: Books) -> None:
    done = reset_operator(open_store(stopped.store), "totals")
    assert (done.region, done.before, done.epoch) == (REGION, 1, 2)
    stopped.add(10)
    stopped.run()
    assert stopped.ledger() == [(n + 1, n) for n in range(40)]
    last = {row["user"]: (row["n"], row["total"]) for row in stopped.written("out", "totals")}
    assert last == stopped.expected_totals(begin=30)


def test_a_hosted_operator_gets_its_initial_state_and_a_second_reset_adds_to_the_first(
    stopped: Books,
) -> None:
    store = open_store(stopped.store)
    reset_operator(store, "totals")
    reset_operator(store, "ledger")
    stopped.add(6)
    stopped.run()
    assert [row["seq"] for row in stopped.written("out", "ledger")][-6:] == [1, 2, 3, 4, 5, 6]
    assert newest_manifest(store, WHERE).origin is None


def test_output_that_was_not_visible_yet_is_shown_once_afterwards(books: Books) -> None:
    books.add(20)
    books.run()
    books.add(9)
    failpoints.arm("sink.commit.begin=raise@3+")  # two sinks begin to show epoch 1 again when it is restored
    with pytest.raises(RegionParkedError):
        books.run(settings={"max_consecutive_resets": 1})
    failpoints.disarm()
    assert open_store(books.store).epochs(WHERE) == [1, 2]
    assert books.ledger() == [(n + 1, n) for n in range(20)]
    reset_operator(open_store(books.store), "totals")
    books.run()
    assert books.ledger() == [(n + 1, n) for n in range(29)]


@pytest.mark.parametrize(
    ("operator", "words"),
    [("orders", "is a source"), ("ledger_out", "is a sink"), ("nobody", "ledger, totals")],
)
def test_what_cannot_be_reset_is_refused_with_the_way_out(stopped: Books, operator: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_reset(open_store(stopped.store), operator)


def test_a_store_with_a_live_owner_is_refused(stopped: Books) -> None:
    owner = open_store(stopped.store)
    owner.acquire()
    with pytest.raises(OwnedError, match="holdfast stop"):
        reset_operator(open_store(stopped.store), "totals")
    owner.release()


def test_killed_anywhere_the_new_epoch_is_there_or_not_and_the_run_goes_on(stopped: Books) -> None:
    """Before every call by which the file store changes something."""

    def change(place: Path) -> None:
        reset_operator(open_store(f"file:{place}"), "totals", wall=1.0)

    seen = set()
    for place, code in kill_at_every_call(stopped.root / "store", stopped.root / "copies", change):
        store = open_store(f"file:{place}")
        newest = newest_manifest(store, WHERE)
        seen.add((newest.epoch, "totals" in newest.operators()))
        if code == -signal.SIGKILL:
            again = reset_operator(store, "totals")
            assert again.before == newest.epoch < again.epoch
    assert seen == {(1, True), (2, False)}
    assert os.listdir(stopped.root / "copies") == []


def test_killed_anywhere_an_operator_outside_of_regions_has_its_checkpoint_or_none(tmp_path: Path) -> None:
    made = Topology("loose")
    rows = made.source(Rows([(n % 3,) for n in range(30)], "k long"), name="rows")
    counts = rows.aggregate("k", count=hf.count(), name="counts").checkpoint(every=0.001)
    counts.sink(MemorySink("loose-counts"), name="out")
    run_local(made, f"file:{tmp_path}/store")
    MemorySink.clear("loose-counts")

    def change(place: Path) -> None:
        reset_operator(open_store(f"file:{place}"), "counts")

    seen = []
    for place, code in kill_at_every_call(tmp_path / "store", tmp_path / "copies", change):
        record = json.loads(open_store(f"file:{place}").load_record(own_record("counts")) or b"")
        seen.append((code, record is None))
        if record is not None:
            assert reset_operator(open_store(f"file:{place}"), "counts").before == record["number"]
    assert {(-signal.SIGKILL, False), (-signal.SIGKILL, True), (0, True)} == set(seen), "before and after"
