"""The store of plain files: the suite, then permissions, bounds, executors, other file systems and full disks."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import durable, failpoints
from holdfast.durable import checksum
from holdfast.errors import FencedError, NoSpaceError, StoreError
from holdfast.ids import Epoch, RegionName
from holdfast.store.base import Store
from holdfast.store.files import events_and_mail, lease, packs, segments
from holdfast.store.files.file_store import FileStore, link_segment
from holdfast.testing.store_conformance import TOPOLOGY
from holdfast.testing.store_races import RacingStores

REGION = RegionName("main")
REPOSITORY = Path(__file__).resolve().parents[2]


class TestFileStore(RacingStores):
    def make_store(self, tmp_path: Path) -> Store:
        return FileStore(tmp_path / "a store with späces %20 #")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    store = FileStore(tmp_path / "store")
    store.open(TOPOLOGY)
    store.acquire()
    store.create_entry("entry")
    yield store
    store.close()


@pytest.fixture
def local(tmp_path: Path) -> Path:
    path = tmp_path / "local"
    path.write_bytes(b"segment")
    path.chmod(0o644)
    return path


CRC = checksum(b"segment")


@pytest.mark.parametrize("umask", [0o000, 0o777])
@pytest.mark.fault("SR13")
def test_everything_is_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    # In a child and not as root: root could read files of any mode.
    script = f"""
import os, sys
from pathlib import Path
from holdfast.store.files.file_store import FileStore
if os.getuid() == 0:
    os.chown({str(tmp_path)!r}, 65534, 65534); os.setgid(65534); os.setuid(65534)
