"""Photographs of bus stops: `python make_input.py BUS_LOCATIONS DIRECTORY [ROUNDS]`. The same for the same numbers.

Where the buses of a line are (`BUS_LOCATIONS`: columns id, routeTag, lat, lon, secsSinceReport) says when they come to the first of
some stops; they come to the next ones a little later, and around again. Every camera takes a photograph each few seconds: people who wait stand
still until the bus comes, others walk by. `truth.csv` has how many waited, and for how long together.
"""

from __future__ import annotations

import csv
import datetime as dt
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BEGIN = dt.datetime(2018, 11, 29, 19, 46, 12, tzinfo=dt.UTC)
LINE = "1"
SPEED_M_S = 5.0
"""Of a bus, stops included."""
BRIGHT, DARK, NOISE = 200, 60, 40
SCHEMA = pa.schema(
    [("camera", pa.int32()), ("at", pa.timestamp("us", "UTC")), ("bus", pa.string()), ("image", pa.binary())]
)


@dataclass(frozen=True)
class Scene:
    """What is photographed. An image has `cells` x `cells` places for a person, each of `pixels` x `pixels`."""

    stops: int = 4
    between_s: int = 30
    every_s: float = 5.0
    cells: int = 8
    pixels: int = 8
    rounds: int = 1
    """How often the buses come around."""
    rows_per_file: int = 400
    rows_max: int | None = None
    """What would come behind them is not made."""


def arrivals_of(locations: Path) -> list[tuple[float, str]]:
    """(seconds, bus) of a round of the line at its first stop, which is where the bus at the end of the line is."""
    with locations.open(newline="") as file:
        buses = [row for row in csv.DictReader(file) if row["routeTag"] == LINE]
    places = [(float(bus["lat"]), float(bus["lon"])) for bus in buses]
    middle = (sum(lat for lat, _ in places) / len(places), sum(lon for _, lon in places) / len(places))
    end = max(places, key=lambda place: metres(place, middle))
    return sorted(
        (float(round(metres(place, end) / SPEED_M_S)) + int(bus["secsSinceReport"]), bus["id"])
        for bus, place in zip(buses, places, strict=True)
    )


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Between two places that are not far from each other."""
    east = (one[1] - other[1]) * math.cos(math.radians(other[0]))
    return 111_320 * math.hypot(one[0] - other[0], east)


def schedule(locations: Path, scene: Scene) -> list[tuple[float, int, str]]:
    """(seconds, camera, bus) of all arrivals, in their order. A bus that comes again has the number of its round in its name."""
    once = arrivals_of(locations)
    around = once[-1][0] + once[-1][0] / len(once)
    return sorted(
        (at + turn * around + stop * scene.between_s, stop, f"{bus}-{turn + 1}")
        for turn in range(scene.rounds)
        for at, bus in once
        for stop in range(scene.stops)
    )


class Stop:
    """One stop: who waits, and what the camera sees."""

    def __init__(self, camera: int, scene: Scene) -> None:
        self._scene = scene
        self._chance = np.random.default_rng([7, camera])
        self._since = np.zeros(scene.cells**2, dtype=int)
        """Photographs that each waiting person is on already; 0: nobody is there."""
        self._walking = np.zeros(scene.cells**2, dtype=bool)
        """Where somebody walks by: nobody comes to wait there right then."""
        self._pictures = 0

    def photograph(self) -> bytes:
        """People come; some walk by, and are elsewhere on the next picture."""
        scene, chance = self._scene, self._chance
        free = np.flatnonzero((self._since == 0) & ~self._walking)
        self._since[self._since > 0] += 1
        chosen, come = chance.permutation(free), chance.poisson(0.2)
        self._since[chosen[:come]] = 1
        self._walking[:] = False
        if not self._pictures % 2:  # on every other picture, so nobody of them stands still
            self._walking[chosen[come : come + chance.poisson(2.0)]] = True
        self._pictures += 1
        people = (self._since > 0) | self._walking
        light = np.where(people, BRIGHT - NOISE, DARK - NOISE).astype(np.uint8)
        light = light.reshape(scene.cells, 1, scene.cells, 1)
        noise = chance.integers(0, 2 * NOISE, (scene.cells, scene.pixels) * 2, dtype=np.uint8)
        return (light + noise).tobytes()

    def board(self) -> tuple[int, int]:
        """(how many waited for two photographs at least, on how many photographs all of them were together)."""
        waiting = self._since[self._since >= 2]
        self._since[:] = 0
        return len(waiting), int(waiting.sum())


def make(locations: Path, scene: Scene) -> Iterator[tuple[dict[str, Any], tuple[int, int] | None]]:
    """Rows in the order of time; an arrival has (waiting, photographs) beside it."""
    stops = [Stop(camera, scene) for camera in range(scene.stops)]
    coming = schedule(locations, scene)
    last = coming[-1][0]
    pictures = [
        (number * scene.every_s, 1, camera, "")
        for number in range(int(last / scene.every_s) + 1)
        for camera in range(scene.stops)
    ]
    for second, is_picture, camera, bus in sorted(
        [(at, 0, stop, bus) for at, stop, bus in coming] + pictures
    ):
        row = {"camera": camera, "at": BEGIN + dt.timedelta(seconds=second), "bus": None, "image": None}
        if is_picture:
            yield {**row, "image": stops[camera].photograph()}, None
        else:
            yield {**row, "bus": bus}, stops[camera].board()


def write(locations: Path, here: Path, scene: Scene | None = None) -> int:
    """Fill `here`/in and `here`/truth.csv; returns the number of rows."""
    scene = scene or Scene()
    (here / "in").mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    files = rows = 0
    with (here / "truth.csv").open("w", newline="") as file:
        truth = csv.writer(file)
        truth.writerow(["camera", "bus", "waiting", "photographs"])

        def put() -> None:
            table = pa.Table.from_pylist(kept, schema=SCHEMA)
            pq.write_table(table, here / "in" / f"photographs-{files:04}.parquet", compression="none")

        for row, boarded in make(locations, scene):
            kept.append(row)
            rows += 1
            if boarded is not None:
                truth.writerow([row["camera"], row["bus"], *boarded])
            if len(kept) == scene.rows_per_file:
                put()
                kept, files = [], files + 1
            if rows == scene.rows_max:
                break
        if kept:
            put()
    return rows


if __name__ == "__main__":
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(write(Path(sys.argv[1]), Path(sys.argv[2]), Scene(rounds=rounds)), "photographs and arrivals")
