"""Windows by an attribute and by marks as a loop over rows, and the operator that is compared with it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from driven import Driven

from holdfast.language.operators.values import DeltaWindow, MarkedWindow
from holdfast.language.operators.windows import attribute_of
from holdfast.operators.aggregates.running import RowWindowAggregate
from holdfast.state.columns.arrays import list_of
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.row_windows import ROWS
from holdfast.state.windows.run_windows import RunWindows

AGGREGATES = (
    ("n", "count", None), ("total", "sum", "v"), ("low", "min", "x"), ("newest", "last", "v"), ("all", "collect", "v"),
)  # fmt: skip
RESULTS = [
    (ROWS, pa.int64()),
    ("n", pa.int64()),
    ("total", pa.int64()),
    ("low", pa.float64()),
    ("newest", pa.int64()),
    ("all", list_of(pa.int64())),
]

Row = tuple[str | None, Any, bool | None, int]
"""(key, attribute, whether it is an end, value), in position order."""

Window = DeltaWindow | MarkedWindow


# --- the naive model ---


def naive(rows: Sequence[Row], window: Window, keyed: bool = True) -> list[dict[str, Any]]:
    """What comes out, in the order in which windows are completed, with the position of the completing row."""
    windows: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    count: dict[Any, int] = defaultdict(int)
    found = []
    for position, (key, attribute, end, value) in enumerate(rows):
        group = key if keyed else ""
        of_key = windows[group]
        if isinstance(window, DeltaWindow):
            if attribute is None or attribute != attribute:
                continue
            if window.every is None and of_key and attribute > of_key[0][0] + window.delta:
                found.append(result(group, count[group], of_key, position))
                of_key.clear()
            if window.every is not None and of_key:
                attribute = max(attribute, of_key[-1][0])
        count[group] += 1
        of_key.append((attribute, value))
        if isinstance(window, MarkedWindow) and end:
            found.append(result(group, count[group], of_key, position))
            of_key.clear()
        if isinstance(window, DeltaWindow) and window.every is not None:
            of_key[:] = [(far, v) for far, v in of_key if far >= attribute - window.delta]
            if count[group] % window.every == 0:
                found.append(result(group, count[group], of_key, position))
    return [row if keyed else {name: v for name, v in row.items() if name != "k"} for row in found]


def result(key: Any, count: int, inside: list[tuple[Any, int]], position: int) -> dict[str, Any]:
    values = [value for _, value in inside]
    made = {"k": key, ROWS: count, "n": len(values), "total": sum(values)}
    return made | {"low": min(values) / 2, "newest": values[-1], "all": values, "__hf_row": position}


# --- the operator, driven by hand ---


def table_of(rows: Sequence[Row], first: int, kind: pa.DataType) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([row[0] for row in rows], pa.string()),
            "a": pa.array([row[1] for row in rows], kind),
            "end": pa.array([row[2] for row in rows], pa.bool_()),
            "v": pa.array([row[3] for row in rows], pa.int64()),
            "x": pa.array([row[3] / 2 for row in rows], pa.float64()),
            "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def logic_of(window: Window, kind: pa.DataType, by: tuple[str, ...] = ("k",)) -> RowWindowAggregate:
    schema = table_of([], 0, kind).select(["k", "a", "end", "v", "x"]).schema
    output = pa.schema([*((name, pa.string()) for name in by), *RESULTS])
    windows: RunWindows | DeltaWindows
    if isinstance(window, MarkedWindow):
        windows = RunWindows.plan(window.until, by, AGGREGATES, schema)
    elif window.every is None:
        windows = RunWindows.plan(attribute_of(schema, window), by, AGGREGATES, schema)
    else:
        windows = DeltaWindows.plan(attribute_of(schema, window), window.every, by, AGGREGATES, schema)
    return RowWindowAggregate.over(windows, output, True, by)


def emitted_by(driven: Driven) -> list[dict[str, Any]]:
    hidden = ("__hf_source", "__hf_ordinal")
    found = [{name: value for name, value in row.items() if name not in hidden} for row in driven.emitted]
    return sorted(found, key=lambda row: row["__hf_row"])


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "integers": (pa.int64(), lambda n: n, lambda d: d),
    "short integers": (pa.int16(), lambda n: n, lambda d: d),
    "floats": (pa.float64(), lambda n: n / 4, lambda d: d / 4),
    "decimals": (pa.decimal128(9, 2), lambda n: Decimal(n) / 100, lambda d: Decimal(d) / 100),
    "timestamps": (
        pa.timestamp("us", tz="UTC"),
        lambda n: BEGIN + timedelta(seconds=n),
        lambda d: timedelta(seconds=d),
    ),
}
WINDOWS = ["tumbling", "sliding", "marked"]


def drawn(chance: random.Random, make: Any, falls: bool) -> list[Row]:
    rows: list[Row] = []
    far: dict[Any, int] = defaultdict(int)
    for value in range(chance.randrange(1, 160)):
        key = chance.choice(["a", "a", "b", "", None, "long enough to be no prefix of another"])
        far[key] += chance.choice([0, 0, 1, 2, 3, 9])
        place = far[key] - (chance.choice([0, 0, 3, 12]) if falls else 0)
        attribute = None if chance.random() < 0.04 else make(place)
        rows.append((key, attribute, chance.choice([True, False, False, False, None]), value))
    return rows
