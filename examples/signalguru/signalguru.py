"""When does a traffic light become green? Phones behind windshields see it, and a motion filter tells it from other lights.

    python examples/signalguru/make_input.py signalguru
    holdfast run examples/signalguru/signalguru.py --store signalguru/store --until available
    holdfast plot signalguru/store --state-size --out signalguru/state.png

A signal stays at its place on all pictures of a phone, other lights move. So each intersection keeps the pictures of a car until that leaves, and
forgets them then. All leave when the light is green: the state falls, and epochs are best established right then: trigger="aware".
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf

HERE = os.environ.get("SIGNALGURU", "signalguru")
PICTURE = "intersection int, phone string, second long, leaves boolean, image binary"
CHANGE = "intersection int, phone string, green long, row int, column int, pictures long"
ADVICE = "intersection int, phone string, green long, cycle long, next_green long"
INTERSECTIONS = 3
LIT = 150
FIXED = 0.9
"""A signal is lit on so many of a phone's pictures, in one colour or the other."""
SAME_S = 10
"""Changes that lie less apart are one."""


class MotionFilter(hf.Operator):
    """The pictures of all phones at one intersection. When a car leaves: at which second its signal became green."""

    def __init__(self, intersection: int) -> None:
        self.intersection = intersection
        self.pictures: dict[str, list[tuple[int, bytes]]] = {}

    def process_batch(self, table: pa.Table, port: int) -> list[dict[str, Any]]:
        mine = table.filter(pa.compute.equal(table["intersection"], self.intersection))
        told = []
        columns = (mine[name].to_pylist() for name in ("phone", "second", "leaves", "image"))
        for phone, second, leaves, image in zip(*columns, strict=True):
            self.pictures.setdefault(phone, []).append((second, image))
            if leaves:
                kept = self.pictures.pop(phone)
                green, row, column = change_of(kept)
                told.append(
                    {
                        "intersection": self.intersection,
                        "phone": phone,
                        "green": green,
                        "row": row,
                        "column": column,
                        "pictures": len(kept),
                    }
                )
        return told


def change_of(kept: list[tuple[int, bytes]]) -> tuple[int | None, int, int]:
    """(second of the first green picture, row and column of the red light). The green light is three pixels below."""
    seen = np.frombuffer(b"".join(image for _, image in kept), dtype=np.uint8)
    side = round((len(seen) / len(kept) / 2) ** 0.5)
    lit = seen.reshape(len(kept), side, side, 2) > LIT
    red, green = lit[:, :-3, :, 0], lit[:, 3:, :, 1]
    fixed = (red | green).mean(axis=0)
    row, column = np.unravel_index(int(fixed.argmax()), fixed.shape)
    if fixed[row, column] < FIXED:
        return None, -1, -1
    shown = np.flatnonzero(green[:, row, column] & ~red[:, row, column])
    second = kept[int(shown[0])][0] if len(shown) else None
    return second, int(row), int(column)


class Schedule(hf.Operator):
    """The last change of each intersection and its cycle, from what one phone after the other saw."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[int, int | None]] = {}

    def process(self, row: Any, port: int) -> dict[str, Any] | None:
        if row.green is None:
            return None
        last, cycle = self.last.get(row.intersection, (None, None))
        if last is not None and row.green - last >= SAME_S:
            cycle = row.green - last
        self.last[row.intersection] = (row.green, cycle)
        expected = None if cycle is None else row.green + cycle
        return {
            "intersection": row.intersection,
            "phone": row.phone,
            "green": row.green,
            "cycle": cycle,
            "next_green": expected,
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
    made = hf.Topology("signalguru")
    files = source(f"{here}/in", "parquet", schema=PICTURE, max_rows_per_step=rows_per_step)
    pictures = made.source(files, name="pictures")
    pictures.consistent("signals", period=period, trigger=trigger, mode=mode)
    filters = [pictures.apply(MotionFilter(n), CHANGE, name=f"motion_{n}") for n in range(INTERSECTIONS)]
    advice = filters[0].union(*filters[1:]).apply(Schedule, ADVICE, name="schedule")
    advice.sink(hf.FileSink(f"{here}/out", out), name="out")
    return made


topology = build(HERE)
