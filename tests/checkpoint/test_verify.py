"""Verifying epochs: every damaged or missing piece is told by its exact name, and nothing is changed by looking."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import looked_at
import pytest
from looked_at import REGION, portion, put

import holdfast as hf
from holdfast.checkpoint.look.epochs import open_reader, regions
from holdfast.checkpoint.look.verify import Verified, verify
from holdfast.checkpoint.manifest import references
from holdfast.ids import Epoch
from holdfast.sinks import MemorySink
from holdfast.store.base import Store
from holdfast.testing import submit_local

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1" / "store"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: the second epoch shares segments with the first."""
    root = tmp_path_factory.mktemp("verify")
    for number in range(2):
        put(root / "input", number, portion(number, 60, users=9, first=60 * number))
        looked_at.run(f"file:{root / 'store'}", root / "input")
        looked_at.run(f"sqlite:{root / 'store.db'}", root / "input")
    return root


@pytest.fixture(params=["made", "golden"])
def copy(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Path:
    """A store of plain files to be spoilt; the golden one has kept batches."""
    shutil.copytree(made / "store" if request.param == "made" else GOLDEN, tmp_path / "copy")
    return tmp_path / "copy"


def look(store: Store) -> Verified:
    chosen = [(region, store.epochs(region)[-1]) for region in regions(store)]
    assert chosen
    return verify(store, chosen)


def needed_files(root: Path) -> list[Path]:
    """Every file that restoring the newest epoch reads, the identity aside: without it there is no store."""
    store = open_reader(root)
    found = set()
    for region in regions(store):
        epoch = store.epochs(region)[-1]
        found.add(root / "epochs" / region / f"{epoch:012d}.manifest")
        found.add(root / "records" / f"controller.{region}.rec")
        pieces = list(looked_at.read_manifest(store, region, epoch).pieces())
        assert {piece.kind for piece in pieces} >= {"blob", "segment"}
        for piece in pieces:
            found.update(Path(store.describe(*name)) for name in piece.names)
    assert all(path.is_file() for path in found), found
    return sorted(found)


def test_a_store_as_written_has_no_problem(copy: Path) -> None:
    found = look(open_reader(copy))
    assert found.problems == ()
    assert found.pieces > 5


@pytest.mark.parametrize("harm", ["flip", "truncate", "lengthen", "delete"])
def test_each_file_an_epoch_needs_is_told_when_it_is_damaged(copy: Path, harm: str) -> None:
    for victim in needed_files(copy):
        if harm == "delete" and victim.suffix == ".rec":
            continue  # absent records are fine: a run makes them anew
        good = victim.read_bytes()
        spoil(victim, harm)
        found = look(open_reader(copy))
        victim.write_bytes(good)
        names = {problem.name for problem in found.problems}
        if harm == "delete" and victim.suffix == ".manifest":
            assert victim.name not in {path.name for path in needed_files_of(found)}
        elif harm == "delete" and victim.suffix == ".pack":
            # The pack's name is gone with it; the keys that are missed, or the gap, tell where it was.
            assert names, victim
            assert all(name.startswith(str(victim.parent)) for name in names), (victim, names)
        else:
            assert names == {str(victim)}, (victim, names)
    assert look(open_reader(copy)).problems == ()


def needed_files_of(found: Verified) -> list[Path]:
    return [Path(problem.name) for problem in found.problems]


def spoil(victim: Path, harm: str) -> None:
    data = bytearray(victim.read_bytes())
    if harm == "delete":
        victim.unlink()
        return
    if harm == "flip":
        data[len(data) // 2] ^= 0x10
    victim.write_bytes(data[:-1] if harm == "truncate" else data + b"x" if harm == "lengthen" else data)


def test_all_damaged_files_are_told_at_once(copy: Path) -> None:
    victims = [path for path in needed_files(copy) if path.suffix != ".manifest"]
    for victim in victims:
        spoil(victim, "flip")
    assert {problem.name for problem in look(open_reader(copy)).problems} == {str(path) for path in victims}


def test_a_missing_manifest_of_a_chosen_epoch_is_told_unless_its_owner_deleted_it(made: Path) -> None:
    store = open_reader(made / "store")
    found = verify(store, [(REGION, Epoch(999_999))])
    assert found.gone == (f"{REGION}/999999",)
    assert found.problems == ()


def test_looking_changes_no_file(copy: Path) -> None:
    def state() -> dict[Path, tuple[bytes, int, int]]:
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_nlink)
            for path in copy.rglob("*")
            if path.is_file()
        }

    before = state()
    look(open_reader(copy))
    assert state() == before


# --- a store in a SQLite file ---------------------------------------------------------------------------------------

ROWS = {
    "pairs": ("SELECT rowid, entry || '/' || key FROM pairs", "value"),
    "segments": ("SELECT rowid, entry || '/' || key FROM segments", "value"),
    "chunks": ("SELECT rowid, entry || '/' || key FROM chunks", "value"),
}


@pytest.mark.parametrize("harm", ["flip", "delete"])
@pytest.mark.parametrize("table", ROWS)
def test_each_row_of_a_database_an_epoch_needs_is_told(
    made: Path, tmp_path: Path, table: str, harm: str
) -> None:
    shutil.copy(made / "store.db", tmp_path / "store.db")
    store = open_reader(f"sqlite:{tmp_path / 'store.db'}")
    newest = looked_at.manifest(store, store.epochs(REGION)[-1])
    needed = {f"{entry}/{key}" for entry, key in references(newest)}
    database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    rows = [(row, name) for row, name in database.execute(ROWS[table][0]) if name in needed]
    assert rows
    for row, name in rows[::3]:
        database.execute("BEGIN IMMEDIATE")
        if harm == "delete":
            database.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
        else:
            flipped = bytearray(
                database.execute(f"SELECT value FROM {table} WHERE rowid = ?", (row,)).fetchone()[0]
            )
            flipped[len(flipped) // 2] ^= 0x10
            database.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (bytes(flipped), row))
        saved = shutil.copy(tmp_path / "store.db", tmp_path / "good.db")
        database.execute("COMMIT")
        names = [problem.name for problem in look(store).problems]
        store.close()
        assert names == [f"{tmp_path / 'store.db'} ({name})"], name
        database.close()
        shutil.copy(saved, tmp_path / "store.db")
        database = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    database.close()


# --- a store at work ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "sqlite"])
def test_a_live_store_is_verified_while_its_owner_goes_on(tmp_path: Path, kind: str) -> None:
    """Epochs come and go all the time; what is deleted meanwhile is no damage."""
    made = hf.Topology("busy")
    source = hf.Rows([(f"k{n % 50}", n) for n in range(50_000)], "k string, n long", rows_per_step=10)
    rows = made.source(source, name="rows").consistent(REGION, period=0.01)
    rows.aggregate("k", n=hf.count(), name="totals").sink(MemorySink(f"busy-{kind}"), name="out")
    job = submit_local(made, f"{kind}:{tmp_path / 'store'}", until="available")
    store = open_reader(f"{kind}:{tmp_path / 'store'}")
    seen: set[int] = set()
    try:
        while len(seen) < 8 and job.status()["state"] == "running":
            chosen = [(REGION, epoch) for epoch in store.epochs(REGION)]
            assert verify(store, chosen).problems == ()
            seen.update(epoch for _, epoch in chosen)
    finally:
        job.stop()
    MemorySink.clear(f"busy-{kind}")
    assert len(seen) >= 8
    assert job.status()["regions"][REGION]["resets"] == 0
