"""Python operators with declared state per key, as one partition runs them.

A partition keeps a keyed map of encoded states (`state/keyed/opaque_values.py`, `state/variables/key_state.py`) and an index of the times at
which keys want to be woken (`state/variables/wakeups.py`). A step takes the keys that have rows and those that are due, one after
the other; each gets its timers and rows in the order that `language/operators/keyed_python.py` promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from holdfast.ids import OperatorName
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.operators.keyed_python import KeyedSpec, keyed_schemas
from holdfast.language.operators.values import Ttl
from holdfast.operators.fingerprint import Fingerprint, key_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, Timing, register
from holdfast.operators.python.key_turns import Answer, Turn, Turns
from holdfast.operators.python.places import Places
from holdfast.operators.shared.keyed_maps import with_positions
from holdfast.operators.shared.lifetimes import Arrived, Marked, TimedMapLogic
from holdfast.operators.shared.logic import Applied, Place, Segments, with_hashes
from holdfast.operators.stored.parts import NOTHING, STATE_PART, Known, Part
from holdfast.operators.stored.rows import StoredRows
from holdfast.operators.stored.variables_view import Variables
from holdfast.operators.stored.views import Stored, View
from holdfast.state.aggregates.aggregation import Aggregation, as_int64, lift, single
from holdfast.state.columns.grouping import Grouping, group_rows
from holdfast.state.columns.hashing import HASH_COLUMN, owned
from holdfast.state.keyed.expiry import LONG_AGO, SEEN
from holdfast.state.keyed.lookup import find_rows
from holdfast.state.keyed.opaque_values import PRESENT, OpaqueRows
from holdfast.state.keyed.segment import Segment
from holdfast.state.values import user_classes
from holdfast.state.variables import wakeups
from holdfast.state.variables.declarations import VariableShape, declared
from holdfast.state.variables.variables import Value

KEYS_AT_ONCE = 1 << 15
"""What a step makes of so many keys are objects of Python's at one time."""


