"""Child of test_chains_survive_kills: running sums whose state is stored as bases and deltas, to the end of its input.

    chain_program.py MOMENT DIRECTORY

MOMENT says where it dies: in the upload of a joined "delta" or "base", while the deltas of a chain are joined in a
"restore"; anything else: nowhere.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import holdfast as hf
from holdfast import failpoints
from holdfast.runtime.runs import keyed_load, keyed_run
from holdfast.runtime.runs.keyed_run import KeyedRun
from holdfast.testing import run_local

KEYS, STEPS, ROWS = 2000, 300, 60


def rows() -> list[tuple[int, int]]:
    chance = random.Random(9)
    all_keys = [(key, 1) for key in range(KEYS)]
    return all_keys + [(chance.randrange(KEYS), chance.randrange(9)) for _ in range(ROWS * STEPS)]


def die_at(moment: str) -> None:
    put_joined, one_run = KeyedRun._put_joined, keyed_load.one_run

    def dying_put(self: KeyedRun, changes: Any, as_base: bool = False) -> Any:
        if moment == ("base" if as_base else "delta"):
            failpoints.arm("ckpt.op.put_done=kill@1")
        return put_joined(self, changes, as_base)

    def dying_run(*given: Any) -> Any:
        joined = one_run(*given)
        if moment == "restore":
            failpoints.arm("reset.op.loaded=kill@1")
        return joined

    KeyedRun._put_joined = dying_put  # type: ignore[method-assign]
    keyed_load.one_run = dying_run
    # Short chains are joined already: a slow machine has few epochs.
    keyed_run.JOINED_AFTER, keyed_load.RUNS_LEFT = 2, 1


def main(moment: str, here: str) -> None:
    die_at(moment)
    topology = hf.Topology("chains")
    source = hf.Rows(rows(), "k long, v long", rows_per_step=ROWS)
    stream = topology.source(source, name="rows").consistent(name="chains", period=0.01)
    sums = stream.aggregate("k", emit="each", total=hf.sum("v"), n=hf.count(), name="sums")
    sums.checkpoint(form=hf.incremental(ratio=5))
    sums.sink(hf.FileSink(f"{here}/sums", "parquet"), name="out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
