"""The parts of an operator's stored rows, and for each the rule by which rows count:

- newest: a key's row in the newest segment that has the key; a row whose state is null deletes the key;
- sums: rows of the same key are added up (panes of windows);
- rows: every row counts, except those that were used up below a time that the operator's meta tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, kept_part
from holdfast.state.keyed.opaque_values import STATE

Rule = Literal["newest", "sums", "rows"]

STATE_PART = "state"
RANGE_ROWS = 1 << 18
"""About how many rows are taken at once."""


@dataclass(frozen=True)
class Part:
    """One sort of rows an operator keeps, and how to read them. Plain data: travels to executors."""

    name: str
    rule: Rule
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    """What tells rows apart; none where the rule is rows."""
    aggregation: Aggregation | None = None
    """How sums are added up."""
    used_up: tuple[str, int] | None = None
    """Rows whose time in this column is below that number have left."""


def keys_of(schema: pa.Schema) -> tuple[str, ...]:
    """The key columns of a keyed map: those between the hash and what is kept."""
    return tuple(takewhile(lambda name: name != STATE and kept_part(name) is None, schema.names[1:]))


UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Known:
    """What a running operator can tell those who read its stored rows, and a manifest cannot. All of it may be missing."""

    aggregation: Aggregation | None = None
    time_type: pa.DataType = UTC
    """Of event times."""
    ends_us: tuple[int, int] | None = None
    """Lifetime, and the time up to which keys have ended."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of variables."""
    classes: tuple[tuple[str, str, type], ...] = ()
    """Registered classes that states hold: (kind, name, class). Tasks register them again."""


NOTHING = Known()
