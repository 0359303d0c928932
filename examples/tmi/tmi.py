"""Ways of travelling, inferred from positions: k-means over the speeds of a batch of positions, batch after batch.

    mkdir -p tmi/in && cp geolife_sample.txt.gz tmi/in/positions.csv.gz
    holdfast run examples/tmi/tmi.py --store tmi/store --until available
    holdfast plot tmi/store --state-size --out tmi/state.png

The operator keeps positions until a batch is full, clusters the speeds between them and forgets them. So its state grows and
is almost nothing again, and epochs are best established right then: trigger="aware".
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf

HERE = os.environ.get("TMI", "tmi")
POSITION = "lat double, lng double, datetime timestamp, uid string"
MODE = "batch long, mode string, kmh double, positions long"
MODES = ("still", "walking", "cycling", "driving")
BREAK_S = 120.0
"""After so long without a position a new trip begins."""
ROUNDS = 12


class Modes(hf.Operator):
    """Retains positions, and tells of each full batch how fast its ways of travelling are, and how many positions each has."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.number = 0
        self.pool: list[np.ndarray] = []
        """Rows of latitude, longitude, seconds and user."""
        self.kept = 0
        self.users: list[str] = []

    def process_batch(self, table: pa.Table, port: int) -> list[dict[str, Any]]:
        rows, done, told = self.positions(table), 0, []
        while done < len(rows):
            piece = rows[done : done + self.batch - self.kept]
            self.pool.append(piece)
            self.kept, done = self.kept + len(piece), done + len(piece)
            if self.kept == self.batch:
                told += self.cluster()
        return told

    def positions(self, table: pa.Table) -> np.ndarray:
        seconds = table["datetime"].cast(pa.int64()).to_numpy() / 1e6
        named = table["uid"].combine_chunks().dictionary_encode()
        self.users += [name for name in named.dictionary.to_pylist() if name not in self.users]
        numbers = np.array([self.users.index(name) for name in named.dictionary.to_pylist()], dtype=float)
        users = numbers[named.indices.to_numpy()]
        return np.column_stack([table["lat"].to_numpy(), table["lng"].to_numpy(), seconds, users])

    def cluster(self) -> list[dict[str, Any]]:
        speeds = speeds_of(np.concatenate(self.pool))
        self.pool, self.kept, self.number = [], 0, self.number + 1
        centres, counts = k_means(speeds, len(MODES))
        return [
            {"batch": self.number, "mode": mode, "kmh": float(centre) * 3.6, "positions": int(count)}
            for mode, centre, count in zip(MODES, centres, counts, strict=True)
        ]


def speeds_of(rows: np.ndarray) -> np.ndarray:
    """Metres per second between positions that follow each other on one trip."""
    lat, lng = np.radians(rows[:, 0]), np.radians(rows[:, 1])
    passed = np.diff(rows[:, 2])
    east = np.diff(lng) * np.cos((lat[1:] + lat[:-1]) / 2)
    metres = 6_371_000 * np.hypot(np.diff(lat), east)
    same = (np.diff(rows[:, 3]) == 0) & (passed > 0) & (passed <= BREAK_S)
    return metres[same] / passed[same]


def k_means(values: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres, ascending, and how many values are nearest to each. Begins at quantiles: the same values, the same clusters."""
    if not len(values):
        return np.zeros(k), np.zeros(k, dtype=int)
    values = np.sort(values)
    centres = np.quantile(values, (np.arange(k) + 0.5) / k)
    summed = np.concatenate([[0.0], np.cumsum(values)])
    for _ in range(ROUNDS):
        # Sorted, the values that are nearest to one centre lie side by side.
        ends = np.searchsorted(values, (centres[1:] + centres[:-1]) / 2, side="right")
        bounds = np.concatenate([[0], ends, [len(values)]])
        counts, sums = np.diff(bounds), np.diff(summed[bounds])
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    return centres, counts


def build(
    here: str,
    *,
    period: float | None = 2.0,
    trigger: Any = "aware",
    mode: Any = "async",
    rows_per_step: int = 2_000,
    batch: int = 10_000,
    format: Any = "csv",
    source: Any = hf.Files,
    out: Any = "csv",
) -> hf.Topology:
    """The topology over the files in `here`/in, writing to `here`/out."""
    made = hf.Topology("tmi")
    files = source(f"{here}/in", format, schema=POSITION, max_rows_per_step=rows_per_step)
    positions = made.source(files, name="positions")
    positions.consistent("travel", period=period, trigger=trigger, mode=mode)
    modes = positions.apply(Modes(batch), MODE, name="modes")
    modes.sink(hf.FileSink(f"{here}/out", out), name="out")
    return made


topology = build(HERE)
