"""A flipped byte in the file of an SQLite store is refused before anything changes, or makes no difference at all.

Every value that a restore reads is found in the file by its bytes and flipped there; so are the bytes around it, the
beginning of every page, the fields of the file's header and SQLite's own schema. Each flip is met by a driver in a
process of its own: whatever SQLite makes of such a file, the driver must end with an error of ours or with the exact
output.

All flips are part of `make chaos`. `make test` has some, drawn anew in every run: of each value one byte in it and one
beside it, of each page and of each line of the schema one byte.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaign
import forked
import pytest
from campaign import Life, Place
from faults import fired
from sampling import Extent

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.change import offline
from holdfast.store.urls import open_store

pytestmark = pytest.mark.slow

AT_ONCE = 2
ERRORS = {6: "StoreError", 7: "DamagedError", 11: "MismatchError"}
REFUSED, EXACT = "refused", "exact"
TABLES = ("identity", "owner", "entries", "pairs", "segments", "chunks", "epochs", "records")
"""All but those for people: events and mail."""
RUN_MAY_CHANGE = ("owner",)
"""A run takes ownership before it looks at segments."""
PAGE_BYTES = 4096
FILE_HEADER_BYTES = 100
LOW_BIT, HIGH_BIT = 0x01, 0x80
TO_WRITE_AHEAD = 0x03
"""Turns a version of 1 into 2, which says that there is a write-ahead log."""
IN_PAGE = (0, 4, 6, 9)
"""The page's type, the number of its cells, where they begin, and where the first one is."""
HEADER = {
    "magic": 3, "page size": 16, "write version": 18, "read version": 19, "reserved space": 20, "payload": 21,
    "change counter": 27, "size in pages": 31, "first free page": 35, "free pages": 39, "schema cookie": 43,
    "schema format": 47, "cache size": 51, "largest root": 55, "encoding": 59, "user version": 63,
    "vacuum": 67, "application id": 71, "for expansion": 80, "valid for": 95, "library": 99,
}  # fmt: skip


@dataclass(frozen=True)
class Flip:
    """Bits to turn, at all these places of the file. `where`: a sample has one of each."""

    where: str
    what: str
    places: tuple[int, ...]
    must_be_refused: bool = False
    mask: int = LOW_BIT

    def apply(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        for place in self.places:
            data[place] ^= self.mask
        path.write_bytes(data)


# --- a run that was killed between publishing an epoch and making it visible ------------------------------------------


@pytest.fixture(scope="module")
def killed(fast_directory: Path, orders: Path) -> Place:
    """Its newest epoch still has to be rolled forward, and no transaction is half done. It is a savepoint: no run goes
    back behind it, although nothing of it is visible yet."""
    place = Place(orders, fast_directory / "killed-sqlite", "sqlite")
    life = campaign.live(place, fp="sink.commit.begin=kill", arm_after_epoch=2)
    assert life.killed, life.report
    connection = sqlite3.connect(place.store)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)  # rolls a dead transaction back
    connection.close()
    assert not place.store.with_name("store-journal").exists()
    assert campaign.newest_epoch(place.store) >= 2
    store = open_store(place.url)
    offline.name_newest(store, "relied-on", None, 0.0)
    store.close()
    return place


def rows_of(store: Path) -> dict[str, list[tuple[Any, ...]]]:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
    finally:
        connection.close()


