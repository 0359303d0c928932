"""One store over several Redis servers: the suite over real ones, and what happens when one of them fails."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.durable import checksum
from holdfast.errors import ConfigError, DamagedError, FencedError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store
from holdfast.store.redis.connection import Unreachable
from holdfast.store.redis.redis_store import RedisStore
from holdfast.store.redis.several_servers import SeveralServers, place_of
from holdfast.store.redis.url import parse
from holdfast.store.urls import open_store
from holdfast.testing.store_races import RacingStores

from . import redis_job
from .conftest import private_directory
from .redis_server import RedisServer

REGION = RegionName("main")
PROGRAM = Path(redis_job.__file__)
MANY = {f"key-{n}": b"%d" % n for n in range(60)}


def url_of(servers: list[RedisServer], name: str = "job", options: str = "") -> str:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return f"redis://{hosts}/0?name={name}{options}"


@pytest.fixture(scope="session")
def shared_servers(redis_program: str) -> Iterator[list[RedisServer]]:
    with private_directory() as name, ExitStack() as stack:
        yield [stack.enter_context(RedisServer(Path(name) / str(n))) for n in range(3)]


@pytest.fixture
def servers(redis_program: str, tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Servers that a test may kill and empty."""
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer(tmp_path / f"server{n}")) for n in range(3)]


class TestSeveralServers(RacingStores):
    @pytest.fixture(autouse=True)
    def _use(self, shared_servers: list[RedisServer]) -> None:
        self.servers = shared_servers

    def make_store(self, tmp_path: Path) -> Store:
        return open_store(url_of(self.servers, tmp_path.name.strip("_")))


def opened(servers: list[RedisServer], options: str = "") -> SeveralServers:
    store = open_store(url_of(servers, options=options))
    assert isinstance(store, SeveralServers)
    store.open("t")
    return store


def owned(servers: list[RedisServer], options: str = "") -> SeveralServers:
    store = opened(servers, options)
    store.acquire()
    store.create_entry("entry")
    return store


# --- addresses ---------------------------------------------------------------------------------------------------------


def test_a_url_may_name_several_servers() -> None:
    address = parse("redis://who:secret@127.0.0.1:1,[::1]:2,localhost/3?name=job")
    assert [(each.server.host, each.server.port, each.server.db) for each in address.each()] == [
        ("127.0.0.1", 1, 3),
        ("::1", 2, 3),
        ("localhost", 6379, 3),
    ]
    assert address.url == "redis://who:***@127.0.0.1:1,[::1]:2,localhost:6379/3?name=job"
    assert {each.server.password for each in address.each()} == {"secret"}


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1,127.0.0.1:1/0",
        "redis://127.0.0.1:1,,127.0.0.1:2/0",
        "redis://127.0.0.1:1,/0",
        "redis://127.0.0.1:1,127.0.0.1:x/0",
        "redis://127.0.0.1:1,elsewhere:2/0",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        parse(url)


def test_where_a_key_lies_never_changes() -> None:
    assert [place_of("op@r", f"e{n}-a1+op", 3) for n in range(8)] == [2, 0, 1, 0, 2, 2, 0, 1]


# --- where things are ----------------------------------------------------------------------------------------------------


def test_keys_lie_on_all_servers_and_the_rest_on_the_first(servers: list[RedisServer]) -> None:
    store = owned(servers)
    store.put("entry", MANY)
    store.publish(REGION, Epoch(1), b"m")
    store.save_record("r", b"1")
    held = [set(server._keys("entry")) for server in store._servers]
    assert all(held)
    assert set().union(*held) == set(MANY)
    assert sum(map(len, held)) == len(MANY)
    for other in store._others:
        (found,) = other._link.ask(("KEYS", "*"))
        names = {key.decode().split(":", 2)[2] for key in found}
        assert names == {"identity", "owner", "clock", "entries", "names", "epochs", "place", "entry:entry"}
    store.close()


