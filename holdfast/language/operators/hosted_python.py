"""Python operators that are hosted in the driver: `stream.apply`, and the spec behind it and `Topology.operator`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.checkpoint_form import CheckpointForm, checked_form
from holdfast.language.context import Context
from holdfast.language.graph import HostedSpec, StreamRef
from holdfast.language.hosted import (
    METHODS,
    PROCESS,
    Missing,
    OnError,
    Operator,
    Poison,
    PoisonThen,
    checked_missing,
    checked_on_error,
    checked_poison,
    maker,
    threads_of,
)
from holdfast.language.schema import to_arrow

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

Schemas = Sequence[Any] | Mapping[str, Any]
"""Of several output ports: in their order, or by name."""


def hosted_spec(
    operator: Any,
    schema: Any,
    schemas: Schemas,
    checkpoint: CheckpointForm | None,
    missing: Missing,
    on_error: OnError,
    poison: PoisonThen | Poison | None = None,
) -> HostedSpec:
    """`schema`: of its one output port, or None; then `schemas` are those of its ports."""
    make, label = maker(operator)
    columns, names = output_columns(schema, schemas, label)
    known = inspect.isclass(operator) or any(hasattr(operator, method) for method in METHODS)
    sample = operator if known else make()
    makes_tables = on_error == "stream" and hasattr(sample, "process_batch")
    asked = "on_error=" if on_error == "stream" else "poison="
    if (on_error == "stream" or poison is not None) and threads_of(sample, label):
        raise TopologyError(
            f"{label} has threads of its own and is used with {asked}: what they did since a row cannot be taken back.",
            cure=f"Leave {asked} out, and catch what your code raises in process().",
        )
    if poison is not None and hasattr(sample, "process_batch"):
        raise TopologyError(
            f"{label} has process_batch() and is used with poison=: nobody knows which row of a table failed.",
            cure="Define process(row, …) instead, or leave poison= out.",
        )
    return HostedSpec(
        make,
        columns,
        label,
        checked_form(checkpoint),
        checked_missing(missing),
        checked_on_error(on_error, makes_tables, label),
        names,
        untimed(sample),
        _check_of(sample, make),
        any(callable(getattr(sample, method, None)) for method in PROCESS),
        callable(getattr(sample, "may_checkpoint", None)),
        threads_of(sample, label),
        bool(getattr(sample, "replayable", False)),
        checked_poison(poison),
    )


def output_columns(
    schema: Any, schemas: Schemas, label: str
) -> tuple[tuple[pa.Schema, ...], tuple[str, ...]]:
    """(columns of each output port, their names if they have some), of an operator that has one or several."""
    if schema is not None and schemas:
        raise TopologyError(f"{label} was given schema and schemas.", cure="Give one of them.")
    names = _names(schemas, label) if isinstance(schemas, Mapping) else ()
    given = list(schemas.values()) if isinstance(schemas, Mapping) else list(schemas)
    wanted = [schema] if schema is not None else given
    return tuple(to_arrow(each, f"the schema of {label}") for each in wanted), names


def untimed(operator: Any) -> str:
    """What `HostedSpec.untimed` says of an operator, or its class: which rows have no place in the time of its input."""
    if threads_of(operator, ""):
        return "has threads of its own: their rows have no place in the time of its input"
    if hasattr(operator, "process_batch") and not hasattr(operator, "process_each"):
        return "has process_batch(): nobody knows which rows of a table it made its rows of"
    drains = getattr(operator if inspect.isclass(operator) else type(operator), "drain", Operator.drain)
    if drains is not Operator.drain:
        return "has drain(): where its rows are in time would depend on when epochs are"
    return ""


def _check_of(sample: Any, make: Callable[[], Any]) -> Callable[[Context], Any] | None:
    """How to ask the operator about its place: by its class if that answers, else by an instance made for it."""
    if not callable(getattr(sample, "check", None)):
        return None
    if inspect.isclass(sample) and not isinstance(
        inspect.getattr_static(sample, "check"), classmethod | staticmethod
    ):
        return lambda context: make().check(context)
    return sample.check  # type: ignore[no-any-return]


def _names(schemas: Mapping[str, Any], label: str) -> tuple[str, ...]:
    for name in schemas:
        if not isinstance(name, str) or not name.isidentifier() or name == "errors":
            raise TopologyError(
                f"{label} cannot have an output called {name!r}.",
                cure="Use letters, digits and underscores; 'errors' is what on_error=\"stream\" makes.",
            )
    return tuple(schemas)


class Streams(list["Stream"]):
    """The streams that one operator makes, in the order of its output ports; also by name, if the ports have names."""

    def __init__(self, streams: Iterable[Stream], names: Sequence[str] = ()) -> None:
        super().__init__(streams)
        self.names = tuple(names)

    @staticmethod
    def made_by(first: Stream, schemas: Sequence[Any], names: Sequence[str]) -> Streams:
        ports = range(len(schemas))
        return Streams([replace(first, ref=StreamRef(first.ref.operator, p)) for p in ports], names)

    @property
    def errors(self) -> Stream:
        """Rows at which the operator failed: see `Stream.errors`."""
        return self[0].errors

    @overload
    def __getitem__(self, port: SupportsIndex | str) -> Stream: ...
    @overload
    def __getitem__(self, port: slice) -> list[Stream]: ...
    def __getitem__(self, port: Any) -> Any:
        if not isinstance(port, str):
            return super().__getitem__(port)
        if port not in self.names:
            raise TopologyError(
                f"There is no output {port!r}.",
                cure=f"There are: {', '.join(self.names) or 'none with a name'}.",
            )
        return super().__getitem__(self.names.index(port))


class HostedVerbs(Verbs):
    """Verbs of `Stream`."""

    __slots__ = ()

    @overload
    def apply(
        self,
        operator: Any,
        schema: Any,
        *,
        name: str | None = ...,
        checkpoint: CheckpointForm | None = ...,
        missing: Missing = ...,
        on_error: OnError = ...,
        poison: PoisonThen | Poison | None = ...,
    ) -> Stream: ...
    @overload
    def apply(
        self,
        operator: Any,
        *,
        schemas: Schemas,
        name: str | None = ...,
        checkpoint: CheckpointForm | None = ...,
        missing: Missing = ...,
        on_error: OnError = ...,
        poison: PoisonThen | Poison | None = ...,
    ) -> Streams: ...
    def apply(
        self,
        operator: Any,
        schema: Any = None,
        *,
        schemas: Schemas = (),
        name: str | None = None,
        checkpoint: CheckpointForm | None = None,
        missing: Missing = "refuse",
        on_error: OnError = "fail",
        poison: PoisonThen | Poison | None = None,
    ) -> Stream | Streams:
        """Send the rows through a Python operator hosted in the driver: a class, an instance, or a function making one.

        `schemas={"main": "…", "late": "…"}`: it has several outputs; `main, late = rows.apply(…)`, or `made["late"]`. What
        it returns leaves by the first, what it submits by the one it names: `self.submit(row, port="late")`.
        `checkpoint`: how declared variables are stored, `holdfast.incremental(…)` (the default) or `holdfast.full()`.
        A row must have the columns of its schema; with `missing="null"` those that it does not name are null. With
        `on_error="stream"` a row whose processing raised is in `.errors` of the stream, and the operator goes on without it. With
        `poison=`, a row that raises or hangs several times in the same way is, or parks the region (`hf.Poison`).
        For several inputs use `Topology.operator`."""
        spec = hosted_spec(operator, schema, schemas, checkpoint, missing, on_error, poison)
        if not spec.schemas:
            raise TopologyError(f"apply() of {spec.label} has no schema.", cure="Give schema or schemas=….")
        made = self._then(spec, name, outputs=len(spec.ports))
        return made if schema is not None else Streams.made_by(made, spec.schemas, spec.names)
