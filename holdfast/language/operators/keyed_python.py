"""Python operators that run on the executors, with declared state per key and timers: `stream.keyed`, `stream.map_state`.

=========================== ==========================================================================================
`process(row, key)`         one row of a key, in the order of positions; what it returns or yields leaves the operator
`process_batch(table, key)` the same for all rows of a key that a step has, as a `pyarrow.Table`; instead of `process`
`submit(row, port=…)`       to be called: send a row out by another output than the first
`on_timer(at, key)`         the watermark has reached a time for which the key had set a timer
`open()`                    before the first call in a task: make what is no state, under names that begin with `_`
=========================== ==========================================================================================

`key` is the value of the key column, a tuple if there are several. One instance serves many keys, one after the other:
what belongs to a key is declared (`hf.Value`, `hf.Map`, `hf.List`, `hf.Window`), and nothing else is kept.

Timers are in event time. A timer for the time t is called before the first row of its key at whose position the
watermark, the largest event time so far minus `delay`, has reached t; if no such row comes, in the step in which the
watermark of the whole source reaches t. So what a key sees is the same for every cut into steps and any number of
partitions. A timer whose time has already been reached is called right after the row that set it.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from holdfast.durations import Duration
from holdfast.errors import TopologyError
from holdfast.language.graph import PythonSpec
from holdfast.language.hosted import (
    Missing,
    OnError,
    Poison,
    checked_missing,
    checked_on_error,
    checked_poison,
    copied,
)
from holdfast.language.operators.columns import key_fields, key_names, time_type
from holdfast.language.operators.event_time import DECLARED, UsesTime, column_of, micros
from holdfast.language.operators.hosted_python import Schemas, output_columns
from holdfast.language.operators.values import Delays
from holdfast.state.variables.declarations import Variable, VariableShape, declared, lives_of
from holdfast.state.variables.key_state import KeyState, micros_of, moment_of
from holdfast.state.variables.state_size import state_size

PROCESS = ("process", "process_batch")


@dataclass(frozen=True, slots=True)
class KeyedSpec(PythonSpec, UsesTime):
    """A Python operator with declared state per key, on the executors. `make` builds an instance, in any process. `on`:
    the column with the event time, if there is one; `DECLARED`: if the stream has one. `delay_us`: None if that is the
    declared one."""

    by: tuple[str, ...]
    make: Callable[[], Any]
    schemas: tuple[pa.Schema, ...]
    label: str = "operator"
    """The user's class, for `explain()`."""
    variables: tuple[tuple[str, VariableShape], ...] = ()
    on: str | None = None
    delay_us: int | None = None
    timers: bool = False
    """It has `on_timer`."""
    needs_time: bool = False
    """It has timers or lifetimes."""
    missing: Missing = "refuse"
    on_error: OnError = "fail"
    names: tuple[str, ...] = ()
    """Of the output ports, if they have some."""
    tables: bool = False
    """It has `process_batch`."""
    poison: Poison | None = None

    def times(self) -> tuple[str, ...]:
        return () if self.on is None else (self.on,)

    def follows(self) -> bool:
        return self.on is not None and self.delay_us is None

    def without(self) -> KeyedSpec | None:
        return None if self.needs_time or self.on != DECLARED else replace(self, on=None)

    def with_times(self, columns: tuple[str, ...], delays: Delays | None, idle_us: int | None) -> KeyedSpec:
        if not columns or delays is None:
            return self
        return replace(self, on=columns[0], delay_us=max(us for _, us in delays))


