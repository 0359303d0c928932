"""Every value of a store in Redis, flipped, cut short, deleted or exchanged: a restore refuses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint.blobs import BlobRef, get_blob, put_blobs
from holdfast.durable import checksum
from holdfast.errors import DamagedError, HoldfastError, MismatchError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import SegmentRef
from holdfast.store.redis import segments as redis_segments
from holdfast.store.redis.redis_store import RedisStore

from .redis_server import RedisServer

REGIONS = (RegionName("main"), RegionName("other"))
NO_STATE = ("clock", "events", "events:count", "mail", "alive")
"""Keys whose damage may pass: they hold nothing that a restore returns."""


@dataclass
class Written:
    """What was stored, and how to read it back as a restore does."""

    blobs: dict[str, BlobRef]
    segment: SegmentRef
    scratch: Path

    def restore(self, url: str) -> list[object]:
        store = RedisStore(url)
        try:
            identity = store.open("t")
            store.acquire()
            found: list[object] = [identity.job_id]
            for region in REGIONS:
                found += [(epoch, store.manifest(region, epoch)) for epoch in store.epochs(region)]
            found += [get_blob(store, ref) for ref in self.blobs.values()]
            store.fetch_segment(self.segment, self.scratch / "back")
            found.append((self.scratch / "back").read_bytes())
            found += [store.load_record(name) for name in ("controller.main", "schema.source")]
            return [*found, store.entries()]
        finally:
            store.close()


@pytest.fixture(scope="module")
def small_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(redis_segments, "CHUNK_BYTES", 400)
        yield


def fill(url: str, scratch: Path, note: bytes = b"") -> Written:
    store = RedisStore(url)
    store.open("t")
    store.acquire()
    store.create_entry("op@main")
    blobs = put_blobs(store, "op@main", {"value.1": b"state" * 20 + note, "value.2": b""})
    data = note + bytes(range(250)) * 4
    local = scratch / "segment"
    local.write_bytes(data)
    segment = store.put_segment("op@main", "seg.1", local, checksum(data))
    for region in REGIONS:
        store.publish(region, Epoch(1), b"first manifest" + note)
        store.publish(region, Epoch(2), b"second manifest" + note)
    store.save_record("controller.main", b"controller" + note)
    store.save_record("schema.source", b"schema" + note)
    store.append_events([("began", {})])
    store.post("stop", {})
    store.close()
    return Written(blobs, segment, scratch)


def flip(place: float) -> Callable[[bytes], bytes]:
    def act(value: bytes) -> bytes:
        at = min(int(len(value) * place), len(value) - 1)
        return value[:at] + bytes([value[at] ^ 0x10]) + value[at + 1 :]

    return act


CHANGES: dict[str, Callable[[bytes], bytes | None]] = {
    "first bit flipped": flip(0.0), "early bit flipped": flip(0.2), "middle bit flipped": flip(0.5),
    "late bit flipped": flip(0.8), "last bit flipped": flip(1.0),
    "cut by one": lambda value: value[:-1], "cut in half": lambda value: value[: len(value) // 2],
    "emptied": lambda value: b"", "longer by one": lambda value: value + b"\0", "deleted": lambda value: None,
}  # fmt: skip


def values(store: RedisStore) -> Iterator[tuple[bytes, bytes | None, bytes]]:
    """Every value of the store: its key, its field if the key is a hash, its bytes."""
    (keys,) = store._link.ask(("KEYS", f"holdfast:{{{store.address.name}}}:*"))
    for key in sorted(keys):
        (kind,) = store._link.ask(("TYPE", key))
        if kind == b"string":
            yield key, None, store._link.ask(("GET", key))[0]
        elif kind == b"hash":
            (flat,) = store._link.ask(("HGETALL", key))
            for field, value in zip(flat[::2], flat[1::2], strict=True):
                yield key, field, value


def write(store: RedisStore, key: bytes, field: bytes | None, value: bytes | None) -> None:
    command: tuple[Any, ...]
    if field is None:
        command = ("DEL", key) if value is None else ("SET", key, value)
    else:
        command = ("HDEL", key, field) if value is None else ("HSET", key, field, value)
    store._link.ask(command)


def part_of(key: bytes) -> str:
    return key.decode().split("}:")[1]


@pytest.mark.fault("C01")
def test_every_damage_to_every_value_is_found_at_restore(
    shared_redis: RedisServer, tmp_path: Path, small_chunks: None
) -> None:
    url = shared_redis.url(tmp_path.name)
    written = fill(url, tmp_path)
    whole = written.restore(url)
    store = RedisStore(url)
    classes: set[str] = set()
    missed: list[str] = []
    tried = 0
    for key, field, value in list(values(store)):
        part = part_of(key)
        if part.split(":")[0] == "owner":
            (value,) = store._link.ask(("GET", key))  # it changes with every restore
        for name, change in CHANGES.items():
            damaged = change(value) if value or name == "deleted" else b"x"
            write(store, key, field, damaged)
            tried += 1
            try:
                found = written.restore(url)
                if found != whole or part.split(":")[0] not in NO_STATE:
                    missed.append(f"{part} {field!r}: {name}")
            except DamagedError:
                pass
            write(store, key, field, value)
        classes.add(part if field is None else f"{part} {field[:2]!r}")
    assert not missed, f"{len(missed)} of {tried} damages were not found: {missed[:10]}"
    assert tried > 150
    assert len(classes) >= 11, classes
    store.close()


@pytest.mark.fault("C01", "C09")
def test_a_whole_key_that_is_gone_is_found_at_restore(shared_redis: RedisServer, tmp_path: Path) -> None:
    url = shared_redis.url(tmp_path.name)
    written = fill(url, tmp_path)
    store = RedisStore(url)
    for key in sorted({key for key, _, _ in values(store)}):
        part = part_of(key)
        if part in NO_STATE[1:] or part.startswith("alive"):
            continue
        (copy,) = store._link.ask(("DUMP", key))
        store._link.ask(("DEL", key))
        with pytest.raises(DamagedError):
            written.restore(url)
        store._link.ask(("RESTORE", key, 0, copy))
        written.restore(url)
    store.close()


@pytest.mark.fault("C06")
def test_a_valid_value_of_another_job_or_another_name_is_refused(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    mine, theirs = shared_redis.url(f"{tmp_path.name}-a"), shared_redis.url(f"{tmp_path.name}-b")
    written = fill(mine, tmp_path)
    fill(theirs, tmp_path, note=b"!")
    store, other = RedisStore(mine), RedisStore(theirs)
    foreign = {(part_of(key), field): value for key, field, value in values(other)}
    tried = 0
    for key, field, value in list(values(store)):
        part = part_of(key)
        if part in (*NO_STATE, "owner", "identity") or part.startswith("alive"):
            continue
        neighbours = [v for p, f, v in values(store) if p == key and f != field and v != value][:1]
        for wrong in (foreign[part, field], *neighbours):
            write(store, key, field, wrong)
            with pytest.raises(DamagedError):
                written.restore(mine)
                pytest.fail(f"{part} {field!r} was taken")
            tried += 1
        write(store, key, field, value)
    assert tried > 15
    written.restore(mine)
    write(store, b"holdfast:{%s-a}:identity" % tmp_path.name.encode(), None, foreign["identity", None])
    with pytest.raises((DamagedError, MismatchError)):
        written.restore(mine)


def test_rubbish_in_place_of_a_store_is_refused(shared_redis: RedisServer, tmp_path: Path) -> None:
    url = shared_redis.url(tmp_path.name)
    store = RedisStore(url)
    key = f"holdfast:{{{tmp_path.name}}}:identity"
    for command in (("SET", key, "hello"), ("HSET", key, "a", "b"), ("SET", key, bytes(1 << 20))):
        store._link.ask(("DEL", key), ("EXISTS", key))
        store._link.ask(command)
        with pytest.raises(HoldfastError):
            RedisStore(url).open("t")
        (kept,) = store._link.ask(("EXISTS", key))
        assert kept
