"""Keyed Python operators as a loop over the rows of each key would run them: what both do, the loop, and rows as tables."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast as hf
from holdfast.ids import OperatorName
from holdfast.language.operators.keyed_python import keyed_spec
from holdfast.operators.python.keyed_python import KeyedPython

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INPUT = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
SCHEMA = "k string, what string"
LONG_AGO = dt.datetime(1, 1, 1, tzinfo=dt.UTC)

Row = tuple[str | None, int | None, int]
"""(key, event second or None, value), in position order."""


def second(number: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=number)


# --- what both the operator and the model do with a row or a timer ---


def on_row(state: Any, at: dt.datetime | None, v: int) -> str:
    if v % 11 == 0:
        state.clear()
    state.n += 1
    state.seen[str(v % 4)] = v
    if v % 4 == 3:
        state.seen.pop("0", None)
    state.every.append(v)
    state.few.append(v)
    state.span.append(float(v))
    if v % 3 == 0:
        state.flag = f"f{v}"
    if at is not None and v % 2:
        state.set_timer(at + dt.timedelta(seconds=v))
    if at is not None and v % 5 == 0:
        state.clear_timer(at + dt.timedelta(seconds=v - 2))
    return told(state, f"row {v}")


def on_timer(state: Any, at: dt.datetime) -> str:
    state.n += 100
    state.span.append(0.5)
    state.seen["t"] = state.n
    if at.second % 3 == 0:
        state.set_timer(at + dt.timedelta(seconds=4))
    said = told(state, f"timer {(at - BEGIN).total_seconds():g}")
    if at.second % 5 == 0:
        state.clear()
    return said


def told(state: Any, what: str) -> str:
    held = [state.n, dict(state.seen), list(state.every), list(state.few), list(state.span), state.flag]
    return f"{what}: {held}"


class Everything(hf.KeyedOperator):
    n = hf.Value(int, default=0)
    flag = hf.Value(str, ttl=6)
    seen = hf.Map(str, int, ttl=9)
    every = hf.List(int)
    few = hf.Window(int, rows=3)
    span = hf.Window(float, seconds=7)

    def process(self, row: Any, key: Any) -> Any:
        yield {"k": key, "what": on_row(self, row.at, row.v)}

    def on_timer(self, at: dt.datetime, key: Any) -> Any:
        return {"k": key, "what": on_timer(self, at)}


# --- the naive model: nothing is ever removed, everything is looked at each time ---


class Lasting:
    """Entries with the time they were written at; seen while they have not ended."""

    def __init__(self, model: Model, seconds: int, *, by_newest: bool = False) -> None:
        self.model, self.length, self.by_newest = model, dt.timedelta(seconds=seconds), by_newest
        self.entries: list[tuple[dt.datetime, Any, Any]] = []

    def alive(self) -> list[tuple[Any, Any]]:
        now = max(self.model.time, self.model.mark)
        if self.by_newest:
            now = max([now, *(written for written, _, _ in self.entries)])
        return [(key, value) for written, key, value in self.entries if now - written < self.length]


class TimedDict(Lasting):
    def __setitem__(self, key: str, value: int) -> None:
        self.entries = [entry for entry in self.entries if entry[1] != key]
        self.entries.append((self.model.time, key, value))

    def pop(self, key: str, default: Any) -> None:
        if key in dict(self.alive()):
            self.entries = [entry for entry in self.entries if entry[1] != key]

    def keys(self) -> list[str]:
        return [key for key, _ in self.alive()]

    def __getitem__(self, key: str) -> int:
        return int(dict(self.alive())[key])


class TimedList(Lasting):
    def append(self, value: float) -> None:
        self.entries.append((self.model.time, None, value))

    def __iter__(self) -> Iterator[float]:
        return iter([value for _, value in self.alive()])


class Three(list[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(self[-3:])


class Model:
    """One key."""

    def __init__(self) -> None:
        self.time = self.mark = LONG_AGO
        self.clear()

    def clear(self) -> None:
        self.n = 0
        self.seen, self.span = TimedDict(self, 9), TimedList(self, 7, by_newest=True)
        self.every: list[int] = []
        self.few = Three()
        self._flag = TimedList(self, 6)
        self.timers: set[dt.datetime] = set()

    @property
    def flag(self) -> Any:
        return ([None, *self._flag])[-1]

    @flag.setter
    def flag(self, value: Any) -> None:
        self._flag.entries.clear()
        self._flag.append(value)

    def set_timer(self, at: dt.datetime) -> None:
        self.timers.add(at)

    def clear_timer(self, at: dt.datetime) -> None:
        self.timers.discard(at)

    def fire(self, mark: dt.datetime) -> list[str]:
        said = []
        while due := [at for at in self.timers if at <= mark]:
            at = min(due)
            self.timers.remove(at)
            self.time, self.mark = at, max(at, self.mark)
            said.append(on_timer(self, at))
        return said


def naive(rows: Sequence[Row], delay: int) -> dict[Any, list[str]]:
    """What each key says, in order."""
    late_by = dt.timedelta(seconds=delay)
    models: dict[Any, Model] = defaultdict(Model)
    said: dict[Any, list[str]] = defaultdict(list)
    reached = None
    for key, at, v in rows:
        moment = None if at is None else second(at)
        reached = max([each for each in (reached, moment) if each is not None], default=None)
        mark = LONG_AGO if reached is None else reached - late_by
        model = models[key]
        said[key] += model.fire(mark)
        model.time, model.mark = moment or reached or LONG_AGO, mark
        said[key].append(on_row(model, moment, v))
    for key, model in models.items():
        said[key] += model.fire(LONG_AGO if reached is None else reached - late_by)
    return said


# --- the operator, driven by hand ---


def table_of(rows: Sequence[Row], first: int) -> pa.Table:
    times = [None if at is None else second(at) for _, at, _ in rows]
    return pa.table(
        {
            "k": pa.array([key for key, _, _ in rows], pa.string()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "v": pa.array([v for _, _, v in rows], pa.int64()),
            "__hf_source": pa.array(np.zeros(len(rows), dtype=np.int32)),
            "__hf_ordinal": pa.array(np.zeros(len(rows), dtype=np.int64)),
            "__hf_row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def logic_of(operator: Any, on: str | None = "at", delay: int = 0, on_error: Any = "fail") -> KeyedPython:
    spec = keyed_spec("k", operator, SCHEMA, on, None if on is None else delay, on_error=on_error)
    return KeyedPython.plan(OperatorName("op"), spec.without() or spec, INPUT)


def by_key(emitted: list[dict[str, Any]]) -> dict[Any, list[str]]:
    said: dict[Any, list[str]] = defaultdict(list)
    for row in emitted:
        said[row["k"]].append(row["what"])
    return said
