"""The suite every store passes. A back end inherits it and says how to make a store:

    class TestMyStore(StoreConformance):
        def make_store(self, tmp_path: Path) -> Store:
            return MyStore(tmp_path / "store")

`make_store` is called several times per test and must give a new object for the same place each time: that is how a
restart and a second run look. Crashes, full disks and damage depend on the back end and are tested beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from holdfast import failpoints
from holdfast.durable import checksum
from holdfast.errors import DamagedError, FencedError, HoldfastError, MismatchError, OwnedError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import FORMAT, SegmentRef, Store
from holdfast.store.names import NAME_LIMIT

TOPOLOGY = "topology-1"
REGION = RegionName("main")
BAD_NAMES = (
    "", ".", "..", "../x", "a/b", "a\\b", "/etc", ".hidden", "a..b", "a\0b", "a b", "a\n", "é", "x" * (NAME_LIMIT + 1),
)  # fmt: skip


class StoreConformance(ABC):
    """Inherit, supply `make_store`, and keep the tests green."""

    @abstractmethod
    def make_store(self, tmp_path: Path) -> Store:
        """A new object for one and the same store per `tmp_path`."""

    @pytest.fixture(autouse=True)
    def opened(self) -> Iterator[list[Store]]:
        """What a test opens is closed behind it."""
        self._opened: list[Store] = []
        yield self._opened
        failpoints.disarm()
        for store in self._opened:
            store.close()

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        store = self.open_store(tmp_path)
        store.acquire()
        store.create_entry("entry")
        return store

    def open_store(self, tmp_path: Path) -> Store:
        store = self.make_store(tmp_path)
        self._opened.append(store)
        store.open(TOPOLOGY)
        return store

    def restart(self, store: Store, tmp_path: Path) -> Store:
        """What the next run sees after this one died."""
        store.close()
        again = self.open_store(tmp_path)
        again.acquire()
        return again

    # --- identity ---
    def test_identity_survives_and_is_never_made_anew(self, store: Store, tmp_path: Path) -> None:
        first = self.make_store(tmp_path).open(TOPOLOGY)
        assert first == self.make_store(tmp_path).open(TOPOLOGY)
        assert first.topology == TOPOLOGY
        assert first.format == FORMAT
        assert first.job_id

    def test_another_topology_is_refused(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(MismatchError):
            self.make_store(tmp_path).open("topology-2")
        with pytest.raises(MismatchError):
            self.make_store(tmp_path).check("topology-2", take_over=True)

    # --- ownership ---
    def test_a_live_owner_is_named_and_not_replaced(self, store: Store, tmp_path: Path) -> None:
        owner = store.owner()
        assert owner is not None
        assert owner["alive"]
        other = self.open_store(tmp_path)
        with pytest.raises(OwnedError, match=str(owner["pid"])):
            other.acquire()
        with pytest.raises(OwnedError, match=str(owner["pid"])):
            self.make_store(tmp_path).check(TOPOLOGY)
        self.make_store(tmp_path).check(TOPOLOGY, take_over=True)
        store.check_owner()

    def test_a_dead_owner_is_replaced_at_once_by_a_higher_token(self, tmp_path: Path) -> None:
        first, second = self.open_store(tmp_path), self.open_store(tmp_path)
        token = first.acquire()
        first.close()
        owner = second.owner()
        assert owner is not None
        assert not owner["alive"]
        assert second.acquire() > token

    def test_a_released_store_has_no_owner(self, store: Store, tmp_path: Path) -> None:
        store.release()
        assert store.owner() is None
        with pytest.raises(StoreError):
            store.save_record("r", b"")
        other = self.open_store(tmp_path)
        other.acquire()

    def test_an_owner_can_come_back_after_release(self, store: Store) -> None:
        store.release()
        store.acquire()
        store.put("entry", {"k": b"v"})

    def test_take_over_fences_the_old_owner_everywhere(self, store: Store, tmp_path: Path) -> None:
        store.put("entry", {"k": b"old"})
        store.publish(REGION, Epoch(1), b"one")
        other = self.open_store(tmp_path)
        assert other.acquire(take_over=True)
        other.post("stop", {})
        for change in self.changes(store, tmp_path):
            with pytest.raises(FencedError):
                change()
        store.append_events([("late", {})])  # never fails, and does nothing
        assert other.get("entry", "k") == b"old"
        assert other.keys("entry") == ["k"]
        assert other.entries() == ["entry"]
        assert other.epochs(REGION) == [1]
        assert other.load_record("r") is None
        assert other.events() == []
        assert other.collect_mail() == [("stop", {})]
        store.release()
        other.check_owner()

    def changes(self, store: Store, tmp_path: Path) -> list[Callable[[], object]]:
        """Every kind of change an owner makes."""
        local = tmp_path / "late.seg"
        local.write_bytes(b"late")
        return [
            store.check_owner,
            lambda: store.create_entry("late"),
            lambda: store.delete_entry("entry"),
            lambda: store.put("entry", {"k": b"new"}),
            lambda: store.delete("entry", ["k"]),
            lambda: store.put_segment("entry", "late", local, checksum(b"late")),
            lambda: store.publish(REGION, Epoch(2), b"two"),
            lambda: store.delete_epoch(REGION, Epoch(1)),
            lambda: store.save_record("r", b"late"),
            store.collect_mail,
            store.accepts_writes,
        ]

    def test_writing_needs_ownership(self, tmp_path: Path) -> None:
        store = self.open_store(tmp_path)
        for change in self.changes(store, tmp_path):
            with pytest.raises(StoreError):
                change()

    # --- entries and pairs ---
    def test_pairs_are_replaced_deleted_and_survive(self, store: Store, tmp_path: Path) -> None:
        store.put("entry", {"a": b"1", "b": b"", "c": bytes(range(256))})
        store.put("entry", {"a": b"2"})
        store.delete("entry", ["b", "absent"])
        again = self.restart(store, tmp_path)
        assert again.get("entry", "a") == b"2"
        assert again.get("entry", "b") is None
        assert again.get("entry", "c") == bytes(range(256))
        assert again.get("absent", "a") is None
        assert again.keys("entry") == ["a", "c"]
        assert again.keys("absent") == []

    def test_a_deleted_key_can_come_back(self, store: Store) -> None:
        for value in (b"1", b"2", b"3"):
            store.put("entry", {"k": value, f"other-{value.decode()}": b""})
            assert store.get("entry", "k") == value
            store.delete("entry", ["k"])
            assert store.get("entry", "k") is None

    def test_many_puts_and_deletes_agree_with_a_dictionary(self, store: Store, tmp_path: Path) -> None:
        model: dict[str, bytes] = {}
        for step in range(120):
            changes = {f"k{(step * 7 + i) % 13}": bytes([step, i]) for i in range(step % 3 + 1)}
            store.put("entry", changes)
            model.update(changes)
            if step % 2:
                doomed = [f"k{(step * 5) % 13}", f"k{(step * 3) % 13}"]
                store.delete("entry", doomed)
                model = {key: value for key, value in model.items() if key not in doomed}
            assert store.keys("entry") == sorted(model)
        again = self.restart(store, tmp_path)
        assert {key: again.get("entry", key) for key in again.keys("entry")} == model

    def test_entries_are_created_and_deleted(self, store: Store, tmp_path: Path) -> None:
        store.create_entry("entry")
        store.create_entry("op@region")
        store.put("op@region", {"k": b"v"})
        assert store.entries() == ["entry", "op@region"]
        store.delete_entry("op@region")
        store.delete_entry("absent")
        assert not store.has_entry("op@region")
        store.create_entry("op@region")
        assert store.keys("op@region") == []
        store.put("op@region", {"k": b"other"})
        again = self.restart(store, tmp_path)
        assert again.has_entry("op@region")
        assert again.get("op@region", "k") == b"other"

    def test_an_entry_must_exist_before_it_is_written(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="absent"):
            store.put("absent", {"k": b"v"})
        with pytest.raises(StoreError, match="absent"):
            self.put_file(store, tmp_path, b"x", entry="absent")
        assert not store.has_entry("absent")

    def test_a_value_above_the_limit_is_refused(self, store: Store) -> None:
        store.put("entry", {"whole": bytes(store.value_limit)})
        with pytest.raises(StoreError, match="at most"):
            store.put("entry", {"a": b"", "k": bytes(store.value_limit + 1)})
        assert store.keys("entry") == ["whole"]

    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:12])
    def test_names_that_could_lead_astray_are_refused(self, store: Store, tmp_path: Path, name: str) -> None:
        local = tmp_path / "local"
        local.write_bytes(b"")
        for use in (
            lambda: store.create_entry(name), lambda: store.delete_entry(name), lambda: store.has_entry(name),
            lambda: store.keys(name), lambda: store.get(name, "k"), lambda: store.get("entry", name),
            lambda: store.put(name, {"k": b""}), lambda: store.put("entry", {name: b""}),
            lambda: store.delete("entry", [name]), lambda: store.put_segment("entry", name, local, 0),
            lambda: store.put_segment(name, "k", local, 0), lambda: store.save_record(name, b""),
            lambda: store.load_record(name), lambda: store.epochs(RegionName(name)),
            lambda: store.publish(RegionName(name), Epoch(1), b""),
            lambda: store.delete_epoch(RegionName(name), Epoch(1)),
        ):  # fmt: skip
            with pytest.raises(StoreError, match="cannot be the name"):
                use()
        assert store.entries() == ["entry"]

    # --- segments ---
    def put_file(
        self, store: Store, tmp_path: Path, data: bytes, *, entry: str = "entry", key: str = "s"
    ) -> SegmentRef:
        local = tmp_path / "local.seg"
        local.unlink(missing_ok=True)
        local.write_bytes(data)
        return store.put_segment(entry, key, local, checksum(data))

    @pytest.mark.parametrize("size", [0, 1, 4096, 1 << 20, (4 << 20) + 7])
    def test_a_segment_comes_back_as_it_was(self, store: Store, tmp_path: Path, size: int) -> None:
        data = bytes(i * 31 % 251 for i in range(min(size, 4096))) * (size // 4096 + 1)
        ref = self.put_file(store, tmp_path, data[:size])
        (tmp_path / "local.seg").unlink()
        again = self.restart(store, tmp_path)
        again.fetch_segment(ref, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == data[:size]
        assert again.keys("entry") == ["s"]
        assert again.get("entry", "s") is None
        again.delete("entry", ["s"])
        with pytest.raises(DamagedError):
            again.fetch_segment(ref, tmp_path / "gone")
        assert not (tmp_path / "gone").exists()

    def test_a_segment_is_never_overwritten(self, store: Store, tmp_path: Path) -> None:
        ref = self.put_file(store, tmp_path, b"first")
        assert self.put_file(store, tmp_path, b"first") == ref
        with pytest.raises(StoreError, match="other bytes"):
            self.put_file(store, tmp_path, b"other")
        with pytest.raises(StoreError):
            store.put("entry", {"s": b"pair"})
        store.put("entry", {"pair": b""})
        with pytest.raises(StoreError):
            self.put_file(store, tmp_path, b"x", key="pair")
        store.fetch_segment(ref, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"first"

    def test_a_reference_that_does_not_fit_is_damage(self, store: Store, tmp_path: Path) -> None:
        ref = self.put_file(store, tmp_path, b"bytes")
        for wrong in (
            SegmentRef("entry", "s", ref.size, ref.crc ^ 1),
            SegmentRef("entry", "s", ref.size + 1, ref.crc),
            SegmentRef("entry", "absent", ref.size, ref.crc),
        ):
            with pytest.raises(DamagedError):
                store.fetch_segment(wrong, tmp_path / "back")
            assert not (tmp_path / "back").exists()

    def test_describe_names_the_place(self, store: Store) -> None:
        store.put("entry", {"k": b"v"})
        assert "entry" in store.describe("entry", "k")
        assert "entry" in store.describe("entry", "absent")

    # --- epochs ---
    def test_epochs_are_published_in_order_and_once(self, store: Store, tmp_path: Path) -> None:
        assert store.epochs(REGION) == []
        for epoch in (0, 1, 5):
            store.publish(REGION, Epoch(epoch), b"manifest %d" % epoch)
        for stale in (0, 4, 5):
            with pytest.raises(StoreError, match="not newer"):
                store.publish(REGION, Epoch(stale), b"other")
        store.publish(RegionName("other"), Epoch(1), b"")
        store.delete_epoch(REGION, Epoch(1))
        store.delete_epoch(REGION, Epoch(1))
        again = self.restart(store, tmp_path)
        assert again.epochs(REGION) == [0, 5]
        assert again.manifest(REGION, Epoch(5)) == b"manifest 5"
        assert again.manifest(RegionName("other"), Epoch(1)) == b""
        with pytest.raises(StoreError):
            again.manifest(REGION, Epoch(1))

    def test_a_failure_before_publish_leaves_nothing_and_after_it_is_looked_up(self, store: Store) -> None:
        for fault in ("raise", "eio"):
            failpoints.arm(f"ckpt.manifest.tmp_written={fault}")
            with pytest.raises((HoldfastError, failpoints.FaultInjected)):
                store.publish(REGION, Epoch(1), b"one")
            assert sum(failpoints.disarm().values()) == 1
            assert store.epochs(REGION) == []
        failpoints.arm("ckpt.manifest.renamed=raise")
        store.publish(REGION, Epoch(1), b"one")
        failpoints.disarm()
        assert store.manifest(REGION, Epoch(1)) == b"one"

    # --- records, events, mailbox ---
    def test_records_are_replaced_as_a_whole(self, store: Store, tmp_path: Path) -> None:
        assert store.load_record("r") is None
        store.save_record("r", b"a longer first version")
        store.save_record("r", b"second")
        again = self.restart(store, tmp_path)
        assert again.load_record("r") == b"second"

    def test_events_are_numbered_across_restarts(self, store: Store, tmp_path: Path) -> None:
        store.append_events([("epoch", {"n": 1}), ("epoch", {"n": 2})])
        again = self.restart(store, tmp_path)
        again.append_events([("reset", {"why": "test \n ü"})])
        events = self.make_store(tmp_path).events()
        assert [(e.kind, e.data) for e in events] == [
            ("epoch", {"n": 1}), ("epoch", {"n": 2}), ("reset", {"why": "test \n ü"}),
        ]  # fmt: skip
        numbers = [event.number for event in events]
        assert numbers == sorted(set(numbers))
        assert [e.number for e in again.events(after=numbers[1])] == numbers[2:]

    def test_a_large_event_is_read_as_it_was_given(self, store: Store, tmp_path: Path) -> None:
        """However large; a reader that comes while it is written takes it with its next look."""
        draw = Random(17)
        large = {f"operator {n}": {"rows": draw.getrandbits(60), "at": draw.random()} for n in range(5000)}
        store.append_events([("small", {"n": 1}), ("summary", large), ("small", {"n": 2})])
        store.append_events([("summary", {"text": "z" * 100_000}), ("small", {"n": 3})])
        events = self.restart(store, tmp_path).events()
        assert [event.kind for event in events] == ["small", "summary", "small", "summary", "small"]
        assert events[1].data == large
        assert events[3].data == {"text": "z" * 100_000}
        for place, event in enumerate(events):
            assert store.events(after=event.number) == events[place + 1 :]
        assert events[1].number > events[0].number + 1
        assert store.events(after=events[0].number + 1) == events[2:]

    def test_mail_is_collected_once_and_in_order(self, store: Store, tmp_path: Path) -> None:
        sender = self.make_store(tmp_path)
        for number in range(12):
            sender.post("command", {"n": number})
        assert [data["n"] for _, data in store.collect_mail()] == list(range(12))
        assert store.collect_mail() == []
        sender.post("stop", {})
        assert store.collect_mail() == [("stop", {})]

    def test_the_probe_says_yes_and_leaves_nothing(self, store: Store) -> None:
        assert store.accepts_writes()
        assert store.keys("entry") == []
        assert store.collect_mail() == []

    # --- threads ---
    def test_threads_of_an_owner_do_not_disturb_each_other(self, store: Store, tmp_path: Path) -> None:
        def work(number: int) -> None:
            for step in range(10):
                store.put("entry", {f"t{number}-{step}": bytes([number, step])})
                store.publish(RegionName(f"region{number}"), Epoch(step), b"m")
                store.save_record(f"r{number}", bytes([step]))
                store.append_events([("step", {"thread": number})])
                if step % 3 == 2:
                    store.delete("entry", [f"t{number}-{step - 1}"])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))  # raises what one of them ran into
        again = self.restart(store, tmp_path)
        assert len(again.keys("entry")) == 4 * (10 - 3)
        assert all(again.epochs(RegionName(f"region{n}")) == list(range(10)) for n in range(4))
        assert len(again.events()) == 40
