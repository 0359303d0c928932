"""IBM's word count for consistent regions: running counts of all words, the whole list after every 25th line.

    mkdir -p wordcount/in && cp loremIpsum.txt.gz wordcount/in/
    holdfast run examples/wordcount/cr_wordcount.py --store wordcount/store --until available
    cat wordcount/out/*.json

Kill it in the middle of the file and start it again: the snapshots are the same as without the kill. The rules are
those of the original sample: split on blanks, drop empty words, lower case, strip trailing , . : ; from a word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from holdfast.language.connectors import Slice
from holdfast.language.hosted import Operator
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

HERE = os.environ.get("WORDCOUNT", "wordcount")
EVERY = 25


class Throttled(Files):
    """The original reads 20 lines a second, so that checkpoints fall into the middle of the file."""

    lines_per_second = 20_000.0

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        if piece is not None:
            time.sleep((piece.rows or 1) / self.lines_per_second)
        return piece


class Splitter(Operator):
    """A line becomes its words, and one more row that says that the line is over."""

    def __init__(self) -> None:
        self.lines = 0

    def process(self, row: Any, port: int) -> Iterator[tuple[str, bool]]:
        self.lines += 1
        for token in row.value.split(" "):
            word = token.lower().rstrip(",.:;").strip()
            if word:
                yield word, False
        yield "", True


class Counter(Operator):
    """Counts words; after every 25th line the full list, sorted by word, in the sample's own notation."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.lines = 0

    def process(self, row: Any, port: int) -> tuple[str] | None:
        if not row.line_over:
            self.counts[row.word] = self.counts.get(row.word, 0) + 1
            return None
        self.lines += 1
        if self.lines % EVERY:
            return None
        items = (f'{{word="{word}",count={n}}}' for word, n in sorted(self.counts.items()))
        return (f"[{','.join(items)}]",)


def build(
    here: str,
    *,
    splitter: Any = Splitter,
    counter: Any = Counter,
    period: float = 1.0,
    lines_per_step: int = 10,
) -> Topology:
    """The topology over `here`/in, writing to `here`/out."""
    made = Topology("cr_wordcount")
    source = Throttled(f"{here}/in", "text", max_rows_per_step=lines_per_step)
    lines = made.source(source, name="lines").consistent("words", period=period)
    words = lines.apply(splitter, "word string, line_over boolean", name="splitter")
    snapshots = words.apply(counter, "snapshot string", name="counter")
    snapshots.sink(FileSink(f"{here}/out", "json"), name="snapshots")
    return made


topology = build(HERE)
