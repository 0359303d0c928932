"""The store on a Redis server: the suite over a real server, and what is peculiar to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.durable import checksum
from holdfast.errors import ConfigError, MismatchError, NoSpaceError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import FORMAT, Identity, Store
from holdfast.store.redis import events_and_mail as redis_log
from holdfast.store.redis import segments as redis_segments
from holdfast.store.redis import server_settings as redis_settings
from holdfast.store.redis.redis_store import RedisStore
from holdfast.store.redis.server_settings import Settings
from holdfast.store.redis.values import seal_identity
from holdfast.testing.store_races import RacingStores

from .redis_server import RedisServer

REGION = RegionName("main")


class TestRedisStore(RacingStores):
    @pytest.fixture(autouse=True)
    def _use(self, shared_redis: RedisServer) -> None:
        self.server = shared_redis

    def make_store(self, tmp_path: Path) -> Store:
        return RedisStore(self.server.url(tmp_path.name.strip("_")))


def owned(server: RedisServer, name: str = "job", options: str = "") -> RedisStore:
    store = RedisStore(server.url(name, options))
    store.open("t")
    store.acquire()
    store.create_entry("entry")
    return store


@pytest.mark.fault("SR06")
def test_jobs_share_a_server_under_names_of_their_own(own_redis: RedisServer) -> None:
    first, second = owned(own_redis, "one"), owned(own_redis, "two")
    first.put("entry", {"k": b"1"})
    second.put("entry", {"k": b"2"})
    assert (first.get("entry", "k"), second.get("entry", "k")) == (b"1", b"2")
    assert first.read_identity().job_id != second.read_identity().job_id
    (keys,) = first._link.ask(("KEYS", "*"))
    assert {key.split(b":")[0:2][1] for key in keys} == {b"{one}", b"{two}"}
    first.close()
    second.close()


def test_only_the_lease_has_a_time_to_live(own_redis: RedisServer) -> None:
    store = owned(own_redis)
    store.put("entry", {"k": b"v"})
    store.publish(REGION, Epoch(1), b"m")
    store.save_record("r", b"")
    store.append_events([("e", {})])
    (keys,) = store._link.ask(("KEYS", "*"))
    mortal = [key for key in keys if store._link.ask(("TTL", key)) != [-1]]
    assert mortal == [b"holdfast:{job}:alive:1"]
    store.close()


@pytest.mark.fault("U02")
def test_a_store_of_a_newer_format_is_refused_untouched(own_redis: RedisServer) -> None:
    store = owned(own_redis)
    store.close()
    newer = seal_identity(Identity("a" * 32, "t", FORMAT + 1))
    store._link.ask(("SET", "holdfast:{job}:identity", newer))
    with pytest.raises(MismatchError, match="format 2"):
        RedisStore(own_redis.url("job")).open("t")
    assert store._link.ask(("GET", "holdfast:{job}:identity")) == [newer]


# --- segments ---
def test_a_segment_travels_chunk_by_chunk(
    own_redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_segments, "CHUNK_BYTES", 1000)
    store = owned(own_redis)
    local = tmp_path / "s"
    data = bytes(i % 251 for i in range(10_500))
    local.write_bytes(data)
    ref = store.put_segment("entry", "s", local, checksum(data))
    (fields,) = store._link.ask(("HKEYS", "holdfast:{job}:entry:entry"))
    assert len(fields) == 11 + 1
    store.fetch_segment(ref, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == data
    store.delete("entry", ["s"])
    assert store._link.ask(("EXISTS", "holdfast:{job}:entry:entry")) == [0]
    store.close()


def test_an_upload_that_never_ended_can_be_found_and_deleted(own_redis: RedisServer, tmp_path: Path) -> None:
    store = owned(own_redis)
    local = tmp_path / "s"
    local.write_bytes(b"bytes")
    with pytest.raises(StoreError, match="checksum"):
        store.put_segment("entry", "s", local, 1)
    assert store.keys("entry") == ["s"]
    store.delete("entry", ["s"])
    assert store.keys("entry") == []
    store.close()


# --- what the server promises ---
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("--appendonly", "no"), "memory only"),
        (("--maxmemory-policy", "allkeys-lru"), "throw data away"),
        (("--appendfsync", "no"), "last second"),
    ],
)
@pytest.mark.fault("K10", "K11")
def test_a_server_that_may_lose_data_is_refused_or_labelled(
    redis_program: str, tmp_path: Path, settings: tuple[str, ...], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(tmp_path / "server", settings=settings) as server:
        with pytest.raises(ConfigError, match=says) as caught:
            RedisStore(server.url("job")).open("t")
        assert "appendonly yes" in caught.value.cure
        store = owned(server, options="&durable=no")
        assert "durable=no" in store.url
        assert "durable=no" in store.describe("entry", "k")
        assert any("not durable" in record.message and says in record.message for record in caplog.records)
        store.close()


@pytest.mark.parametrize(
    ("settings", "is_fine"),
    [
        (Settings((7, 0), "yes", "always", "noeviction"), True),
        (Settings((7, 2), "yes", "everysec", "noeviction"), True),
        (Settings((7, 0), "yes", "everysec", "noeviction"), False),
        (Settings((7, 4), "yes", None, "noeviction"), True),
        (Settings((7, 0), "yes", None, "noeviction"), False),
        (Settings((8, 0), "yes", "no", "noeviction"), False),
        (Settings((8, 0), None, "always", "noeviction"), False),
        (Settings((8, 0), "yes", "always", None), False),
    ],
)
def test_what_is_not_known_counts_as_unsafe(settings: Settings, is_fine: bool) -> None:
    assert (redis_settings.complaint(settings) is None) == is_fine


def test_a_server_that_hides_its_settings_is_judged_by_what_it_tells(own_redis: RedisServer) -> None:
    store = owned(own_redis)
    store._link.ask(("ACL", "SETUSER", "job", "on", ">pw", "~holdfast:*", "+@all", "-config"))
    url = own_redis.url("job").replace("redis://", "redis://job:pw@")
    settings = redis_settings.read(RedisStore(url)._link)
    assert (settings.appendonly, settings.appendfsync, settings.policy) == ("yes", None, "noeviction")
    with pytest.raises(ConfigError, match="appendfsync is unknown"):
        RedisStore(url).open("t")
    store.close()


@pytest.mark.fault("SR06")
def test_a_user_with_the_documented_commands_only_can_run_a_job(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs/formats/store-redis.md").read_text()
    rule = next(line for line in page.splitlines() if line.startswith("ACL SETUSER"))
    RedisStore(own_redis.url("x"))._link.ask(tuple(rule.replace("PASSWORD", "pw").split()))
    url = own_redis.url("job").replace("redis://", "redis://holdfast:pw@")
    store = RedisStore(url)
    store.open("t")
    store.acquire()
    store.create_entry("entry")
    store.put("entry", {"k": b"v"})
    local = tmp_path / "s"
    local.write_bytes(b"bytes")
    store.fetch_segment(store.put_segment("entry", "s", local, checksum(b"bytes")), tmp_path / "back")
    store.publish(REGION, Epoch(1), b"m")
    store.save_record("r", b"r")
    store.append_events([("e", {})])
    assert store.events_dropped == 0
    store.post("stop", {})
    assert store.collect_mail() == [("stop", {})]
    assert store.accepts_writes()
    store.delete("entry", ["k", "s"])
    store.delete_entry("entry")
    store.delete_epoch(REGION, Epoch(1))
    store._heart._beat(20.0)  # type: ignore[union-attr]
    store.release()
    with pytest.raises(ConfigError, match="does not allow"):
        store._link.ask(("FLUSHALL",))
    store.close()


@pytest.mark.fault("K10")
def test_a_server_without_memory_is_no_space_and_recovers(own_redis: RedisServer) -> None:
    store = owned(own_redis)
    store.put("entry", {"k": b"v"})
    store.publish(REGION, Epoch(1), b"one")
    store._link.ask(("CONFIG", "SET", "maxmemory", "1"))
    for change in (
        lambda: store.put("entry", {"k": b"new"}),
        lambda: store.publish(REGION, Epoch(2), b"two"),
        lambda: store.save_record("r", b""),
        lambda: store.delete("entry", ["k"]),
    ):
        with pytest.raises(NoSpaceError):
            change()
    assert not store.accepts_writes()
    store._heart._beat(20.0)  # type: ignore[union-attr]
    assert store.epochs(REGION) == [1]
    assert store.get("entry", "k") == b"v"
    store._link.ask(("CONFIG", "SET", "maxmemory", "0"))
    assert store.accepts_writes()
    store.publish(REGION, Epoch(2), b"two")
    store._link.ask(("CONFIG", "SET", "maxmemory", "1"))
    store.release()
    again = RedisStore(own_redis.url("job"))
    assert again.owner() == {**again.owner(), "alive": False}  # type: ignore[dict-item]
    store._link.ask(("CONFIG", "SET", "maxmemory", "0"))
    again.acquire()
    again.close()


def test_the_event_log_is_bounded_and_damage_in_it_is_skipped(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_log, "EVENTS_MAX", 10)
    store = owned(own_redis)
    for number in range(13):
        store.append_events([("e", {"n": number}), ("big", {"x": ["y" * number, "z" * (20 << 10)]})])
    events = store.events()
    assert [event.number for event in events] == list(range(16, 26))
    assert events[-1].data == {"x": ["y" * 12, "z" * (20 << 10)]}
    assert [event.number for event in store.events(after=23)] == [24, 25]
    assert store.events(after=25) == []
    store._link.ask(("LSET", "holdfast:{job}:events", 0, "rubbish"))
    assert [event.number for event in store.events()] == list(range(17, 26))
    store.close()


@pytest.mark.fault("SR14")
def test_nobody_can_fill_the_mailbox(own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_log, "MAIL_MAX", 3)
    store = owned(own_redis)
    for _ in range(3):
        store.post("stop", {})
    with pytest.raises(StoreError, match="nobody collected"):
        store.post("stop", {})
    with pytest.raises(StoreError, match="bytes"):
        store.post("stop", {"x": "y" * 70_000})
    store._link.ask(("LSET", "holdfast:{job}:mail", 1, "rubbish"))
    assert store.collect_mail() == [("stop", {}), ("stop", {})]
    assert [event.kind for event in store.events()] == ["mail.refused"]
    store.close()


def test_a_put_larger_than_a_transaction_takes_several(own_redis: RedisServer) -> None:
    store = owned(own_redis)
    pairs = {f"k{number}": bytes([number]) * (6 << 20) for number in range(4)}
    store.put("entry", pairs)
    assert {key: store.get("entry", key) for key in store.keys("entry")} == pairs
    (clock,) = store._link.ask(("GET", "holdfast:{job}:clock"))
    assert int(clock) == 4  # acquired, entry created, two portions of pairs
    store.close()
