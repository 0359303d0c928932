"""The yield of a semiconductor line, foreseen by a model that learns as units are tested.

    mkdir -p fabyield/in && cp secom_yield.csv fabyield/in/      # columns unit,result,test_time; a result of 1 is a fail
    holdfast run examples/fabyield/fabyield.py --store fabyield/store --until available
    sort -n fabyield/out/*.csv | tail

For every unit the model says, before it looks at the result, how likely units like it pass; then it learns. Nothing here is in
a region: a failure may cost some rows. What it must not cost is all that was learned, so the model, and it alone, has a
checkpoint: `.checkpoint(every=…)`.
"""

from __future__ import annotations

import math
import os
from datetime import datetime
from typing import Any

import numpy as np

import holdfast as hf

HERE = os.environ.get("FABYIELD", "fabyield")
ROW = "unit long, result long, test_time string"
FORESEEN = "unit long, tested timestamp, foreseen_yield double, passed boolean, error double"


class YieldModel(hf.Operator):
    """Recursive least squares: the share of fails as a linear function of when a unit is tested and of the fails before it.

    Its state is what it learned (`weights`, `covariance`) and two moving averages of fails, a fast and a slow one. Yields are
    in percent; `error` is how far the foreseen one was from what the test said.
    """

    features = 7
    doubt = 100.0
    """How little the weights of a new model are trusted."""
    fast, slow = 0.05, 0.01

    def __init__(self) -> None:
        self.weights = np.zeros(self.features)
        self.covariance = np.eye(self.features) * self.doubt
        self.recent = 0.0
        self.usual = 0.0
        self.last = ""

    def process(self, row: Any, port: int) -> tuple[int, datetime, float, bool, float]:
        tested = datetime.fromisoformat(row.test_time)
        seen = self.look(tested)
        foreseen = 100.0 * (1.0 - min(max(float(self.weights @ seen), 0.0), 1.0))
        failed = row.result > 0
        self.learn(seen, float(failed))
        self.last = row.test_time
        return row.unit, tested, foreseen, not failed, foreseen - (0.0 if failed else 100.0)

    def look(self, tested: datetime) -> np.ndarray:
        """What is known of a unit before its test."""
        since_h = (tested - datetime.fromisoformat(self.last)).total_seconds() / 3600 if self.last else 0.0
        hour = 2 * math.pi * (tested.hour + tested.minute / 60) / 24
        weekend = float(tested.weekday() >= 5)
        idle = math.log1p(min(max(since_h, 0.0), 72.0))
        return np.array([1.0, math.sin(hour), math.cos(hour), weekend, idle, self.recent, self.usual])

    def learn(self, seen: np.ndarray, failed: float) -> None:
        spread = self.covariance @ seen
        gain = spread / (1.0 + seen @ spread)
        self.weights = self.weights + gain * (failed - self.weights @ seen)
        self.covariance = self.covariance - np.outer(gain, spread)
        self.recent += self.fast * (failed - self.recent)
        self.usual += self.slow * (failed - self.usual)


def build(here: str, *, every: float | None = 1.0, rows_per_step: int = 1_000) -> hf.Topology:
    """The topology over the files in `here`/in, writing to `here`/out. `every=None`: the model has no checkpoint."""
    made = hf.Topology("fabyield")
    source = hf.Files(f"{here}/in/*.csv", "csv", schema=ROW, max_rows_per_step=rows_per_step)
    foreseen = made.source(source, name="tests").apply(YieldModel(), FORESEEN, name="model")
    if every is not None:
        foreseen = foreseen.checkpoint(every=every)
    foreseen.sink(hf.FileSink(f"{here}/out", "csv"), name="foreseen")
    return made


topology = build(HERE)
