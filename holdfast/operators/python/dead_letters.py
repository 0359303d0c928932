"""`on_error="stream"`: a row whose processing raised is told in a stream of its own, and the operator goes on without it.

State and output go back to what they were before that row. Nothing is remembered row by row for it: the work since the
last known state is done again, from that state on, without the row that failed. So rows cost nothing as long as they do
not fail, and each failure at most the work since the one before.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast.errors import HoldfastError, TopologyError
from holdfast.operators.python.rows import Outbox, Row
from holdfast.operators.python.user_errors import user_frames

S = TypeVar("S")
Work = Callable[[], None]
_OUTAGE = re.compile(r"Connection\w*Error|Timeout\w*|OperationalError|InterfaceError")


class Guard(Generic[S]):
    """Does the work of one operator piece by piece. `save` gives its state, None if that is too much; `back` takes one."""

    def __init__(
        self, operator: str, outbox: Outbox, save: Callable[[], S | None], back: Callable[[S], None]
    ) -> None:
        self._operator = operator
        self._outbox = outbox
        self._save, self._back = save, back
        self._known: S | None = None
        self._mark: Any = None
        self._since: list[Work] = []

    def begin(self, known: S | None) -> None:
        """The operator has this state now."""
        self._known, self._mark, self._since = known, self._outbox.mark(), []

    def do(self, work: Work, row: Row | None) -> None:
        """One piece of work, at a row or at a timer. Raises what is no matter of this row: an outage, or a schema that the
        program does not keep."""
        before = self._outbox.mark()
        try:
            work()
            self._outbox.check(before)
        except TopologyError:
            raise
        except Exception as error:
            if is_outage(error):
                raise
            where = self._outbox.where
            self._undo(before)
            self._outbox.failed.append(letter(self._operator, row, error))
            self._outbox.failed_at.append(where)
        else:
            self._since.append(work)

    def _undo(self, before: Any) -> None:
        if self._known is None:
            self._outbox.back_to(before)
            return
        self._outbox.back_to(self._mark)
        self._back(self._known)
        for work in self._since:
            work()
        self.begin(self._save())


def is_outage(error: BaseException) -> bool:
    """Whether something is away for a while that all rows need: they are tried again later."""
    is_away = isinstance(error, ConnectionError | TimeoutError)
    return is_away or bool(_OUTAGE.fullmatch(type(error).__name__))


def letter(operator: str, row: Any, error: Exception) -> tuple[Any, ...]:
    """A row of the stream of errors: `language.hosted.ERRORS`. `row`: a `Row`, or a mapping; None: there was none."""
    what = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    text = None if row is None else as_json(row.asDict() if isinstance(row, Row) else row)
    return (operator, text, what.rstrip(": "), user_frames(error), dt.datetime.now(dt.UTC))


def as_json(row: Any) -> str:
    """The values of a row by name, as text."""
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Values that JSON does not know, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
