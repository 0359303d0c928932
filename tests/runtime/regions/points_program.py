"""Child of test_points_survive_kills: operators with points, composites, and a start that asks for epochs itself, to the end.

points_program.py KIND DIRECTORY
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.testing import run_local

TEXTS = [f"text number {n} " * 20 for n in range(80)]
BLOCK, BLOCKS = 6, 60
CLICKS = 300


def pieces(texts: list[str]) -> list[dict[str, Any]]:
    """Compressed texts in pieces of 9 bytes, one behind the other."""
    found = []
    for text in texts:
        data = zlib.compress(text.encode())
        cut = [data[at : at + 9] for at in range(0, len(data), 9)]
        found += [{"piece": part.hex(), "last": part is cut[-1]} for part in cut]
    return found


def write_pieces(here: Path, texts_per_file: int = 4, cut: int = 0) -> None:
    """Files of whole texts; `cut`: the first one lacks so many pieces at its end."""
    here.mkdir(exist_ok=True)
    for number, at in enumerate(range(0, len(TEXTS), texts_per_file)):
        rows = pieces(TEXTS[at : at + texts_per_file])
        rows = rows[: len(rows) - (0 if number else cut)]
        (here / f"{number:03}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


class Decompress(hf.Operator):
    """The library's state between the pieces of a text cannot be stored."""

    def __init__(self) -> None:
        self.texts = 0
        self.open()

    def open(self) -> None:
        self._library: Any = None
        self._text = b""

    def may_checkpoint(self) -> bool:
        return self._library is None

    def process(self, row: Any, port: int) -> Any:
        if self._library is None:
            self._library, self._text = zlib.decompressobj(), b""
        self._text += self._library.decompress(bytes.fromhex(row.piece))
        time.sleep(0.003)
        if not row.last:
            return None
        self._library = None
        self.texts += 1
        return {"text": self._text.decode(), "n": self.texts}

    def checkpoint(self) -> int:
        assert self._library is None, "checkpointed in the middle of a text"
        return self.texts

    def reset(self, state: int) -> None:
        self.texts = state
        self.open()


def points(here: str, **settings: Any) -> hf.Topology:
    topology = hf.Topology("points")
    source = hf.Files(
        f"{here}/in", "json", schema="piece string, last boolean", max_rows_per_step=11, max_files_per_step=1
    )
    read = topology.source(source, name="pieces").consistent("r", **settings)
    texts = read.apply(Decompress, "text string, n long", name="texts")
    texts.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    return topology


class Count(hf.Operator):
    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"id": row.id, "seen": self.seen}


@hf.composite(consistent={"period": 0.02})
def counted(topology: hf.Topology, first: int) -> hf.Stream:
    rows = hf.Rows([(n,) for n in range(first, first + CLICKS)], "id long", rows_per_step=4)
    return topology.source(rows, name="rows").apply(Count, "id long, seen long", name="count")


def composite(here: str) -> hf.Topology:
    topology = hf.Topology("composite")
    for name, first in (("web", 0), ("till", 1000)):
        counted(topology, first, name=name).sink(hf.FileSink(f"{here}/{name}", "parquet"), name=f"{name}_out")
    return topology


class Blocks(hf.Operator):
    """A start that says itself when a state is consistent: behind each block."""

    replayable = True

    def __init__(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                for _ in range(BLOCK):
                    if self.n == BLOCK * BLOCKS:
                        return
                    context.submit({"id": self.n})
                    self.n += 1
                context.make_consistent()
            time.sleep(0.001)


def blocks(here: str) -> hf.Topology:
    topology = hf.Topology("blocks")
    made = topology.operator(Blocks, [], schema="id long", name="blocks").consistent("r", trigger="operator")
    rows = made.apply(Count, "id long, seen long", name="count")
    rows.sink(hf.FileSink(f"{here}/rows", "parquet"), name="out")
    return topology


KINDS: dict[str, Callable[[str], hf.Topology]] = {
    "points-async": lambda here: points(here, mode="async", period=0.02),
    "points-drain": lambda here: points(here, mode="drain", trigger="operator"),
    "points-token": lambda here: points(here, mode="token", trigger="operator"),
    "composite": composite,
    "make_consistent": blocks,
}


if __name__ == "__main__":
    run_local(KINDS[sys.argv[1]](sys.argv[2]), store=f"file:{sys.argv[2]}/store")
