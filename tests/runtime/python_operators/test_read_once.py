"""A driver that starts again reads each stored pair once, and a reset in the middle restores the same by reading ahead."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest
from killed import killed_and_finished, written
from variables_program import ROWS_PER_STEP, expected, topology

import holdfast as hf
from holdfast.checkpoint.manifest import decode, references
from holdfast.failpoints import fired
from holdfast.ids import RegionName
from holdfast.store.files.file_store import FileStore
from holdfast.store.urls import open_store
from holdfast.testing import arm, compare_sequence, run_local

REGION = RegionName("r")
PROGRAM = Path(__file__).with_name("variables_program.py")


class Reads:
    """Counts the pairs and the writes of every file store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs: Counter[tuple[str, str]] = Counter()
        self.puts: Counter[str] = Counter()
        lock, get, put = threading.Lock(), FileStore._get, FileStore._put

        def counted(store: FileStore, entry: str, key: str) -> bytes | None:
            with lock:
                self.pairs[entry, key] += 1
            return get(store, entry, key)

        def counted_put(store: FileStore, entry: str, pairs: dict[str, bytes]) -> None:
            for epoch in {key.split("-")[0] for key in pairs}:
                with lock:
                    self.puts[f"{entry} {epoch}"] += 1
            put(store, entry, pairs)

        monkeypatch.setattr(FileStore, "_get", counted)
        monkeypatch.setattr(FileStore, "_put", counted_put)


def test_a_driver_that_starts_again_reads_each_pair_once(
    shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file:{tmp_path}/store"
    run_local(topology(hf.MemorySink(shelf), rows=13 * ROWS_PER_STEP), url)
    store = open_store(url)
    newest = store.epochs(REGION)[-1]
    needed = references(decode(store.manifest(REGION, newest), "it"))
    assert sum("~incr" in key for _, key in needed) > 2, "a base and deltas"
    assert sum("~non" in key for _, key in needed) == 1, "of what is stored whole the newest alone"
    reads = Reads(monkeypatch)
    run_local(topology(hf.MemorySink(shelf)), url)
    compare_sequence(expected(), hf.MemorySink.rows(shelf))
    found = {
        place: count for place, count in reads.pairs.items() if place in needed and "out" not in place[1]
    }
    assert set(found.values()) == {1}, found
    assert {place for place in needed if "~" in place[1]} <= set(found)
    older = {key for _, key in reads.pairs if "~non" in key and not key.startswith(f"e{newest}-")}
    assert not older, "older values that are stored whole are not looked at"


def test_the_small_pairs_of_all_operators_of_an_element_are_one_write(
    shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(monkeypatch)
    run_local(topology(hf.MemorySink(shelf), rows=5 * ROWS_PER_STEP), f"file:{tmp_path}/store")
    of_epochs = {name: count for name, count in reads.puts.items() if " e" in name}
    assert len(of_epochs) >= 5
    assert set(of_epochs.values()) == {1}, of_epochs


@pytest.mark.parametrize("fault", ["reset.op.load=raise@3", "reset.op.loaded=raise@2"])
def test_a_fault_while_a_restore_reads_ahead_loses_nothing(fault: str, shelf: str, tmp_path: Path) -> None:
    arm(f"step.end=raise@9;{fault}")
    run_local(topology(hf.MemorySink(shelf), mode="async"), f"file:{tmp_path}/store")
    assert all(fired().values()), fired()
    compare_sequence(expected(), hf.MemorySink.rows(shelf))
    assert not [each for each in threading.enumerate() if each.name.startswith("holdfast-ahead")]


@pytest.mark.slow
def test_a_driver_killed_while_it_reads_ahead_goes_on(tmp_path: Path) -> None:
    kills = ("ckpt.epoch.published=kill@9", "reset.op.load=kill@2", "reset.op.loaded=kill@1")
    killed_and_finished(PROGRAM, tmp_path, kills, "drain")
    compare_sequence(expected(), sorted(written(tmp_path, "out"), key=lambda row: row["n"]))
