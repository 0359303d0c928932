"""Every keyed operator stored with so many partitions and restored with another number: no row is lost or doubled."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.testing import compare_rows, run_local

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS, PARTS = 600, 4


def feed(here: Path, name: str, part: int) -> None:
    """A quarter of a stream."""
    chance = random.Random(name)
    rows = [
        (
            BEGIN + datetime.timedelta(seconds=n / 5 - chance.choice([0, 0, 1, 3])),
            chance.choice("abcdefgh"),
            n,
        )
        for n in range(ROWS)
    ][part * ROWS // PARTS : (part + 1) * ROWS // PARTS]
    at, keys, values = zip(*rows, strict=True)
    (here / name).mkdir(parents=True, exist_ok=True)
    table = pa.table({"at": pa.array(at, pa.timestamp("us", tz="UTC")), "k": keys, name: values})
    pq.write_table(table, here / name / f"part-{part}.parquet")


class Sums(hf.KeyedOperator):
    total = hf.Value(int, default=0)

    def process(self, row: Any, key: Any) -> Any:
        self.total += row.v
        return {"k": row.k, "total": self.total}


def build(here: Path) -> hf.Topology:
    topology = hf.Topology("rescaling")
    v, w = (
        topology.source(
            hf.Files(str(here / name), "parquet", f"at timestamp, k string, {name} long", max_rows_per_step=20), name=name
        ).consistent(name="region", period=0.02)
        for name in ("v", "w")
    )  # fmt: skip
    timed: dict[str, Any] = {"on": "at", "delay": 2}
    made = {
        "each": v.aggregate("k", emit="each", n=hf.count(), total=hf.sum("v"), name="each"),
        "windows": v.aggregate("k", window=hf.sliding(6, 2, **timed), n=hf.count(), name="windows"),
        "counted": v.aggregate("k", window=hf.sliding(rows=9, every=3), total=hf.sum("v"), name="counted"),
        "once": v.dedup(["k", "v"], name="once"),
        "best": v.top_n(2, by="k", order="-v", window=hf.tumbling(5, **timed), name="best"),
        "sorted": v.sort("at", delay=2, name="sorted"),
        "sums": v.keyed("k", Sums, "k string, total long", name="sums"),
        "interval": v.join(w, "k", within=1, how="left", name="interval", **timed),
        "asof": v.asof_join(w, "k", name="asof", **timed),
        "ordered": v.join(w, "k", keep=hf.latest(rows=20), other_keep=hf.latest(2), name="ordered", **timed),
        "paired": v.zip(w, by="k", name="paired"),
    }
    for name, stream in made.items():
        stream.sink(hf.FileSink(str(here / "out" / name), "parquet"), name=f"{name}_out")
    return topology


def written(here: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        place.name: [row for file in place.glob("part-*.parquet") for row in pq.read_table(file).to_pylist()]
        for place in sorted((here / "out").iterdir())
    }


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    here = tmp_path_factory.mktemp("golden")
    for part in range(PARTS):
        feed(here, "v", part)
        feed(here, "w", part)
    run_local(build(here), store=f"file:{here}/store", partitions=1)
    return written(here)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "partitions", [(2, 3, 1, 4), (4, 1, 5, 2)], ids=lambda numbers: "-".join(map(str, numbers))
)
@pytest.mark.fault("I07")
def test_partitions_may_change_from_run_to_run(
    partitions: tuple[int, ...], golden: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    for part, count in enumerate(partitions):
        feed(tmp_path, "v", part)
        feed(tmp_path, "w", part)
        run_local(build(tmp_path), store=f"file:{tmp_path}/store", partitions=count)
    found = written(tmp_path)
    assert found.keys() == golden.keys()
    for name, rows in golden.items():
        assert len(rows) > 50, f"{name} has few rows: little is learnt about it"
        compare_rows(rows, found[name], name)
