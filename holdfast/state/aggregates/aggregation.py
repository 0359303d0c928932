"""Keyed aggregates as pure functions between Arrow tables; no loop per row.

A *state row* is one key with what its aggregates keep: `__hf_hash`, the key columns in canonical form, then the parts
of each accumulator as `__hf_<output>.<part>`. `partial` makes state rows from input rows, `combine` merges state rows
of any number of tables, `finish` makes the output. State tables hold each key once and ascend by hash.

    aggregation = Aggregation.plan(("sym",), (("n", "count", None), ("total", "sum", "qty")), schema)
    state = combine(aggregation, [state, partial(aggregation, batch)])
    output = finish(aggregation, state)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from holdfast.errors import StateError
from holdfast.state.aggregates.accumulator import Accumulator, Columns
from holdfast.state.aggregates.accumulators import accumulator
from holdfast.state.aggregates.arrow_groups import ROWS_MIN, grouped
from holdfast.state.aggregates.function_names import POSITION, UserFunction, columns_of, is_ordered
from holdfast.state.aggregates.ordered_values import row_of, with_position
from holdfast.state.aggregates.whole_number_paths import OrderedInts, batch_states
from holdfast.state.columns.grouping import Grouping, Runs, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, I64, canonical_key, key_hash, plain

Aggregate = tuple[str, str, str | None]
"""(output column, function, input column or None)."""


@dataclass(frozen=True)
class Aggregation:
    """What is grouped and computed, with the types settled. Plain data: travels to executors by pickle."""

    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    schema: pa.Schema
    """The input columns that are used, in canonical types; positions among them if some function needs them."""

    @staticmethod
    def plan(by: Sequence[str], aggregates: Sequence[Aggregate], schema: pa.Schema) -> Aggregation:
        """Settle types. StateError if a column is missing, a name is used twice or a function does not fit."""
        inputs = [name for _, function, column in aggregates for name in columns_of(function, column)]
        used = list(dict.fromkeys([*by, *inputs]))
        for name in used:
            if schema.get_field_index(name) < 0:
                raise StateError(
                    f"there is no column {name!r} to aggregate.", cure=f"Columns are {schema.names}."
                )
        outputs = [*by, *(output for output, _, _ in aggregates)]
        if not by or len(set(outputs)) != len(outputs):
            raise StateError(
                f"the output columns {outputs} are not distinct, or the key is empty.", cure="Rename."
            )
        fields = [pa.field(name, plain(pa.array([], schema.field(name).type)).type) for name in used]
        if any(is_ordered(function) for _, function, _ in aggregates):
            fields += [pa.field(name, pa.int64()) for name in POSITION]
        plan = Aggregation(tuple(by), tuple((o, f, i) for o, f, i in aggregates), pa.schema(fields))
        key_hash([pa.array([], plan.schema.field(name).type) for name in by])  # refuses types without a hash
        _ = plan.accumulators
        return plan

    @property
    def ordered(self) -> bool:
        """Whether some function depends on the order of rows: input rows then have positions."""
        return POSITION[0] in self.schema.names

    @cached_property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return tuple(
            accumulator(output, function, self._input_type(function, name))
            for output, function, name in self.aggregates
        )

    def _input_type(self, function: str, name: str | None) -> pa.DataType | None:
        if isinstance(function, UserFunction):
            return pa.struct([self.schema.field(column) for column in function.columns])
        return None if name is None else self.schema.field(name).type

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each accumulator's columns lie among the state columns."""
        ends = np.cumsum([0, *(len(acc.parts) for acc in self.accumulators)]).tolist()
        return tuple(slice(a, b) for a, b in pairwise(ends))

    @cached_property
    def key_fields(self) -> list[pa.Field]:
        return [self.schema.field(name) for name in self.by]

    @cached_property
    def state_schema(self) -> pa.Schema:
        """Columns of state rows."""
        kept = [
            pa.field(f"__hf_{output}.{part}", kind)
            for (output, _, _), acc in zip(self.aggregates, self.accumulators, strict=True)
            for part, kind in acc.parts
        ]
        return pa.schema([pa.field(HASH_COLUMN, pa.int64(), nullable=False), *self.key_fields, *kept])

    @cached_property
    def output_schema(self) -> pa.Schema:
        """Columns of the output: the key, then the results."""
        results = zip(self.aggregates, self.accumulators, strict=True)
        return pa.schema(
            [*self.key_fields, *(pa.field(output, acc.result) for (output, _, _), acc in results)]
        )

    def __getstate__(self) -> tuple[object, ...]:
        return (self.by, self.aggregates, self.schema)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(("by", "aggregates", "schema"), state, strict=True):
            object.__setattr__(self, name, value)


