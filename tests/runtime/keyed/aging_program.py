"""Child of test_aging: a window of the last 100 rows, outside of regions, of a stream of which ten come in each second of
a clock that the source moves. `python aging_program.py ROWS ASKED HERE`: so many rows in all; ASKED > 0: then so many of
them are asked for; ASKED = all: the window is told after every tenth row. The clock goes on from life to life."""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast as hf
from holdfast.language.connectors import Slice
from holdfast.testing import ManualClock, Rows, run_local

EVERY, WINDOW = 20, 100


class Ticking(Rows):
    """Ten rows a second."""

    clock: ManualClock

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        if piece is not None:
            self.clock.advance(1.0)
        return piece


def met(topology: hf.Topology, one: hf.Stream, asked: int) -> hf.Stream:
    two = topology.source(Rows([(n,) for n in range(asked)], "m long", rows_per_step=10_000), name="two")
    windows = {"keep": hf.latest(rows=WINDOW), "other_keep": hf.latest(rows=0)}
    return one.join(two, {"n": "m"}, **windows, name="pairs")


def told(one: hf.Stream) -> hf.Stream:
    return one.aggregate([], window=hf.sliding(rows=WINDOW, every=10), all=hf.collect("n"), name="told")


def main(rows: int, asked: str, here: str) -> None:
    lives = Path(here, "lives")
    lives.mkdir(parents=True, exist_ok=True)
    life = len(list(lives.iterdir()))
    (lives / str(life)).touch()
    clock = ManualClock(1_000_000.0 + 10_000.0 * life)
    topology = hf.Topology("windows")
    source = Ticking([(n,) for n in range(rows)], "n long", rows_per_step=10)
    source.clock = clock
    one = topology.source(source, name="one")
    kept = told(one) if asked == "all" else met(topology, one, int(asked))
    kept.checkpoint(every=EVERY).sink(hf.FileSink(f"{here}/out", "parquet"), name="out")
    run_local(topology, f"file:{here}/store", clock=clock)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
