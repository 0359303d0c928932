"""The world around a stream that is measured, as a process of its own: it writes input files at a pace and looks when their rows are
visible in the output. It knows no side, so that it takes as much from one as from the other.

    python -m holdfast.bench.waiting.observer '{"input": …, "output": …, …}'     begins when a line comes in; ends with one line of JSON

Rows are numbers of a fixed sequence, so every stretch of a length has the same rows. A row is visible when the output has a count of its
key that includes it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

I64 = npt.NDArray[np.int64]
LOOK_S = 0.003
SEED = 7


@dataclass(frozen=True)
class Pace:
    """What comes in: `files` files, so many a second, each of `rows` rows, over `keys` keys."""

    format: str
    files: int
    rows: int
    per_s: float
    keys: int

    def keys_of(self, file: int) -> I64:
        return np.random.default_rng(SEED + file).integers(0, self.keys, self.rows)

    def values_of(self, file: int) -> I64:
        return np.arange(file * self.rows, (file + 1) * self.rows, dtype=np.int64) % 1000

    def counts(self) -> Iterator[tuple[I64, I64]]:
        """For every file the keys of its rows, and the how manieth of its key each is."""
        seen = np.zeros(self.keys, dtype=np.int64)
        for file in range(self.files):
            keys = self.keys_of(file)
            counts = np.empty(self.rows, dtype=np.int64)
            for at, key in enumerate(keys):
                seen[key] += 1
                counts[at] = seen[key]
            yield keys, counts


@dataclass(frozen=True)
class Seen:
    """Seconds from the moment a file was there until its last row was visible, by file; and how long it all took."""

    latencies_s: tuple[float, ...]
    seconds: float


class Observer:
    """Writes and looks in turn, in one thread."""

    def __init__(self, pace: Pace, source: Path, output: Path, timeout_s: float) -> None:
        self._pace, self._source, self._output = pace, source, output
        self._timeout_s = timeout_s
        self._written: list[float] = []
        self._visible: list[float | None] = [None] * pace.files
        self._wanted = list(pace.counts())
        self._shown = np.zeros(pace.keys, dtype=np.int64)
        self._known: set[str] = set()
        self._next = 0
        """The first file that is not visible as a whole."""

    def run(self) -> Seen:
        begun = time.monotonic()
        while self._next < self._pace.files:
            now = time.monotonic()
            if len(self._written) < self._pace.files and now >= begun + len(self._written) / self._pace.per_s:
                self._write(len(self._written))
            self._look()
            if now > begun + self._timeout_s + self._pace.files / self._pace.per_s:
                raise TimeoutError(f"{self._next} of {self._pace.files} files are visible")
            time.sleep(LOOK_S)
        done = zip(self._written, self._visible, strict=True)
        return Seen(tuple(end - start for start, end in done if end is not None), time.monotonic() - begun)

    def _write(self, number: int) -> None:
        hidden = self._source / f".{number:06}.{self._pace.format}"
        keys, values = self._pace.keys_of(number), self._pace.values_of(number)
        if self._pace.format == "parquet":
            pq.write_table(pa.table({"key": keys, "value": values}), hidden)
        else:
            rows = zip(keys.tolist(), values.tolist(), strict=True)
            hidden.write_text("".join(f'{{"key":{key},"value":{value}}}\n' for key, value in rows))
        os.rename(hidden, self._source / f"f{number:06}.{self._pace.format}")
        self._written.append(time.monotonic())

    def _look(self) -> None:
        try:
            names = [entry.name for entry in os.scandir(self._output)]
        except FileNotFoundError:
            return
        now = time.monotonic()
        new = [n for n in names if n.endswith(".parquet") and n[0] not in "._" and n not in self._known]
        for name in new:
            table = pq.read_table(self._output / name, columns=["key", "n"])
            np.maximum.at(self._shown, table["key"].to_numpy(), table["n"].to_numpy())
            self._known.add(name)
        for file in range(self._next, len(self._written)) if new else ():
            keys, counts = self._wanted[file]
            if self._visible[file] is None and (self._shown[keys] >= counts).all():
                self._visible[file] = now
        while self._next < self._pace.files and self._visible[self._next] is not None:
            self._next += 1


def main() -> None:
    task = json.loads(sys.argv[1])
    observer = Observer(
        Pace(**task["pace"]), Path(task["input"]), Path(task["output"]), float(task["timeout_s"])
    )
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(asdict(observer.run())), flush=True)


if __name__ == "__main__":
    main()
