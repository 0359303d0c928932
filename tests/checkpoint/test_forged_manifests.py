"""Manifests whose checksums are right and whose parts are not: refused before anything changes, naming what was found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from books import REGION, Books

from holdfast.checkpoint.change.reset_operator import reset_operator
from holdfast.checkpoint.look.epochs import newest_manifest
from holdfast.cli.main import run_command
from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.ids import Epoch, RegionName
from holdfast.store.urls import open_store

WHERE = RegionName(REGION)
Body = dict[str, Any]
Change = Callable[[Body, Body], None]


def body_of(data: bytes) -> Body:
    return dict(json.loads(data.partition(b"\n")[2]))


def sealed(body: Body, version: int) -> bytes:
    """A body with the header and the checksum it needs."""
    written = json.dumps(body).encode()
    return b"holdfast-manifest %d crc32=%08x\n%b" % (version, checksum(written), written)


@pytest.fixture
def two_epochs(books: Books) -> Books:
    for count in (30, 25):
        books.add(count)
        books.run()
    return books


def forge(books: Books, change: Change, version: int = 3) -> None:
    """Publish epoch 2 anew after `change` got its body and that of epoch 1; as a manifest of that version."""
    store = open_store(books.store)
    before, body = (body_of(store.manifest(WHERE, Epoch(epoch))) for epoch in (1, 2))
    for part in (*before["parts"].values(), *body["parts"].values()):
        if version < 3:
            del part["element"]
    change(body, before)
    store.acquire()
    store.delete_epoch(WHERE, Epoch(2))
    store.publish(WHERE, Epoch(2), sealed(body, version))
    store.release()


def nothing(body: Body, before: Body) -> None:
    """The epoch as it was."""


def part_of_another_epoch(body: Body, before: Body) -> None:
    body["parts"]["ledger"] = before["parts"]["ledger"]


def part_of_another_attempt(body: Body, before: Body) -> None:
    body["parts"]["ledger"]["attempt"] += 1


def part_of_another_element(body: Body, before: Body) -> None:
    body["parts"]["nobody"] = body["parts"].pop("ledger")


def operator_in_two_parts(body: Body, before: Body) -> None:
    body["parts"]["orders"]["operators"]["ledger"] = before["parts"]["ledger"]["operators"]["ledger"]


def operator_of_another_epoch(body: Body, before: Body) -> None:
    body["parts"]["ledger"]["operators"]["ledger"] |= {"epoch": 1}


def source_without_a_position(body: Body, before: Body) -> None:
    del body["parts"]["orders"]["operators"]["orders"]["blob"]


FORGED: list[tuple[Change, str]] = [
    (part_of_another_epoch, r"part of element 'ledger' is of epoch 1, .* instead of epoch 2"),
    (part_of_another_attempt, r"part of element 'ledger' .* attempt 3 instead of .* attempt 2"),
    (operator_in_two_parts, r"operator 'ledger' is in the parts of 'ledger' and of 'orders'"),
    (operator_of_another_epoch, r"operator 'ledger' is of epoch 1 instead of epoch 2"),
    (source_without_a_position, r"needs a value"),
]


def files_of(books: Books) -> dict[Path, bytes]:
    """All that counts: what is shown, and what is stored except who owns the store and what happened."""
    places = [books.root / "out", *(books.root / "store" / name for name in ("epochs", "entries", "records"))]
    return {path: path.read_bytes() for place in places for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("change", "words", "version"),
    [
        *((change, words, version) for change, words in FORGED for version in (2, 3)),
        # Before version 3 a part did not say whose it is.
        (part_of_another_element, r"part of element 'ledger' stands under the name 'nobody'", 3),
    ],
)
@pytest.mark.fault("R05", "R04", "O06")
def test_a_part_that_does_not_belong_to_the_epoch_is_refused_and_nothing_changes(
    two_epochs: Books, change: Change, words: str, version: int
) -> None:
    forge(two_epochs, change, version)
    two_epochs.add(10)
    before = files_of(two_epochs)
    with pytest.raises(DamagedError, match=words):
        two_epochs.run()
    assert files_of(two_epochs) == before


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_that_was_only_written_anew_is_restored(two_epochs: Books, version: int) -> None:
    """What the test above refuses is not the forging as such."""
    forge(two_epochs, nothing, version)
    two_epochs.add(10)
    two_epochs.run()
    assert two_epochs.ledger() == [(n + 1, n) for n in range(65)]
    assert two_epochs.totals() == two_epochs.expected_totals()


def test_looking_tells_a_forged_part_as_damage(two_epochs: Books, capsys: pytest.CaptureFixture[str]) -> None:
    forge(two_epochs, part_of_another_epoch)
    assert run_command(["checkpoints", "verify", two_epochs.store]) == 1
    assert "of epoch 1" in capsys.readouterr().out


def test_an_epoch_made_from_another_has_parts_of_its_own_that_tell_where_they_come_from(
    two_epochs: Books,
) -> None:
    store = open_store(two_epochs.store)
    for operator in ("totals", "ledger"):
        reset_operator(store, operator)
    newest = newest_manifest(store, WHERE)
    assert {part.epoch for part in newest.parts.values()} == {newest.epoch} == {4}
    assert {name: part.epoch for name, part in newest.operators().items()} == dict.fromkeys(
        ("orders", "ledger_out", "totals_out"), 2
    )
