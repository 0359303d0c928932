"""Windows over event time, `hf.tumbling(60, on="at")`, `hf.sliding(600, 60, on="at", delay=30)`, and over rows,
`hf.tumbling(rows=100)`, `hf.sliding(rows=100, every=10)`.

Windows over time are aligned to 1970-01-01T00:00:00Z. A window is complete when the *watermark* has passed its end: the largest
event time seen so far, up to a row's position in its source, minus `delay`; with several sources the smallest of
theirs. Rows of closed windows are late: left out and counted, or sent to a stream of their own.

Windows over rows count the rows of each key in the order of their positions. A result comes after every `every`-th row
of the key, over its last `rows` rows or as many as there were: SPL's trigger and eviction policies `count`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, overload

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.aggregates import aggregate_schema
from holdfast.language.annotations import Duration, seconds
from holdfast.language.graph import AggregateSpec, CountWindow, TimeWindow, WindowSpec
from holdfast.state.count_windows import ROWS
from holdfast.state.windows import END, START

Delay = Duration | Mapping[str, Duration]
"""One for all sources, or by the source's name."""


@overload
def tumbling(
    size: Duration, *, on: str, delay: Delay = ..., lateness: Duration = ..., idle: Duration | None = ...
) -> TimeWindow: ...
@overload
def tumbling(*, rows: int) -> CountWindow: ...
def tumbling(
    size: Duration | None = None,
    *,
    on: str | None = None,
    delay: Delay = 0,
    lateness: Duration = 0,
    idle: Duration | None = None,
    rows: int | None = None,
) -> TimeWindow | CountWindow:
    """Windows of `size` side by side, over the timestamp column `on`; or of `rows` rows of a key.

    `idle`: a source that had no row for so long of processing time no longer holds the watermark back, until it has
    rows again: `a.union(b).aggregate("k", window=hf.tumbling(60, on="at", idle=30), n=hf.count())`. Rows with which it
    comes back are late if the watermark has passed them. Who is idle is decided step by step and stored with each
    epoch; results then depend on the pace of the sources, and stay consistent over failures. Time counts while the
    program runs. Where nothing arrives from any source no step runs, and nothing new can be complete.
    """
    if rows is not None:
        _refuse_time(size=size, on=on, delay=delay or None, lateness=lateness or None, idle=idle)
        return _count_window(rows, rows)
    return _time_window(size, size, on, delay, lateness, idle)


@overload
def sliding(
    size: Duration,
    slide: Duration,
    *,
    on: str,
    delay: Delay = ...,
    lateness: Duration = ...,
    idle: Duration | None = ...,
) -> TimeWindow: ...
@overload
def sliding(*, rows: int, every: int) -> CountWindow: ...
def sliding(
    size: Duration | None = None,
    slide: Duration | None = None,
    *,
    on: str | None = None,
    delay: Delay = 0,
    lateness: Duration = 0,
    idle: Duration | None = None,
    rows: int | None = None,
    every: int | None = None,
) -> TimeWindow | CountWindow:
    """Windows of `size`, a new one every `slide`, over the timestamp column `on`; or of the last `rows` rows of a key,
    a new one every `every` rows.

    `delay`: how far rows may lag behind the latest one and still be in time. `lateness`: for so long after its end a
    window takes late rows, and its corrected result is emitted again: merge by window and key. `idle`: see `tumbling`.
    """
    if rows is not None:
        _refuse_time(size=size, slide=slide, on=on, delay=delay or None, lateness=lateness or None, idle=idle)
        return _count_window(rows, every)
    if every is not None:
        raise TopologyError(f"every={every!r} goes with rows=.", cure="Write sliding(rows=100, every=10).")
    return _time_window(size, slide, on, delay, lateness, idle)


def _refuse_time(**given: Any) -> None:
    """A window of rows knows no time."""
    found = [name for name, value in given.items() if value is not None]
    if found:
        raise TopologyError(
            f"{', '.join(found)} does not go with rows=: a window is over time or over rows.",
            cure="Write tumbling(60, on='at') or tumbling(rows=100), sliding(600, 60, on='at') or"
            " sliding(rows=100, every=10).",
        )


def _count_window(rows: Any, every: Any) -> CountWindow:
    for name, value in (("rows", rows), ("every", every)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise TopologyError(f"{name}={value!r} is no number of rows.", cure="Give 1 or more.")
    if every > rows:
        raise TopologyError(
            f"windows of {rows} rows every {every} rows would leave rows out.",
            cure="Give an every= that is not larger than rows=.",
        )
    return CountWindow(rows, every)


def _time_window(
    size: Any, slide: Any, on: str | None, delay: Delay, lateness: Duration, idle: Duration | None
) -> TimeWindow:
    if size is None or slide is None:
        raise TopologyError(
            "A window needs its length.",
            cure="Write tumbling(60, on='at') or tumbling(rows=100), sliding(600, 60, on='at') or"
            " sliding(rows=100, every=10).",
        )
    if not isinstance(on, str) or not on:
        raise TopologyError(
            f"on={on!r} is no column name.", cure="Name the column that holds the event time."
        )
    size_us, slide_us = micros(size, "size"), micros(slide, "slide")
    if slide_us > size_us:
        raise TopologyError(
            f"windows of {size_us / 1e6:g} s every {slide_us / 1e6:g} s would leave rows out.",
            cure="Give a slide that is not longer than the size.",
        )
    late_us = micros(lateness, "lateness", zero=True)
    return TimeWindow(size_us, slide_us, on, delays_us(delay), late_us, idle_us(idle))


def delays_us(delay: Delay) -> tuple[tuple[str, int], ...]:
    """Delays by source in microseconds; "" stands for all others."""
    if isinstance(delay, Mapping):
        delays = {str(name): micros(value, "delay", zero=True) for name, value in delay.items()}
    else:
        delays = {"": micros(delay, "delay", zero=True)}
    return tuple(sorted(delays.items()))


def idle_us(idle: Duration | None) -> int | None:
    """How long the watermark waits for a source without rows, in microseconds; None: for ever."""
    return None if idle is None else micros(idle, "idle")


def micros(value: Duration, what: str, *, zero: bool = False) -> int:
    """A length of time in microseconds."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    if zero and given == 0 and not isinstance(value, bool):
        return 0
    micros = round(seconds(value, what) * 1_000_000)
    if not micros:
        raise TopologyError(f"{what} is shorter than a microsecond.", cure="Give a longer one.")
    return micros


def window_schema(schema: pa.Schema, spec: WindowSpec) -> list[pa.Schema]:
    """Columns that come out: begin and end of the window, keys, aggregates; then those of late rows, if asked for. Of a
    window of rows: keys, how many rows the key had, aggregates."""
    if isinstance(spec.window, CountWindow):
        counted = (ROWS, "count", None)
        return [aggregate_schema(schema, AggregateSpec(spec.by, (counted, *spec.aggregates)))]
    index = schema.get_field_index(spec.window.on)
    if index < 0 or not pa.types.is_timestamp(schema.field(index).type):
        found = "is not there" if index < 0 else f"is of type {schema.field(index).type}"
        raise TopologyError(
            f"The windows are over {spec.window.on!r}, which {found}.",
            cure='Name a timestamp column in on=; make one with with_columns(at="cast(… as timestamp)").',
        )
    moment = schema.field(index).type
    made = aggregate_schema(schema, AggregateSpec(spec.by, spec.aggregates))
    result = pa.schema([pa.field(START, moment), pa.field(END, moment), *made])
    return [result, schema] if spec.late else [result]
