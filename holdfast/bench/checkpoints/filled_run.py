"""A run whose state has a given size and stays alive while its steps are measured: for the checkpoint benchmarks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from holdfast.bench.measure.inputs import Inputs, write_keyed
from holdfast.bench.measure.place import Place
from holdfast.bench.measure.side_holdfast import CountingStore, StepTimes, watch_steps
from holdfast.bench.subjects.keyed import keyed_topology
from holdfast.bench.subjects.state_growth import establish_epochs, filling_inputs
from holdfast.errors import HoldfastError
from holdfast.runtime.job import job_of
from holdfast.runtime.live_directory import ENV
from holdfast.state.keyed.segment import open_segment

FILLING_ROWS = 1_000_000
MEMORY = Path("/dev/shm")


class SlicedInputs(Inputs):
    """Files whose keys come from one of `slices` equal parts of all keys: the next part after each `turn` files."""

    def __init__(self, root: Path, rows: int, keys: int, slices: int, turn: int, distinct: int = 4) -> None:
        self._turn = turn
        self._each = distinct
        per_slice = keys // slices

        def write(path: Path, number: int) -> None:
            random = np.random.default_rng([keys, number])
            low = (number // distinct) * per_slice
            write_keyed(path, low + random.integers(0, per_slice, rows), random)

        super().__init__(root, rows, slices * distinct, write)

    def link_from(self, directory: Path, first: int, steps: int) -> None:
        """Let files `first` … appear in a directory."""
        slices = len(self.distinct) // self._each
        for number in range(first, first + steps):
            source = (number // self._turn) % slices * self._each + number % self._each
            os.link(self.distinct[source], directory / f"b-{number:07}.parquet")


class FilledRun:
    """A job over `keys` keys, all of them filled in and, in a region, in an epoch."""

    def __init__(
        self,
        place: Place,
        files: Path,
        out: Path,
        store: Path,
        keys: int,
        region: Mapping[str, object] | None,
    ) -> None:
        self.place = place
        self.files = files
        self.store = CountingStore(store)
        self.linked = 0
        filling = filling_inputs(files.parent / f"filling-{keys}", keys, FILLING_ROWS)
        filling.link(files, len(filling.distinct), "a-filling")
        self.job = job_of(
            keyed_topology(files, out, region).submit(
                spark=place.session, store=None if region is None else self.store
            )
        )
        self.times: StepTimes = watch_steps(self.job)
        self._filling = len(filling.distinct)
        self.times.wait_for(self._filling, self.job)
        if region is not None and region.get("trigger") != "manual":
            establish_epochs(self.job, 2)

    def run(self, inputs: SlicedInputs, steps: int) -> float:
        """Take so many more steps; the seconds from their files appearing to the end of the last."""
        begun = time.monotonic()
        inputs.link_from(self.files, self.linked, steps)
        self.linked += steps
        self.times.wait_for(self._filling + self.linked, self.job)
        return time.monotonic() - begun

    def state_bytes(self) -> tuple[int, float]:
        """(Arrow bytes of the state without old rows, bytes per row), from the live segments."""
        (run,) = [
            r for loop in self.job.loops.values() for r in loop.worker.runs.values() if r.name == "by_key"
        ]
        segments = [segment for partition in run.state.partitions for segment in partition]  # type: ignore[attr-defined]
        table = open_segment(max(segments, key=lambda segment: segment.rows).path)
        each = table.nbytes / table.num_rows
        return round(each * sum(segment.rows for segment in segments)), each


@contextmanager
def filled(
    place: Place, keys: int, region: Mapping[str, object] | None, *, in_memory: bool = False
) -> Iterator[FilledRun]:
    """A filled run that ends with the block. `in_memory`: its live directory is."""
    if in_memory and not MEMORY.is_dir():
        raise HoldfastError(f"there is no {MEMORY} to keep a live directory in memory.")
    before = os.environ.get(ENV)
    with place.directory("in") as root, place.directory("out") as out, place.directory("store") as store:
        files = root / "files"
        files.mkdir()
        if in_memory:
            os.environ[ENV] = str(MEMORY)
        try:
            run = FilledRun(place, files, out, store, keys, region)
        finally:
            os.environ.pop(ENV, None)
            if before is not None:
                os.environ[ENV] = before
        try:
            yield run
        finally:
            run.job.close()
