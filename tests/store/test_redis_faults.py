"""A Redis server that is killed, emptied, rolled back or silent: what was published stays, nothing half-done is seen."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from holdfast.durable import checksum
from holdfast.errors import DamagedError, FencedError, NoSpaceError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.redis import segments as redis_segments
from holdfast.store.redis.connection import Command, Line
from holdfast.store.redis.redis_store import RedisStore
from tests.store.proxy import Proxy

from .redis_server import RedisServer

REGION = RegionName("main")


def owned(url: str) -> RedisStore:
    store = RedisStore(url)
    store.open("t")
    store.acquire()
    store.create_entry("entry")
    return store


@pytest.fixture
def proxy(shared_redis: RedisServer) -> Iterator[Proxy]:
    with Proxy(shared_redis.port) as proxy:
        yield proxy


def url(port: int, name: str, options: str = "") -> str:
    return f"redis://127.0.0.1:{port}/0?name={name}{options}"


# --- the outcome of a change is not known ---
FAULTS = ("lose_reply", "lose_request", "late")


def changes(store: RedisStore, tmp_path: Path) -> dict[str, tuple[Callable[[], object], Callable[[], bool]]]:
    """Every kind of change, and whether its effect is there exactly once."""
    (tmp_path / "s").write_bytes(b"bytes")
    return {
        "publish": (
            lambda: store.publish(REGION, Epoch(7), b"seven"),
            lambda: store.epochs(REGION) == [7] and store.manifest(REGION, Epoch(7)) == b"seven",
        ),
        "put": (
            lambda: store.put("entry", {"k": b"new"}),
            lambda: store.get("entry", "k") == b"new",
        ),
        "put_segment": (
            lambda: store.put_segment("entry", "s", tmp_path / "s", checksum(b"bytes")),
            lambda: "s" in store.keys("entry"),
        ),
        "save_record": (lambda: store.save_record("r", b"new"), lambda: store.load_record("r") == b"new"),
        "append_events": (
            lambda: store.append_events([("one", {}), ("two", {})]),
            lambda: [event.kind for event in store.events()] == ["one", "two"],
        ),
        "delete": (lambda: store.delete("entry", ["k"]), lambda: store.get("entry", "k") is None),
        "create_entry": (lambda: store.create_entry("e2"), lambda: store.entries() == ["e2", "entry"]),
        "delete_entry": (lambda: store.delete_entry("entry"), lambda: store.entries() == []),
        "release": (store.release, lambda: store.owner() is None),
    }


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    "change",
    [
        "publish", "put", "put_segment", "save_record", "append_events",
        "delete", "create_entry", "delete_entry", "release",
    ],
)  # fmt: skip
@pytest.mark.fault("K12")
def test_a_change_whose_answer_is_lost_is_looked_up_and_done_once(
    proxy: Proxy, tmp_path: Path, fault: str, change: str
) -> None:
    store = owned(url(proxy.port, tmp_path.name))
    store.put("entry", {"k": b"old"})
    act, is_done = changes(store, tmp_path)[change]
    proxy.fault = fault
    act()
    assert proxy.fired == 1
    assert is_done()
    if fault == "late":
        assert proxy.deliver().endswith(b"*-1\r\n"), "a request that came too late was performed"
        assert is_done()
    assert store.events_dropped == 0
    store.close()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.fault("K12")
def test_ownership_is_gained_once_however_the_answer_is_lost(
    proxy: Proxy, tmp_path: Path, fault: str
) -> None:
    store = RedisStore(url(proxy.port, tmp_path.name))
    store.open("t")
    proxy.marker, proxy.fault = b'"nonce"', fault
    assert store.acquire() == 1
    assert proxy.fired == 1
    if fault == "late":
        assert proxy.deliver().endswith(b"*-1\r\n")
    store.check_owner()
    store.close()


@pytest.mark.parametrize("fault", FAULTS[:2])
def test_mail_is_neither_lost_nor_collected_twice(proxy: Proxy, tmp_path: Path, fault: str) -> None:
    store = owned(url(proxy.port, tmp_path.name))
    store.post("one", {})
    store.post("two", {})
    proxy.fault = fault
    assert [command for command, _ in store.collect_mail()] == ["one", "two"]
    assert proxy.fired == 1
    assert store.collect_mail() == []
    store.close()


def test_a_mail_that_may_not_have_arrived_says_so(proxy: Proxy, tmp_path: Path) -> None:
    store = owned(url(proxy.port, tmp_path.name))
    proxy.marker, proxy.fault = b"RPUSH", "lose_reply"
    store.post("stop", {})
    proxy.fault = "lose_request"
    with pytest.raises(StoreError, match="nobody knows"):
        store.post("again", {})
    assert [command for command, _ in store.collect_mail()] == ["stop"]
    store.close()


@pytest.mark.fault("S13", "D02")
def test_a_late_write_of_a_replaced_owner_is_refused(
    proxy: Proxy, shared_redis: RedisServer, tmp_path: Path
) -> None:
    old = owned(url(proxy.port, tmp_path.name, "&patience=0.01"))
    old.publish(REGION, Epoch(1), b"one")
    proxy.fault = "late"
    with pytest.raises(StoreError):
        old.publish(REGION, Epoch(2), b"old")
    new = RedisStore(url(shared_redis.port, tmp_path.name))
    new.open("t")
    new.acquire(take_over=True)
    assert proxy.deliver().endswith(b"*-1\r\n")
    assert new.epochs(REGION) == [1]
    with pytest.raises(FencedError):
        old.publish(REGION, Epoch(2), b"old")
    new.close()
    old.close()


# --- the server is killed ---
@pytest.mark.fault("N01")
def test_a_short_absence_of_the_server_is_waited_for(own_redis: RedisServer) -> None:
    store = owned(own_redis.url("job"))
    store.publish(REGION, Epoch(1), b"one")
    own_redis.kill()
    back = threading.Timer(0.2, own_redis.start)
    back.start()
    store.publish(REGION, Epoch(2), b"two")
    back.join()
    assert store.epochs(REGION) == [1, 2]
    store.close()


def test_a_long_absence_is_an_error_and_nothing_is_lost(own_redis: RedisServer) -> None:
    store = owned(own_redis.url("job", "&patience=0.1"))
    store.publish(REGION, Epoch(1), b"one")
    own_redis.kill()
    for attempt in (
        lambda: store.publish(REGION, Epoch(2), b"two"),
        lambda: store.epochs(REGION),
        lambda: RedisStore(own_redis.url("job", "&patience=0.1")).open("t"),
    ):
        with pytest.raises(StoreError, match="cannot be reached"):
            attempt()
    store.append_events([("lost", {})])
    assert store.events_dropped == 1
    own_redis.start()
    assert store.epochs(REGION) == [1]
    store.close()


@pytest.mark.fault("K07", "O05")
def test_a_server_killed_at_any_moment_shows_whole_epochs_only(
    own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = time.time_ns() % 10**6
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(redis_segments, "CHUNK_BYTES", 20_000)
    local = tmp_path / "s"
    data = bytes(range(256)) * 1000
    local.write_bytes(data)
    store = owned(own_redis.url("job"))
    acknowledged = -1
    for round_number in range(6):
        if round_number % 2:
            store._link.ask(("BGREWRITEAOF",))  # killed in the middle of shortening its log
        stop = threading.Timer(rng.uniform(0.005, 0.06), own_redis.restart)
        stop.start()
        while stop.is_alive():
            epoch = acknowledged + 1
            store.put("entry", {f"a{epoch}": b"%d" % epoch, f"b{epoch}": bytes(50_000)})
            ref = store.put_segment("entry", f"s{epoch}", local, checksum(data))
            store.publish(REGION, Epoch(epoch), json.dumps([ref.key, ref.size, ref.crc]).encode())
            acknowledged = epoch
        stop.join()
        reader = RedisStore(own_redis.url("job"))
        epochs = reader.epochs(REGION)
        assert epochs == list(range(acknowledged + 1)), f"round {round_number}"
        for each in (epochs[0], epochs[-1]):
            assert reader.get("entry", f"a{each}") == b"%d" % each
            assert reader.get("entry", f"b{each}") == bytes(50_000)
            key, size, crc = json.loads(reader.manifest(REGION, each))
            reader.fetch_segment(redis_segments.SegmentRef("entry", key, size, crc), tmp_path / "back")
            assert (tmp_path / "back").read_bytes() == data
        reader.close()
    assert acknowledged >= 5, "the rounds were too short to mean anything"
    store.close()


@pytest.mark.fault("K09")
def test_a_log_that_ends_inside_a_transaction_holds_the_epoch_before_it(own_redis: RedisServer) -> None:
    store = owned(own_redis.url("job"))
    store.publish(REGION, Epoch(1), b"one")
    store.publish(REGION, Epoch(2), b"two")
    store.close()
    own_redis.kill()
    (log,) = (own_redis.directory / "appendonlydir").glob("*.incr.aof")
    whole = log.read_bytes()
    begin = whole.rindex(b"MULTI")  # closing deletes the lease, outside of a transaction
    end = whole.index(b"EXEC", begin)
    assert b"two" in whole[begin:end]
    for cut in range(begin + 5, end + 4, 29):
        log.write_bytes(whole[:cut])
        own_redis.start()
        again = RedisStore(own_redis.url("job"))
        again.acquire(take_over=True)  # that the lease was let go is lost, too
        assert again.epochs(REGION) == [1]
        again.publish(REGION, Epoch(2), b"again")
        again.release()
        own_redis.restart()
        assert again.manifest(REGION, Epoch(2)) == b"again"
        again.close()
        own_redis.kill()


# --- the server forgot ---
@pytest.mark.fault("K08")
def test_a_server_that_comes_back_empty_is_refused_by_its_owner(own_redis: RedisServer) -> None:
    store = owned(own_redis.url("job"))
    store.publish(REGION, Epoch(1), b"one")
    own_redis.kill()
    own_redis.wipe()
    own_redis.start()
    attempts = (
        store.check_owner,
        lambda: store.publish(REGION, Epoch(2), b"two"),
        lambda: store.put("entry", {"k": b""}),
        lambda: store.save_record("r", b""),
        store.collect_mail,
    )
    for attempt in attempts:
        with pytest.raises(DamagedError, match="lost its identity"):
            attempt()
    newer = RedisStore(own_redis.url("job"))
    newer.open("t")
    for attempt in attempts:
        with pytest.raises(DamagedError, match="another store"):
            attempt()
    store.close()
    fresh = owned(own_redis.url("job"))  # a new run on an empty server is a new job
    assert fresh.epochs(REGION) == []
    fresh.close()


@pytest.mark.fault("K08", "K13", "C07")
def test_a_server_restored_from_an_older_copy_is_refused_by_its_owner(own_redis: RedisServer) -> None:
    store = owned(own_redis.url("job"))
    store.publish(REGION, Epoch(1), b"one")
    own_redis.kill()
    copy = own_redis.directory / "copy"
    shutil.copytree(own_redis.directory / "appendonlydir", copy)
    own_redis.start()
    store.publish(REGION, Epoch(2), b"two")
    own_redis.kill()
    own_redis.wipe()
    shutil.copytree(copy, own_redis.directory / "appendonlydir")
    own_redis.start()
    with pytest.raises(DamagedError, match="went back in time"):
        store.publish(REGION, Epoch(3), b"three")
    assert store.epochs(REGION) == [1]
    store.close()


# --- servers that confirm single changes (WAITAOF) ---
@pytest.mark.fault("K11", "S12")
def test_where_it_counts_the_disk_is_asked_and_a_slow_one_is_waited_for(
    shared_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The confirmation is played by the test: WAITAOF came with Redis 7.2."""
    asked: list[str] = []
    answers = [0, 1]
    real = Line.exchange

    def exchange(line: Line, commands: Sequence[Command]) -> list[Any]:
        asked.extend(str(command[0]) for command in commands)
        if commands[0][0] == "WAITAOF":
            return [[answers.pop(0) if answers else 1, 0]]
        return real(line, commands)

    store = owned(shared_redis.url(tmp_path.name))
    store._session.confirms = True
    monkeypatch.setattr(Line, "exchange", exchange)
    store.put("entry", {"k": b"v"})
    assert "WAITAOF" not in asked
    store.publish(REGION, Epoch(1), b"one")
    assert asked.count("WAITAOF") == 2, "not confirmed at first, then confirmed"
    assert asked[asked.index("WAITAOF") - 1] == "EXEC"
    assert store.epochs(REGION) == [1]
    asked.clear()
    store.save_record("r", b"")
    assert asked.count("WAITAOF") == 1
    store.close()


@pytest.mark.fault("K11", "S03")
def test_a_disk_that_never_confirms_is_an_error(
    shared_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Line.exchange

    def exchange(line: Line, commands: Sequence[Command]) -> list[Any]:
        return [[0, 0]] if commands[0][0] == "WAITAOF" else real(line, commands)

    store = owned(shared_redis.url(tmp_path.name, "&patience=0.1"))
    store._session.confirms = True
    monkeypatch.setattr(Line, "exchange", exchange)
    with pytest.raises(StoreError, match="disk did not confirm"):
        store.publish(REGION, Epoch(1), b"one")
    store.close()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("MISCONF Errors writing to the AOF file: No space left on device", NoSpaceError),
        ("MISCONF Errors writing to the AOF file: Input/output error", StoreError),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", DamagedError),
        ("ERR something new", StoreError),
    ],
)
def test_what_the_server_says_becomes_an_error_of_ours(
    shared_redis: RedisServer, said: str, kind: type[StoreError]
) -> None:
    error = RedisStore(shared_redis.url("words"))._link.translated(redis.ResponseError(said))
    assert type(error) is kind
    assert said in error.message
