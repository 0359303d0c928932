"""Manifests whose checksums are right and whose parts are not: refused before anything changes, naming what was found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from books import REGION, Books

from holdfast.durable import checksum
from holdfast.errors import DamagedError
from holdfast.ids import Epoch, RegionName
from holdfast.store.urls import open_store

WHERE = RegionName(REGION)
Body = dict[str, Any]


def body_of(data: bytes) -> Body:
    return dict(json.loads(data.partition(b"\n")[2]))


def sealed(data: bytes, body: Body) -> bytes:
    """Another body under the header of a manifest, with the checksum it needs."""
    written = json.dumps(body).encode()
    magic, version, _ = data.partition(b"\n")[0].split(b" ")
    return b"%b %b crc32=%08x\n%b" % (magic, version, checksum(written), written)


@pytest.fixture
def two_epochs(books: Books) -> Books:
    for count in (30, 25):
        books.add(count)
        books.run()
    return books


def forge(books: Books, change: Callable[[Body, Body], None]) -> None:
    """Publish epoch 2 anew after `change` got its body and that of epoch 1."""
    store = open_store(books.store)
    first, second = (store.manifest(WHERE, Epoch(epoch)) for epoch in (1, 2))
    body = body_of(second)
    change(body, body_of(first))
    store.acquire()
    store.delete_epoch(WHERE, Epoch(2))
    store.publish(WHERE, Epoch(2), sealed(second, body))
    store.release()


def part_of_another_epoch(body: Body, before: Body) -> None:
    body["parts"]["ledger"] = before["parts"]["ledger"]


def part_of_another_attempt(body: Body, before: Body) -> None:
    body["parts"]["ledger"]["attempt"] += 1


def part_of_another_element(body: Body, before: Body) -> None:
    body["parts"]["nobody"] = body["parts"].pop("ledger")


def operator_in_two_parts(body: Body, before: Body) -> None:
    body["parts"]["orders"]["operators"]["ledger"] = before["parts"]["ledger"]["operators"]["ledger"]


def files_of(root: Path) -> Iterator[tuple[str, bytes]]:
    yield from (
        (str(p), p.read_bytes()) for p in sorted(root.rglob("*")) if p.is_file() and "owner" not in p.parts
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (part_of_another_epoch, r"part of element 'ledger'.* epoch 1.*epoch 2"),
        (part_of_another_attempt, r"part of element 'ledger'.* attempt 3.*attempt 2"),
        (part_of_another_element, r"part of element 'ledger'.*'nobody'"),
        (operator_in_two_parts, r"operator 'ledger'.*'ledger'.*'orders'"),
    ],
)
def test_a_part_that_does_not_belong_to_the_epoch_is_refused_and_nothing_changes(
    two_epochs: Books, change: Callable[[Body, Body], None], words: str
) -> None:
    forge(two_epochs, change)
    two_epochs.add(10)
    shown = dict(files_of(two_epochs.root / "out"))
    stored = dict(files_of(two_epochs.root / "store" / "epochs"))
    with pytest.raises(DamagedError, match=words):
        two_epochs.run()
    assert dict(files_of(two_epochs.root / "out")) == shown
    assert dict(files_of(two_epochs.root / "store" / "epochs")) == stored