class KeyedOperator:
    """Base class of keyed Python operators.

    Example::

        class Sessions(hf.KeyedOperator):
            count = hf.Value(int, default=0)
            until = hf.Value(datetime)

            def process(self, row, key):
                if self.until:
                    self.clear_timer(self.until)
                self.count += 1
                self.until = row.at + timedelta(minutes=30)
                self.set_timer(self.until)

            def on_timer(self, at, key):
                yield {"user": key, "ended": at, "rows": self.count}
                self.clear()

    With `order="event_time"` this gives sessions whatever the order in which rows come (and so does, without Python,
    `aggregate("user", window=hf.session("30 minutes"), …)`).
    """

    _hf_key: KeyState | None = None
    """The key at work; bound by the runtime."""
    _hf_zoned = True
    """Whether event times have a time zone."""
    _hf_submit: Callable[[Any, int | str], Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        undeclared = not name.startswith("_") and not isinstance(getattr(type(self), name, None), Variable)
        if undeclared and self._hf_key is not None:
            raise TopologyError(
                f"{type(self).__name__}.{name} is set, but not declared: it would not be kept.",
                cure=f"Declare it in the class, such as {name} = holdfast.Value(int), or begin its name with '_'.",
            )
        super().__setattr__(name, value)

    def open(self) -> None:
        """Called before the first row in a task: make what is no state, under names that begin with `_`."""

    def submit(self, rows: Any, port: int | str = 0) -> None:
        """Send a row, several rows (list of dicts) or a `pyarrow.Table` out by an output, its number or name. What `process`
        returns or yields leaves by the first one."""
        if self._hf_submit is None:
            raise RuntimeError(f"{type(self).__name__}.submit() works only while the topology runs.")
        self._hf_submit(rows, port)

    def set_timer(self, at: Any) -> None:
        """Call `on_timer(at, key)` for this key when the watermark has reached `at`, a datetime. Once for each time."""
        self._at_work().set_timer(micros_of(at, self._hf_zoned))

    def clear_timer(self, at: Any) -> None:
        """Forget the timer for `at`, if there is one."""
        self._at_work().clear_timer(micros_of(at, self._hf_zoned))

    def watermark(self) -> datetime | None:
        """Up to where event time has come at the row, or the timer, at work; None: nobody knows yet."""
        return moment_of(self._at_work().clock.mark, self._hf_zoned)

    def is_late(self) -> bool:
        """Whether the row at work is behind the watermark: more than the delay later than others of its source."""
        clock = self._at_work().clock
        return clock.time < clock.mark

    def clear(self) -> None:
        """Forget the key: all its variables and timers."""
        self._at_work().clear()

    def state_size(self) -> int:
        """Bytes of the state of the key at work, estimated from samples where exactness would cost too much."""
        return state_size(self)

    def _at_work(self) -> KeyState:
        if self._hf_key is None:
            raise RuntimeError(f"{type(self).__name__} has timers and keys only while the topology runs.")
        return self._hf_key


class MappedState(KeyedOperator):
    """What `map_state` runs: a function of a row and the key's state, which is this object."""

    _hf_function: Callable[[Any, Any], Any]

    def process(self, row: Any, key: Any) -> Any:
        return type(self)._hf_function(row, self)


# --- from the arguments of Stream.keyed and Stream.map_state to a spec ----------------------------------------------


def keyed_spec(
    by: str | Sequence[str],
    operator: Any,
    schema: Any,
    on: str | None,
    delay: Duration | None,
    missing: Missing = "refuse",
    on_error: OnError = "fail",
    schemas: Schemas = (),
    poison: Any = None,
) -> KeyedSpec:
    """The spec of a keyed Python operator; refuses what can be refused without knowing the columns."""
    keys = key_names(by, "keyed()", "Give one or more column names: keyed('user', Sessions, schema).")
    delay_us = None if delay is None else micros(delay, "delay", zero=True)
    if on is None and delay_us is not None:
        raise TopologyError("delay= needs event time.", cure="Give on='…' as well, or leave delay= out.")
    make, cls = _maker(operator)
    variables = declared(cls)
    _check_methods(cls)
    needs_time = _needs_time(cls, variables)
    _check_fresh(make(), cls)
    shapes = tuple((name, variable.shape) for name, variable in variables.items())
    columns, names = output_columns(schema, schemas, cls.__name__)
    if not columns:
        raise TopologyError(f"keyed() of {cls.__name__} has no schema.", cure="Give schema or schemas=….")
    return KeyedSpec(
        keys,
        make,
        columns,
        cls.__name__,
        shapes,
        column_of(on),
        delay_us,
        timers=callable(getattr(cls, "on_timer", None)),
        needs_time=needs_time,
        missing=checked_missing(missing),
        on_error=checked_on_error(on_error, hasattr(cls, "process_batch"), cls.__name__),
        names=names,
        tables=hasattr(cls, "process_batch"),
        poison=checked_poison(poison),
    )


def mapped_operator(fn: Any, variables: Any) -> type[MappedState]:
    """The operator behind `map_state(by, fn, schema, variables)`."""
    if not callable(fn):
        raise TopologyError(
            f"map_state() takes a function, not {fn!r}.",
            cure="Write map_state('k', lambda row, state: …, …).",
        )
    if not isinstance(variables, Mapping) or not all(
        isinstance(name, str) and name.isidentifier() and isinstance(variable, Variable)
        for name, variable in variables.items()
    ):
        raise TopologyError(
            f"the variables {variables!r} of map_state() are no declarations by name.",
            cure="Write variables={'last': holdfast.Value(float)}.",
        )
    taken = sorted(name for name in variables if hasattr(MappedState, name))
    if taken:
        raise TopologyError(f"a variable cannot be called {taken[0]!r}.", cure="Choose another name.")
    # Declarations carry their names: copies, so that one may be used in several places.
    own = {name: copy.copy(variable) for name, variable in variables.items()}
    label = getattr(fn, "__name__", type(fn).__name__)
    name = "function" if label == "<lambda>" else label
    return type(name, (MappedState,), {**own, "_hf_function": staticmethod(fn), "__module__": __name__})


def _maker(operator: Any) -> tuple[Callable[[], KeyedOperator], type]:
    """How to make instances, and their class. An instance is copied now, so that what happens to it later does not
    matter."""
    if inspect.isclass(operator) and issubclass(operator, KeyedOperator):
        try:
            inspect.signature(operator).bind()
        except TypeError as error:
            raise TopologyError(
                f"{operator.__name__} cannot be made without arguments: {error}.",
                cure=f"Pass an instance: {operator.__name__}(…).",
            ) from error
        return operator, operator
    if isinstance(operator, KeyedOperator):
        return functools.partial(copy.deepcopy, copied(operator)), type(operator)
    raise TopologyError(
        f"{operator!r} is not a keyed operator.",
        cure="Pass a class derived from holdfast.KeyedOperator, or an instance of one; for a function use map_state().",
    )


def _check_methods(cls: type) -> None:
    found = [method for method in PROCESS if callable(getattr(cls, method, None))]
    if len(found) != 1:
        raise TopologyError(
            f"{cls.__name__} has {'both' if found else 'neither'} process(row, key) {'and' if found else 'nor'}"
            " process_batch(table, key).",
            cure="Define one of them: it is called with the rows of a key.",
        )


def _needs_time(cls: type, variables: Mapping[str, Variable]) -> bool:
    """Whether something depends on event time, which then goes row by row."""
    timers = callable(getattr(cls, "on_timer", None))
    needing = ["on_timer"] if timers else []
    needing += [f"the lifetime of {name!r}" for name, variable in variables.items() if variable.needs_time]
    if needing and callable(getattr(cls, "process_batch", None)):
        raise TopologyError(
            f"{cls.__name__} uses event time ({', '.join(needing)}) and process_batch: what happens between two rows"
            " of a batch would depend on where batches were cut.",
            cure="Use process(row, key) instead.",
        )
    return bool(needing)


def _check_fresh(made: KeyedOperator, cls: type) -> None:
    """An instance is not one key's: what it is made with does not become state."""
    if held := lives_of(made).held():
        raise TopologyError(
            f"{cls.__name__} sets the declared variable {next(iter(held))!r} when it is made, before there is a key.",
            cure="Give it default=… in its declaration.",
        )


def keyed_schemas(schema: pa.Schema, spec: KeyedSpec) -> list[pa.Schema]:
    """Columns that come out; refuses columns that are not there or do not fit."""
    key_fields(schema, spec.by)
    if spec.on is not None:
        time_type(schema, spec.on, "The event time is in")
    return list(spec.ports)