def kept_part(column: str) -> tuple[str, str] | None:
    """(output, part) of which a column of state rows tells; None: the hash or a key."""
    output, dot, part = column.removeprefix("__hf_").rpartition(".")
    return (output, part) if dot and column.startswith("__hf_") else None


BUCKET_ROWS = 1 << 20
"""Larger batches are ordered piece by piece."""


def partial(aggregation: Aggregation, batch: pa.Table) -> pa.Table:
    """State rows of the batch alone, one per key. Uses `__hf_hash` if the batch has it (as Spark computed it)."""
    found = summed_up(aggregation, batch)
    if found is not None:
        return found
    if batch.num_rows > BUCKET_ROWS:
        return pa.concat_tables([_ordered(aggregation, rows) for rows in _buckets(aggregation, batch)])
    return _ordered(aggregation, batch)


def _ordered(aggregation: Aggregation, batch: pa.Table) -> pa.Table:
    """The same, by bringing the rows of each key together."""
    columns, hashes, keys = _arrived(aggregation, batch)
    grouping = group_rows(as_int64(hashes), keys)
    order, runs = pa.array(grouping.order), grouping.runs
    ordered = OrderedInts(grouping.order)
    kept: list[pa.Array] = []
    for (_, function, name), acc in zip(aggregation.aggregates, aggregation.accumulators, strict=True):
        column = _input(columns, function, name)
        states = batch_states(acc, column, ordered, runs)
        if states is None:
            lifted = acc.lift(column, batch.num_rows)
            states = acc.fold([part.take(order) for part in lifted], runs)
        kept += states
    first = pa.array(grouping.first_rows)
    own = [column.take(first) for column in (hashes, *keys)]
    return pa.Table.from_arrays(own + kept, schema=aggregation.state_schema)


