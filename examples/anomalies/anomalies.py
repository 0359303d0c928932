"""Anomalies in time series: how unusual is each value, given the values before it?

    mkdir -p anomalies/in && cp realKnownCause/*.csv.gz anomalies/in/      # of the Numenta Anomaly Benchmark
    holdfast run examples/anomalies/anomalies.py --store anomalies/store --until available
    head anomalies/out/*.csv

Every file is a series with the columns timestamp and value, and has a detector of its own: a Python operator whose
state, the last values, is simply its attributes. The detector is the benchmark's "windowed Gaussian".
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.errors import ConfigError

HERE = os.environ.get("ANOMALIES", "anomalies")
ROW = "timestamp string, value double"
SCORE = "series string, row long, timestamp string, value double, anomaly_score double"


class WindowedGaussian(hf.Operator):
    """The probability that a value as far from the mean is not chance: 1 - Q(|x - mean| / deviation).

    Mean and deviation are those of the values kept before x. The first `window` values are kept as they come; after
    that values are collected, and every `renew` of them push out the oldest ones at once.
    """

    window = 6400
    renew = 100

    def __init__(self, series: str) -> None:
        self.series = series
        self.rows = 0
        self.kept = np.zeros(0)
        self.next: list[float] = []
        self.mean = 0.0
        self.deviation = 1.0

    def process(self, row: Any, port: int) -> tuple[str, int, str, float, float]:
        score = self.score(row.value)
        self.learn(row.value)
        self.rows += 1
        return self.series, self.rows, row.timestamp, row.value, score

    def score(self, value: float) -> float:
        if not len(self.kept):
            return 0.0
        return 1 - 0.5 * math.erfc(abs(value - self.mean) / self.deviation / math.sqrt(2))

    def learn(self, value: float) -> None:
        if len(self.kept) < self.window:
            self.kept = np.append(self.kept, value)
        else:
            self.next.append(value)
            if len(self.next) < self.renew:
                return
            self.kept = np.concatenate([self.kept[self.renew :], self.next])
            self.next = []
        self.mean = float(np.mean(self.kept))
        self.deviation = float(np.std(self.kept)) or 0.000001


def series_in(directory: Path) -> list[str]:
    """The names of the series: nyc_taxi of the file nyc_taxi.csv.gz."""
    found = sorted({path.name.partition(".csv")[0] for path in directory.glob("[!._]*.csv*")})
    if not found:
        raise ConfigError(
            f"there is no series in {directory}.", cure="Put csv files with timestamp,value there."
        )
    return found


def build(here: str, *, period: float = 2.0, rows_per_step: int = 5_000) -> hf.Topology:
    """The topology over the files that are in `here`/in now, writing to `here`/out."""
    made = hf.Topology("anomalies")
    scored = []
    for series in series_in(Path(here) / "in"):
        path = f"{here}/in/{series}.csv*"
        source = hf.Files(path, "csv", schema=ROW, max_rows_per_step=rows_per_step)
        values = made.source(source, name=series).consistent("detectors", period=period)
        scored.append(values.apply(WindowedGaussian(series), SCORE, name=f"detector_{series}"))
    together = scored[0].union(*scored[1:]) if len(scored) > 1 else scored[0]
    together.sink(hf.FileSink(f"{here}/out", "csv"), name="scores")
    return made


topology = build(HERE)
