"""What `holdfast run` writes to stderr about a run: lines for people, or one JSON object per line for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.cli.terminal import plain
from holdfast.errors import ConfigError, HoldfastError

LEVELS = ("debug", "info", "warning", "error")


@contextmanager
def to_stderr(level: str | None, as_json: bool, live: bool) -> Iterator[None]:
    """Within it the loggers below `holdfast` write to stderr. Without a level: INFO, beside a live table only warnings."""
    name = (level or ("warning" if live else "info")).lower()
    if name not in LEVELS:
        raise ConfigError(f"--log-level {level} is not known.", cure=f"Use one of {', '.join(LEVELS)}.")
    handler = _Stderr()
    handler.setFormatter(JsonLines() if as_json else Lines())
    ours = logging.getLogger("holdfast")
    before, propagated = ours.level, ours.propagate
    ours.addHandler(handler)
    ours.setLevel(name.upper())
    ours.propagate = False
    logging.getLogger().addFilter(_is_no_interrupt_of_py4j)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(_is_no_interrupt_of_py4j)
        ours.removeHandler(handler)
        ours.setLevel(before)
        ours.propagate = propagated


def _is_no_interrupt_of_py4j(record: logging.LogRecord) -> bool:
    """Who presses Ctrl-C while Spark is asked something is not to read Py4J's traceback, which it writes to the root logger."""
    return record.module != "java_gateway" or not record.getMessage().startswith("KeyboardInterrupt")


class _Stderr(logging.StreamHandler[Any]):
    """To what `sys.stderr` is at the moment: a live table puts something in its place that writes above it."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class Lines(logging.Formatter):
    """`12:30:59 WARNING operator 'tens': 3 late rows, 7 in all`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


class JsonLines(logging.Formatter):
    """One object per line: time, level, logger, message; the event with its kind and data; an exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _iso(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        event = getattr(record, "event", None)
        if event is not None:
            # Only where there is one: who is told of a wrong option does not wait for the kinds of events.
            from holdfast.runtime.telling.stored_events import encode

            line["event"], line["data"] = encode(event)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["traceback"] = "".join(traceback.format_exception(error))
        if isinstance(error, HoldfastError):
            line |= {"cure": error.cure, "exit_code": error.exit_code}
        return json.dumps(line, default=str)


def _iso(wall: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall)) + f".{int(wall % 1 * 1000):03d}Z"
