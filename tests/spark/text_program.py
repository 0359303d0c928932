"""Sums of csv files that tasks read, exactly once: `python text_program.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

import holdfast as hf
from holdfast.runtime.engines.spark import keyed

keyed.DIVIDED_BYTES = 0  # the test's files are small
here = Path(sys.argv[1])
topology = hf.Topology("text")
source = hf.Files(str(here / "in"), "csv", "k string, v long", max_files_per_step=1)
rows = topology.source(source, name="in").consistent(period=0.1)
sums = rows.filter("v % 2 = 0").aggregate("k", n=hf.count(), total=hf.sum("v"), name="sums")
sums.sink(hf.FileSink(str(here / "out"), "parquet"), name="out")
topology.run(store=str(here / "store"), until="available")
