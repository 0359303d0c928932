"""Export and import: one file, verified on both ends, that nothing harmful gets through."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from books import REGION, Books

from holdfast import failpoints
from holdfast.checkpoint.change import offline
from holdfast.checkpoint.change.transfer import MAGIC, export, import_into
from holdfast.checkpoint.look.epochs import newest_manifest
from holdfast.durable import checksum
from holdfast.errors import ConfigError, DamagedError, HoldfastError, MismatchError
from holdfast.ids import RegionName
from holdfast.store.urls import open_store

Files = list[tuple[str, bytes]]


@pytest.fixture
def exported(books: Books) -> Books:
    books.add(30)
    books.run()
    offline.name_newest(open_store(books.store), "point", None, 0.0)
    books.add(10)
    books.run()
    export(open_store(books.store), "point", books.root / "x.tar")
    return books


@pytest.mark.parametrize("new", ["file:{}/new", "sqlite:{}/new.db"])
def test_an_imported_epoch_goes_on_in_a_new_store(exported: Books, new: str) -> None:
    place = new.format(exported.root)
    made = import_into(exported.root / "x.tar", open_store(place))
    assert dict(made.epochs) == {REGION: 1}
    exported.run(place, out="imported")
    assert exported.totals("imported") == exported.expected_totals()
    assert exported.ledger("imported") == [(n + 1, n) for n in range(30, 40)]


def test_operators_can_be_dropped_on_the_way_in(exported: Books) -> None:
    place = str(exported.root / "new")
    import_into(exported.root / "x.tar", open_store(place), drop=["ledger"])
    exported.run(place, out="imported", ledger=False)
    assert exported.totals("imported") == exported.expected_totals()


def test_the_file_is_an_archive_that_other_tools_list(exported: Books) -> None:
    with tarfile.open(exported.root / "x.tar") as archive:
        names = archive.getnames()
    assert names[:2] == [MAGIC, "manifest-0000"]
    assert all(name.startswith("piece-") for name in names[2:])
    assert (exported.root / "x.tar").stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_is_not_overwritten(exported: Books) -> None:
    before = (exported.root / "x.tar").read_bytes()
    with pytest.raises(ConfigError, match="exists already"):
        export(open_store(exported.store), "1", exported.root / "x.tar")
    assert (exported.root / "x.tar").read_bytes() == before


def test_an_export_of_damaged_state_leaves_no_file(exported: Books) -> None:
    store = open_store(exported.store)
    piece = next(p for p in newest_manifest(store, RegionName(REGION)).pieces() if p.kind == "segment")
    path = store.segment_path(*piece.place)  # type: ignore[attr-defined]
    path.write_bytes(bytes(piece.ref.size))
    before = sorted(os.listdir(exported.root))
    with pytest.raises(DamagedError, match=path.name):
        export(store, "2", exported.root / "y.tar")
    assert sorted(os.listdir(exported.root)) == before


def test_an_existing_store_is_not_imported_into(exported: Books) -> None:
    with pytest.raises(ConfigError, match="a store already"):
        import_into(exported.root / "x.tar", open_store(exported.store))


@pytest.mark.fault("U03")
def test_an_import_that_broke_off_is_refused_by_a_run_and_finished_by_doing_it_again(exported: Books) -> None:
    place = str(exported.root / "new")
    failpoints.arm("founding.copied=raise")
    with pytest.raises(failpoints.FaultInjected):
        import_into(exported.root / "x.tar", open_store(place))
    failpoints.disarm()
    with pytest.raises(ConfigError, match=r"the import of .* broke off"):
        exported.run(place, out="imported")
    import_into(exported.root / "x.tar", open_store(place))
    exported.run(place, out="imported")
    assert exported.totals("imported") == exported.expected_totals()


# --- files that are not as they were written --------------------------------------------------------------------------


def refused(exported: Books, data: bytes, error: type[HoldfastError] = DamagedError) -> None:
    path = exported.root / "bad.tar"
    path.write_bytes(data)
    with pytest.raises(error) as caught:
        import_into(path, open_store(str(exported.root / "never")))
    assert "bad.tar" in str(caught.value)
    assert not (exported.root / "never").exists()


@pytest.mark.fault("C01")
def test_a_flipped_byte_anywhere_is_refused(exported: Books) -> None:
    whole = (exported.root / "x.tar").read_bytes()
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    places = random.Random(seed).sample(range(len(whole)), 300)
    for place in [0, 528, len(whole) - 1, *places]:
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        refused(exported, bytes(data))


def test_a_file_that_is_cut_off_or_goes_on_is_refused(exported: Books) -> None:
    whole = (exported.root / "x.tar").read_bytes()
    for length in (0, 1, 511, 512, 1024, len(whole) // 2, len(whole) - 512, len(whole) - 1):
        refused(exported, whole[:length])
    refused(exported, whole + b"\0")
    refused(exported, whole + whole)


def members(path: Path) -> Files:
    with tarfile.open(path) as archive:
        return [(m.name, archive.extractfile(m).read()) for m in archive.getmembers()]  # type: ignore[union-attr]


def packed(files: Files, spoil: Callable[[tarfile.TarInfo], None] | None = None, **options: object) -> bytes:
    """An archive that is right in itself; `spoil` changes the header of the last file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=options.get("format", tarfile.USTAR_FORMAT)) as archive:  # type: ignore[call-overload]
        for number, (name, data) in enumerate(files):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o600
            if spoil is not None and number == len(files) - 1:
                spoil(info)
            archive.addfile(info, io.BytesIO(data))
        end = archive.offset
    return out.getvalue()[:end] + bytes(1024)


