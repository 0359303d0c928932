"""What a failure means: must the run end, is there only no space, and how is it told in one sentence."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection
from dataclasses import dataclass

from holdfast import errors
from holdfast.ids import ElementName, OperatorName

_FATAL = (errors.InputError, errors.StateError, errors.MismatchError, errors.TopologyError, errors.StoreError)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Failed|Injected|Interrupt)\b")

_JAVA = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+([\w$]+: .*)$", re.MULTILINE)
"""An exception of Java in a text of Py4J: the innermost comes last."""
_OUTAGE = re.compile(
    r"(?:^|: )([\w.]+\.)?(OSError|IOError|TimeoutError|BrokenPipeError|Connection\w*Error|OperationalError|InterfaceError)\b"
    r"|ExecutorLostFailure|[Ll]ost executor|[Cc]onnection (refused|reset)|heartbeat timed out"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the region last went back, waits or gave up, and the element it is about, if it is one."""

    reason: str = ""
    element: ElementName | None = None
    error: BaseException | None = None


class OperatorsKilled(Exception):
    """Operators died together with the step of their element, and whatever state they had is gone. Raised by studies of failures."""

    def __init__(self, operators: Collection[OperatorName]) -> None:
        self.operators = frozenset(operators)
        super().__init__(f"killed: {', '.join(sorted(self.operators))}")


def is_fatal(error: BaseException) -> bool:
    """True if no reset can help: the user, the input or the store must change first, or the process must end."""
    if isinstance(error, errors.NoSpaceError | errors.StepFailed):
        return False
    return isinstance(error, _FATAL) or not isinstance(error, Exception)


def may_pass(error: BaseException) -> bool:
    """True if the cause may go away by itself: a network, a database or an executor that is gone for a while."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:  # chains may be circles
        chain.append(cause)
        cause = cause.__cause__
    outages = [one for one in chain if isinstance(one, OSError) or _OUTAGE.search(story_of(one))]
    return bool(outages) and not any(map(is_no_space, outages))


def check_engine(is_alive: bool, error: BaseException) -> None:
    """Raises EngineGoneError, caused by `error`, if what runs the steps is not there any more."""
    if not is_alive:
        raise errors.EngineGoneError(
            f"Spark is gone: {story_of(error)}.",
            cure="Run again: it goes on from the last published epoch.",
        ) from error


def is_no_space(error: BaseException) -> bool:
    """True if a full disk is all that is wrong: waiting helps, a reset alone does not."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, errors.NoSpaceError)


def story_of(error: BaseException) -> str:
    """One sentence for the event log and for people. Spark wraps a worker's exception in a long text with the Python
    traceback inside: the sentence people need is that traceback's last line."""
    if isinstance(error, errors.OperatorFailed):
        return error.message.splitlines()[0]  # the user's lines of code are told once, at the end
    if isinstance(error, errors.HoldfastError):
        return str(error)
    text = str(error)
    inner = [line for line in text.splitlines() if _RAISED.match(line)]
    if "Traceback (most recent call last)" in text and inner:
        return inner[-1].strip()[:500]
    if text.startswith("An error occurred while calling ") and (causes := _JAVA.findall(text)):
        return str(causes[-1])[:500]
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip().rstrip(';')}"[
        :500
    ]  # Spark shows its plan behind a semicolon


def own_failure(error: BaseException) -> str:
    """What tells an error of the user's code from others; "": it is something else, or may pass by itself."""
    return str(error) if isinstance(error, errors.OperatorFailed) and not may_pass(error) else ""


def parked_error(
    region: str, resets: int, cause: Cause, epoch: int, repeated: bool = False
) -> errors.RegionParkedError:
    """What people hear of a region that gave up. `repeated`: the user's code failed twice in the same way."""
    why = f"after {resets} resets without progress; the last failure was: {cause.reason}."
    if repeated:
        why = f"because the program failed twice in the same way at the same rows: {cause.reason}."
    own: list[str] = []
    if isinstance(cause.error, errors.OperatorFailed):
        own = [*cause.error.message.splitlines()[1:], cause.error.cure]
    return errors.RegionParkedError(
        "\n".join(filter(None, [f"region {region!r} is parked {why}", *own])),
        cure=f"Its state at epoch {epoch} is intact: mend the cause and run again (while the run still lives, "
        "`holdfast resume` goes on with it).",
    )


def gave_up(element: ElementName, reason: str, cause: BaseException | None) -> errors.StepFailed:
    """What people hear of an element outside of regions that throws its input away from now on."""
    failure = errors.StepFailed(
        f"element {element!r} outside of regions {reason}.",
        cure="Mend the cause and run again; it goes on behind the rows it had taken.",
    )
    failure.__cause__ = cause
    return failure
