"""Python operators that are hosted in the driver: the optional base class, and how a declaration becomes a maker.

Any class with `process(row, port)` or `process_batch(table, port)` will do; `Operator` only documents the rest:

=========================== ==========================================================================================
`process(row, port)`        one row (a dict) arrived at an input port; what it returns or yields leaves by port 0
`process_batch(table, port)` the same for a whole `pyarrow.Table`; instead of `process`
`open()`                    after construction and after each restore: rebuild what starts with `_`
`drain()`                   finish what is under way; may still submit
`may_checkpoint()`          whether the operator can be checkpointed as it is now; an epoch waits until it is true
`checkpoint()`              the state as one value; together with `reset`
`prepare_to_checkpoint()`   a copy of the state that later rows do not change; encoded while the operator goes on. With
                            `checkpoint(copy)`, which is called in the background too, what that makes of it
`reset(state)`              take back what `checkpoint` returned
`reset_to_initial_state()`  go back to the beginning; by default a fresh instance is made
`state_size()`              bytes of the state, about; by default declared variables and attributes are sampled
`close()`                   the run ends
`run(context)`              the body of a thread of its own, or of several (`threads = 4` in the class)
`check(context)`            when the topology is compiled: answers a sentence if it refuses its place
=========================== ==========================================================================================

Without `checkpoint`/`reset` the state is all attributes that do not begin with `_`, and declared variables
(`count = hf.Value(int, default=0)` in the class), which are checked at every change and whose size is known. A
checkpoint stores of them what changed, as long as that pays; `checkpoint=hf.full()` or `hf.incremental(…)` where the
operator is used says otherwise.
Input ports are numbered in the order written: data ports first, then control ports.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.language.context import Context
from holdfast.state.variables.declarations import declared
from holdfast.state.variables.state_size import whole_size

PROCESS = ("process", "process_batch")
METHODS = (*PROCESS, "run")
"""An operator has one of these at least."""

Missing = Literal["refuse", "null"]
"""What becomes of a column of the schema that a row does not name: the row is refused, or it is null there."""


class Operator:
    """Base class for Python operators. Define `process` or `process_batch`; override the rest as needed.

    All methods are called by one thread at a time. `checkpoint`, `reset` and `reset_to_initial_state` are left out
    on purpose: without them the attributes that do not begin with `_` are the state."""

    _submit: Callable[[Any, int | str], None] | None = None
    """Bound by the runtime before `open()`."""
    _context: Context | None = None
    """Likewise."""

    threads: ClassVar[int] = 1
    """How many threads run `run(context)`, if there is one."""
    replayable: ClassVar[bool] = False
    """True: from any state it had, its threads make the same rows again, so a region may begin at it."""

    @property
    def context(self) -> Context:
        """Where it is: `context.region`, `.epoch`, `.mode`, `.trigger`."""
        if self._context is None:
            raise RuntimeError(f"{type(self).__name__}.context is known only while the topology runs.")
        return self._context

    def submit(self, rows: Any, port: int | str = 0) -> None:
        """Send a row (dict), several rows (list of dicts) or a `pyarrow.Table` out by an output port, its number or name."""
        if self._submit is None:
            raise RuntimeError(f"{type(self).__name__}.submit() works only while the topology runs.")
        self._submit(rows, port)

    def open(self) -> None:
        """Called before the first row and after each restore: rebuild attributes that begin with `_`."""

    def state_size(self) -> int:
        """Bytes of the state, estimated from samples where exactness would cost too much. Define it yourself if you know
        better; it is asked many times a second where a region has trigger="aware"."""
        return whole_size(self)

    def drain(self) -> None:
        """An epoch is being established: finish what is under way. May still `submit`."""

    def close(self) -> None:
        """The run ends. Not called after a crash."""


OnError = Literal["fail", "stream"]
"""What becomes of a row whose processing raised: the step fails, or the row goes to a stream of its own."""

ERRORS = pa.schema(
    [
        pa.field("operator", pa.string()),
        pa.field("row", pa.string()),
        pa.field("error", pa.string()),
        pa.field("traceback", pa.string()),
        pa.field("time", pa.timestamp("us", "UTC")),
    ]
)
"""Columns of that stream. `row` is JSON; null: it was a timer."""


def checked_on_error(on_error: Any, makes_tables: bool, label: str) -> OnError:
    """The argument `on_error=` of Python operators. `makes_tables`: it has process_batch()."""
    if on_error not in get_args(OnError):
        raise TopologyError(f"on_error={on_error!r} is not known.", cure='Use "fail" or "stream".')
    if on_error == "stream" and makes_tables:
        raise TopologyError(
            f'{label} has process_batch() and is used with on_error="stream": nobody knows which row of a table failed.',
            cure="Define process(row, …) instead, or leave on_error= out.",
        )
    return on_error  # type: ignore[no-any-return]


def checked_missing(missing: Any) -> Missing:
    """The argument `missing=` of Python operators."""
    if missing not in get_args(Missing):
        raise TopologyError(f"missing={missing!r} is not known.", cure='Use "refuse" or "null".')
    return missing  # type: ignore[no-any-return]


def maker(operator: Any) -> tuple[Callable[[], Any], str]:
    """How to build fresh instances of a user's operator, and what to call it.

    A class or a callable without arguments is called each time. An instance is copied now and again for each use, so
    what happens to the user's own object later does not matter."""
    if inspect.isclass(operator):
        _check_methods(operator, operator.__name__)
        _check_callable(operator)
        return operator, operator.__name__
    if any(hasattr(operator, method) for method in METHODS):
        label = type(operator).__name__
        _check_methods(operator, label)
        pristine = copied(operator)
        return functools.partial(copy.deepcopy, pristine), label
    if callable(operator):
        _check_callable(operator)
        made = operator()
        label = type(made).__name__
        _check_methods(made, label)
        return operator, label
    raise TopologyError(
        f"{operator!r} is not a Python operator.",
        cure="Pass a class, an instance or a function that makes one; it needs process(row, port) or process_batch(table, port).",
    )


