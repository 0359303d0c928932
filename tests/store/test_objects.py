"""The store of objects: the suite over fsspec's file systems in memory and on the local disk."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from holdfast.checkpoint.blobs import BlobRef, get_blob, put_blobs
from holdfast.durable import checksum
from holdfast.errors import (
    ConfigError,
    DamagedError,
    FencedError,
    MismatchError,
    NoSpaceError,
    OwnedError,
    StoreError,
)
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import SegmentRef, Store
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.contents_log import KEEP
from holdfast.store.objects.object_store import ObjectStore
from holdfast.store.objects.url import Place
from holdfast.store.urls import open_store
from holdfast.testing.store_conformance import StoreConformance
from holdfast.testing.store_races import RacingStores

REGION = RegionName("main")


class TestObjectsInMemory(StoreConformance):
    def make_store(self, tmp_path: Path) -> Store:
        return ObjectStore(f"memory://{tmp_path.name}")


class TestObjectsOnDisk(RacingStores):
    def make_store(self, tmp_path: Path) -> Store:
        return ObjectStore(f"objects+file://{tmp_path}/store")


def on_disk(tmp_path: Path, options: str = "") -> ObjectStore:
    store = ObjectStore(f"objects+file://{tmp_path}/store{options}")
    store.open("t")
    return store


def owned(tmp_path: Path, options: str = "") -> ObjectStore:
    store = on_disk(tmp_path, options)
    store.acquire()
    store.create_entry("entry")
    return store


def files(tmp_path: Path, *but: str) -> list[Path]:
    found = sorted(path for path in (tmp_path / "store").rglob("*") if path.is_file())
    return [path for path in found if path.relative_to(tmp_path / "store").parts[0] not in but]


# --- fencing ---
def test_a_number_that_is_free_only_because_history_was_cleared_does_not_count(tmp_path: Path) -> None:
    old = owned(tmp_path)
    old.publish(REGION, Epoch(1), b"one")
    new = on_disk(tmp_path)
    new.acquire(take_over=True)
    for step in range(3 * KEEP):
        new.save_record("r", b"%d" % step)
    number = old._log.seen().number + 1
    assert not (tmp_path / "store/log" / f"{number:015d}").exists(), "the number the old owner will try"
    with pytest.raises(FencedError):
        old.publish(REGION, Epoch(2), b"late")
    assert new.epochs(REGION) == [1]
    assert on_disk(tmp_path).load_record("r") == b"%d" % (3 * KEEP - 1)
    new.check_owner()
    old.close()
    new.close()


def test_the_log_stays_short_and_nothing_is_left_behind(tmp_path: Path) -> None:
    store = owned(tmp_path)
    for step in range(100):
        store.put("entry", {"k": b"%d" % step})
        store.save_record("r", b"%d" % step)
        store.publish(REGION, Epoch(step), b"m")
        if step:
            store.delete_epoch(REGION, Epoch(step - 1))
    assert len(list((tmp_path / "store/log").iterdir())) <= 2 * KEEP
    assert len(list((tmp_path / "store/blobs").iterdir())) == 3
    store.close()


def test_leftovers_of_a_killed_owner_are_deleted_by_the_next(tmp_path: Path) -> None:
    store = owned(tmp_path)
    store.put("entry", {"k": b"v"})
    store._upload([(b"never named", ("pair", "entry", "x"))])
    (tmp_path / "store/segments/gone").mkdir(parents=True)
    (tmp_path / "store/segments/gone/s").write_bytes(b"of a deleted entry")
    store.close()
    again = on_disk(tmp_path)
    again.acquire()
    assert len(list((tmp_path / "store/blobs").iterdir())) == 1
    assert again.keys("gone") == []
    assert again.get("entry", "k") == b"v"
    again.close()


@pytest.mark.fault("T02")
def test_an_owner_of_another_machine_is_watched_before_it_is_replaced(tmp_path: Path) -> None:
    first, second = owned(tmp_path, "?lease=0.6"), on_disk(tmp_path, "?lease=0.6")
    first._change(lambda state: replace(state, owner={**state.owner, "boot": "another", "host": "far"}))
    with pytest.raises(OwnedError, match="far"):
        second.acquire()
    assert first._heart is not None
    first._heart.stop()
    assert second.acquire() == 2
    with pytest.raises(FencedError):
        first.save_record("r", b"late")
    first.close()
    second.close()


@pytest.mark.fault("T02")
def test_an_owner_at_rest_shows_fewer_signs_of_life_and_is_watched_for_longer(tmp_path: Path) -> None:
    """Also by one who was told of shorter leases."""
    first, second = owned(tmp_path, "?lease=0.8"), on_disk(tmp_path, "?lease=0.05")
    first._change(lambda state: replace(state, owner={**state.owner, "boot": "another", "host": "far"}))
    first.rest(True)
    sign = tmp_path / "store/alive" / f"{1:010d}"
    wait_for(lambda: sign.read_text().endswith(" 2.4"), "the longer lease to be said")
    with pytest.raises(OwnedError, match="far"):
        second.acquire()
    first.rest(False)
    wait_for(lambda: sign.read_text().endswith(" 0.8"), "the shorter lease to be said")
    with pytest.raises(OwnedError, match="far"):
        second.acquire()
    assert first._heart is not None
    first._heart.stop()
    assert second.acquire() == 2
    first.close()
    second.close()


@pytest.mark.parametrize(
    "said", [b"", b"a number", b"a number soon", b"a number -1", b"a number nan", b"x 1e99"]
)
def test_a_sign_of_life_that_says_no_lease_counts_as_one_of_a_usual_lease(
    tmp_path: Path, said: bytes
) -> None:
    first, second = owned(tmp_path), on_disk(tmp_path, "?lease=0.1")
    first._change(lambda state: replace(state, owner={**state.owner, "boot": "another", "host": "far"}))
    assert first._heart is not None
    first._heart.stop()
    first._bucket.replace(f"alive/{1:010d}", said)
    assert second.acquire() == 2
    first.close()
    second.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.01)


# --- answers that are lost, and storage that fails ---
@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
@pytest.mark.fault("K12")
def test_a_creation_whose_answer_is_lost_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    store = owned(tmp_path)
    real, calls = Bucket._write, []

    def unsure(bucket: Bucket, name: str, data: bytes, *, exclusive: bool) -> None:
        if is_done or not name.startswith("log/"):
            real(bucket, name, data, exclusive=exclusive)
        if name.startswith("log/") and not calls:
            calls.append(name)
            raise TimeoutError("no answer")

    monkeypatch.setattr(Bucket, "_write", unsure)
    if is_done:
        store.publish(REGION, Epoch(1), b"one")
    else:
        with pytest.raises(StoreError, match="no answer"):
            store.publish(REGION, Epoch(1), b"one")
        monkeypatch.setattr(Bucket, "_write", real)
        store.publish(REGION, Epoch(1), b"one")
    assert calls
    assert store.epochs(REGION) == [1]
    store.close()


@pytest.mark.fault("S13")
def test_a_change_that_arrives_late_is_built_upon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = owned(tmp_path)
    real, late = Bucket._write, []

    def lost(bucket: Bucket, name: str, data: bytes, *, exclusive: bool) -> None:
        if not name.startswith("log/"):
            return real(bucket, name, data, exclusive=exclusive)
        late.append((name, data))
        raise TimeoutError("no answer")

    monkeypatch.setattr(Bucket, "_write", lost)
    with pytest.raises(StoreError):
        store.save_record("first", b"1")
    monkeypatch.setattr(Bucket, "_write", real)
    real(store._bucket, *late[0], exclusive=True)  # it arrives after all
    store.save_record("second", b"2")
    assert (store.load_record("first"), store.load_record("second")) == (b"1", b"2")
    store.close()


def test_a_full_disk_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = owned(tmp_path)

    def full(bucket: Bucket, name: str, data: bytes, *, exclusive: bool) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "_write", full)
        with pytest.raises(NoSpaceError):
            store.put("entry", {"k": b"v"})
        assert not store.accepts_writes()
    assert store.accepts_writes()
    assert store.keys("entry") == []
    store.close()


@pytest.mark.fault("C07")
def test_a_store_that_lost_its_newest_state_is_refused(tmp_path: Path) -> None:
    store = owned(tmp_path)
    store.publish(REGION, Epoch(1), b"one")
    store.publish(REGION, Epoch(2), b"two")
    newest = max((tmp_path / "store/log").iterdir())
    newest.unlink()
    with pytest.raises(DamagedError, match="went back"):
        store.publish(REGION, Epoch(3), b"three")
    assert len(list((tmp_path / "store/log").iterdir())) == 3, "what was refused is not there"
    store.close()
    with pytest.raises(DamagedError, match="went back"):
        on_disk(tmp_path).acquire()


def test_a_place_that_was_emptied_is_refused_by_its_owner(tmp_path: Path) -> None:
    store = owned(tmp_path)
    store.publish(REGION, Epoch(1), b"one")
    shutil.rmtree(tmp_path / "store")
    for change in (store.check_owner, lambda: store.publish(REGION, Epoch(2), b"two")):
        with pytest.raises(DamagedError, match=r"went back|is gone"):
            change()
    assert not [path for path in files(tmp_path, "blobs") if path.parent.name == "log"]
    store.close()


# --- damage ---
def fill(tmp_path: Path) -> tuple[dict[str, BlobRef], SegmentRef]:
    store = owned(tmp_path)
    blobs = put_blobs(store, "entry", {"a": b"state" * 30, "b": b""})
    (tmp_path / "s").write_bytes(b"segment" * 30)
    ref = store.put_segment("entry", "s", tmp_path / "s", checksum(b"segment" * 30))
    store.publish(REGION, Epoch(1), b"one")
    store.publish(REGION, Epoch(2), b"two")
    store.save_record("r", b"record")
    store.close()
    return blobs, ref


def restore(tmp_path: Path, blobs: dict[str, BlobRef], ref: SegmentRef) -> list[object]:
    store = on_disk(tmp_path)
    try:
        store.acquire()
        found: list[object] = [(epoch, store.manifest(REGION, epoch)) for epoch in store.epochs(REGION)]
        found += [get_blob(store, blob) for blob in blobs.values()]
        store.fetch_segment(ref, tmp_path / "back")
        return [*found, (tmp_path / "back").read_bytes(), store.load_record("r")]
    finally:
        store.close()


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "first": lambda b: bytes([b[0] ^ 1]) + b[1:],
    "middle": lambda b: b[: len(b) // 2] + bytes([b[len(b) // 2] ^ 0x40]) + b[len(b) // 2 + 1 :],
    "last": lambda b: b[:-1] + bytes([b[-1] ^ 0x80]),
    "cut": lambda b: b[: len(b) // 2],
    "emptied": lambda b: b"",
    "deleted": lambda b: None,
}


@pytest.mark.fault("C01")
def test_damage_to_any_object_a_restore_needs_is_found(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    blobs, ref = fill(tmp_path / "whole")
    whole = restore(tmp_path / "whole", blobs, ref)
    history = sorted((tmp_path / "whole/store/log").iterdir())[:-1]
    refused = same = 0
    for number, path in enumerate(files(tmp_path / "whole", "alive", "events")):
        for name, damage in DAMAGES.items():
            place = tmp_path / f"{number}-{name}"
            shutil.copytree(tmp_path / "whole", place)
            target = place / path.relative_to(tmp_path / "whole")
            changed = damage(path.read_bytes() or b"x")
            target.unlink() if changed is None else target.write_bytes(changed)
            try:
                assert restore(place, blobs, ref) == whole, f"{path}: {name}"
                same += 1
                assert path in history or path.name == "head", f"{path}: {name} was not found"
            except (DamagedError, MismatchError):
                refused += 1
            shutil.rmtree(place)
    assert refused > 30
    assert same >= len(history)


@pytest.mark.fault("C08")
def test_a_missing_identity_beside_data_is_damage_and_foreign_data_is_refused(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "store/identity").unlink()
    with pytest.raises(DamagedError, match="identity"):
        on_disk(tmp_path)
    (tmp_path / "other/store").mkdir(parents=True)
    (tmp_path / "other/store/photo.jpg").touch()
    with pytest.raises(ConfigError, match="neither a store nor empty"):
        on_disk(tmp_path / "other")


@pytest.mark.fault("U02")
def test_a_store_of_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    owned(tmp_path).close()
    path = tmp_path / "store/identity"
    newer = path.read_bytes().replace(b"holdfast identity 1 ", b"holdfast identity 2 ")
    path.write_bytes(newer)
    with pytest.raises(MismatchError, match="format 2"):
        on_disk(tmp_path)
    assert path.read_bytes() == newer


# --- places ---
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a?lease=5", "gs://bucket/a"),
        ("memory://name", "memory://name"),
        ("objects+file:///a/b", "objects+file:///a/b"),
        ("objects+sftp://host/a?exclusive=no", "objects+sftp://host/a?exclusive=no"),
    ],
)
def test_urls_name_places(url: str, shown: str) -> None:
    assert open_store(url).url == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://", "s3://key:hunter2@bucket/a", "s3://bucket/../a", "s3://bucket/a?secret=hunter2",
        "s3://bucket/a?exclusive=perhaps", "gs://bucket/a?lease=long", "objects+file://",
    ],
)  # fmt: skip
@pytest.mark.fault("SR12", "U08")
def test_other_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(url)
    assert caught.value.cure
    assert "hunter2" not in str(caught.value)


def test_a_file_system_that_cannot_create_exclusively_is_refused_or_labelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="only if it is not there"):
        open_store(f"objects+dir://{tmp_path}/x").open("t")
    store = ObjectStore(Place("memory", "labelled", exclusive=False))
    store.open("t")
    assert "exclusive=no" in store.url
    assert "start one at a time" in caplog.text


def test_a_server_that_ignores_the_condition_is_found_out() -> None:
    place = Place("s3", "bucket/x")
    bucket = Bucket(place)
    bucket._fs = Careless()
    with pytest.raises(ConfigError, match="replaces objects"):
        bucket.check_exclusive()
    assert not bucket.names("probe")


class Careless(MemoryFileSystem):  # type: ignore[misc]
    """Overwrites, whatever it is told."""

    cachable = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object) -> None:
        super().pipe_file(path, value, mode="overwrite")


def test_a_missing_package_is_named() -> None:
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigError, match="s3fs"):
            open_store("s3://bucket/a").open("t")


def test_a_name_that_was_taken_and_is_gone_again_was_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever took it has gone on, and cleaned up behind itself, before we could look."""
    bucket = Bucket(Place("memory", "taken"))

    def taken(name: str, source: object, exclusive: bool) -> None:
        raise FileExistsError(17, "File exists", name)

    monkeypatch.setattr(bucket, "_write", taken)
    assert bucket.create("log/000000000000030", b"ours") is False
