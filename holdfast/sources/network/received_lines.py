"""Lines that others send, in a bounded buffer: what `TcpLines`, `UdpLines` and `HttpLines` have in common.

Nobody can ask a sender for what it has sent, so these sources cannot replay: they work outside of regions, best effort.
What a step has taken is counted if it is lost. When a run ends in order, what was received before is taken; lines that no step had
taken when the driver is killed die with it, uncounted: at most `buffer` of them, and what the operating system holds.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.errors import ConfigError, InputError, StateError
from holdfast.language.connectors import Lag, Slice, Source, Stamp
from holdfast.sources.schemas import spark_frame
from holdfast.sources.small import if_small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([pa.field("line", pa.string())])
ROWS_PER_STEP = 100_000


class ReceivedLines(Source):
    """One row (`line string`) per line. Its threads call `_put`; all else is called by the element's."""

    replayable: ClassVar[bool] = False

    def __init__(self, port: int, host: str, buffer: int, longest: int) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
            raise ConfigError(
                f"{port!r} is not a port.", cure="Give a number up to 65535, or 0 for any free one."
            )
        if buffer < 1 or longest < 1:
            raise ConfigError("buffer and longest must be positive.", cure="Give numbers of lines and bytes.")
        self.host, self.port = host, port
        """Where it listens; of port 0, the one that was found, as soon as the run has begun."""
        self._buffer_rows, self._longest = buffer, longest
        self._condition = threading.Condition()
        self._lines: deque[str] = deque()
        self._handed: deque[tuple[int, list[str]]] = deque()
        """Given out by `next_slice` and not known to be processed, with the number of the first."""
        self._next = 0
        self._counts = {"received": 0, "malformed": 0}
        self._closed = False
        self._finishing = False
        """The run ends: nothing more is taken in but what is on its way, whether there is room or not."""
        self._wake: Callable[[], None] = lambda: None

    # --- threads ------------------------------------------------------------------------------------------------

    def _put(self, lines: Sequence[bytes], patience_s: float | None = None) -> bool:
        """Take lines in, all or none; waits while there is no room. False if that took longer than `patience_s`, or if the
        run ends."""
        until = None if patience_s is None else time.monotonic() + patience_s
        texts = [text for line in lines if (text := self._text(line)) is not None]
        with self._condition:
            while self._must_wait(len(texts)):
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._condition.wait(left)
            if self._closed:
                return False
            self._lines.extend(texts)
            self._counts["received"] += len(texts)
            self._counts["malformed"] += len(lines) - len(texts)
        self._wake()
        return True

    def _must_wait(self, lines: int) -> bool:
        is_full = bool(self._lines) and len(self._lines) + lines > self._buffer_rows
        return is_full and not self._closed and not self._finishing

    def _text(self, line: bytes) -> str | None:
        """None if it cannot be read; it is counted as malformed."""
        if len(line) > self._longest:
            return None
        try:
            return line.rstrip(b"\r\n").decode("utf-8")
        except UnicodeDecodeError:
            return None

    # --- the element --------------------------------------------------------------------------------------------

    def schema(self) -> pa.Schema:
        return SCHEMA

    def bound(self) -> None:
        raise ConfigError(
            f"{self.describe()} has no last row.", cure="Run without until='available', and stop() the run."
        )

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._closed = self._finishing = False
        try:
            self._listen()
        except OSError as error:
            raise InputError(
                f"{self.describe()} cannot listen: {error.strerror or error}.",
                cure="Give another port, or end who uses it.",
            ) from error

    @abstractmethod
    def _listen(self) -> None:
        """Bind, and begin the threads."""

    def finish(self) -> bool:
        with self._condition:
            self._finishing = True
            self._condition.notify_all()
        self._await_receivers()
        with self._condition:
            self._closed = True
        return True

    @abstractmethod
    def _await_receivers(self) -> None:
        """Wait until what was on its way when `_finishing` was set is taken in. Must come to an end."""

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify_all()

    def seek(self, state: Any | None) -> None:
        if state is not None and (not isinstance(state, dict) or not isinstance(state.get("next"), int)):
            raise StateError("the snapshot is not one of received lines.", cure="Check the store.")
        number = 0 if state is None else state["next"]
        with self._condition:
            # A step that did not come about gives back what it had been given.
            while self._handed and self._handed[-1][0] >= number:
                self._lines.extendleft(reversed(self._handed.pop()[1]))
            self._next = number

    def next_slice(self) -> Slice | None:
        with self._condition:
            count = min(len(self._lines), ROWS_PER_STEP)
            if not count:
                return None
            lines = [self._lines.popleft() for _ in range(count)]
            start, self._next = self._next, self._next + count
            self._handed.append((start, lines))
            self._condition.notify_all()
        return Slice(start, start + count, count, sum(map(len, lines)))

    def processed(self, piece: Slice) -> None:
        with self._condition:
            while self._handed and self._handed[0][0] <= piece.start:
                self._handed.popleft()

    def snapshot(self) -> Any:
        return {"next": self._next}

    def counts(self) -> dict[str, int]:
        with self._condition:
            return {name: count for name, count in self._counts.items() if count}

    def lag(self) -> Lag:
        return Lag(rows=len(self._lines))

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        lines = next(lines for start, lines in self._handed if start == piece.start)
        table = pa.table([pa.array(lines, pa.string())], schema=SCHEMA)
        return table if stamp is None else stamp.put_on(table, piece.start)

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        table = self.read_arrow(piece, stamp)
        return spark_frame(session, table)

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        return if_small(self.read_arrow(piece, stamp))
