"""How crowded will a bus be? People who wait are counted on photographs of the stops that it comes to.

    python examples/bcp/make_input.py bus_locations.csv bcp
    holdfast run examples/bcp/bcp.py --store bcp/store --until available
    holdfast plot bcp/store --state-size --out bcp/state.png

Who stands at the same place on successive photographs waits; others walk by. So each stop keeps its photographs, until a bus comes and
takes everybody along: then they are dropped. The state grows and falls, and epochs are best established when it is small: trigger="aware".
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf

HERE = os.environ.get("BCP", "bcp")
PHOTOGRAPH = "camera int, at timestamp, bus string, image binary"
WAITING = "camera int, bus string, waiting long, photographs long"
CROWD = "bus string, boarding long, photographs long, fullest int"
STOPS, CELLS = 4, 8
BRIGHT = 130


class Stop(hf.Operator):
    """The photographs of one camera since the last bus, and who waits when the next one comes."""

    def __init__(self, camera: int) -> None:
        self.camera = camera
        self.images: list[bytes] = []

    def process_batch(self, table: pa.Table, port: int) -> list[dict[str, Any]]:
        mine = table.filter(pa.compute.equal(table["camera"], self.camera))
        told = []
        for bus, image in zip(mine["bus"].to_pylist(), mine["image"].to_pylist(), strict=True):
            if bus is None:
                self.images.append(image)
            else:
                waiting, photographs = who_waits(self.images)
                self.images = []
                told.append(
                    {"camera": self.camera, "bus": bus, "waiting": waiting, "photographs": photographs}
                )
        return told


def who_waits(images: list[bytes]) -> tuple[int, int]:
    """(people on the last photograph who were on the one before too, photographs on which each was without a break, together)."""
    if not images:
        return 0, 0
    pixels = np.frombuffer(b"".join(images), dtype=np.uint8)
    side = round((len(pixels) / len(images)) ** 0.5)
    each = side // CELLS
    light = pixels.reshape(len(images), CELLS, each, CELLS, each).mean(axis=(2, 4)).reshape(len(images), -1)
    there = light[::-1] > BRIGHT
    since = np.cumprod(there, axis=0).sum(axis=0)
    waits = since >= 2
    return int(waits.sum()), int(since[waits].sum())


class Crowd(hf.Operator):
    """What a bus takes along at all stops, when the last of them has told. Stops tell in any order."""

    def __init__(self, stops: int) -> None:
        self.stops = stops
        self.told: dict[str, list[tuple[int, int, int]]] = {}

    def process(self, row: Any, port: int) -> dict[str, Any] | None:
        told = self.told.setdefault(row.bus, [])
        told.append((row.waiting, -row.camera, row.photographs))
        if len(told) < self.stops:
            return None
        del self.told[row.bus]
        fullest = -max(told)[1]
        return {
            "bus": row.bus,
            "boarding": sum(waiting for waiting, _, _ in told),
            "photographs": sum(photographs for _, _, photographs in told),
            "fullest": fullest,
        }


def build(
    here: str,
    *,
    period: float | None = 2.0,
    trigger: Any = "aware",
    mode: Any = "async",
    rows_per_step: int = 100,
    source: Any = hf.Files,
    out: Any = "csv",
) -> hf.Topology:
    """The topology over the files in `here`/in, writing to `here`/out."""
    made = hf.Topology("bcp")
    files = source(f"{here}/in", "parquet", schema=PHOTOGRAPH, max_rows_per_step=rows_per_step)
    photographs = made.source(files, name="photographs")
    photographs.consistent("buses", period=period, trigger=trigger, mode=mode)
    stops = [photographs.apply(Stop(n), WAITING, name=f"stop_{n}") for n in range(STOPS)]
    crowd = stops[0].union(*stops[1:]).apply(Crowd(STOPS), CROWD, name="crowd")
    crowd.sink(hf.FileSink(f"{here}/out", out), name="out")
    return made


topology = build(HERE)
