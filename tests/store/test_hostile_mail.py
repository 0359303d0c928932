"""Letters that nobody of ours posted: each is refused alone, by size before it is read, and those behind it arrive."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.store import sealed_file
from holdfast.store.base import Store
from holdfast.store.events.as_bytes import SEALED_MAIL_BYTES_MAX
from holdfast.store.names import named_crc
from holdfast.store.urls import open_store

WRONG: list[Any] = [
    None, 5, "stop", [], ["stop"], {"stop": 1, "more": 2}, ["stop", 7], ["stop", [["a", 1]]], [["stop"], {}], [7, {}],
    [None, None], [[[[]]], {}],
]  # fmt: skip


def owned(url: str) -> Store:
    store = open_store(url)
    store.open("t")
    store.acquire()
    return store


def collected(store: Store, refused: int) -> None:
    """Only the command behind the forged letters arrived, and each of them was told of."""
    store.post("stop", {"a": 1})
    assert store.collect_mail() == [("stop", {"a": 1})]
    told = [event for event in store.events() if event.kind == "mail.refused"]
    assert len(told) == refused
    assert store.collect_mail() == []
    store.close()


@pytest.mark.fault("U07", "SR04", "SR14")
def test_each_wrong_type_is_refused_alone_by_files(tmp_path: Path) -> None:
    store = owned(str(tmp_path / "store"))
    job = store.read_identity().job_id
    for number, body in enumerate([*map(json.dumps, WRONG), "[" * 50_000, "no json", "\ud800"], 1):
        name = f"{number:012d}"
        data = sealed_file.seal("mail", job, name, body.encode("utf-8", "surrogatepass"))
        (tmp_path / "store" / "mail" / f"{name}.mail").write_bytes(data)
    collected(store, len(WRONG) + 3)


@pytest.mark.fault("U07", "SR04")
def test_each_wrong_type_is_refused_alone_by_sqlite(tmp_path: Path) -> None:
    store = owned(f"sqlite:{tmp_path}/db")
    values: list[Any] = [json.dumps(body).encode() for body in WRONG]
    with sqlite3.connect(tmp_path / "db") as other:
        for value in values:
            row = (value, named_crc("mail", value=value))
            other.execute("INSERT INTO mail (value, crc) VALUES (?, ?)", row)
        for value in ("a text", 17, 2.5, b"\0" * 10):
            other.execute("INSERT INTO mail (value, crc) VALUES (?, ?)", (value, 0))
        other.execute("INSERT INTO mail (value, crc) VALUES (zeroblob(200000000), 0)")
    other.close()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    collected(store, len(WRONG) + 5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000  # kB


@pytest.mark.fault("U07", "SR04", "SR14")
def test_a_letter_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    store = owned(str(tmp_path / "store"))
    here = tmp_path / "store" / "mail"
    with (here / f"{1:012d}.mail").open("wb") as file:
        file.write(b"holdfast mail 1 ")
        file.truncate(6 << 30)  # takes no space
    os.mkfifo(here / f"{2:012d}.mail")
    (here / f"{3:012d}.mail").symlink_to("/dev/zero")
    (here / f"{4:012d}.mail").mkdir()
    (here / f"{4:012d}.bad").mkdir()
    (here / f"{4:012d}.bad" / "x").touch()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    collected(store, 4)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000


@pytest.mark.fault("SR04", "SR14")
def test_a_large_object_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = owned(f"objects+file:{tmp_path}/bucket")
    mail = tmp_path / "bucket" / "mail"
    mail.mkdir(exist_ok=True)
    with (mail / f"{1:012d}").open("wb") as file:
        file.truncate(6 << 30)
    (mail / f"{2:012d}").write_bytes(b"")
    read: list[int] = []
    original = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(1) or original(path))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store.post("stop", {})
    assert store.collect_mail() == [("stop", {})]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 100_000
    assert SEALED_MAIL_BYTES_MAX < 1 << 20
    assert store.collect_mail() == []
    store.close()
