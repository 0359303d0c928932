"""`holdfast bench join`: the sliding-window join of the SPADE checkpointing paper's section 5.2, windows full.

Stream 1 has two integers and a string of 70 bytes, stream 2 an integer and a string of 10; they meet where the first
integers are equal; output rows have all of stream 1 and the string of stream 2, and are written as Parquet by an
exactly-once sink. Stream 2 keeps nothing. In the first five cells stream 1 keeps its last 8,192 to 131,072 rows, of
1,500 keys; in the last it keeps 1,024 rows of each of 50 keys, and stream 2 has 600. Half of the input rows are of each
stream. Only steps that begin with full windows count. `ratio_vs_document`: input rows per second over the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from holdfast.bench.measure.inputs import steps_in
from holdfast.bench.measure.place import Place, bench_place
from holdfast.bench.measure.side_holdfast import PERIOD_S, CountingStore, wait_until_visible, watch_steps
from holdfast.errors import HoldfastError
from holdfast.language.checkpoint_form import groups
from holdfast.language.operators.joins import latest
from holdfast.language.topology import Topology
from holdfast.runtime.job import job_of
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.state.columns.hashing import I64

ONE = pa.schema([("key", pa.int64()), ("number", pa.int64()), ("text", pa.string())])
TWO = pa.schema([("key", pa.int64()), ("name", pa.string())])


@dataclass(frozen=True)
class Cell:
    """One configuration of the paper, and the rates it published (rows per second)."""

    name: str
    window: int
    keys: int
    other_keys: int
    per_key: bool
    document_input: float
    document_output: float
    zipf: bool = False
    """Keys of stream 1 by Zipf's law: the n-th one comes a n-th as often as the first."""

    @property
    def rows_kept(self) -> int:
        return self.window * self.keys if self.per_key else self.window

    @property
    def pairs_per_row(self) -> float:
        """How many rows a row of stream 2 meets when the windows are full."""
        return self.rows_kept / max(self.keys, self.other_keys)


CELLS = (
    Cell("8192", 8_192, 1_500, 1_500, False, 9_350.94, 25_451.04),
    Cell("16384", 16_384, 1_500, 1_500, False, 5_054.39, 27_180.69),
    Cell("32768", 32_768, 1_500, 1_500, False, 2_503.25, 25_643.36),
    Cell("65536", 65_536, 1_500, 1_500, False, 970.19, 14_099.27),
    Cell("131072", 131_072, 1_500, 1_500, False, 889.64, 13_062.59),
    Cell("per_group", 1_024, 50, 600, True, 2_026.52, 75_856.67),
)


@dataclass(frozen=True)
class Scale:
    """How large the benchmark is: a step is as large as gives about `output_rows`."""

    output_rows: int = 600_000
    rows_max: int = 100_000
    steps_at_least: int = 12


