"""Tasks read csv and JSON files themselves as long as nothing in them is in doubt; then Spark does, and no row is lost or doubled."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import keyed
from holdfast.sources.text import certain_reader

pytestmark = pytest.mark.spark

ROWS, FILES = 4_000, 5
ODD = 3
"""This file has a row that only Spark reads, if any has."""


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step is done in the driver, and each is divided."""
    monkeypatch.setattr(keyed, "DIVIDED_BYTES", 0)
    monkeypatch.setattr(certain_reader, "STRETCH_BYTES", 2_000)
    monkeypatch.setenv("HOLDFAST_SMALL_STEPS", "jobs")


@pytest.fixture
def read_by_tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups each step had that tasks read."""
    found: list[int] = []
    original = keyed.KeyedJobs._read_in_parts

    def counted(self: keyed.KeyedJobs, task: Any, groups: Any) -> Any:
        found.append(len(groups))
        return original(self, task, groups)

    monkeypatch.setattr(keyed.KeyedJobs, "_read_in_parts", counted)
    return found


def written(place: Path, kind: str, odd: bool) -> dict[str, tuple[int, int]]:
    """Files of rows; (count, sum) by key of those with an even value."""
    draw, sums = random.Random(5), dict[str, tuple[int, int]]()
    place.mkdir()
    for number in range(FILES):
        rows = [(f"k{draw.randrange(30)}", draw.randrange(-500, 500)) for _ in range(ROWS)]
        for k, v in rows:
            if v % 2 == 0:
                n, total = sums.get(k, (0, 0))
                sums[k] = n + 1, total + v * 3
        if kind == "csv":
            lines = ["v,k", *(f"{v},{k}" for k, v in rows)]
            odd_line = lines[-1].replace("k", '"k') + '"'
        else:
            lines = [json.dumps({"k": k, "v": v}) for k, v in rows]
            odd_line = lines[-1].replace("k", "\\u006b", 1)
        if odd and number == ODD:
            assert odd_line != lines[-1]
            lines[-1] = odd_line
        (place / f"{number}.{kind}").write_text("\n".join(lines) + "\n")
    return sums


def sums_of(topology: Topology, place: Path, kind: str) -> Stream:
    source = hf.Files(str(place), kind, "k string, v long", max_files_per_step=1)  # type: ignore[arg-type]
    rows = topology.source(source, name="in").consistent(period=0.2)
    even = rows.filter("v % 2 = 0").with_columns(v="v * 3")
    return even.aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")


@pytest.mark.parametrize("odd", [False, True], ids=["certain", "a row in doubt"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_sums_are_those_of_all_rows(
    on_spark: Any,
    tmp_path: Path,
    read_by_tasks: list[int],
    caplog: pytest.LogCaptureFixture,
    kind: str,
    odd: bool,
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    wanted = written(tmp_path / "in", kind, odd)
    got = on_spark(lambda t: sums_of(t, tmp_path / "in", kind))
    last = {row["k"]: (row["n"], row["total"]) for row in sorted(got.to_pylist(), key=lambda row: row["n"])}
    assert last == wanted
    assert len(read_by_tasks) == (ODD + 1 if odd else FILES), "tasks read until they come upon the row"
    assert ("Spark's reader takes them from now on" in caplog.text) == odd


def test_a_malformed_row_is_told_with_file_and_line(spark: Any, tmp_path: Path) -> None:
    written(tmp_path / "in", "csv", odd=False)
    with (tmp_path / "in" / "2.csv").open("a") as file:
        file.write("x,k1\n")
    topology = Topology("bad")
    sums_of(topology, tmp_path / "in", "csv").sink(hf.MemorySink("bad"), name="out")
    with pytest.raises(hf.HoldfastError, match=rf"2\.csv, line {ROWS + 2}"):
        topology.run(spark, store=f"file:{tmp_path}/store", until="available")
    hf.MemorySink.clear("bad")
