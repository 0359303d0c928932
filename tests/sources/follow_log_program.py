"""Child of test_renamed_files: reads what there is of a log that is rotated between its lives, some lines per step."""

from __future__ import annotations

import sys

import holdfast as hf
from holdfast.testing import run_local


def main(here: str) -> None:
    topology = hf.Topology("log")
    lines = topology.source(
        hf.Files(f"{here}/in", "text", changed="append", max_rows_per_step=3), name="lines"
    )
    lines.consistent(name="r", period=0.01).sink(hf.FileSink(f"{here}/out", "csv", header=False), name="out")
    run_local(topology, store=f"file:{here}/store")


if __name__ == "__main__":
    main(sys.argv[1])
