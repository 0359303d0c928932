"""Errors of Python workers on executors, which Spark brings back as text: made errors again."""

from __future__ import annotations

import re
import traceback

from holdfast import errors
from holdfast.operators.python.user_errors import frames_of, is_users

_TRACEBACK = "Traceback (most recent call last):"
_OURS = re.compile(r"^holdfast\.errors\.(\w+): ")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(: |$)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$')
_ABSENT = (
    "The executors have no such module, or another one than the driver: give it to them with spark.sparkContext.addPyFile(…) or"
    " --py-files, or keep the function in the program that you start."
)
_LOADING = re.compile(
    r"(ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError): |AttributeError: Can't get attribute "
)
"""What is raised where a function or class is unpickled, or a module of it begins: at every attempt, whatever the rows."""
_HELD = (
    "Sent is the class or function with all that it refers to: make locks, connections, sessions and open files in open() of the"
    " operator, or in the function itself."
)
_END = re.compile(r"^\s*(SQLSTATE: |at [\w$]+\.[\w.$<>/]+\(|Driver stacktrace:|Caused by: )")


def from_worker(error: Exception, element: str) -> Exception:
    """What a task raised, if the text of `error` tells; else `error` itself. Raise it from `error`."""
    text = str(error)
    if type(error).__name__ == "PicklingError":
        return _unsendable(error, element)
    if isinstance(error, errors.HoldfastError) or _TRACEBACK not in text:
        return error
    lines = text.rpartition(_TRACEBACK)[2].splitlines()[1:]
    begin = next((number for number, line in enumerate(lines) if _RAISED.match(line)), None)
    if begin is None:
        return error
    message = lines[begin:]
    end = next((number for number, line in enumerate(message) if _END.match(line)), len(message))
    message = message[:end]
    while message and not message[-1].strip():
        message.pop()
    ours = _OURS.match(message[0])
    if ours and isinstance(kind := getattr(errors, ours[1], None), type):
        rebuilt: Exception = kind("\n".join([message[0][ours.end() :], *message[1:]]))
        return rebuilt
    found = _frames(lines[:begin])
    frames = frames_of(found)
    if _LOADING.match(message[0]) and all(f.name == "<module>" for f in found if is_users(f.filename)):
        parts = [
            f"workers cannot load what element {element!r} works with: {message[0]}",
            *message[1:],
            frames,
        ]
        return errors.TopologyError("\n".join(filter(None, parts)), cure=_ABSENT)
    is_absent = message[0].startswith("ModuleNotFoundError: ")
    if not frames and not is_absent:
        return error
    parts = [f"a function in element {element!r}: {message[0]}", *message[1:], *filter(None, [frames])]
    return errors.OperatorFailed("\n".join(parts), cure=_ABSENT if is_absent else "")


def _unsendable(error: Exception, element: str) -> errors.TopologyError:
    said = str(error).partition("\n")[0].removeprefix("Could not serialize object: ")
    return errors.TopologyError(
        f"what element {element!r} works with cannot be sent to workers: {said}.", cure=_HELD
    )


def _frames(lines: list[str]) -> list[traceback.FrameSummary]:
    """The frames of a traceback's text."""
    found = []
    for number, line in enumerate(lines):
        if match := _FRAME.match(line):
            following = lines[number + 1] if number + 1 < len(lines) else ""
            source = "" if _FRAME.match(following) else following.strip()
            frame = traceback.FrameSummary(match[1], int(match[2]), match[3], lookup_line=False, line=source)
            found.append(frame)
    return found


_DEATH = re.compile(
    r"Python worker exited unexpectedly[^\n]*|Python worker failed to connect back|ExecutorLostFailure[^\n]*"
    r"|worker for task \S+ crashed[^\n]*"
)


def death_of(error: BaseException) -> errors.WorkerDied | None:
    """How a process ended that worked for a step; None if none did, and the error says what is wrong."""
    if isinstance(error, errors.WorkerDied):
        return error
    text = str(error)
    if isinstance(error, errors.HoldfastError) or _TRACEBACK in text.rpartition("Python worker exited")[2]:
        return None
    return errors.WorkerDied("its worker process ended, or the executor did") if _DEATH.search(text) else None
