"""One topology, run again and again in one process: each run sees what is there when it begins, or waits for more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.runtime.source_schemas import use_stored_schemas
from holdfast.testing import run_local


def test_each_bounded_run_of_a_topology_reads_the_files_that_came_since(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    shop = hf.Topology("shop")
    rows = shop.source(hf.Files(tmp_path / "in", "csv", "n long", header=False), name="rows")
    rows.consistent("shop", period=0.01).sink(hf.FileSink(tmp_path / "out", "csv", header=False), name="out")
    for number in range(3):
        (tmp_path / "in" / f"{number}.csv").write_text(f"{number}\n")
        run_local(shop, store=f"file:{tmp_path}/store")
    texts = [Path(path).read_text() for path in hf.FileSink.files(tmp_path / "out")]
    assert sorted("".join(texts).split()) == ["0", "1", "2"]


def numbered_file(place: Path, number: int) -> None:
    place.mkdir(exist_ok=True)
    (place / f"{number}.csv").write_text(f"{number}\n")


def logged(place: Path, number: int) -> None:
    log = hf.Log(place / "log", schema=pa.schema({"n": pa.int64()}))
    log.append(pa.table({"n": [number]}))
    log.close()


@pytest.mark.parametrize("kind", ["files", "log"])
def test_a_source_that_was_bounded_goes_on_in_a_run_without_end_and_is_bounded_anew_behind_it(
    tmp_path: Path, kind: str
) -> None:
    add = numbered_file if kind == "files" else logged
    source: hf.Source = (
        hf.Files(tmp_path, "csv", "n long", header=False)
        if kind == "files"
        else hf.LogSource(tmp_path / "log")
    )
    topology = hf.Topology("t")
    topology.source(source, name="rows").sink(hf.MemorySink("several-runs"), name="out")
    position, number = None, 0
    for bounded in (True, False, True):
        add(tmp_path, number)
        use_stored_schemas(topology.graph(), None, bounded)
        source.seek(position)
        assert source.next_slice() is not None
        add(tmp_path, number + 1)
        assert (source.next_slice() is None) is bounded
        position, number = source.snapshot(), number + 2
