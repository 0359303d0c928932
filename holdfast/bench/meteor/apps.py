"""The three applications: input of a given size, their topology, the true size of their state, and what they must say.

A *tooth* is how long the state grows until it falls. It is given in rows: how long it lasts depends on the machine.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from holdfast.bench.measure.examples import data, example
from holdfast.language.topology import Topology

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Input:
    """Files of an application. `kernels` makes the operators that keep state, `last` the one behind them, if there is one; `options` go to its
    `build`."""

    directory: Path
    rows: int
    rows_per_step: int
    options: dict[str, Any]
    kernels: Callable[[], list[Any]]
    last: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Walked:
    """What an application's operators do with its input, without any engine: (rows, bytes that are kept behind them) step by step, and
    what they say, in its order."""

    sizes: tuple[tuple[int, int], ...]
    said: tuple[Row, ...]


@dataclass(frozen=True)
class MeteorApp:
    """`make(directory, tooth, rows, rows_per_step)` writes so many rows at least. `kernel`: the element that keeps the state.
    `keeps(operator)`: bytes of what it keeps. `lane(row)`: rows of one lane come in an order that nothing changes."""

    name: str
    program: str
    kernel: str
    rows_per_step: int
    make: Callable[[Path, int, int, int], Input]
    keeps: Callable[[Any], int]
    lane: Callable[[Row], Any] = lambda row: None

    def build(self, input: Input, here: Path, **options: Any) -> Topology:
        """The example over its input, writing into a directory of its own."""
        here.mkdir(parents=True, exist_ok=True)
        if not (here / "in").exists():
            os.symlink(input.directory, here / "in")
        made: Topology = example(self.program).build(
            str(here), rows_per_step=input.rows_per_step, out="parquet", **input.options, **options
        )
        return made

    def walk(self, input: Input) -> Walked:
        kernels, done = input.kernels(), 0
        last = None if input.last is None else input.last()
        sizes: list[tuple[int, int]] = []
        said: list[Row] = []
        for path in sorted(input.directory.iterdir()):
            table = pq.read_table(path)
            for begin in range(0, table.num_rows, input.rows_per_step):
                piece = table.slice(begin, input.rows_per_step)
                rows = [row for kernel in kernels for row in kernel.process_batch(piece, 0)]
                if last is not None:
                    answers = [last.process(SimpleNamespace(**row), 0) for row in rows]
                    rows = [answer for answer in answers if answer is not None]
                said += [tuple(row.values()) for row in rows]
                done += piece.num_rows
                sizes.append((done, sum(self.keeps(kernel) for kernel in kernels)))
        return Walked(tuple(sizes), tuple(said))


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

BCP_PIXELS = 24
"""Of each of 8 x 8 places: a photograph has 37 kB."""


def make_bcp(directory: Path, tooth: int, rows: int, rows_per_step: int) -> Input:
    """As many photographs between two buses as a tooth has rows, on average; one round of buses after the other."""
    maker, module = example("bcp/make_input"), example("bcp/bcp")
    locations = data("muni-bus-snapshot") / "bus_locations.csv"
    once = maker.arrivals_of(locations)
    gap = once[-1][0] / len(once)
    every = gap * module.STOPS / tooth
    per_round = int((once[-1][0] + gap) / every * module.STOPS)
    scene = maker.Scene(
        every_s=every, pixels=BCP_PIXELS, rounds=-(-rows // per_round), rows_per_file=2 * rows_per_step, rows_max=rows
    )  # fmt: skip
    made = maker.write(locations, directory.parent / f"{directory.name}-made", scene)
    os.rename(directory.parent / f"{directory.name}-made" / "in", directory)

    def kernels() -> list[Any]:
        return [module.Stop(number) for number in range(module.STOPS)]

    return Input(directory, made, rows_per_step, {}, kernels, lambda: module.Crowd(module.STOPS))


# --- signalguru -----------------------------------------------------------------------------------------------------------

SIGNALGURU_SIDE = 136
"""A picture has 37 kB."""
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

    def kernels() -> list[Any]:
        return [module.MotionFilter(number) for number in range(module.INTERSECTIONS)]

    return Input(directory, made, rows_per_step, {}, kernels, module.Schedule)


def kept_positions(modes: Any) -> int:
    return sum(piece.nbytes for piece in modes.pool)


def kept_photographs(stop: Any) -> int:
    return sum(map(len, stop.images))


def kept_pictures(intersection: Any) -> int:
    return sum(len(image) for kept in intersection.pictures.values() for _, image in kept)


def intersection_of(row: Row) -> Any:
    return row[0]


APPS = {
    app.name: app
    for app in (
        MeteorApp("tmi", "tmi/tmi", "modes", 20_000, make_tmi, kept_positions),
        MeteorApp("bcp", "bcp/bcp", "stop_0", 50, make_bcp, kept_photographs),
        MeteorApp("signalguru", "signalguru/signalguru", "motion_0", 50, make_signalguru, kept_pictures, intersection_of),
    )
}  # fmt: skip