def read_by_restore(store: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows but the chunks that only earlier epochs refer to."""
    rows = rows_of(store)
    *_, (_, _, newest, _) = sorted(rows["epochs"], key=lambda row: row[1])
    wanted = manifests.references(manifests.decode(newest, "the newest epoch"))
    rows["chunks"] = [row for row in rows["chunks"] if row[:2] in wanted]
    return rows


# --- where to flip ----------------------------------------------------------------------------------------------------


def flips_of_values(store: Path) -> Iterator[Flip]:
    """The first, middle and last byte of each value, then the bytes before and behind it: key and checksum.

    A value may lie in the file twice, once in space that is free again: each of its places is flipped.
    """
    data = store.read_bytes()
    for table, rows in read_by_restore(store).items():
        for row in rows:
            value = next((field for field in row if isinstance(field, bytes)), None) or row[0].encode()
            starts = list(occurrences(data, value))
            assert starts, f"{table} {row[:2]} is not in one piece"
            for at in (0, len(value) // 2, len(value) - 1):
                places = tuple(start + at for start in starts)
                yield Flip(f"in {table} {row[:2]}", f"byte {at}", places, must_be_refused=True)
            for at in (-1, len(value)):
                places = tuple(start + at for start in starts if start + at < len(data))
                yield Flip(f"beside {table} {row[:2]}", f"byte {at}", places)


def occurrences(data: bytes, value: bytes) -> Iterator[int]:
    start = data.find(value)
    while start >= 0:
        yield start
        start = data.find(value, start + 1)


def flips_of_pages(store: Path) -> Iterator[Flip]:
    for page in range(0, store.stat().st_size, PAGE_BYTES):
        begin = page or FILE_HEADER_BYTES
        for at in IN_PAGE:
            yield Flip(f"page {page // PAGE_BYTES + 1}", f"byte {at}", (begin + at,))


def flips_of_header() -> Iterator[Flip]:
    for field, place in HEADER.items():
        refused = field in ("magic", "application id")
        yield Flip(f"the header's {field}", "", (place,), must_be_refused=refused)
    for field in ("write version", "read version"):
        yield Flip(f"the header's {field}", "turned to 2", (HEADER[field],), mask=TO_WRITE_AHEAD)


def flips_of_schema(store: Path, mask: int) -> Iterator[Flip]:
    """In SQLite's own list of tables and indices: the name, and three places of the statement."""
    data = store.read_bytes()
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    listed = connection.execute(
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema"
    ).fetchall()
    connection.close()
    for kind, name, of, sql in listed:
        start, statement = data.find(f"{kind}{name}{of}".encode()), data.find(sql.encode())
        assert min(start, statement) >= 0, f"{name} is not listed in one piece"
        places = [start + len(kind)]
        places += [statement, statement + len(sql) // 4, statement + len(sql) - 1] if sql else []
        for place in places:
            yield Flip(f"the schema's {name}", f"at {place}", (place,), mask=mask)


# --- what becomes of them ---------------------------------------------------------------------------------------------


def outcome_of(flip: Flip, killed: Place, root: Path) -> str:
    """REFUSED or EXACT; anything else is what went wrong."""
    shutil.copytree(killed.root, root, ignore=shutil.ignore_patterns("holdfast-live-*"))
    place = Place(killed.input, root, killed.kind)
    flip.apply(place.store)
    before = state(place)
    life = campaign.live(place, schedule=False)
    try:
        if life.exit == 0 and not flip.must_be_refused:
            campaign.check(place)
            return EXACT
        after = state(place)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if changed:
            return f"changed {changed}: exit {life.exit}, {life.report}"
        return how_refused(life, place)
    except AssertionError as error:
        return f"wrong output: {error}"
    finally:
        shutil.rmtree(root)


def how_refused(life: Life, place: Place) -> str:
    if ERRORS.get(life.exit) != life.report.get("error"):
        return f"not refused: exit {life.exit}, {life.report}"
    return REFUSED if str(place.store) in life.report["message"] else f"the file is not named: {life.report}"


def state(place: Place) -> dict[str, Any]:
    """All that a refused run must leave as it is: output, visible and prepared, and the store's rows."""
    found: dict[str, Any] = {
        path.relative_to(place.root).as_posix(): path.read_bytes()
        for output in (place.ledger, place.totals)
        for path in sorted(output.rglob("*"))
        if path.is_file()
    }
    try:
        rows = rows_of(place.store)
        found["store"] = {table: rows[table] for table in rows if table not in RUN_MAY_CHANGE}
    except (sqlite3.Error, ValueError, OverflowError):
        found["store"] = place.store.read_bytes()  # SQLite cannot read it: not a byte may change
    return found


@dataclass(frozen=True)
class Judge:
    """Lets drivers meet flips."""

    killed: Place
    directory: Path
    extent: Extent
    tell: Callable[[str, str], None]

    def __call__(self, all_flips: list[Flip], title: str) -> Counter[str]:
        """How many flips ended in which way; fails unless each was refused, by whatever error, or made no difference."""
        flips = self.extent.of(all_flips, per=lambda flip: flip.where)
        forked.forkserver()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            places = (
                self.directory / f"flip-sqlite-{title.replace(' ', '-')}-{n}" for n in range(len(flips))
            )
            outcomes = list(pool.map(outcome_of, flips, [self.killed] * len(flips), places))
        counts = Counter(outcomes)
        figures = ", ".join(f"{counts[kind]} {kind}" for kind in (REFUSED, EXACT) if counts[kind])
        self.tell("flipped bytes, SQLite", f"{title}: {len(flips)} flips, {figures}")
        fired("bit flipped", len(flips))
        broken = [
            f"{flip.where} {flip.what}: {outcome}"
            for flip, outcome in zip(flips, outcomes, strict=True)
            if outcome not in (REFUSED, EXACT)
        ]
        assert not broken, "\n".join(broken)
        assert counts[REFUSED] >= sum(flip.must_be_refused for flip in flips)
        return counts


@pytest.fixture
def judge(killed: Place, fast_directory: Path, extent: Extent, tell: Callable[..., None]) -> Judge:
    return Judge(killed, fast_directory, extent, tell)


@pytest.mark.fault("C01", "C10")
def test_a_flipped_byte_in_any_value_read_by_a_restore_is_refused_and_nothing_changes(
    killed: Place, judge: Judge
) -> None:
    rows = read_by_restore(killed.store)
    assert all(rows[name] for name in TABLES), "a table has no row: nothing is learnt about it"
    counts = judge(list(flips_of_values(killed.store)), "values")
    assert counts[REFUSED] >= sum(map(len, rows.values()))


@pytest.mark.fault("C10")
def test_a_flipped_byte_in_a_page_or_in_the_files_header_is_refused_or_without_effect(
    killed: Place, judge: Judge
) -> None:
    counts = judge([*flips_of_pages(killed.store), *flips_of_header()], "pages")
    assert counts[REFUSED] > counts[EXACT]


def test_a_flipped_byte_in_the_schema_is_refused_or_without_effect(killed: Place, judge: Judge) -> None:
    counts = judge(list(flips_of_schema(killed.store, LOW_BIT)), "schema")
    assert counts[REFUSED] > counts[EXACT]


def test_a_flipped_byte_that_makes_the_schema_no_text_is_refused_or_without_effect(
    killed: Place, judge: Judge
) -> None:
    counts = judge(list(flips_of_schema(killed.store, HIGH_BIT)), "schema as no text")
    assert counts[REFUSED] > counts[EXACT]


def test_a_refused_store_works_again_once_the_byte_is_put_back(killed: Place, place: Place) -> None:
    shutil.copytree(killed.root, place.root / "copy", ignore=shutil.ignore_patterns("holdfast-live-*"))
    here = Place(killed.input, place.root / "copy", killed.kind)
    good = here.store.read_bytes()
    refused = [flip for flip in flips_of_values(here.store) if flip.must_be_refused]
    for flip in refused[::20]:
        flip.apply(here.store)
        assert campaign.live(here, schedule=False).exit in ERRORS, flip
        here.store.write_bytes(good)
    assert campaign.live(here, schedule=False).exit == 0
    campaign.check(here)
