"""Errors of the user's code: which operator, at which row, and the user's own lines of the traceback.

An error is told where it happened, in the driver or in a task: Spark brings only text back from there (see
`runtime/worker_errors.py`), and of a chain of errors only the last one.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import errors
from holdfast.errors import (
    HoldfastError,
    InputError,
    OperatorFailed,
    PoisonFound,
    StateError,
    StepFailed,
    TopologyError,
)

_OURS = os.path.dirname(os.path.abspath(errors.__file__)) + os.sep
_STANDARD = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = ("site-packages", "dist-packages")
_MACHINERY = re.compile(
    r"[/\\](pyspark|py4j|pyarrow|cloudpickle)([/\\]|[-.\w]*\.zip)|^pyarrow[/\\]|^<frozen "
)
_LONGEST = 200
_ANALYSIS = ("AnalysisException", "ParseException")
"""Spark's errors about what was written at the place where they were raised, before any task ran."""


def is_users(file: str) -> bool:
    """Whether a frame of this file is the user's: not holdfast's, Spark's or the standard library's."""
    if file.startswith(_OURS) or _MACHINERY.search(file):
        return False
    return not file.startswith(_STANDARD) or any(name in file for name in _INSTALLED)


def user_frames(error: BaseException) -> str:
    """The user's own lines of the traceback, as Python shows them; of what caused the error before those of itself."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__
    found = [frames_of(traceback.extract_tb(each.__traceback__)) for each in reversed(chain)]
    return "\n".join(dict.fromkeys(filter(None, found)))


def frames_of(frames: Iterable[traceback.FrameSummary]) -> str:
    """Those of the frames that are the user's, as text."""
    return "\n".join(
        f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        + (f"\n    {frame.line}" if frame.line else "")
        for frame in frames
        if is_users(frame.filename)
    )


def told(where: str, error: Exception, row: Any = None) -> Exception:
    """What to raise from an error of the user's code. `where`: operator and place; `row`: what was at work."""
    at_row = "" if row is None else f"  at {short(row, _LONGEST)}"
    if not isinstance(error, HoldfastError):
        said = str(error)
        if type(error).__name__ in _ANALYSIS:
            said = said.partition("\n")[0].rstrip(
                "; "
            )  # what follows is a plan, with other numbers each time
        what = f"{where}: {type(error).__name__}: {said}".rstrip(": ")
        notes = [f"  {note}" for note in getattr(error, "__notes__", ())]
        return OperatorFailed("\n".join(filter(None, [what, user_frames(error), *notes, at_row])))
    operator, _, place = where.partition(", ")
    is_named = error.message.startswith(operator + " ")
    # A key is told in any case; that it was in process() goes without saying.
    what = error.message if is_named and place.endswith("()") else f"{where}: {error.message}"
    if isinstance(error, StateError | InputError | TopologyError):
        return type(error)(what, cure=error.cure)
    if isinstance(error, StepFailed):
        kind = PoisonFound if isinstance(error, PoisonFound) else OperatorFailed
        return kind("\n".join(filter(None, [what, at_row])), cure=error.cure)
    return error


@contextmanager
def naming(where: str, row: Any = None) -> Iterator[None]:
    """Errors of the user's code tell in which operator they happened."""
    try:
        yield
    except Exception as error:
        known = told(where, error, row)
        if known is error:
            raise
        raise known from error


@contextmanager
def naming_functions(where: str) -> Iterator[None]:
    """The same where a built-in operator calls a function of the user's: an aggregate's, what chooses among pairs."""
    try:
        yield
    except OperatorFailed as error:
        if error.message.startswith("operator "):  # it tells all of that itself
            raise
        lines = [f"{where}: {error.message}", user_frames(error)]
        raise OperatorFailed("\n".join(filter(None, lines)), cure=error.cure) from error
    except Exception as error:
        if isinstance(error, HoldfastError) or not user_frames(error):
            raise
        raise told(where, error) from error


@contextmanager
def naming_users(where: str) -> Iterator[None]:
    """The same where most work is not the user's: only errors that came through the user's own lines are the user's. Those of
    Spark's tasks are left as they are: they may tell of other operators."""
    try:
        yield
    except Exception as error:
        sparks = (
            type(error).__module__.startswith(("pyspark", "py4j")) and type(error).__name__ not in _ANALYSIS
        )
        theirs = isinstance(error, HoldfastError) or sparks
        if theirs or not user_frames(error):
            raise
        raise told(where, error) from error


def short(value: Any, longest: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= longest else text[: longest - 3] + "..."