os.umask({umask})
store = FileStore({str(tmp_path / "a" / "store")!r})
store.open("t"); store.acquire(); store.create_entry("e"); store.put("e", {{"k": b"v"}})
local = Path({str(tmp_path / "local")!r}); os.close(os.open(local, os.O_CREAT)); os.chmod(local, 0o644)
store.put_segment("e", "s", local, 0)
store.publish("main", 1, b"m"); store.save_record("r", b""); store.append_events([("e", {{}})]); store.post("c", {{}})
assert store.accepts_writes()
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=REPOSITORY)
    found = list((tmp_path / "a").rglob("*"))
    assert len(found) > 15
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_segment_is_linked_where_possible_and_copied_elsewhere(
    store: FileStore, local: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = store.put_segment("entry", "linked", local, CRC)
    assert os.path.samefile(local, store.segment_path("entry", "linked"))
    real = os.link

    def link(source: Path, target: Path, **kwargs: bool) -> None:
        if segments.ENTRIES not in str(target):
            raise OSError(18, "other file system")
        real(source, target, **kwargs)

    monkeypatch.setattr(os, "link", link)
    copied = store.put_segment("entry", "copied", local, CRC)
    assert not os.path.samefile(local, store.segment_path("entry", "copied"))
    with pytest.raises(StoreError, match="checksum"):
        store.put_segment("entry", "wrong", local, CRC ^ 1)
    for one in (ref, copied):
        store.fetch_segment(one, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"segment"


@pytest.mark.fault("O10", "S13")
def test_an_executor_links_segments_until_its_driver_is_replaced(store: FileStore, local: Path) -> None:
    token = lease.highest_token(store.root)
    ref = link_segment(store.root, token, "entry", "from-a-task", local, CRC)
    assert ref.size == 7
    assert store.keys("entry") == ["from-a-task"]
    other = FileStore(store.root)
    newer = other.acquire(take_over=True)
    with pytest.raises(FencedError):
        link_segment(store.root, token, "entry", "late", local, CRC)
    link_segment(str(store.root), newer, "entry", "in-time", local, CRC)
    assert other.keys("entry") == ["from-a-task", "in-time"]
    other.close()


def test_several_segments_are_stored_together_and_again_after_a_failure(
    store: FileStore, local: Path, tmp_path: Path
) -> None:
    several = [(f"s{number}", local, CRC) for number in range(5)]
    assert store.put_segments("entry", []) == []
    failpoints.arm("ckpt.op.put=raise@3")
    try:
        with pytest.raises(failpoints.FaultInjected):
            store.put_segments("entry", several)
    finally:
        failpoints.disarm()
    refs = store.put_segments("entry", several)
    assert [ref.key for ref in refs] == [key for key, _, _ in several]
    for ref in refs:
        store.fetch_segment(ref, tmp_path / ref.key)
        assert (tmp_path / ref.key).read_bytes() == b"segment"


@pytest.mark.fault("S15")
def test_a_replaced_executor_does_not_remove_what_the_new_owner_relies_on(
    store: FileStore, local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FileStore(store.root)

    def take_over(path: Path) -> None:
        monkeypatch.undo()
        other.acquire(take_over=True)
        other.put_segment("entry", "s", local, CRC)

    monkeypatch.setattr(durable, "settle_name", take_over)
    with pytest.raises(FencedError):
        store.put_segment("entry", "s", local, CRC)
    assert other.segment_path("entry", "s").read_bytes() == b"segment"
    other.close()


def test_only_regular_local_files_become_segments(store: FileStore, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    for path in (tmp_path / "link", tmp_path, tmp_path / "absent"):
        with pytest.raises(StoreError):
            store.put_segment("entry", "s", path, 0)
    assert store.keys("entry") == []


@pytest.mark.fault("SR07")
def test_an_entry_replaced_by_a_link_is_not_written_through(
    store: FileStore, local: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (store.root / "entries" / "trap").symlink_to(outside)
    for use in (
        lambda: store.put("trap", {"k": b""}),
        lambda: store.put_segment("trap", "s", local, CRC),
        lambda: store.create_entry("trap"),
        lambda: store.keys("trap"),
    ):
        with pytest.raises(StoreError, match="trap"):
            use()
    store.delete_entry("trap")
    assert list(outside.iterdir()) == []
    assert outside.is_dir()


def test_packs_stay_few_and_small(store: FileStore) -> None:
    directory = store.root / "entries" / "entry"
    store.put("entry", {"base": b"long-lived"})
    for step in range(150):
        store.put("entry", {f"e{step}": bytes(100)})
        store.delete("entry", [f"e{step - 3}"])
    assert len(list(directory.iterdir())) <= packs.PACKS_MAX + 2
    for step in range(20):
        store.put("entry", {"large": bytes([step]) * (1 << 20)})
    assert sum(path.stat().st_size for path in directory.iterdir()) < 4 << 20
    store.delete("entry", store.keys("entry"))
    assert list(directory.iterdir()) == []


def test_a_reader_follows_an_owner_that_shortens_its_chain(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACKS_MAX", 3)
    reader = FileStore(store.root)
    for step in range(30):
        store.put("entry", {"k": bytes([step])})
        assert reader.get("entry", "k") == bytes([step])
        if step % 4 == 0:
            store.delete("entry", ["k"])
            assert reader.get("entry", "k") is None


@pytest.mark.fault("SR14", "O11")
def test_the_event_log_is_bounded(store: FileStore) -> None:
    for step in range(60):
        store.append_events([("filler", {"step": step, "text": "x" * 50_000})] * 2)
    sizes = [path.stat().st_size for path in (store.root / "events").iterdir()]
    assert sum(sizes) <= events_and_mail.SEGMENTS * events_and_mail.SEGMENT_BYTES
    assert store.events()[-1].data["step"] == 59
    assert store.events_dropped == 0
    store.append_events([("large", {"x": "y" * 10_000_000})])
    assert store.events()[-1].kind == "large"
    store.append_events([("unfit", {("a",): object()})])  # type: ignore[dict-item]
    assert store.events_dropped == 1


def test_events_of_many_short_runs_are_bounded(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_and_mail, "FILES_MAX", 5)
    store.close()
    for run in range(12):
        again = FileStore(store.root)
        again.acquire()
        again.append_events([("run", {"n": run})])
        again.close()
    assert len(list((store.root / "events").iterdir())) == 5
    assert [event.data["n"] for event in FileStore(store.root).events()] == [7, 8, 9, 10, 11]


def test_events_that_cannot_be_written_are_dropped_and_counted(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append_events([("before", {})])
    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_all", lambda fd, data: (os.write(fd, data[:9]), fail()))
        store.append_events([("lost", {}), ("lost", {})])
    store.append_events([("after", {})])
    assert [event.kind for event in FileStore(store.root).events()] == ["before", "after"]
    assert store.events_dropped == 2


def fail() -> None:
    raise OSError(28, "no space")


def test_two_processes_that_make_a_store_agree_on_its_identity(tmp_path: Path) -> None:
    first, second = FileStore(tmp_path / "s"), FileStore(tmp_path / "s")
    assert first.open(TOPOLOGY) == second.open(TOPOLOGY)
    assert second.read_identity() == FileStore(tmp_path / "s").read_identity()
    with pytest.raises(StoreError, match="no store"):
        FileStore(tmp_path / "absent").read_identity()


# --- real full and read-only disks, in a private mount namespace ---

FULL = """
import sys
from pathlib import Path
from holdfast.errors import NoSpaceError
from holdfast.store.urls import open_store
mount, url = Path(sys.argv[1]), sys.argv[2]
store = open_store(url)
store.open("t"); store.acquire(); store.create_entry("e"); store.put("e", {"k": b"old"})
store.publish("main", 1, b"one")
assert store.accepts_writes()
filler = mount / "filler"
with open(filler, "wb", buffering=0) as out:
    try:
        while out.write(bytes(4096)): pass
    except OSError: pass
before = sorted(p for p in mount.rglob("*"))
assert not store.accepts_writes()
for use in (lambda: store.put("e", {"k": bytes(300_000)}), lambda: store.publish("main", 2, bytes(300_000)),
            lambda: store.save_record("r", bytes(300_000))):
    try: use()
    except NoSpaceError as error: print(error)
    else: raise SystemExit("no error")
    assert sorted(p for p in mount.rglob("*")) == before, "something was left behind"
store.append_events([("x", {"text": "y" * 60000})])
assert store.get("e", "k") == b"old" and store.epochs("main") == [1]
filler.unlink()
assert store.accepts_writes()
store.publish("main", 2, b"two"); store.put("e", {"k": b"new"})
assert open_store(url).get("e", "k") == b"new" and store.epochs("main") == [1, 2]
"""

READ_ONLY = """
import subprocess, sys
from pathlib import Path
from holdfast.errors import StoreError
from holdfast.store.urls import open_store
mount, url = Path(sys.argv[1]), sys.argv[2]
store = open_store(url)
store.open("t"); store.acquire(); store.save_record("r", b"1"); store.release(); store.close()
subprocess.run(["mount", "-o", "remount,ro", str(mount)], check=True)
store = open_store(url)
store.open("t")
assert store.load_record("r") == b"1"
for use in (store.acquire, lambda: open_store(f"{url}-new").open("t")):
    try: use()
    except StoreError as error:
        assert "read-only" in str(error).lower() or "readonly" in str(error).lower() or "unable" in str(error), error
        assert str(mount) in str(error) and str(error).count("\\n") == 0
    else: raise SystemExit("no error")
"""


def in_small_mount(script: str, tmp_path: Path, kind: str, size: str) -> str:
    mount = tmp_path / "mount"
    mount.mkdir()
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(mount)]
    if os.getuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root and unshare -m to mount a small tmpfs")
    command = f"mount -t tmpfs -o size={size},mode=700 tmpfs '{mount}' && exec '{sys.executable}' - '{mount}' '{kind}:{mount}/s'"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command],
        input=script, text=True, capture_output=True, check=False, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.fault("S08", "K05")
def test_a_full_disk_pauses_and_goes_on(kind: str, tmp_path: Path) -> None:
    printed = in_small_mount(FULL, tmp_path, kind, "2m" if kind == "sqlite" else "1m")
    assert printed.count("no space left") == 3


@pytest.mark.parametrize("kind", ["file", "sqlite"])
@pytest.mark.fault("K06")
def test_a_read_only_directory_is_one_clear_sentence(kind: str, tmp_path: Path) -> None:
    in_small_mount(READ_ONLY, tmp_path, kind, "1m")


def test_on_a_real_disk_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = FileStore(tmp_path_factory.mktemp("disk") / "store")
    store.open(TOPOLOGY)
    store.acquire()
    store.create_entry("e")
    store.put("e", {"k": b"v"})
    store.publish(REGION, Epoch(1), b"m")
    store.release()
    assert FileStore(store.root).get("e", "k") == b"v"


def test_no_space_while_shortening_does_not_fail_a_put(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "PACKS_MAX", 2)
    store.put("entry", {"a": b"1"})
    store.put("entry", {"b": b"2"})
    real = durable.write_file

    def write_file(path: Path, data: bytes, **kwargs: Path) -> None:
        if path.suffix == ".base":
            raise NoSpaceError("full")
        real(path, data, **kwargs)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(durable, "write_file", write_file)
        store.put("entry", {"c": b"3"})
    assert store.keys("entry") == ["a", "b", "c"]
    store.put("entry", {"d": b"4"})
    assert [path.suffix for path in (store.root / "entries" / "entry").iterdir()] == [".base"]
