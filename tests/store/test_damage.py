"""Damage at rest: found, named, and nothing else touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.durable import checksum
from holdfast.errors import ConfigError, DamagedError, HoldfastError, MismatchError, StoreError
from holdfast.ids import Epoch
from holdfast.store.base import FORMAT, SegmentRef
from holdfast.store.files.file_store import FileStore
from holdfast.store.sqlite.sqlite_store import SqliteStore

from .children import REGION, TOPOLOGY, make, prepare

REF = SegmentRef("entry", "old.s", 7, checksum(b"segment"))


def read_everything(store: FileStore | SqliteStore, scratch: Path) -> list[object]:
    """All a reader can ask for."""
    store.open(TOPOLOGY)
    found: list[object] = [store.owner(), store.entries(), store.load_record("r"), store.epochs(REGION)]
    found += [store.get("entry", key) for key in store.keys("entry")]
    found += [store.manifest(REGION, epoch) for epoch in store.epochs(REGION)]
    store.fetch_segment(REF, scratch)
    return [*found, scratch.read_bytes()]


def snapshot(root: Path) -> dict[str, bytes | str]:
    def content(path: Path) -> bytes | str:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else "not a file"

    return {str(path.relative_to(root)): content(path) for path in sorted(root.rglob("*"))}


def positions(data: bytes) -> Iterator[bytes]:
    """Every single flipped byte, and other harm to a file's bytes."""
    for index in range(len(data)):
        yield data[:index] + bytes([data[index] ^ 0x01]) + data[index + 1 :]
        yield data[:index] + bytes([data[index] ^ 0x80]) + data[index + 1 :]
    yield from (data[:cut] for cut in {0, 1, len(data) // 2, len(data) - 1})
    yield data + b"garbage"
    yield bytes(len(data))


KINDS = [
    "identity",
    "owner/*.lock",
    "epochs/*/*.manifest",
    "entries/*/*.pack",
    "entries/*/*.seg",
    "records/*.rec",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    prepare("files", tmp_path)
    return tmp_path / "store"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.fault("C01")
def test_harm_to_any_byte_is_found_and_named(kind: str, root: Path, scratch: Path) -> None:
    good = read_everything(FileStore(root), scratch)
    (victim,) = root.glob(kind)
    data = victim.read_bytes()
    for harmed in positions(data):
        victim.unlink()
        victim.write_bytes(harmed)
        before = snapshot(root)
        with pytest.raises((DamagedError, MismatchError), match=victim.name):
            read_everything(FileStore(root), scratch)
        assert snapshot(root) == before
    victim.write_bytes(data)
    assert read_everything(FileStore(root), scratch) == good


def as_directory(path: Path) -> None:
    path.mkdir()


def as_link(path: Path) -> None:
    shutil.copy("/etc/hostname", path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def as_link_to_the_good_file(path: Path) -> None:
    path.symlink_to(path.with_name("moved.away"))


def as_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("replace", [as_directory, as_link, as_link_to_the_good_file, as_pipe])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.fault("U07", "SR07")
def test_anything_but_a_regular_file_is_refused(
    kind: str, replace: Callable[[Path], None], root: Path, scratch: Path
) -> None:
    (victim,) = root.glob(kind)
    if kind == "identity" and replace is as_link:
        pytest.skip("its parent's parent is outside of the store")
    victim.rename(victim.with_name("moved.away"))
    replace(victim)
    before = snapshot(root)
    with pytest.raises(DamagedError, match=victim.name):
        read_everything(FileStore(root), scratch)
    assert snapshot(root) == before


@pytest.mark.fault("C08")
def test_a_missing_identity_is_never_made_anew(root: Path) -> None:
    (root / "identity").unlink()
    before = snapshot(root)
    for use in (
        lambda: FileStore(root).open(TOPOLOGY),
        FileStore(root).acquire,
        lambda: FileStore(root).post("x", {}),
    ):
        with pytest.raises(DamagedError, match="identity is missing"):
            use()
    assert snapshot(root) == before


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(ConfigError, match="precious"):
        FileStore(tmp_path).open(TOPOLOGY)
    with pytest.raises(ConfigError, match="is a file"):
        FileStore(tmp_path / "precious").open(TOPOLOGY)
    assert os.listdir(tmp_path) == ["precious"]


@pytest.mark.fault("C06", "O06")
def test_files_of_another_store_region_or_epoch_are_refused(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    prepare("files", other)
    for kind in KINDS[2:4] + KINDS[5:]:
        (ours,), (theirs,) = root.glob(kind), (other / "store").glob(kind)
        kept = ours.read_bytes()
        ours.write_bytes(theirs.read_bytes())
        with pytest.raises(DamagedError, match=ours.name):
            read_everything(FileStore(root), tmp_path / "scratch")
        ours.write_bytes(kept)
    first = root / "epochs" / REGION / f"{1:012d}.manifest"
    shutil.copy(first, first.with_name(f"{2:012d}.manifest"))
    with pytest.raises(DamagedError, match="000000000002"):
        FileStore(root).manifest(REGION, Epoch(2))


def test_a_missing_pack_inside_a_chain_is_damage(root: Path) -> None:
    store = FileStore(root)
    store.open(TOPOLOGY)
    store.acquire()
    store.put("entry", {"k": b"newer"})
    store.put("entry", {"z": b""})
    store.close()
    next((root / "entries" / "entry").glob("000000000002-*")).unlink()
    with pytest.raises(DamagedError, match="missing"):
        FileStore(root).get("entry", "k")


@pytest.mark.fault("U02")
def test_a_newer_format_is_refused_untouched(root: Path, scratch: Path) -> None:
    for kind in ("identity", "epochs/*/*.manifest", "records/*.rec"):
        (victim,) = root.glob(kind)
        kept = victim.read_bytes()
        victim.write_bytes(kept.replace(b" 1 ", b" 2 ", 1))
        before = snapshot(root)
        with pytest.raises(MismatchError, match="format 2"):
            read_everything(FileStore(root), scratch)
        assert snapshot(root) == before
        victim.write_bytes(kept)


def test_damaged_mail_is_set_aside_and_reported(root: Path) -> None:
    store = FileStore(root)
    store.open(TOPOLOGY)
    store.acquire()
    store.post("second", {})
    store.post("third", {})
    first, second, _ = sorted((root / "mail").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    second.mkdir()
    assert store.collect_mail() == [("third", {})]
    assert [e.kind for e in store.events()][-2:] == ["mail.refused", "mail.refused"]
    assert first.name in str(store.events()[-2].data)
    assert first.with_suffix(".bad").is_file()
    assert store.collect_mail() == []
    store.close()


def test_a_torn_or_damaged_event_is_skipped(root: Path) -> None:
    store = FileStore(root)
    store.open(TOPOLOGY)
    store.acquire()
    store.append_events([("a", {}), ("b", {}), ("c", {})])
    store.close()
    newest = max((root / "events").iterdir())
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(lines[0] + lines[1].replace(b'"b"', b'"x"') + lines[2][:-5])
    again = FileStore(root)
    again.acquire()
    again.append_events([("d", {})])
    assert [event.kind for event in again.events()] == ["began", "a", "d"]
    again.close()


@pytest.mark.fault("C10")
def test_sqlite_harm_is_found_or_harmless(tmp_path: Path, scratch: Path) -> None:
    prepare("sqlite", tmp_path)
    path = tmp_path / "store.db"
    good = read_everything(SqliteStore(path), scratch)
    data = path.read_bytes()
    # What is at rest in every page: its header, its cells' pointers, its last bytes where the rows are.
    places = [
        page + at for page in range(0, len(data), 4096) for at in (*range(0, 110, 5), *range(3600, 4096, 9))
    ]
    found = []
    for place in places:
        harmed = bytearray(data)
        harmed[place] ^= 0x41
        path.write_bytes(harmed)
        store = SqliteStore(path)
        try:
            store.open(TOPOLOGY)
            store._db.verify()
            assert read_everything(store, scratch) == good
        except (StoreError, MismatchError) as error:
            found.append(str(error))
        finally:
            store.close()
        assert path.read_bytes() == harmed
        assert not os.path.exists(f"{path}-journal")
    assert len(found) > 100
    assert all(path.name in sentence for sentence in found)


@pytest.mark.parametrize("cut", [0, 1, 100, 4096, 20000, -1])
@pytest.mark.fault("C10")
def test_sqlite_a_cut_file_is_damage(cut: int, tmp_path: Path) -> None:
    prepare("sqlite", tmp_path)
    path = tmp_path / "store.db"
    path.write_bytes(path.read_bytes()[:cut])
    before = path.read_bytes()
    with pytest.raises(DamagedError, match=path.name):
        store = SqliteStore(path)
        store.open(TOPOLOGY)
        store.acquire()
    assert path.read_bytes() == before


def test_sqlite_strange_files_are_refused(tmp_path: Path) -> None:
    prepare("sqlite", tmp_path)
    path = tmp_path / "store.db"
    for replace in (as_directory, as_link_to_the_good_file, as_pipe):
        path.rename(path.with_name("moved.away"))
        replace(path)
        with pytest.raises(DamagedError, match=path.name):
            SqliteStore(path).open(TOPOLOGY)
        path.rmdir() if path.is_dir() else path.unlink()
        path.with_name("moved.away").rename(path)
    path.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        SqliteStore(path).open(TOPOLOGY)  # the last owner's lock file is still there


def test_sqlite_a_newer_format_is_refused_untouched(tmp_path: Path) -> None:
    prepare("sqlite", tmp_path)
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    data[60:64] = (FORMAT + 1).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(MismatchError, match="format 2"):
        make("sqlite", tmp_path)
    assert path.read_bytes() == data


def test_errors_are_of_our_own_tree_when_the_directory_goes_away(root: Path) -> None:
    store = FileStore(root)
    store.open(TOPOLOGY)
    store.acquire()
    shutil.rmtree(root)
    for use in (
        lambda: store.put("entry", {"k": b""}),
        lambda: store.publish(REGION, Epoch(9), b""),
        store.collect_mail,
    ):
        with pytest.raises(HoldfastError):
            use()
    store.append_events([("x", {})])
    assert store.events_dropped == 1
    assert not store.root.joinpath("identity").exists()
    store.close()