def spoilt(**fields: object) -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        for name, value in fields.items():
            setattr(info, name, value)

    return change


HARMFUL = {
    "a symbolic link": spoilt(type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
    "a hard link": spoilt(type=tarfile.LNKTYPE, linkname="manifest-0000", size=0),
    "a directory": spoilt(type=tarfile.DIRTYPE, size=0),
    "a device": spoilt(type=tarfile.CHRTYPE, size=0),
    "a way out": spoilt(name="../../piece-000000"),
    "an absolute path": spoilt(name="/tmp/piece-000000"),
    "a path in the prefix": spoilt(name="a/" * 60 + "piece-000000"),
    "an unknown name": spoilt(name="something-else"),
    "a sparse file": spoilt(type=tarfile.GNUTYPE_SPARSE),
}


def test_an_archive_packed_anew_by_other_tools_is_accepted(exported: Books) -> None:
    path = exported.root / "again.tar"
    path.write_bytes(packed(members(exported.root / "x.tar")))
    assert import_into(path, open_store(str(exported.root / "new"))).pieces > 0


@pytest.mark.parametrize("what", HARMFUL)
@pytest.mark.fault("SR07", "U07")
def test_nothing_but_the_files_of_an_export_gets_through(exported: Books, what: str) -> None:
    refused(exported, packed(members(exported.root / "x.tar"), HARMFUL[what]))


def test_members_that_are_too_many_too_few_or_in_another_order_are_refused(exported: Books) -> None:
    files = members(exported.root / "x.tar")
    refused(exported, packed([*files, ("piece-999999", b"more")]))
    refused(exported, packed(files[:-1]))
    refused(exported, packed([*files[:-2], files[-1], files[-2]]))
    refused(exported, packed(files[1:]))
    refused(
        exported,
        packed([(name, data + b"x") if n == 3 else (name, data) for n, (name, data) in enumerate(files)]),
    )
    long = [*files[:-1], ("x" * 120, files[-1][1])]
    refused(exported, packed(long, format=tarfile.PAX_FORMAT))
    refused(exported, packed(long, format=tarfile.GNU_FORMAT))


def with_index(files: Files, change: Callable[[dict[str, object]], None], version: int = 1) -> Files:
    """The index changed, and its checksum right."""
    index = json.loads(files[0][1].partition(b"\n")[2])
    change(index)
    body = json.dumps(index).encode()
    return [(MAGIC, f"{MAGIC} {version} crc32={checksum(body):08x}\n".encode() + body), *files[1:]]


LIES: dict[str, Callable[[dict[str, object]], None]] = {
    "another job": lambda index: index.update(job="0" * 32),
    "no pieces": lambda index: index.update(pieces=[]),
    "a size below zero": lambda index: index["pieces"][0].__setitem__(2, -1),  # type: ignore[index]
    "an entry that leads out": lambda index: index["pieces"][0].__setitem__(0, "../../x"),  # type: ignore[index]
    "another key": lambda index: index["pieces"][0].__setitem__(1, "other"),  # type: ignore[index]
    "no manifests": lambda index: index.update(manifests=None),
    "a schema that is no text": lambda index: index.update(schemas={"orders": 7}),
}


@pytest.mark.parametrize("what", LIES)
def test_an_index_that_lies_is_refused_although_its_checksum_is_right(exported: Books, what: str) -> None:
    files = with_index(members(exported.root / "x.tar"), LIES[what])
    path = exported.root / "bad.tar"
    path.write_bytes(packed(files))
    with pytest.raises(HoldfastError):
        import_into(path, open_store(str(exported.root / "never")))
    assert not (exported.root / "never").exists()


def with_manifest(files: Files, change: Callable[[dict[str, object]], None], twice: bool = False) -> Files:
    """The first manifest changed, all checksums right; `twice`: it is there under two numbers."""
    header, _, body = files[1][1].partition(b"\n")
    told = json.loads(body)
    change(told)
    raw = json.dumps(told).encode()
    forged = b" ".join([*header.split(b" ")[:2], b"crc32=%08x" % checksum(raw)]) + b"\n" + raw
    count = 2 if twice else 1

    def tell(index: dict[str, object]) -> None:
        index["manifests"] = [[len(forged), checksum(forged)]] * count

    named = [(f"manifest-{number:04d}", forged) for number in range(count)]
    return with_index([files[0], *named, *files[2:]], tell)


def nothing(told: dict[str, object]) -> None:
    """As it was."""


FORGED: dict[str, tuple[Callable[[dict[str, object]], None], bool]] = {
    "a region that leads out": (lambda told: told.update(region="../x"), False),
    "a region with a newline behind it": (lambda told: told.update(region="books\n"), False),
    "two epochs of one region": (nothing, True),
    "an epoch that no name can hold": (lambda told: told.update(epoch=10**15, parts={}), False),
    "the initial epoch": (lambda told: told.update(epoch=0, previous=0, parts={}), False),
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("new", ["file:{}/never", "sqlite:{}/never"])
@pytest.mark.fault("U07", "O06")
def test_a_manifest_that_lies_is_refused_before_a_store_is_begun(
    exported: Books, what: str, new: str
) -> None:
    change, twice = FORGED[what]
    path = exported.root / "bad.tar"
    path.write_bytes(packed(with_manifest(members(exported.root / "x.tar"), change, twice)))
    with pytest.raises(HoldfastError):
        import_into(path, open_store(new.format(exported.root)))
    assert not list(exported.root.glob("never*"))
    assert not list(exported.root.glob(".never*"))


def test_a_manifest_that_was_only_packed_anew_is_taken(exported: Books) -> None:
    """What the test above refuses is not the packing as such."""
    path = exported.root / "good.tar"
    path.write_bytes(packed(with_manifest(members(exported.root / "x.tar"), nothing)))
    assert import_into(path, open_store(str(exported.root / "new"))).pieces > 0


@pytest.mark.parametrize("name", ["orders\n", "../x", "", "a" * 300, "a/b", ".x", "a\0"])
@pytest.mark.fault("U07", "SR07")
def test_a_schema_under_a_name_that_no_source_has_is_refused_before_a_store_is_begun(
    exported: Books, name: str
) -> None:
    def change(index: dict[str, object]) -> None:
        index["schemas"] = {name: "AAAA"}

    path = exported.root / "bad.tar"
    path.write_bytes(packed(with_index(members(exported.root / "x.tar"), change)))
    with pytest.raises(HoldfastError):
        import_into(path, open_store(str(exported.root / "never")))
    assert not (exported.root / "never").exists()


@pytest.mark.fault("U02")
def test_a_newer_format_is_refused_as_such(exported: Books) -> None:
    files = with_index(members(exported.root / "x.tar"), lambda index: None, version=2)
    refused(exported, packed(files), MismatchError)


def test_what_is_no_regular_file_is_refused(exported: Books) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        import_into(exported.root / "nothing.tar", open_store(str(exported.root / "never")))
    os.mkfifo(exported.root / "pipe.tar")
    with pytest.raises(DamagedError, match=r"pipe\.tar is not a regular file"):
        import_into(exported.root / "pipe.tar", open_store(str(exported.root / "never")))
