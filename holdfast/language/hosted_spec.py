"""From the arguments of `Stream.apply` and `Topology.operator` to the spec of a Python operator in the driver."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import TopologyError
from holdfast.language.checkpoint_form import CheckpointForm, checked_form
from holdfast.language.graph import HostedSpec
from holdfast.language.hosted import PROCESS, Missing, OnError, checked_missing, checked_on_error, maker
from holdfast.language.schema import to_arrow

Schemas = Sequence[Any] | Mapping[str, Any]
"""Of several output ports: in their order, or by name."""


def hosted_spec(
    operator: Any,
    schema: Any,
    schemas: Schemas,
    checkpoint: CheckpointForm | None,
    missing: Missing,
    on_error: OnError,
) -> HostedSpec:
    """`schema`: of its one output port, or None; then `schemas` are those of its ports."""
    make, label = maker(operator)
    if schema is not None and schemas:
        raise TopologyError(f"{label} was given schema and schemas.", cure="Give one of them.")
    names = _names(schemas, label) if isinstance(schemas, Mapping) else ()
    given = list(schemas.values()) if isinstance(schemas, Mapping) else list(schemas)
    columns = tuple(
        to_arrow(each, f"the schema of {label}") for each in ([schema] if schema is not None else given)
    )
    known = inspect.isclass(operator) or any(hasattr(operator, method) for method in PROCESS)
    makes_tables = on_error == "stream" and hasattr(operator if known else make(), "process_batch")
    return HostedSpec(
        make,
        columns,
        label,
        checked_form(checkpoint),
        checked_missing(missing),
        checked_on_error(on_error, makes_tables, label),
        names,
    )


def _names(schemas: Mapping[str, Any], label: str) -> tuple[str, ...]:
    for name in schemas:
        if not isinstance(name, str) or not name.isidentifier() or name == "errors":
            raise TopologyError(
                f"{label} cannot have an output called {name!r}.",
                cure="Use letters, digits and underscores; 'errors' is what on_error=\"stream\" makes.",
            )
    return tuple(schemas)
