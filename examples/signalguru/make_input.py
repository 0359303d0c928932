"""Pictures that phones take at traffic lights: `python make_input.py DIRECTORY [CYCLES]`. The same for the same numbers.

Cars come to an intersection, stop at the red light, and leave soon after it has become green; their phones take a picture each second. A signal is
at a fixed place of a picture, since the car stands still; other lights move. `truth.csv` has when each car saw the light change.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LIT, DARK, NOISE = 220, 50, 30
SCHEMA = pa.schema(
    [
        ("intersection", pa.int32()),
        ("phone", pa.string()),
        ("second", pa.int64()),
        ("leaves", pa.bool_()),
        ("image", pa.binary()),
    ]
)


@dataclass(frozen=True)
class Scene:
    """What is seen. An image has `side` x `side` pixels, of which each has a red and a green byte."""

    intersections: int = 3
    cycle_s: int = 60
    offset_s: int = 3
    """An intersection becomes green so much after the one before."""
    cars: int = 6
    """That come to an intersection in a cycle."""
    side: int = 32
    moving: int = 4
    cycles: int = 10
    rows_per_file: int = 400


@dataclass(frozen=True)
class Car:
    """One car at one intersection. Times in seconds; the light is at a place of its pictures."""

    intersection: int
    phone: str
    comes: int
    green: int
    leaves: int
    place: tuple[int, int]


def cars(scene: Scene) -> list[Car]:
    """All of them, of one cycle after the other. Some are there before the cars of the cycle before have left."""
    chance = np.random.default_rng(11)
    found = []
    for cycle in range(scene.cycles):
        for where in range(scene.intersections):
            green = (cycle + 1) * scene.cycle_s + where * scene.offset_s
            for number in range(scene.cars):
                comes = green - int(chance.integers(8, 75))
                leaves = green + 2 + number // 3
                place = (int(chance.integers(2, scene.side - 5)), int(chance.integers(2, scene.side - 2)))
                phone = f"c{cycle}-{where}-{number}"
                found.append(Car(where, phone, comes, green, leaves, place))
    return found


def picture(car: Car, second: int, scene: Scene, chance: np.random.Generator) -> bytes:
    """Red light above, green light below it; lamps of others are elsewhere on each picture."""
    seen = chance.integers(DARK - NOISE, DARK + NOISE, (scene.side, scene.side, 2), dtype=np.uint8)
    for _ in range(scene.moving):
        y, x = chance.integers(0, scene.side, 2)
        seen[y, x, chance.integers(0, 2)] = LIT
    y, x = car.place
    is_green = second >= car.green
    seen[y : y + 4, x] = DARK
    seen[y + 3 * is_green, x, int(is_green)] = LIT
    return seen.tobytes()


def make(scene: Scene) -> Iterator[dict[str, Any]]:
    """Rows in the order of time; the last picture of a car says that it leaves."""
    chance = np.random.default_rng(12)
    coming = sorted(cars(scene), key=lambda car: car.comes)
    there: list[Car] = []
    second = coming[0].comes
    while coming or there:
        while coming and coming[0].comes <= second:
            there.append(coming.pop(0))
        for car in there:
            image = picture(car, second, scene, chance)
            yield {
                "intersection": car.intersection,
                "phone": car.phone,
                "second": second,
                "leaves": car.leaves == second,
                "image": image,
            }
        there = [car for car in there if car.leaves > second]
        second += 1


def write(here: Path, scene: Scene | None = None) -> int:
    """Fill `here`/in and `here`/truth.csv; returns the number of rows."""
    scene = scene or Scene()
    (here / "in").mkdir(parents=True, exist_ok=True)
    with (here / "truth.csv").open("w", newline="") as file:
        truth = csv.writer(file)
        truth.writerow(["intersection", "phone", "green"])
        ordered = sorted(cars(scene), key=lambda car: car.leaves)
        truth.writerows([car.intersection, car.phone, car.green] for car in ordered)
    kept: list[dict[str, Any]] = []
    files = rows = 0

    def put() -> None:
        table = pa.Table.from_pylist(kept, schema=SCHEMA)
        pq.write_table(table, here / "in" / f"pictures-{files:04}.parquet", compression="none")

    for row in make(scene):
        kept.append(row)
        rows += 1
        if len(kept) == scene.rows_per_file:
            put()
            kept, files = [], files + 1
    if kept:
        put()
    return rows


if __name__ == "__main__":
    chosen = Scene(cycles=int(sys.argv[2])) if len(sys.argv) > 2 else Scene()
    print(write(Path(sys.argv[1]), chosen), "pictures")