@dataclass(frozen=True)
class KeyedPython(TimedMapLogic):
    """`meta`, with event time only: {"reached": the largest so far, "mark": the watermark up to which keys were woken}."""

    keyed_map: OpaqueRows
    operator: OperatorName
    spec: KeyedSpec
    input: pa.Schema
    classes: tuple[tuple[str, str, type], ...] = ()
    """Registered classes that states hold: (kind, name, class). Tasks register them again."""
    aside: bool = False
    """Event time travels beside the rows."""
    stamped_ports: frozenset[int] = frozenset()
    """Outputs that carry positions."""

    @staticmethod
    def plan(
        operator: OperatorName,
        spec: KeyedSpec,
        schema: pa.Schema,
        aside: bool = False,
        stamped: frozenset[int] = frozenset(),
    ) -> KeyedPython:
        variables = declared(type(spec.make()))
        kinds = [kind for variable in variables.values() for kind in variable.kinds]
        known = tuple(found for kind in kinds if (found := user_classes.registration(kind)) is not None)
        rows = OpaqueRows.of_keys(spec.by, schema)
        return KeyedPython(rows, spec.schemas[0], False, operator, spec, schema, known, aside, stamped)

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.input.names, *POSITION_COLUMNS),)

    @property
    def outputs(self) -> tuple[pa.Schema, ...]:
        return tuple(
            with_positions(schema, stamped)
            for schema, stamped in zip(self.spec.ports, self._stamped, strict=True)
        )

    @property
    def _stamped(self) -> list[bool]:
        return [port in self.stamped_ports for port in range(len(self.spec.ports))]

    @property
    def wants_stairs(self) -> bool:
        return self.spec.timers and bool(self.stamped_ports)

    @property
    def time(self) -> Ttl | None:
        """Where event time is. Its length has no meaning here."""
        if self.spec.on is None:
            return None
        return Ttl(0, self.spec.on, self.spec.delay_us or 0, self.aside)

    @cached_property
    def _entries(self) -> pa.Schema:
        return wakeups.wake_schema(self.keyed_map.key_fields)

    def apply(self, segments: Segments, meta: Any, arrived: Arrived, place: Place) -> Applied:
        for registered in self.classes:
            user_classes.register_again(*registered)
        before: int | None = (meta or {}).get("mark")
        marked = self.marked(arrived, meta)
        # A run with another delay must not fall back, nor jump over what was not woken yet.
        mark = marked.mark if before is None else max(marked.mark, before)
        after = None if self.spec.on is None else {**marked.meta, "mark": mark}
        states, entries = wakeups.parted(segments)
        due = wakeups.due(entries, self._entries, before, mark)
        if not marked.rows.num_rows and not due.num_rows:
            return Applied(segments, tuple(schema.empty_table() for schema in self.outputs), after)
        if not marked.rows.num_rows:
            marked = replace(marked, rows=self._nothing)
        keys, grouping = self._keys(marked.rows, due)
        at, places = self._at(marked, before), self._places(marked, arrived)
        turns = Turns(self.operator, self.spec, self._rows(marked), at, (before, mark), places)
        made = [
            self._worked(
                turns, keys.slice(begin, KEYS_AT_ONCE), begin, grouping, marked.rows.num_rows, states
            )
            for begin in range(0, keys.num_rows, KEYS_AT_ONCE)
        ]
        outputs = turns.outputs()  # first: what fails must not leave a segment behind
        changed = pa.concat_tables([piece.changed for piece in made])
        fresh = pa.concat_tables([piece.fresh for piece in made])
        states = self.advanced(states, changed, place, PRESENT)
        entries = wakeups.advanced(entries, fresh, mark, place)
        sizes = _added_up([*(piece.sizes for piece in made), {"errors": self._failed(outputs)}])
        return Applied((*states, *entries), outputs, after, sizes)

    def _worked(
        self, turns: Turns, keys: pa.Table, begin: int, grouping: Grouping, rows: int, states: Segments
    ) -> _Worked:
        """Some of the keys at work; `begin`: the number of the first of them. When time goes on by a month, all keys may be due."""
        stored = self._stored(states, keys)
        answers = list(turns.take(self._turns(keys, begin, grouping, rows, stored)))
        turns.put_aside(self._stamped)
        return _Worked(
            self._changed(keys, stored, answers), self._fresh(keys, answers), _sizes(stored, answers)
        )

    def _places(self, marked: Marked, arrived: Arrived) -> Places | None:
        if not self.stamped_ports:
            return None
        return Places.of(marked.rows, arrived.steps, self.spec.delay_us or 0)

    def _failed(self, outputs: Sequence[pa.Table]) -> int:
        return int(outputs[-1].num_rows) if self.spec.letters else 0

    @property
    def _nothing(self) -> pa.Table:
        """No rows, where only timers are due."""
        rows = with_hashes(self.input.empty_table(), self.spec.by)
        return rows.append_column(SEEN, pa.array([], pa.int64()))

    def _keys(self, rows: pa.Table, due: pa.Table) -> tuple[pa.Table, Grouping]:
        """(the keys at work, each once; rows and, behind them, entries that are due, by key)."""
        every = pa.concat_tables(
            [
                lift(self.keyed_map.keys, rows),
                due.select([HASH_COLUMN, *self.spec.by]).cast(self.keyed_map.keys.state_schema),
            ]
        )
        columns = [single(column) for column in every.columns]
        grouping = group_rows(as_int64(columns[0]), columns[1:])
        first = pa.array(grouping.first_rows)
        return pa.Table.from_arrays([column.take(first) for column in columns], schema=every.schema), grouping

    def _stored(self, states: Segments, keys: pa.Table) -> dict[int, bytes]:
        """The states of those keys that have one."""
        found = find_rows(states, keys, self.keyed_map)
        pairs = zip(found.rows.tolist(), found.values[0].to_pylist(), strict=True)
        return {row: data for row, data in pairs if data is not None}

    def _rows(self, marked: Marked) -> pa.Table:
        return marked.rows.select(self.input.names).cast(self.input)

    def _at(self, marked: Marked, before: int | None) -> tuple[list[int], list[int]]:
        """(event times, watermarks) of the rows."""
        if self.spec.on is None:
            nowhere = [LONG_AGO] * marked.rows.num_rows
            return nowhere, nowhere
        marks = np.maximum(marked.marks, LONG_AGO if before is None else before)
        return as_int64(single(marked.rows.column(SEEN))).tolist(), marks.tolist()

    def _turns(
        self, keys: pa.Table, begin: int, grouping: Grouping, rows: int, stored: Mapping[int, bytes]
    ) -> Iterator[Turn]:
        values = [keys.column(name).to_pylist() for name in self.spec.by]
        names = values[0] if len(values) == 1 else list(zip(*values, strict=True))
        bounds = np.append(grouping.starts[begin : begin + len(names) + 1], len(grouping.order))
        for number, key in enumerate(names):
            members = grouping.order[bounds[number] : bounds[number + 1]]
            yield Turn(key, members[members < rows].tolist(), stored.get(number))

    def _changed(self, keys: pa.Table, stored: Mapping[int, bytes], answers: Sequence[Answer]) -> pa.Table:
        """States that are others now; of keys that are forgotten null."""
        changed = [row for row, answer in enumerate(answers) if answer.data != stored.get(row)]
        data = pa.array([answers[row].data for row in changed], pa.large_binary())
        rows = [single(column) for column in keys.take(pa.array(changed, pa.int64())).columns]
        return pa.Table.from_arrays([*rows, data], schema=self.keyed_map.state_schema)

    def _fresh(self, keys: pa.Table, answers: Sequence[Answer]) -> pa.Table:
        """Entries to be added to the index."""
        waking = [(row, answer.wake) for row, answer in enumerate(answers) if answer.wake is not None]
        times = pa.array([wake for _, wake in waking], pa.int64())
        rows = keys.take(pa.array([row for row, _ in waking], pa.int64()))
        return pa.Table.from_arrays([times, *(single(c) for c in rows.columns)], schema=self._entries)

    def parted(self, segments: Segments) -> tuple[Segments, Segments]:
        return wakeups.parted(segments)

    def counted_rows(self, counts: Mapping[str, int]) -> int:
        return counts.get("keys", 0)

    def repartition(self, old: Sequence[Segments], partition: int, partitions: int, place: Place) -> Segments:
        both = [wakeups.parted(segments) for segments in old]
        merged = super().repartition([states for states, _ in both], partition, partitions, place)

        entries = [entry for _, entries in both for entry in entries]
        mine = partial(owned, partition=partition, partitions=partitions)
        return (*merged, *wakeups.joined(entries, self._entries, mine, place))

    def evolved(self, segment: Segment, table: pa.Table) -> pa.Table:
        return table  # states are bytes, in which variables are found by name

    def known(self, meta: Any) -> Known:
        found = declared(type(self.spec.make()))
        defaults = {name: variable.default for name, variable in found.items() if isinstance(variable, Value)}
        return Known(defaults=defaults, classes=self.classes)


