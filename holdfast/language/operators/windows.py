"""Windows over event time, `hf.tumbling("1 minute")`, `hf.sliding(600, 60, on="at", delay=30)`, and over the rows of a
key: `hf.tumbling(rows=100)`, `hf.tumbling(delta=10, of="mileage")`, `hf.tumbling(until="is_end")`, `hf.sliding(rows=100,
every=10)`, `hf.sliding(delta=10, of="mileage", every=5)`.

Windows over time are aligned to 1970-01-01T00:00:00Z. A window is complete when the *watermark* has passed its end: the largest
event time seen so far, up to a row's position in its source, minus `delay`; with several sources the smallest of
theirs. Rows of closed windows are late: left out and counted, or sent to a stream of their own.

Windows over rows take the rows of each key in the order of their positions. With `every` a result comes after every
`every`-th row of the key: SPL's trigger policy `count`. It is over the key's last `rows` rows or as many as there were
(eviction policy `count`), or over those whose attribute is at most `delta` behind (`delta`). Without, windows lie one
behind the other: SPL's tumbling windows by `count`, `delta` and `punct`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, overload

import pyarrow as pa

from holdfast.durations import Duration
from holdfast.errors import TopologyError
from holdfast.language.operators.aggregates import WindowSpec, aggregate_schema
from holdfast.language.operators.columns import column_name, column_type, time_type
from holdfast.language.operators.event_time import Delay, column_of, delays_us, idle_us, micros
from holdfast.language.operators.values import (
    CountWindow,
    DeltaWindow,
    EventWindow,
    MarkedWindow,
    RowWindow,
    SessionWindow,
    TimeWindow,
)
from holdfast.state.windows.attributes import Attribute, Delta, in_units
from holdfast.state.windows.row_windows import ROWS
from holdfast.state.windows.time_windows import END, START

_WAYS = (
    "Write tumbling(60, on='at'), tumbling(rows=100), tumbling(delta=10, of='mileage') or tumbling(until='is_end');"
    " sliding(600, 60, on='at'), sliding(rows=100, every=10) or sliding(delta=10, of='mileage', every=5)."
)


@overload
def tumbling(
    size: Duration,
    *,
    on: str | None = ...,
    delay: Delay | None = ...,
    lateness: Duration = ...,
    idle: Duration | None = ...,
) -> TimeWindow: ...
@overload
def tumbling(*, rows: int) -> CountWindow: ...
@overload
def tumbling(*, delta: Delta | str, of: str) -> DeltaWindow: ...
@overload
def tumbling(*, until: str) -> MarkedWindow: ...
def tumbling(
    size: Duration | None = None,
    *,
    on: str | None = None,
    delay: Delay | None = None,
    lateness: Duration = 0,
    idle: Duration | None = None,
    rows: int | None = None,
    delta: Delta | str | None = None,
    of: str | None = None,
    until: str | None = None,
) -> TimeWindow | RowWindow:
    """Windows of `size` side by side, over the timestamp column `on`; or of `rows` rows of a key.

    Without `on` and `delay`: by the event time that the stream declared (`stream.event_time("at", delay=30)`). `delay`: how
    far rows may lag behind the latest one and still be in time; it must be said here or there. `lateness`: how
    long after its end a window still takes rows; it then leaves again, with all its rows.

    `delta`, `of`: a window of a key ends before the row whose column `of` exceeds that of the window's first row by more
    than `delta`: `hf.tumbling(delta=10, of="mileage")`. A number, decimal or timestamp; of a timestamp `delta` is a
    duration. The attribute should never fall; a row where it does stays in the window. Rows without it are left out.

    `until`: a window of a key ends with the row whose boolean column `until` is true: `hf.tumbling(until="is_end")`.

    `idle`: a source that had no row for this processing time no longer holds the watermark back, until it has
    rows again: `a.union(b).aggregate("k", window=hf.tumbling(60, on="at", idle=30), n=hf.count())`. Rows with which it
    comes back are late if the watermark has passed them. Who is idle is decided step by step and stored with each
    epoch; results then depend on the pace of the sources, and stay consistent over failures. Time counts while the
    program runs. Where nothing arrives from any source no step runs, and nothing new can be complete.
    """
    timed = {"size": size, "on": on, "delay": delay, "lateness": lateness or None, "idle": idle}
    if until is not None:
        _refuse("until", **timed, rows=rows, delta=delta, of=of)
        return MarkedWindow(column_name(until, "until", "tells which rows end a window"))
    if delta is not None or of is not None:
        _refuse("delta", **timed, rows=rows)
        return _delta_window(delta, of, None)
    if rows is not None:
        _refuse("rows", **timed)
        return _count_window(rows, rows)
    return _time_window(size, size, on, delay, lateness, idle)


@overload
def sliding(
    size: Duration,
    slide: Duration,
    *,
    on: str | None = ...,
    delay: Delay | None = ...,
    lateness: Duration = ...,
    idle: Duration | None = ...,
) -> TimeWindow: ...
@overload
def sliding(*, rows: int, every: int) -> CountWindow: ...
@overload
def sliding(*, delta: Delta | str, of: str, every: int) -> DeltaWindow: ...
def sliding(
    size: Duration | None = None,
    slide: Duration | None = None,
    *,
    on: str | None = None,
    delay: Delay | None = None,
    lateness: Duration = 0,
    idle: Duration | None = None,
    rows: int | None = None,
    every: int | None = None,
    delta: Delta | str | None = None,
    of: str | None = None,
) -> TimeWindow | RowWindow:
    """Windows of `size`, a new one every `slide`, over the timestamp column `on`; or of the last `rows` rows of a key,
    a new one every `every` rows.

    `delta`, `of`: after every `every`-th row of a key, over its rows whose column `of` is at most `delta` below the
    newest: `hf.sliding(delta=10, of="mileage", every=5)`. The attribute should never fall; where it does, a row counts
    as if it had the largest one so far. What has fallen out of a window stays out. Rows without it are left out.

    `delay`: how far rows may lag behind the latest one and still be in time. `lateness`: how long after its end a
    window takes late rows, and its corrected result is emitted again: merge by window and key. `idle`: see `tumbling`.
    """
    timed = {"size": size, "slide": slide, "on": on, "delay": delay, "lateness": lateness or None}
    if delta is not None or of is not None:
        _refuse("delta", **timed, idle=idle, rows=rows)
        return _delta_window(delta, of, _rows("every", every))
    if rows is not None:
        _refuse("rows", **timed, idle=idle)
        return _count_window(rows, every)
    if every is not None:
        raise TopologyError(f"every={every!r} goes with rows= or delta=.", cure=_WAYS)
    return _time_window(size, slide, on, delay, lateness, idle)


def session(
    gap: Duration, *, on: str | None = None, delay: Delay | None = None, idle: Duration | None = None
) -> SessionWindow:
    """Sessions: rows of a key that follow each other within `gap`; a gap that is as long or longer begins a new one.
    `clicks.aggregate("user", window=holdfast.session("30 minutes"), n=holdfast.count())` gives a row per session when
    the watermark has passed its end: window_start is the time of its first row, window_end that of its last plus the gap.

    A row behind the watermark is late, also if it would lie in a session that is still open. `on`, `delay`, `idle`: see
    `tumbling`."""
    return SessionWindow(micros(gap, "gap"), column_of(on), delays_us(delay), idle_us(idle))


def _refuse(kind: str, **given: Any) -> None:
    """A window is of one kind only."""
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise TopologyError(
            f"{', '.join(found)} does not go with {kind}=: a window is over time or over rows, and ends by one rule.",
            cure=_WAYS,
        )


def _rows(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TopologyError(f"{name}={value!r} is no number of rows.", cure="Give 1 or more.")
    return value


def _count_window(rows: Any, every: Any) -> CountWindow:
    if _rows("rows", rows) < _rows("every", every):
        raise TopologyError(
            f"windows of {rows} rows every {every} rows would leave rows out.",
            cure="Give an every= that is not larger than rows=.",
        )
    return CountWindow(rows, every)


def _delta_window(delta: Any, of: Any, every: int | None) -> DeltaWindow:
    if isinstance(delta, str):
        delta = timedelta(microseconds=micros(delta, "delta", zero=True))
    length = delta.total_seconds() if isinstance(delta, timedelta) else delta
    number = isinstance(length, int | float | Decimal) and not isinstance(length, bool)
    if not number or not math.isfinite(length) or length < 0:
        raise TopologyError(
            f"delta={delta!r} is no distance.", cure="Give a number, 0 or more; of timestamps, a duration."
        )
    return DeltaWindow(delta, column_name(of, "of", "has the attribute"), every)


def _time_window(
    size: Any, slide: Any, on: str | None, delay: Delay | None, lateness: Duration, idle: Duration | None
) -> TimeWindow:
    if size is None or slide is None:
        raise TopologyError("A window needs its length.", cure=_WAYS)
    size_us, slide_us = micros(size, "size"), micros(slide, "slide")
    if slide_us > size_us:
        raise TopologyError(
            f"windows of {size_us / 1e6:g} s every {slide_us / 1e6:g} s would leave rows out.",
            cure="Give a slide that is not longer than the size.",
        )
    late_us = micros(lateness, "lateness", zero=True)
    return TimeWindow(size_us, slide_us, column_of(on), delays_us(delay), late_us, idle_us(idle))


def window_schema(schema: pa.Schema, spec: WindowSpec) -> list[pa.Schema]:
    """Columns that come out: begin and end of the window, keys, aggregates; then those of late rows, if asked for. Of a
    window of rows: keys, how many rows the key had, aggregates."""
    if not isinstance(spec.window, EventWindow):
        _check_row_window(schema, spec.window)
        counted = (ROWS, "count", None)
        return [aggregate_schema(schema, replace(spec, aggregates=(counted, *spec.aggregates)))]
    made = aggregate_schema(schema, spec)
    result = pa.schema([*window_fields(schema, spec.window), *made])
    return [result, schema] if spec.late else [result]


def window_fields(schema: pa.Schema, window: EventWindow) -> list[pa.Field]:
    """Begin and end of a window."""
    moment = time_type(schema, window.on, "The windows are over")
    return [pa.field(START, moment), pa.field(END, moment)]


def _check_row_window(schema: pa.Schema, window: RowWindow) -> None:
    """Refuse columns that cannot tell where a window ends."""
    if isinstance(window, DeltaWindow):
        attribute_of(schema, window)
    elif isinstance(window, MarkedWindow):
        kind = column_type(schema, window.until)
        if not pa.types.is_boolean(kind):
            raise TopologyError(
                f"The windows end where {window.until!r} is true, which is of type {kind}.",
                cure=f'Name a boolean column; make one with with_columns({window.until}="… = …").',
            )


def attribute_of(schema: pa.Schema, window: DeltaWindow) -> Attribute:
    """The attribute by which windows end. TopologyError if its type does not fit the delta."""
    kind = column_type(schema, window.of)
    delta = in_units(window.delta, kind)
    if delta is None:
        raise TopologyError(
            f"delta={window.delta!r} is no distance between values of {window.of!r}, which is of type {kind}.",
            cure="Use a number with integers, floats and decimals of at most 18 digits, a duration with timestamps;"
            f" or convert it before: with_columns({window.of}='cast({window.of} as double)').",
        )
    return Attribute(window.of, delta, kind)
