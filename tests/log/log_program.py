"""A program that appends to a log, reads it, merges and lets go what it has read; killed anywhere, it goes on.

    python log_program.py DIR

Its consumer copies what it reads into DIR/seen-<partition>, a line per batch: position, then numbers. Whatever happens, those
files hold every number once, in order, and each at its position. Every append has a note with its sequence, and another writer notes
it alone, behind it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa

import holdfast as hf

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
PARTITIONS = 2
APPENDS = 40
ROWS = 3


def rows(partition: int, sequence: int) -> pa.Table:
    numbers = [1000 * sequence + 100 * partition + n for n in range(ROWS)]
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=SCHEMA)


def expected(partition: int) -> list[int]:
    return [n for s in range(1, APPENDS + 1) for n in rows(partition, s).column("n").to_pylist()]


def seen(here: Path, partition: int) -> tuple[int, list[int]]:
    """(the next position, the numbers so far). A line that was torn does not count and is cut off."""
    path = here / f"seen-{partition}"
    text = path.read_bytes() if path.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) != len(text):
        path.write_bytes(whole)
    reached, numbers = 0, []
    for line in whole.splitlines():
        position, *found = map(int, line.split())
        assert position == reached, f"position {position} follows {reached}"
        numbers += found
        reached = position + len(found)
    return reached, numbers


def note(here: Path, partition: int, position: int, numbers: list[int]) -> None:
    with open(here / f"seen-{partition}", "ab") as file:
        file.write((" ".join(map(str, [position, *numbers])) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def consume(log: hf.Log, here: Path) -> None:
    start = {partition: seen(here, partition)[0] for partition in range(PARTITIONS)}
    reader = log.reader(start)
    for batch in reader:
        note(here, batch.partition, batch.position, batch.rows.column("n").to_pylist())
    log.consumer("copy", reader.position)


def main(here: Path) -> None:
    log = hf.Log(
        here / "log",
        schema=SCHEMA,
        partitions=PARTITIONS,
        segment_bytes=3000,
        upkeep_every=None,
        memory_bytes=2000,
    )
    log.owner()
    writers = [log.writer("w", window=3, partition=partition) for partition in range(PARTITIONS)]
    clerks = [log.writer("clerk", window=3, partition=partition) for partition in range(PARTITIONS)]
    first = min(writer.last_sequence for writer in (*writers, *clerks)) + 1
    consume(log, here)
    for sequence in range(first, APPENDS + 1):
        for writer in writers:
            writer.append(rows(writer.partition, sequence), sequence=sequence, note=b"%d" % sequence)
            clerks[writer.partition].note(b"behind %d" % sequence, sequence=sequence)
        if sequence % 8 == 0:
            for writer in (*writers, *clerks):
                writer.flush()
            consume(log, here)
            log.compact(6000)
            log.retain()
    for writer in (*writers, *clerks):
        writer.flush()
    consume(log, here)
    log.compact(6000)
    log.retain()
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
