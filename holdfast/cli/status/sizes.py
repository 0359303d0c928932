"""State sizes for people: a line of text for the status, and numbers of bytes that can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.protocol.size_curves import sizes_at

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32
"""Characters of a curve."""


def shown_bytes(size: float) -> str:
    """1536 → "1.5 kB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"


def drawn(curve: Sequence[Sequence[float]]) -> str:
    """A curve of [time, size] as text."""
    points = [(at, size) for at, size in curve]
    if len(points) < 2:
        return ""
    begin, end = points[0][0], points[-1][0]
    times = [begin + (end - begin) * number / (WIDTH - 1) for number in range(WIDTH)]
    sizes = sizes_at(points, times)
    top = max(sizes) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int(size / top * len(BARS)))] for size in sizes)


def timing_lines(region: Mapping[str, Any]) -> list[str]:
    """What a region's status says of epochs that are timed by the size of its state."""
    timing = region.get("timing")
    if not timing:
        return []
    if timing["profiling"]:
        threshold = "profiling"
    elif timing["s_max"] is None:
        threshold = "no element is dynamic, so epochs are periodic"
    else:
        now = ", now" if timing["alert"] else ""
        threshold = f"on the alert below {shown_bytes(timing['s_max'])}{now}"
    lines = [f"state {shown_bytes(timing['state_bytes'])} {drawn(timing['curve'])} {threshold}"]
    if timing["decisions"]:
        told = [f"{reason} at {shown_bytes(size)}" for reason, size, _ in timing["decisions"]]
        lines.append(f"last epochs: {', '.join(told)}")
    return lines
