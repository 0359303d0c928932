"""`on_error="stream"`: a row whose processing raised is told in a stream of its own, and the operator goes on without it; with `poison=` of
an operator in the driver, one that raised or hung several times in the same way.

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
from typing import Any, Generic, Literal, TypeVar

from holdfast.errors import HoldfastError, PoisonFound, StepFailed, TopologyError, WorkerDied
from holdfast.language.hosted import Poison
from holdfast.operators.python.rows import Outbox, Row
from holdfast.operators.python.user_errors import user_frames

S = TypeVar("S")
Work = Callable[[], None]
FAILURES_MAX = 1000
"""Rows that failed and are remembered; more of them are no accident."""
_OUTAGE = re.compile(r"Connection\w*Error|Timeout\w*|OperationalError|InterfaceError")


class Guard(Generic[S]):
    """Does the work of one operator piece by piece. `save` gives its state, None if that is too much; `back` takes one."""

    def __init__(
        self,
        operator: str,
        outbox: Outbox,
        save: Callable[[], S | None],
        back: Callable[[S], None],
        failures: Failures | None = None,
    ) -> None:
        self._operator = operator
        self._failures = failures or Failures(at_once=True)
        self._outbox = outbox
        self._save, self._back = save, back
        self._known: S | None = None
        self._mark: Any = None
        self._since: list[Work] = []
        self._where: Any = None
        """Where what failed last is in the input."""

    def begin(self, known: S | None) -> None:
        """The operator has this state now."""
        self._known, self._mark, self._since = known, self._outbox.mark(), []

    def do(self, work: Work, row: Row | None) -> None:
        """One piece of work, at a row or at a timer. Raises what is no matter of this row: an outage, or a schema that the
        program does not keep; and what is to be tried again, or parks."""
        if self._failures.are_known and (known := self._failures.last(row)) is not None:
            return self._tell(row, known)
        tries = 0
        while (error := self._failure(work)) is not None:
            tries += 1
            verdict = self._failures.note(row, error)
            if verdict == "park":
                raise self._failures.found(error) from error
            if tries >= self._failures.most_tries:
                raise error
            if self._known is None and not self._failures.is_told_at_once(error):
                raise self._failures.counted(row, error) from error
            if verdict == "tell":
                return self._tell(row, error)
        self._since.append(work)
        if self._failures.are_known:
            self._failures.forget(row)
        return None

    def _failure(self, work: Work) -> Exception | None:
        """What the work raised; then everything is as before it."""
        before = self._outbox.mark()
        try:
            work()
            self._outbox.check(before)
        except TopologyError:
            raise
        except Exception as error:
            if is_outage(error):
                raise
            self._where = self._outbox.where
            self._undo(before)
            return error
        return None

    def _tell(self, row: Row | None, error: Exception) -> None:
        self._outbox.failed.append(letter(self._operator, row, error))
        self._outbox.failed_at.append(self._where)
        if self._known is not None:  # else a reset before the next epoch would need as many again
            self._failures.forget(row)

    def _undo(self, before: Any) -> None:
        if self._known is None:
            self._outbox.back_to(before)
            return
        self._outbox.back_to(self._mark)
        self._again(self._known)

    def _again(self, known: S) -> None:
        self._back(known)
        for work in self._since:
            work()
        self.begin(self._save())

    def is_known(self) -> bool:
        """Whether the state from before is remembered."""
        return self._known is not None

    def left(self) -> Outbox:
        """What came up to the last known state, in an outbox that nobody else has: another instance goes on with it."""
        self._outbox = self._outbox.copied_at(self._mark)
        return self._outbox

    def go_on(self) -> None:
        """Another instance does again what was done since the last known state."""
        assert self._known is not None
        self._again(self._known)


Verdict = Literal["again", "tell", "park"]


class Failures:
    """How often each row failed in the same way, in a row; over resets as well. `at_once`: what a row raises is told the first time."""

    def __init__(self, at_once: bool, poison: Poison | None = None) -> None:
        self._at_once = at_once
        self._poison = poison or Poison()
        self.most_tries = 3 * self._poison.after
        """Of one row, if it fails in different ways: then it is not the row."""
        self._known: dict[str, tuple[int, Exception]] = {}

    @property
    def are_known(self) -> bool:
        return bool(self._known)

    def last(self, row: Any) -> Exception | None:
        """Why a row is not even tried: it failed often enough."""
        count, error = self._known.get(_text(row), (0, None))
        return error if count >= self._poison.after and self._poison.then == "quarantine" else None

    def is_told_at_once(self, error: Exception) -> bool:
        return self._at_once and not isinstance(error, WorkerDied)

    def counted(self, row: Any, error: Exception) -> StepFailed:
        """To be raised where the state from before the row is not known. When that was restored, the row is tried again, or told without."""
        count, _ = self._known.get(_text(row), (0, None))
        return StepFailed(f"{_said(error)} ({count} of {self._poison.after} times in the same way)")

    def found(self, error: Exception) -> PoisonFound:
        """To be raised where the user wants to look at the row."""
        said = [f"{_said(error)} ({self._poison.after} times in the same way)", user_frames(error)]
        return PoisonFound(
            "\n".join(filter(None, said)), cure='Mend that, or let the row go: poison="quarantine".'
        )

    def note(self, row: Any, error: Exception) -> Verdict:
        """A row failed: what is to be done."""
        if self.is_told_at_once(error):
            return "tell"
        text = _text(row)
        count, before = self._known.get(text, (0, None))
        is_same = (type(before), str(before)) == (type(error), str(error))
        count = count + 1 if is_same else 1
        if len(self._known) >= FAILURES_MAX:
            self._known.clear()
        self._known[text] = (count, error)
        if count < self._poison.after:
            return "again"
        if self._poison.then == "quarantine":
            return "tell"
        self.forget(row)
        return "park"

    def forget(self, row: Any) -> None:
        self._known.pop(_text(row), None)


def _said(error: Exception) -> str:
    what = error.message if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"
    return what.rstrip(": ")


def _text(row: Any) -> str:
    return "" if row is None else as_json(row.asDict() if isinstance(row, Row) else row)


def is_outage(error: BaseException) -> bool:
    """Whether something is away for a while that all rows need: they are tried again later."""
    is_away = isinstance(error, ConnectionError | TimeoutError)
    return is_away or bool(_OUTAGE.fullmatch(type(error).__name__))


def letter(operator: str, row: Any, error: Exception) -> tuple[Any, ...]:
    """A row of the stream of errors: `language.hosted.ERRORS`. `row`: a `Row`, or a mapping; None: there was none."""
    text = None if row is None else as_json(row.asDict() if isinstance(row, Row) else row)
    return (operator, text, _said(error), user_frames(error), dt.datetime.now(dt.UTC))


def as_json(row: Any) -> str:
    """The values of a row by name, as text."""
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Values that JSON does not know, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