def test_tasks_write_segments_where_they_belong(servers: list[RedisServer], tmp_path: Path) -> None:
    store = owned(servers)
    write = pickle.loads(pickle.dumps(store.segment_writer()))
    refs = []
    for n in range(12):
        local = tmp_path / f"{n}"
        local.write_bytes(b"%d" % n * 1000)
        refs.append(write("entry", f"seg-{n}", local, checksum(local.read_bytes())))
    assert all(server._keys("entry") for server in store._servers)
    for n, ref in enumerate(refs):
        store.fetch_segment(ref, tmp_path / f"back{n}")
        assert (tmp_path / f"back{n}").read_bytes() == b"%d" % n * 1000
    store.close()


# --- used wrongly --------------------------------------------------------------------------------------------------------


def test_servers_in_another_order_or_number_are_refused(servers: list[RedisServer]) -> None:
    owned(servers).close()
    for wrong in (servers[::-1], servers[:2], [servers[0], servers[2], servers[1]]):
        with pytest.raises(ConfigError, match=r"server \d of 3 of a store, but is used as server \d of"):
            open_store(url_of(wrong)).open("t")
    for server in servers:
        with pytest.raises(ConfigError, match="but is used as a whole store"):
            RedisStore(server.url("job")).open("t")


def test_a_store_on_one_server_is_not_spread_by_naming_more(servers: list[RedisServer]) -> None:
    alone = RedisStore(servers[0].url("job"))
    alone.open("t")
    alone.close()
    with pytest.raises(ConfigError, match="holds a whole store"):
        open_store(url_of(servers)).open("t")


def test_an_interrupted_making_is_finished_by_the_next_one(servers: list[RedisServer]) -> None:
    first = open_store(url_of(servers))
    assert isinstance(first, SeveralServers)
    identity = RedisStore(parse(servers[1].url("job")), (1, 3))
    identity.open("t")
    assert opened(servers).read_identity() == identity.read_identity()


# --- one that fails ------------------------------------------------------------------------------------------------------

SHORT = "&patience=0.3&timeout=2"


@pytest.mark.parametrize("away", [0, 1, 2])
def test_one_server_away_keeps_an_epoch_from_being_published(servers: list[RedisServer], away: int) -> None:
    store = owned(servers, SHORT)
    store.put("entry", MANY)
    store.publish(REGION, Epoch(1), b"one")
    servers[away].stop()
    with pytest.raises(Unreachable, match=f"127.0.0.1:{servers[away].port}"):
        store.put("entry", MANY)
    with pytest.raises(StoreError):
        store.publish(REGION, Epoch(2), b"two")
    with pytest.raises(Unreachable):
        store.accepts_writes()
    with pytest.raises(Unreachable):
        open_store(url_of(servers, options=SHORT)).epochs(REGION)
    servers[away].start()
    assert store.epochs(REGION) == [1]
    assert store.accepts_writes()
    store.put("entry", MANY)
    store.publish(REGION, Epoch(2), b"two")
    assert {key: store.get("entry", key) for key in MANY} == MANY
    store.close()


@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.fault("K13")
def test_a_server_that_lost_its_data_keeps_an_epoch_from_being_published(
    servers: list[RedisServer], lost: int
) -> None:
    store = owned(servers, SHORT)
    store.put("entry", MANY)
    store.publish(REGION, Epoch(1), b"one")
    store._servers[lost]._link.ask(("FLUSHALL",))
    with pytest.raises(DamagedError, match="lost its identity"):
        store.publish(REGION, Epoch(2), b"two")
    assert store._home.epochs(REGION) == [1]
    store.close()
    with pytest.raises(DamagedError, match="lost its part of the store"):
        open_store(url_of(servers)).open("t")


def test_a_home_that_lost_its_data_is_not_made_anew(servers: list[RedisServer]) -> None:
    store = owned(servers)
    store._home._link.ask(("FLUSHALL",))
    store.close()
    with pytest.raises(DamagedError, match="has no identity, but"):
        open_store(url_of(servers)).open("t")