def bench_join(
    scale: Scale | None = None,
    cells: Sequence[Cell] = CELLS,
    *,
    pairs: int = 5,
    seconds: float = 10.0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run the benchmark; the result is plain data. There is no other side: the document's rates are the other side."""
    scale = scale or Scale()
    results: dict[str, Any] = {}
    with bench_place(quiet) as place:
        for cell in cells:
            results[cell.name] = _cell(place, cell, scale, pairs, seconds)
        _show(place, results)
        configuration = place.configuration(period_s=PERIOD_S, output_rows_per_step=scale.output_rows)
    return {"bench": "join", "cells": results, "outputs_checked": True, "configuration": configuration}


@dataclass(frozen=True)
class Rate:
    """What one run did with full windows."""

    input_rows: int
    output_rows: int
    seconds: float


def _cell(place: Place, cell: Cell, scale: Scale, pairs: int, seconds: float) -> dict[str, Any]:
    rows = min(scale.rows_max, max(200, round(scale.output_rows / cell.pairs_per_row)))
    fill = -(-2 * cell.rows_kept // rows) if cell.per_key else -(-cell.rows_kept // rows)
    steps = scale.steps_at_least
    place.console.print(
        f"{cell.name}: {rows:,} rows of each stream per step, windows full after {fill} steps"
    )
    warm = _run(place, cell, rows, fill, steps)
    steps = max(steps, round(steps * 1.1 * seconds / warm.seconds))
    rates = [_run(place, cell, rows, fill, steps) for _ in range(pairs)]
    inputs = [rate.input_rows / rate.seconds for rate in rates]
    outputs = [rate.output_rows / rate.seconds for rate in rates]
    return {
        "input_rows_per_s": round(median(inputs)),
        "output_rows_per_s": round(median(outputs)),
        "ratio_vs_document": round(median(inputs) / cell.document_input, 2),
        "output_ratio_vs_document": round(median(outputs) / cell.document_output, 2),
        "input_rows_per_s_all": [round(rate) for rate in inputs],
        "rows_per_step": 2 * rows,
        "steps": steps,
    }


def _run(place: Place, cell: Cell, rows: int, fill: int, steps: int) -> Rate:
    """Fill the windows, then measure so many steps until their output is visible."""
    with place.directory("in") as files, place.directory("out") as out, place.directory("store") as store:
        write_streams(files, cell, rows, fill + steps)
        place.settle()
        job = job_of(
            join_topology(files, out, cell).submit(
                spark=place.session, store=CountingStore(store), until="available"
            )
        )
        times = watch_steps(job)
        ended = wait_until_visible(job, times)
        if len(times.done) != steps_in(files):
            raise HoldfastError(f"{steps_in(files)} files became {len(times.done)} steps.")
        begun = times.done[fill - 1][0]
        return Rate(2 * rows * steps, output_rows(out, cell, rows, fill, steps), ended - begun)


def join_topology(
    files: Path, out: Path, cell: Cell, period: float | None = PERIOD_S, group_rows: int | None = None
) -> Topology:
    """The join of a cell, in a region with epochs every `period` seconds; None: in none."""
    topology = Topology("bench")
    one, two = (
        topology.source(
            Files(str(files / name), format="parquet", schema=schema, max_files_per_step=1), name=name
        )
        for name, schema in (("one", ONE), ("two", TWO))
    )
    if period is not None:
        one, two = (stream.consistent(name="bench", period=period) for stream in (one, two))
    window = latest(rows=cell.window, per_key=cell.per_key)
    joined = one.join(two, "key", keep=window, other_keep=latest(rows=0), name="joined")
    if group_rows is not None:
        joined = joined.checkpoint(form=groups(group_rows))
    joined.sink(FileSink(str(out), format="parquet"), name="out")
    return topology


def write_streams(files: Path, cell: Cell, rows: int, steps: int) -> None:
    """Files of both streams."""
    for name in ("one", "two"):
        (files / name).mkdir()
    for step in range(steps):
        random = np.random.default_rng(step)
        letters = random.integers(97, 123, size=(rows, 80), dtype=np.uint8)
        texts = pa.array([bytes(row[:70]).decode() for row in letters])
        names = pa.array([bytes(row[70:]).decode() for row in letters])
        numbers = pa.array(np.arange(step * rows, (step + 1) * rows))
        keys = [pa.array(keys) for keys in _keys(cell, rows, step)]
        path = f"part-{step:05}.parquet"
        pq.write_table(pa.table([keys[0], numbers, texts], schema=ONE), files / "one" / path)
        pq.write_table(pa.table([keys[1], names], schema=TWO), files / "two" / path)


def output_rows(out: Path, cell: Cell, rows: int, fill: int, steps: int) -> int:
    """Rows written since the windows were full. All that was written must be every pair of the input, once."""
    pairs = _pairs(cell, rows, fill + steps)
    found = sum(pq.read_metadata(file).num_rows for file in out.glob("*.parquet"))
    if found != pairs.sum():
        raise HoldfastError(f"{found:,} pairs were written instead of {pairs.sum():,}.")
    return int(pairs[fill * rows :].sum())


def _pairs(cell: Cell, rows: int, steps: int) -> I64:
    """How many rows each row of stream 2 meets, computed without a join: both streams have as many rows in a step, so
    they alternate, and row t of stream 2 comes right behind row t of stream 1."""
    one, two = (
        np.concatenate(keys) for keys in zip(*(_keys(cell, rows, n) for n in range(steps)), strict=True)
    )
    order = np.argsort(one, kind="stable")
    places = one[order] * len(one) + order
    now = np.arange(len(two))
    seen = np.searchsorted(places, two * len(one) + now, "right")
    if cell.per_key:
        return np.asarray(np.minimum(seen - np.searchsorted(places, two * len(one)), cell.window))
    oldest = np.maximum(now - cell.window + 1, 0)
    return np.asarray(seen - np.searchsorted(places, two * len(one) + oldest))


def _keys(cell: Cell, rows: int, step: int) -> tuple[I64, I64]:
    """Keys of one step, of both streams."""
    random = np.random.default_rng([cell.window, cell.keys, step])
    if cell.zipf:
        shares = 1 / np.arange(1, cell.keys + 1)
        ones = random.choice(cell.keys, rows, p=shares / shares.sum())
    else:
        ones = random.integers(0, cell.keys, rows)
    return ones, random.integers(0, cell.other_keys, rows)


def _show(place: Place, results: dict[str, Any]) -> None:
    table = Table(
        "window", "input rows/s", "output rows/s", "over the document", title="join", title_justify="left"
    )
    for name, cell in results.items():
        table.add_row(
            name,
            f"{cell['input_rows_per_s']:,}",
            f"{cell['output_rows_per_s']:,}",
            f"{cell['ratio_vs_document']:.1f}",
        )
    place.console.print(table)
