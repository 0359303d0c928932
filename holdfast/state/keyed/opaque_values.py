"""Keyed maps whose values are bytes that only their owner understands. The newest row of a key counts; a null deletes it.

A deleted key's row stays until a merge reaches the oldest segments: before that, it hides older rows of its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.state.aggregates.aggregation import Aggregation, single
from holdfast.state.columns.grouping import Bools
from holdfast.state.columns.hashing import HASH_COLUMN
from holdfast.state.keyed.keyed_map import Useful

STATE = "__hf_state"


@dataclass(frozen=True)
class OpaqueRows(Aggregation):
    """Rows of hash, key and bytes, in the keyed maps that aggregates use."""

    @staticmethod
    def of_keys(by: Sequence[str], schema: pa.Schema) -> OpaqueRows:
        """Settle the types of the key columns. StateError if one cannot be a key."""
        plan = Aggregation.plan(by, (), schema)
        return OpaqueRows(plan.by, (), plan.schema)

    @cached_property
    def state_schema(self) -> pa.Schema:
        hashes = pa.field(HASH_COLUMN, pa.int64(), nullable=False)
        return pa.schema([hashes, *self.key_fields, pa.field(STATE, pa.large_binary())])

    @property
    def keys(self) -> Aggregation:
        """The keys alone: to find those of rows."""
        return Aggregation(self.by, (), self.schema)


def present(table: pa.Table) -> Bools:
    """Which rows have a state."""
    valid = single(table.column(STATE)).is_valid()
    return np.array(valid.to_numpy(zero_copy_only=False), dtype=np.bool_)


PRESENT = Useful(present, in_base=True)
