"""Child of test_operators_survive_kills: windows by an attribute and by marks, to the end of their input."""

from __future__ import annotations

import random
import sys
from typing import Any

import holdfast as hf
from holdfast.testing import run_local


def rows() -> list[tuple[str, float, bool, int]]:
    chance = random.Random(5)
    far = 0.0
    found = []
    for n in range(300):
        far += chance.choice([0, 0.5, 1, 3])
        found.append((chance.choice("abcd"), far - chance.choice([0, 0, 2]), chance.random() < 0.1, n))
    return found


def middle(n: Any, a: Any) -> float:
    """Of the attribute, where the rows are in order; the rows must all be there."""
    assert n.to_pylist() == sorted(n.to_pylist())
    return float(a[len(a) // 2].as_py())


def main(here: str) -> None:
    topology = hf.Topology("attributes")
    source = hf.Rows(rows(), "k string, a double, end boolean, n long", rows_per_step=5)
    stream = topology.source(source, name="rows").consistent(period=0.02)
    windows: dict[str, Any] = {
        "tumbling": hf.tumbling(delta=20, of="a"),
        "sliding": hf.sliding(delta=20, of="a", every=3),
        "marked": hf.tumbling(until="end"),
    }
    for name, window in windows.items():
        own = hf.udaf(middle, "n", "a", type="double")
        made = stream.aggregate("k", window=window, c=hf.count(), all=hf.collect("n"), own=own, name=name)
        made.sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
