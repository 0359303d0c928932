"""Event-time windows: `hf.tumbling(60, on="at")`, `hf.sliding(600, 60, on="at", delay=30)`.

Windows are aligned to 1970-01-01T00:00:00Z. A window is complete when the *watermark* has passed its end: the largest
event time seen so far, up to a row's position in its source, minus `delay`; with several sources the smallest of
theirs. Rows of closed windows are late: left out and counted, or sent to a stream of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.aggregates import aggregate_schema
from holdfast.language.annotations import Duration, seconds
from holdfast.language.graph import AggregateSpec, TimeWindow, WindowSpec
from holdfast.state.windows import END, START

Delay = Duration | Mapping[str, Duration]
"""One for all sources, or by the source's name."""


def tumbling(size: Duration, *, on: str, delay: Delay = 0, lateness: Duration = 0) -> TimeWindow:
    """Windows of `size` side by side, over the timestamp column `on`."""
    return sliding(size, size, on=on, delay=delay, lateness=lateness)


def sliding(
    size: Duration, slide: Duration, *, on: str, delay: Delay = 0, lateness: Duration = 0
) -> TimeWindow:
    """Windows of `size`, a new one every `slide`, over the timestamp column `on`.

    `delay`: how far rows may lag behind the latest one and still be in time. `lateness`: for so long after its end a
    window takes late rows, and its corrected result is emitted again: merge by window and key.
    """
    if not isinstance(on, str) or not on:
        raise TopologyError(
            f"on={on!r} is no column name.", cure="Name the column that holds the event time."
        )
    size_us, slide_us = _micros(size, "size"), _micros(slide, "slide")
    if slide_us > size_us:
        raise TopologyError(
            f"windows of {size_us / 1e6:g} s every {slide_us / 1e6:g} s would leave rows out.",
            cure="Give a slide that is not longer than the size.",
        )
    if isinstance(delay, Mapping):
        delays = {str(name): _micros(value, "delay", zero=True) for name, value in delay.items()}
    else:
        delays = {"": _micros(delay, "delay", zero=True)}
    return TimeWindow(
        size_us, slide_us, on, tuple(sorted(delays.items())), _micros(lateness, "lateness", zero=True)
    )


def _micros(value: Duration, what: str, *, zero: bool = False) -> int:
    given = value.total_seconds() if isinstance(value, timedelta) else value
    if zero and given == 0 and not isinstance(value, bool):
        return 0
    micros = round(seconds(value, what) * 1_000_000)
    if not micros:
        raise TopologyError(f"{what} is shorter than a microsecond.", cure="Give a longer one.")
    return micros


def window_schema(schema: pa.Schema, spec: WindowSpec) -> list[pa.Schema]:
    """Columns that come out: begin and end of the window, keys, aggregates; then those of late rows, if asked for."""
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