def _buckets(aggregation: Aggregation, batch: pa.Table) -> Iterator[pa.Table]:
    """The rows of a large batch in smaller ones, from the smallest hashes to the largest: ordering those stays in the processor's
    cache. If a key has more rows than a bucket they stay together."""
    if HASH_COLUMN not in batch.column_names:
        keys = key_hash([batch.column(name) for name in aggregation.by])
        batch = batch.append_column(HASH_COLUMN, pa.array(keys))
    batch = batch.combine_chunks()
    top = (as_int64(single(batch.column(HASH_COLUMN))) >> np.int64(56)).astype(np.int8)
    rows = batch.take(pa.array(np.argsort(top, kind="stable")))
    ends = np.cumsum(np.bincount(top.astype(np.int64) + 128, minlength=256))
    begin = 0
    for end, after in pairwise([*ends.tolist(), math.inf]):
        if end > begin and (after == math.inf or after - begin > BUCKET_ROWS // 2):
            yield rows.slice(begin, end - begin)
            begin = end


def summed_up(aggregation: Aggregation, batch: pa.Table) -> pa.Table | None:
    """The same for a large batch whose keys repeat and have no hashes yet; None: not by this shorter way."""
    if batch.num_rows < ROWS_MIN or HASH_COLUMN in batch.column_names:
        return None
    columns = {field.name: _typed(batch, field) for field in aggregation.schema}
    asked = [
        (acc, _input(columns, function, name))
        for (_, function, name), acc in zip(aggregation.aggregates, aggregation.accumulators, strict=True)
    ]
    found = grouped([columns[name] for name in aggregation.by], asked)
    return None if found is None else pa.Table.from_arrays(found, schema=aggregation.state_schema)


def combine(aggregation: Aggregation, tables: Sequence[pa.Table]) -> pa.Table:
    """State rows of several tables merged: one row per key. The order of tables does not matter, sums of doubles
    within the limits of double_sums.py."""
    rows, by = _columns(aggregation, tables), 1 + len(aggregation.by)
    grouping = group_rows(as_int64(rows[0]), rows[1:by])
    order, first = pa.array(grouping.order), pa.array(grouping.first_rows)
    kept = fold(aggregation, [column.take(order) for column in rows[by:]], grouping.runs)
    keys = [column.take(first) for column in rows[:by]]
    return pa.Table.from_arrays(keys + kept, schema=aggregation.state_schema)


def finish(aggregation: Aggregation, state: pa.Table) -> pa.Table:
    """The output row of each state row: key and results."""
    columns = [single(column) for column in state.columns]
    by = len(aggregation.by)
    return _finished(aggregation, columns[1 : 1 + by], columns[1 + by :])


def running(
    aggregation: Aggregation,
    lifted: pa.Table,
    state: pa.Table,
    *,
    each: bool = True,
    begins: Callable[[pa.Array, Grouping], I64] | None = None,
) -> tuple[pa.Table, pa.Table]:
    """(output, new state rows of the keys): what each key has come to or, with `each`, had after each row, in the order
    of the rows.

    `lifted`: rows as `lift` gives them, in the order that counts within a key. `state`: state rows of their keys as far as
    they have one; other keys do no harm. `begins`: where a key begins anew, from the last part of all rows and their
    grouping; None: never."""
    columns, by = _columns(aggregation, [state, lifted]), 1 + len(aggregation.by)
    grouping = group_rows(as_int64(columns[0]), columns[1:by])  # stable: the state row comes first in its key
    order, last = grouping.order, grouping.runs.ends - 1
    starts = grouping.starts if begins is None else begins(columns[-1], grouping)
    at = pa.array(order)
    kept = fold(aggregation, [column.take(at) for column in columns[by:]], Runs(starts, len(order), each))
    at_last = pa.array(last if each else starts.searchsorted(last, side="right") - 1)
    keys = [column.take(pa.array(order[last])) for column in columns[:by]]
    new_state = pa.Table.from_arrays(
        [*keys, *(column.take(at_last) for column in kept)], schema=aggregation.state_schema
    )
    if not each:
        return finish(aggregation, new_state), new_state
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    wanted, own = pa.array(place[state.num_rows :]), [c.slice(state.num_rows) for c in columns[1:by]]
    return _finished(aggregation, own, [column.take(wanted) for column in kept]), new_state


def lift(aggregation: Aggregation, batch: pa.Table) -> pa.Table:
    """Each input row as a state row of its own."""
    columns, hashes, keys = _arrived(aggregation, batch)
    kept = [
        part
        for (_, function, name), acc in zip(aggregation.aggregates, aggregation.accumulators, strict=True)
        for part in acc.lift(_input(columns, function, name), batch.num_rows)
    ]
    return pa.Table.from_arrays([hashes, *keys, *kept], schema=aggregation.state_schema)


def _arrived(aggregation: Aggregation, batch: pa.Table) -> tuple[dict[str, pa.Array], pa.Array, Columns]:
    """(input columns by name, hashes, canonical keys) of a batch."""
    columns = {field.name: _typed(batch, field) for field in aggregation.schema}
    keys = [canonical_key(columns[name]) for name in aggregation.by]
    if HASH_COLUMN in batch.column_names:
        return columns, single(batch.column(HASH_COLUMN)), keys
    return columns, pa.array(key_hash(keys)), keys


def _input(columns: Mapping[str, pa.Array], function: str, name: str | None) -> pa.Array | None:
    """What an accumulator is given: its column, with positions if it orders by them."""
    if name is None or not is_ordered(function):
        return None if name is None else columns[name]
    own = columns[name]
    if isinstance(function, UserFunction):
        own = row_of([columns[column] for column in function.columns], function.columns)
    return with_position(own, *(columns[position] for position in POSITION))


def _typed(batch: pa.Table, field: pa.Field) -> pa.Array:
    column = plain(batch.column(field.name))
    if pa.types.is_nested(field.type):
        column = column.cast(field.type)  # readers differ in what they call the elements of a list
    if column.type != field.type:
        raise StateError(
            f"column {field.name!r} is {column.type}, planned as {field.type}.", cure="Cast the input."
        )
    return column


def _columns(aggregation: Aggregation, tables: Sequence[pa.Table]) -> list[pa.Array]:
    for table in tables:
        if not table.schema.equals(aggregation.state_schema):
            raise StateError(
                f"stored state has columns {table.schema.names}, the operator wants {aggregation.state_schema.names}.",
                cure="Restore with the aggregates and types it was made with, or start from an empty store.",
            )
    return joined_columns(aggregation.state_schema, tables)


def fold(aggregation: Aggregation, kept: list[pa.Array], runs: Runs) -> list[pa.Array]:
    """The kept parts of state rows merged, each run into one."""
    pairs = zip(aggregation.accumulators, aggregation.parts, strict=True)
    return [column for acc, part in pairs for column in acc.fold(kept[part], runs)]


def _finished(aggregation: Aggregation, keys: list[pa.Array], kept: list[pa.Array]) -> pa.Table:
    pairs = zip(aggregation.accumulators, aggregation.parts, strict=True)
    results = [acc.finish(kept[part]) for acc, part in pairs]
    return pa.Table.from_arrays([*keys, *results], schema=aggregation.output_schema)


def joined_columns(schema: pa.Schema, tables: Sequence[pa.Table]) -> list[pa.Array]:
    """The columns of the tables one below the other; no copy if only one has rows."""
    filled = [table for table in tables if table.num_rows] or [schema.empty_table()]
    return [single(column) for column in pa.concat_tables(filled).columns]


def single(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array; no copy if it is one chunk already."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def as_int64(array: pa.Array) -> I64:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.int64)
