"""The verbs of `Stream` that run Python code with state per key on the executors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.language.annotations import Duration
from holdfast.language.operators.keyed_python import keyed_spec, mapped_operator
from holdfast.language.verbs import Verbs
from holdfast.state.variables.declarations import Variable

if TYPE_CHECKING:
    from holdfast.language.stream import Stream


class KeyedVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    def keyed(
        self,
        by: str | Sequence[str],
        operator: Any,
        schema: Any,
        *,
        name: str | None = None,
        on: str | None = None,
        delay: Duration = 0,
    ) -> Stream:
        """Send the rows of each key through a Python operator on the executors, in the order of their positions:
        `clicks.keyed("user", Sessions, "user string, n long", name="sessions", on="at", delay=5)`.

        `operator`: a class derived from `holdfast.KeyedOperator`, or an instance. `schema`: what it makes. `on`: the
        timestamp column with the event time, for timers and lifetimes; `delay`: how far rows may lag behind the latest
        one. What comes out has no order of its own.
        """
        return self._then(keyed_spec(by, operator, schema, on, delay), name)

    def map_state(
        self,
        by: str | Sequence[str],
        fn: Callable[[Any, Any], Any],
        schema: Any,
        variables: Mapping[str, Variable],
        *,
        name: str | None = None,
        on: str | None = None,
        delay: Duration = 0,
    ) -> Stream:
        """Apply `fn(row, state)` to each row, in the order of positions within its key; it gives a row, several, or None.

        `state` has the declared variables of the row's key as attributes:
        `prices.map_state("sym", rise, "sym string, rise double", {"last": holdfast.Value(float)}, name="rises")`.
        """
        return self.keyed(by, mapped_operator(fn, variables), schema, name=name, on=on, delay=delay)
