"""What a running operator can tell those who read its stored rows, and a manifest cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation

UTC = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Known:
    """All of it may be missing."""

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
