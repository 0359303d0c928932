"""The three applications: input of a given size, their topology, and the true size of their state.

A *tooth* is how long the state grows until it falls. It is given in rows: how long it lasts depends on the machine.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from holdfast.bench.measure.examples import data, example
from holdfast.language.topology import Topology


@dataclass(frozen=True)
class Input:
    """Files of an application. `kernels` makes the operators that keep state; `options` go to its `build`."""

    directory: Path
    rows: int
    rows_per_step: int
    options: dict[str, Any]
    kernels: Callable[[], list[Any]]


@dataclass(frozen=True)
class MeteorApp:
    """`make(directory, tooth, rows, rows_per_step)` writes so many rows at least. `kernel`: the element that keeps the state.
    `keeps(operator)`: bytes of what it keeps."""

    name: str
    program: str
    kernel: str
    rows_per_step: int
    make: Callable[[Path, int, int, int], Input]
    keeps: Callable[[Any], int]

    def build(self, input: Input, here: Path, **options: Any) -> Topology:
        """The example over its input, writing into a directory of its own."""
        here.mkdir(parents=True, exist_ok=True)
        if not (here / "in").exists():
            os.symlink(input.directory, here / "in")
        made: Topology = example(self.program).build(
            str(here), rows_per_step=input.rows_per_step, **input.options, **options
        )
        return made

    def true_sizes(self, input: Input) -> Iterator[tuple[int, int]]:
        """(rows, bytes that are kept behind them), step by step, without any engine."""
        kernels, done = input.kernels(), 0
        for path in sorted(input.directory.iterdir()):
            table = pq.read_table(path)
            for begin in range(0, table.num_rows, input.rows_per_step):
                piece = table.slice(begin, input.rows_per_step)
                for kernel in kernels:
                    kernel.process_batch(piece, 0)
                done += piece.num_rows
                yield done, sum(self.keeps(kernel) for kernel in kernels)


# --- tmi ------------------------------------------------------------------------------------------------------------------


def make_tmi(directory: Path, tooth: int, rows: int, rows_per_step: int) -> Input:
    """The positions again and again, in files of some steps."""
    with gzip.open(data("geolife-sample") / "geolife_sample.txt.gz") as file:
        text = pa.csv.ConvertOptions(column_types={"uid": pa.string(), "datetime": pa.timestamp("us")})
        table = pa.csv.read_csv(file, convert_options=text).select(["lat", "lng", "datetime", "uid"])
    times = pa.compute.assume_timezone(table["datetime"], "UTC")
    table = table.set_column(2, "datetime", times)
    per_file, made, files = 2 * rows_per_step, 0, 0
    directory.mkdir(parents=True)
    whole = pa.concat_tables([table] * (2 + per_file // table.num_rows))
    while made < rows:
        piece = whole.slice(made % table.num_rows, per_file)
        pq.write_table(piece, directory / f"positions-{files:05}.parquet")
        made, files = made + piece.num_rows, files + 1
    modes = example("tmi/tmi").Modes
    options = {"batch": tooth, "format": "parquet"}
    return Input(directory, made, rows_per_step, options, lambda: [modes(tooth)])


# --- bcp ------------------------------------------------------------------------------------------------------------------

BCP_PIXELS = 32


def make_bcp(directory: Path, tooth: int, rows: int, rows_per_step: int) -> Input:
    """As many photographs between two buses as a tooth has rows, on average; one round of buses after the other."""
    maker, module = example("bcp/make_input"), example("bcp/bcp")
    locations = data("muni-bus-snapshot") / "bus_locations.csv"
    once = maker.arrivals_of(locations)
    gap = once[-1][0] / len(once)
    every = gap * module.STOPS / tooth
    per_round = int((once[-1][0] + gap) / every * module.STOPS)
    scene = maker.Scene(
        every_s=every, pixels=BCP_PIXELS, rounds=max(1, round(rows / per_round + 0.5)), rows_per_file=2 * rows_per_step
    )  # fmt: skip
    made = maker.write(locations, directory.parent / f"{directory.name}-made", scene)
    os.rename(directory.parent / f"{directory.name}-made" / "in", directory)
    return Input(directory, made, rows_per_step, {}, lambda: [module.Stop(n) for n in range(module.STOPS)])


# --- signalguru -----------------------------------------------------------------------------------------------------------

SIGNALGURU_SIDE = 180
SECONDS_SEEN = 43
"""That a car is at an intersection, about."""


def make_signalguru(directory: Path, tooth: int, rows: int, rows_per_step: int) -> Input:
    """As many pictures in a cycle of the lights as a tooth has rows, about."""
    maker, module = example("signalguru/make_input"), example("signalguru/signalguru")
    per_car = module.INTERSECTIONS * SECONDS_SEEN
    cars = max(1, tooth // per_car)
    cycles = max(2, -(-rows // (cars * per_car)))
    scene = maker.Scene(cars=cars, cycles=cycles, side=SIGNALGURU_SIDE, rows_per_file=2 * rows_per_step)
    made = maker.write(directory.parent / f"{directory.name}-made", scene)
    os.rename(directory.parent / f"{directory.name}-made" / "in", directory)
    kernels = range(module.INTERSECTIONS)
    return Input(directory, made, rows_per_step, {}, lambda: [module.MotionFilter(n) for n in kernels])


APPS = {
    app.name: app
    for app in (
        MeteorApp(
            "tmi", "tmi/tmi", "modes", 100_000, make_tmi, lambda made: sum(p.nbytes for p in made.pool)
        ),
        MeteorApp("bcp", "bcp/bcp", "stop_0", 100, make_bcp, lambda made: sum(map(len, made.images))),
        MeteorApp(
            "signalguru",
            "signalguru/signalguru",
            "motion_0",
            100,
            make_signalguru,
            lambda made: sum(len(image) for kept in made.pictures.values() for _, image in kept),
        ),
    )
}
