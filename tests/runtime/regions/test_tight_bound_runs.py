"""Runs whose bound on restore time leaves little room: what their epochs store, and what a restart finds."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.checkpoint.manifest import decode
from holdfast.ids import RegionName
from holdfast.language.connectors import Slice
from holdfast.language.operators import aggregates
from holdfast.store.urls import open_store
from holdfast.testing import MemorySink, Rows, run_local


class Epochs(Rows):
    """From row `filled` on every step is an epoch."""

    def __init__(self, rows: list[Any], schema: str, rows_per_step: int, filled: int = 0) -> None:
        super().__init__(rows, schema, rows_per_step)
        self._filled = filled

    def next_slice(self) -> Slice | None:
        piece = super().next_slice()
        return None if piece is None else replace(piece, boundary=piece.end > self._filled)


def published(url: str) -> list[dict[str, Any]]:
    return [dict(event.data) for event in open_store(url).events() if event.kind == "epoch.published"]


def forms(url: str, operator: str) -> list[dict[str, Any]]:
    """Of every epoch there is."""
    store, region = open_store(url), RegionName("r")
    found = [decode(store.manifest(region, epoch), "it").operators() for epoch in store.epochs(region)]
    return [operators[operator].form for operators in found]


# --- declared variables ----------------------------------------------------------------------------------------------

VALUES, VALUE_BYTES, CHANGED = 12_000, 1000, 120


class Large(hf.Operator):
    """12 MB, of which a row changes one part in a hundred. What leaves depends on all of it."""

    values = hf.Map(int, bytes)

    def process(self, row: Any, port: int) -> Iterator[tuple[int, int]]:
        if not self.values:
            self.values.update({key: bytes(VALUE_BYTES) for key in range(VALUES)})
        for key in range(row.n * 997, row.n * 997 + CHANGED):
            self.values[key % VALUES] = row.n.to_bytes(2, "big") * (VALUE_BYTES // 2)
        yield row.n, zlib.crc32(b"".join(self.values[key] for key in range(VALUES)))


class Numbered:
    def __init__(self, n: int) -> None:
        self.n = n


def variables(shelf: str, rows: int) -> hf.Topology:
    made = hf.Topology("large")
    source = made.source(Epochs([(n,) for n in range(rows)], "n long", 1), name="rows")
    region = source.consistent("r", mode="drain", trigger="operator", restore_within=0.25, keep=100)
    region.apply(Large, "n long, all long", name="large").sink(MemorySink(shelf), name="out")
    return made


def test_variables_of_12_mb_within_a_quarter_of_a_second_are_stored_as_deltas(
    shelf: str, tmp_path: Path
) -> None:
    url = f"file:{tmp_path}/store"
    run_local(variables(shelf, 26), url)
    epochs = published(url)
    assert len(epochs) == 27
    assert 12_000_000 < sum(epoch["bytes"] for epoch in epochs) <= 80_000_000
    assert all(epoch["restore_s"] <= 0.25 for epoch in epochs)
    run_local(variables(shelf, 30), url)
    alone = Large()
    expected = [row for n in range(30) for row in alone.process(Numbered(n), 0)]
    assert [(row["n"], row["all"]) for row in MemorySink.rows(shelf)] == expected


# --- keyed state -----------------------------------------------------------------------------------------------------

KEYS, CHANGES, WITHIN = 60_000, 600, 4.0
SCALE = 256
"""The state has some 2 MB. Restores that take so many times as long make it like 512 MB."""
SLOW = Speed(base_s_per_mb=SCALE * Speed().base_s_per_mb, delta_s_per_mb=SCALE * Speed().delta_s_per_mb)


def totals(shelf: str, keys: list[int]) -> hf.Topology:
    made = hf.Topology("totals")
    rows = [(key, 1) for key in (*range(KEYS), *keys)]
    source = made.source(Epochs(rows, "k long, v long", CHANGES, filled=KEYS), name="rows")
    region = source.consistent("r", mode="drain", trigger="operator", restore_within=WITHIN, keep=100)
    region.aggregate("k", name="totals", total=aggregates.sum("v")).sink(MemorySink(shelf), name="out")
    return made


def test_keyed_state_that_changes_little_is_stored_as_deltas_within_a_tight_bound(
    shelf: str, tmp_path: Path
) -> None:
    url = f"file:{tmp_path}/store"
    store = open_store(url)
    store.open("totals")
    store.acquire()
    store.save_record("restore-speed.r", json.dumps(SLOW.as_data()).encode())
    store.release()
    store.close()
    keys = [(epoch * 7919 + n * 31) % KEYS for epoch in range(60) for n in range(CHANGES)]
    run_local(totals(shelf, keys[: 59 * CHANGES]), url)
    epochs, stored = published(url), forms(url, "totals")
    assert len(epochs) == len(stored) == 60
    assert [form.kind for form in stored].count("delta") >= 50
    assert all(epoch["restore_s"] <= WITHIN for epoch in epochs)
    base = stored[0].history.base.bytes
    assert stored[0].predicted_s + SLOW.delta_seconds(base) > WITHIN, "one like the base would not fit"
    run_local(totals(shelf, keys), url)
    newest = {row["k"]: row["total"] for row in MemorySink.rows(shelf)}
    assert newest == Counter((*range(KEYS), *keys))