def test_an_earlier_owner_is_refused_on_every_server(servers: list[RedisServer], tmp_path: Path) -> None:
    first = owned(servers)
    write = first.segment_writer()
    second = opened(servers)
    second.acquire(take_over=True)
    local = tmp_path / "file"
    local.write_bytes(b"x")
    for n in range(9):
        with pytest.raises(FencedError):
            first.put("entry", {f"k{n}": b"late"})
        with pytest.raises(FencedError):
            first.delete("entry", [f"k{n}"])
        with pytest.raises(FencedError):
            write("entry", f"s{n}", local, checksum(b"x"))
    with pytest.raises(FencedError):
        first.publish(REGION, Epoch(1), b"late")
    assert second.keys("entry") == []
    for store in (first, second):
        store.close()


def test_an_owner_that_a_newer_one_overtakes_between_two_servers_gets_nothing(
    servers: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.store.redis import lease

    slow, fast = opened(servers), opened(servers)
    real = lease.install

    def overtaken(session: Any, token: Any) -> None:
        monkeypatch.setattr(lease, "install", real)
        fast.acquire(take_over=True)
        real(session, token)

    monkeypatch.setattr(lease, "install", overtaken)
    with pytest.raises(FencedError):
        slow.acquire()
    fast.create_entry("entry")
    fast.put("entry", MANY)
    slow.close()
    fast.check_owner()
    fast.close()


def test_a_server_away_leaves_no_owner_behind_that_others_wait_for(servers: list[RedisServer]) -> None:
    store = opened(servers, SHORT)
    servers[2].stop()
    with pytest.raises(StoreError):
        store.acquire()
    servers[2].start()
    again = owned(servers)
    again.put("entry", MANY)
    again.close()


def test_entries_left_behind_by_a_process_that_died_go_with_the_next_owner(
    servers: list[RedisServer],
) -> None:
    store = owned(servers)
    store._others[0]._create_entry("half")
    store.put("entry", MANY)
    store._home._delete_entry("entry")
    store.close()
    again = opened(servers)
    again.acquire()
    assert again.entries() == []
    again.create_entry("entry")
    assert again.keys("entry") == []
    assert all(server.entries() == ["entry"] for server in again._servers)
    again.close()


# --- a run ---------------------------------------------------------------------------------------------------------------


def start(url: str, output: Path, failpoints: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "HOLDFAST_FP": failpoints, "HOLDFAST_FP_LOG": f"{output}.hits"}
    command = [sys.executable, str(PROGRAM), url, str(output)]
    return subprocess.Popen(command, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True)


def written(output: Path) -> list[tuple[Any, ...]]:
    rows = [row for path in output.glob("part-*.parquet") for row in pq.read_table(path).to_pylist()]
    return sorted(tuple(row.values()) for row in rows)


def published(store: SeveralServers) -> int:
    try:
        return len([event for event in store.events() if event.kind == "epoch.published"])
    except StoreError:
        return 0


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("victim", [0, 2])
def test_a_run_outlives_one_server_that_is_killed_under_it(
    servers: list[RedisServer], tmp_path: Path, victim: int
) -> None:
    url, output = url_of(servers), tmp_path / "out"
    process = start(url, output)
    store = open_store(url)
    assert isinstance(store, SeveralServers)
    deadline, disturbed = time.monotonic() + 60, 0
    for _ in range(3):
        before = published(store)
        while published(store) <= before and process.poll() is None:
            assert time.monotonic() < deadline, "no epoch was published"
            time.sleep(0.005)
        disturbed += process.poll() is None
        servers[victim].restart()
    assert disturbed, "the run ended before the server was killed"
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said[-3000:]
    assert written(output) == redis_job.expected()
    store.close()


@pytest.mark.slow
@pytest.mark.fault("K14")
def test_a_driver_killed_while_another_server_is_away_goes_on_with_exact_output(
    servers: list[RedisServer], tmp_path: Path
) -> None:
    url, output = url_of(servers, options="&patience=1"), tmp_path / "out"
    for failpoint in ("ckpt.op.put_done=kill@3", "ckpt.manifest.fsynced=kill@4"):
        process = start(url, output, failpoint)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, said[-3000:]
        servers[1].stop()
        process = start(url, output)
        said, _ = process.communicate(timeout=120)
        assert process.returncode not in (0, -signal.SIGKILL), "a run without one of its servers"
        assert "cannot be reached" in said
        servers[1].start()
    process = start(url, output)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said[-3000:]
    assert written(output) == redis_job.expected()