def _check_methods(operator: Any, label: str) -> None:
    _check_variables(operator if inspect.isclass(operator) else type(operator), label)
    if not any(callable(getattr(operator, method, None)) for method in METHODS):
        raise TopologyError(
            f"{label} has neither process(row, port) nor process_batch(table, port).",
            cure="Define one of them: it is called with the rows that arrive. Or run(context), if it makes rows by itself.",
        )
    makes_state = any(callable(getattr(operator, m, None)) for m in ("checkpoint", "prepare_to_checkpoint"))
    if makes_state != callable(getattr(operator, "reset", None)):
        raise TopologyError(
            f"{label} defines only one of checkpoint() and reset(state).",
            cure="Define both, or neither: then the attributes not beginning with '_' are the state.",
        )


def _check_variables(cls: type, label: str) -> None:
    timed = [name for name, variable in declared(cls).items() if variable.needs_time]
    if timed:
        raise TopologyError(
            f"{label} declares a lifetime for {timed[0]!r}, but an operator hosted in the driver has no event time.",
            cure="Use stream.keyed(…, on='…'), or leave ttl= and seconds= out.",
        )


def threads_of(operator: Any, label: str) -> int:
    """How many threads of its own an operator has."""
    if not callable(getattr(operator, "run", None)):
        return 0
    threads = getattr(operator, "threads", 1)
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise TopologyError(
            f"{label}.threads is {threads!r}.",
            cure="Give the number of threads that run run(context), 1 or more.",
        )
    return threads


def _check_callable(make: Callable[..., Any]) -> None:
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise TopologyError(
            f"{getattr(make, '__name__', make)!r} cannot be called without arguments: {error}.",
            cure="Pass an instance, or a function without arguments that makes one.",
        ) from error
    except ValueError:
        pass  # a built-in without a signature: it will show


def copied(operator: Any) -> Any:
    """A copy of the user's instance."""
    try:
        return copy.deepcopy(operator)
    except Exception as error:
        raise TopologyError(
            f"The {type(operator).__name__} cannot be copied: {error}.",
            cure="Pass its class, or make connections and threads in open() instead of in __init__.",
        ) from error


# --- rows that end or hang the process which works at them ---


PoisonThen = Literal["quarantine", "park"]


@dataclass(frozen=True, slots=True)
class Poison:
    """A row that ends its worker process, whatever else runs there: found after a step died `after` times in a row. `then`: "quarantine"
    puts it into `.errors` of the stream, and the operator goes on without it; "park" parks its region, or outside of regions its element, with
    the row named. `timeout`: a step that takes longer counts as dead; without it a step may take as long as it likes. Of operators in the
    driver: a row at which `process` raised `after` times in the same way, or took longer than `timeout` so often."""

    then: PoisonThen = "quarantine"
    after: int = 2
    timeout: Duration | None = None

    def __post_init__(self) -> None:
        if self.then not in get_args(PoisonThen):
            raise TopologyError(f"poison={self.then!r} is not known.", cure='Use "quarantine" or "park".')
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 1:
            raise TopologyError(
                f"after must be a whole number above 0, not {self.after!r}.",
                cure="Give how often a step dies before the row is looked for; the default is 2.",
            )
        if self.timeout is not None:
            seconds(self.timeout, "timeout")

    @property
    def timeout_s(self) -> float | None:
        return None if self.timeout is None else seconds(self.timeout, "timeout")


def checked_poison(poison: Any) -> Poison | None:
    """The argument `poison=`."""
    if poison is None or isinstance(poison, Poison):
        return poison
    if not isinstance(poison, str):
        raise TopologyError(
            f"poison={poison!r} is not known.", cure='Use "quarantine", "park" or hf.Poison(…).'
        )
    return Poison(poison)  # type: ignore[arg-type]
