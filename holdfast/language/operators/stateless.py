"""What users say in the stateless verbs of `Stream`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from holdfast.language.graph import Spec
from holdfast.language.hosted import Poison


@dataclass(frozen=True, slots=True)
class FilterSpec(Spec):
    condition: Any
    """A Spark Column or a SQL string."""


@dataclass(frozen=True, slots=True)
class SelectSpec(Spec):
    columns: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WithColumnsSpec(Spec):
    columns: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DropSpec(Spec):
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameSpec(Spec):
    """New names by old ones."""

    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TransformSpec(Spec):
    """`fn(df) -> df` on a Spark DataFrame. Keeps order only if it returns the position columns."""

    fn: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class SqlSpec(Spec):
    """A query over the view `this`."""

    query: str


@dataclass(frozen=True, slots=True)
class MapArrowSpec(Spec):
    """`fn(pa.RecordBatch or Table) -> pa.Table`, row-wise and stateless, run beside the data; runs without Spark too."""

    fn: Callable[[pa.Table], pa.Table]
    schema: pa.Schema
    poison: Poison | None = None

    @property
    def letters(self) -> bool:
        """There is a stream of errors."""
        return self.poison is not None and self.poison.then == "quarantine"


@dataclass(frozen=True, slots=True)
class UnionSpec(Spec):
    pass


KEPT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ReplayableSpec(Spec):
    """Rows as they come; a region may begin here. What entered the region since its last epoch is in the store, and comes
    again after a reset and in the next run."""

    keep_bytes: int = KEPT_BYTES
    """So much of what arrives while the region is parked is kept for it."""


@dataclass(frozen=True, slots=True)
class SplitSpec(Spec):
    """A row leaves by the port of the first condition that holds; with `otherwise`, the rest by one more port."""

    conditions: tuple[Any, ...]
    otherwise: bool
    names: tuple[str, ...] = ()
    """What the user calls the ports, for `explain()`; empty: they have no names."""