@dataclass(frozen=True, slots=True)
class _Worked:
    """What a step did to some of its keys: states, entries to be added to the index, and how many keys and bytes there are more."""

    changed: pa.Table
    fresh: pa.Table
    sizes: dict[str, int]


def _sizes(stored: Mapping[int, bytes], answers: Sequence[Answer]) -> dict[str, int]:
    """How the number of keys and the bytes of their states changed. Added up they are what there is."""
    keys = sum(answer.data is not None for answer in answers) - len(stored)
    size = sum(len(answer.data) for answer in answers if answer.data is not None)
    return {"keys": keys, "state_bytes": size - sum(map(len, stored.values()))}


def _added_up(sizes: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Without what is nothing."""
    names = dict.fromkeys(name for each in sizes for name in each)
    total = {name: sum(each.get(name, 0) for each in sizes) for name in names}
    return {name: change for name, change in total.items() if change}


class StoredStates(StoredRows):
    """States of keys, and entries of the index of wake-ups."""

    def part_of(self, key: str, schema: pa.Schema) -> str:
        return "wake-ups" if schema.names[0] == wakeups.WAKE else STATE_PART

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        if name == STATE_PART:
            return super().part(name, schema, known)
        mark = self.meta.get("mark")
        return Part(name, "rows", schema, used_up=None if mark is None else (wakeups.WAKE, mark + 1))

    def view(self, part: Part, known: Known = NOTHING) -> View:
        if part.name != STATE_PART:
            return Stored(part.schema)
        variables = self.fingerprint.entries["variables"].items()
        shapes = tuple((name, VariableShape(**of)) for name, of in variables)
        return Variables(part.schema, shapes, known.defaults, known.classes)


@register
class KeyedPythonKind(KeyedKind[KeyedSpec]):
    spec = KeyedSpec
    stored = StoredStates
    needs_positions = Ordering(
        "processes the rows of a key in their order",
        "Use one keyed operator per source, or bring the rows into one order before: .sort(on='at', …).",
    )

    def schemas(self, op: OperatorOf[KeyedSpec], inputs: Schemas) -> list[pa.Schema]:
        return keyed_schemas(inputs[0], op.spec)

    def carries(self, op: OperatorOf[KeyedSpec]) -> bool:
        return not op.spec.tables

    def orders(self, op: OperatorOf[KeyedSpec]) -> bool:
        """Timers of several keys, and rows of others, may be at one place."""
        return not op.spec.timers

    def timings(self, op: OperatorOf[KeyedSpec], given: Sequence[Timing | None]) -> list[Timing | None]:
        """Rows have places of the input, so its watermark is theirs. What they have in its column may be any time."""
        time = given[0]
        if time is None or op.spec.tables:
            return [None] * op.outputs
        errors = [None] * (op.outputs - len(op.spec.schemas))
        return [*(_handed_on(schema, time) for schema in op.spec.schemas), *errors]

    def untimed(self, op: OperatorOf[KeyedSpec]) -> str:
        return (
            "has process_batch(): nobody knows which rows of a table it made its rows of"
            if op.spec.tables
            else ""
        )

    def what(self, op: OperatorOf[KeyedSpec]) -> str:
        state = ", ".join(f"{name} {shape}" for name, shape in op.spec.variables)
        return f"{op.spec.label} by {', '.join(op.spec.by)}: {state or 'no state'}"

    def fingerprint(self, op: OperatorOf[KeyedSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        frame = keyed_frame(key_of(inputs[0], op.spec.by), on=op.spec.on)
        variables = {
            name: {"form": shape.form, "type": shape.type, **shape.lengths}
            for name, shape in op.spec.variables
        }
        return Fingerprint(self.name, frame, {"variables": variables})

    def logic(self, planned: Planned[KeyedSpec]) -> KeyedPython:
        found = (planned.op.name, planned.op.spec, planned.inputs[0])
        return KeyedPython.plan(*found, 0 in planned.aside, planned.stamped_ports)


def _handed_on(schema: pa.Schema, time: Timing) -> Timing:
    """The event time of an output with these columns."""
    has_it = time.column in schema.names and pt.is_timestamp(schema.field(time.column).type)
    return replace(time, column=time.column if has_it else None, direct=False, tells=False)
