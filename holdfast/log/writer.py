"""A named writer of a log: appends in order, several on their way at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.clock import Clock
from holdfast.errors import ConfigError, InputError
from holdfast.ids import is_safe_name
from holdfast.log.appender import Appender
from holdfast.log.format.frame import NO_EPOCH, NO_TIME
from holdfast.log.pending import Appended, Pending
from holdfast.log.rows import Rows, bounds_of, fitted, inferred, microseconds, times_of

if TYPE_CHECKING:
    from holdfast.log.log import Log


class LogWriter:
    """`append` hands rows over and returns at once, unless `window` appends are on their way; `result()` of what it returns
    waits until they are durable. Rows of one writer are stored in the order of its appends; if one fails, none behind it is
    stored. Used by one thread at a time."""

    def __init__(self, log: Log, name: str, window: int, partition: int, clock: Clock) -> None:
        if not is_safe_name(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a writer.",
                cure="Use letters, digits and _.- only, at most 100.",
            )
        if window < 1:
            raise ConfigError(f"a window holds at least 1 append, not {window}.")
        self.name = name
        self.window = window
        self.partition = partition
        self._log = log
        self._clock = clock
        self._under_way: deque[Pending] = deque()

    @property
    def last_sequence(self) -> int:
        """The last sequence that was appended under this name; 0: none ever. After a failure whose outcome nobody knows, open
        the log again and look here: what has a sequence up to this one is stored."""
        return self._appender(None).last_sequence(self.name)

    def append(
        self,
        rows: Rows,
        *,
        time: datetime | float | None = None,
        sequence: int | None = None,
        epoch: int = NO_EPOCH,
        timeout_s: float | None = None,
        wait: bool = False,
        note: bytes | None = None,
    ) -> Pending:
        """Hand rows over. `sequence`: a number of the caller's that only grows; rows whose number is not above the last one
        are there already and are not stored again. `time`: when they happened, if no column says so. `epoch`: they count
        once this epoch is sealed; without one, as soon as they are durable. `wait`: return when they are. `note`: bytes for
        `log.notes` that become durable, count or are withdrawn together with the rows: never one without the other."""
        if isinstance(rows, Sequence) and not rows and self._log._facts is None:
            raise InputError(
                "the first append must have rows, or the log a schema.", cure="Give Log a schema."
            )
        given = rows.schema if isinstance(rows, pa.Table | pa.RecordBatch) else None
        if given is None and self._log._facts is None:
            rows = list(rows)
            given = inferred(rows)
        appender = self._appender(given)
        batch = fitted(rows, appender.facts.schema, appender.required, self._log.path)
        if note is not None and not batch.num_rows:
            if epoch != NO_EPOCH:
                raise ConfigError("a note without rows belongs to no epoch.", cure="Leave epoch= out.")
            return self.note(note, sequence=sequence, timeout_s=timeout_s, wait=wait)
        bounds = self._bounds(batch, time, appender.facts.time)
        return self._handed_over(
            appender,
            appender.append(self.name, sequence, batch, bounds, epoch, self.window, timeout_s, wait, note),
            wait,
        )

    def note(
        self,
        payload: bytes,
        *,
        sequence: int | None = None,
        timeout_s: float | None = None,
        wait: bool = False,
    ) -> Pending:
        """Hand over a note alone, in the order of appends and with a sequence like them. Only `log.notes` shows it."""
        appender = self._appender(None)
        bounds = (NO_TIME, NO_TIME)
        return self._handed_over(
            appender,
            appender.append(
                self.name, sequence, None, bounds, NO_EPOCH, self.window, timeout_s, wait, payload
            ),
            wait,
        )

    def _handed_over(self, appender: Appender, pending: Pending, wait: bool) -> Pending:
        if wait:
            appender.help(pending)
            pending.result()
            return pending
        while self._under_way and self._under_way[0].is_done:
            self._under_way.popleft()
        self._under_way.append(pending)
        return pending

    def _bounds(
        self, batch: pa.RecordBatch, time: datetime | float | None, column: str | None
    ) -> tuple[int, int]:
        if column is not None:
            if time is not None:
                raise ConfigError(
                    f"the time of rows is in column {column!r} of this log.", cure="Leave time= out."
                )
            return bounds_of(times_of(batch, column, NO_TIME))
        moment = microseconds(self._clock.wall() if time is None else time)
        return moment, moment

    def flush(self) -> list[Appended]:
        """Wait until all that was handed over is durable."""
        done = []
        while self._under_way:
            done.append(self._under_way.popleft().result())
        return done

    def _appender(self, schema: pa.Schema | None) -> Appender:
        owner = self._log.owner(schema)
        if not 0 <= self.partition < len(owner.appenders):
            raise ConfigError(f"the log {self._log.path} has no partition {self.partition}.")
        return owner.appenders[self.partition]
