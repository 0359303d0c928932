"""Who may write to a store on a Redis server: leases, dead owners, owners that wake up too late."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import FencedError, OwnedError, StoreError
from holdfast.store import liveness
from holdfast.store.redis.redis_store import RedisStore

from .children import NAMES, Child, make, prepare, token_after_a_kill
from .redis_server import RedisServer
from .test_ownership import (
    stopped_before_a_change_and_refused,
    stopped_inside_publish_and_refused,
)


@pytest.fixture
def kind(shared_redis: RedisServer) -> str:
    return f"redis:{shared_redis.port}"


def with_lease(server: RedisServer, tmp_path: Path, seconds: float) -> RedisStore:
    store = RedisStore(server.url(tmp_path.name, f"&lease={seconds}"))
    store.open("t")
    return store


def elsewhere(store: RedisStore) -> None:
    """Make the owner record name a process of another machine, whose end nobody here can prove."""
    session = store._session
    (value,) = store._link.ask(("GET", session.layout.owner))
    record = {**session.read_owner(value), "boot": "another", "host": "far"}
    store._link.ask(("SET", session.layout.owner, session.sealer.seal_json(record, "owner")))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.parametrize("name", NAMES)
def test_an_owner_stopped_before_a_change_is_refused_when_it_wakes(
    kind: str, name: str, tmp_path: Path
) -> None:
    stopped_before_a_change_and_refused(kind, name, tmp_path)


@pytest.mark.parametrize("step", ["tmp_written", "fsynced", "renamed"])
@pytest.mark.fault("D02", "O10")
def test_an_owner_stopped_inside_publish_is_refused(kind: str, step: str, tmp_path: Path) -> None:
    found = stopped_inside_publish_and_refused(kind, step, tmp_path)
    assert found == ([1, 2] if step == "renamed" else [1])


def test_a_beating_heart_keeps_a_far_owner_and_its_end_gives_the_store_away(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    first, second = (with_lease(shared_redis, tmp_path, 0.3) for _ in range(2))
    first.acquire()
    elsewhere(first)
    time.sleep(0.7)  # longer than the lease: only the heart can have kept it
    with pytest.raises(OwnedError, match="far"):
        second.acquire()
    assert first._heart is not None
    first._heart.stop()
    until(lambda: not second.owner()["alive"])  # type: ignore[index]
    assert second.acquire() == 2
    with pytest.raises(FencedError):
        first.save_record("r", b"late")
    assert second.load_record("r") is None
    first.close()
    second.check_owner()
    second.close()


@pytest.mark.fault("D03")
def test_an_owner_whose_lease_ran_out_goes_on_if_nobody_came(
    shared_redis: RedisServer, tmp_path: Path
) -> None:
    store = with_lease(shared_redis, tmp_path, 0.2)
    store.acquire()
    store._link.ask(("DEL", store._layout.alive(1)))
    store.save_record("r", b"still here")
    until(lambda: bool(store.owner()["alive"]))  # type: ignore[index]
    store.close()


def test_an_owner_nobody_refers_to_any_more_stops_beating(shared_redis: RedisServer, tmp_path: Path) -> None:
    store = with_lease(shared_redis, tmp_path, 0.2)
    store.acquire()
    other = with_lease(shared_redis, tmp_path, 0.2)
    del store
    until(lambda: not other.owner()["alive"])  # type: ignore[index]
    assert other.acquire() == 2
    other.close()


@pytest.mark.fault("P14")
def test_a_copy_of_the_owning_process_is_not_the_owner(kind: str, tmp_path: Path) -> None:
    prepare(kind, tmp_path)
    store = make(kind, tmp_path)
    store.acquire()
    assert Child(lambda: store.save_record("r", b"copy")).wait() == StoreError.exit_code
    store.save_record("r", b"mine")
    assert store.load_record("r") == b"mine"
    store.close()


@pytest.mark.parametrize("point", ["lease.acquire", "lease.acquired"])
def test_killed_while_acquiring_the_next_one_acquires(kind: str, point: str, tmp_path: Path) -> None:
    assert token_after_a_kill(kind, point, tmp_path) in (1, 2)


@pytest.mark.fault("D04")
def test_a_process_is_known_by_more_than_its_number() -> None:
    mine = liveness.this_process()
    assert not liveness.has_ended(mine)
    assert liveness.has_ended({**mine, "started": mine["started"] + 1}), "the number was used again"
    assert liveness.has_ended({**mine, "pid": 2**22 + 1})
    for other in ({"boot": "b"}, {"space": "pid:[1]"}, {"boot": ""}):
        assert not liveness.has_ended({**mine, "pid": 2**22 + 1, **other}), "nobody here can know"
    assert not set(liveness.for_people(mine)) & {"boot", "space", "started", "nonce"}
    json.dumps(mine)


def test_a_process_that_ended_and_was_not_waited_for_has_ended() -> None:
    read, write = os.pipe()
    child = Child(lambda: os.write(write, json.dumps(liveness.this_process()).encode()))
    record = json.loads(os.read(read, 4096))
    until(lambda: liveness.has_ended(record))
    child.wait()
    os.close(read)
    os.close(write)
