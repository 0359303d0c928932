"""The kind of operators that join two streams."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from holdfast.language.operators import joins
from holdfast.language.operators.joins import AsofMatch, IntervalMatch, JoinSpec, WindowMatch
from holdfast.language.operators.values import idle_text
from holdfast.operators.fingerprint import Fingerprint, key_of, keyed_frame
from holdfast.operators.joins.asof import AsofJoin
from holdfast.operators.joins.interval import IntervalJoin
from holdfast.operators.joins.joining import PairShape
from holdfast.operators.joins.ordered_join import OrderedJoin
from holdfast.operators.joins.window_join import WindowJoin
from holdfast.operators.kind import (
    KeyedKind,
    OperatorOf,
    Ordering,
    Planned,
    Ports,
    Schemas,
    Timing,
    register,
)
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.operators.stored.parts import NOTHING, STATE_PART, Known, Part
from holdfast.operators.stored.rows import StoredRows
from holdfast.operators.stored.views import Stored, View
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.joins.sides import MERGED_ROWS, number_of

_MATCHES = {IntervalMatch: "interval", WindowMatch: "window", AsofMatch: "asof"}
_SIDES = ("left", "right", "left waiting", "right waiting")


class StoredJoin(StoredRows):
    """Rows of both sides as they came, and those that wait."""

    def part_of(self, key: str, schema: pa.Schema) -> str:
        side = number_of(key)
        if side is None:
            return STATE_PART
        return _SIDES[2 if self.fingerprint.frame["match"] == "asof" and side == 0 else side]

    def part(self, name: str, schema: pa.Schema, known: Aggregation | None = None) -> Part:
        return Part(name, "rows", schema)

    def view(self, part: Part, known: Known = NOTHING) -> View:
        return Stored(part.schema, numbered="on" not in self.fingerprint.frame)


@register
class JoinKind(KeyedKind[JoinSpec]):
    spec = JoinSpec
    ports = Ports(2, 2, "has not two data ports", "Write a.join(b, …).")
    stored = StoredJoin

    def schemas(self, op: OperatorOf[JoinSpec], inputs: Schemas) -> list[pa.Schema]:
        left, right = inputs
        return [joins.join_schema(left, right, op.spec)]

    def stamps(self, op: OperatorOf[JoinSpec]) -> bool:
        """Results of as-of joins come in the order of time, so time is their place; those of interval joins have one, too."""
        return op.spec.on is not None and not isinstance(op.spec.match, WindowMatch)

    def orders(self, op: OperatorOf[JoinSpec]) -> bool:
        """A pair comes out when its later row arrives: in no order that would be the same for every cut into steps."""
        return not isinstance(op.spec.match, IntervalMatch)

    def timing(self, op: OperatorOf[JoinSpec], given: Sequence[Timing | None]) -> Timing | None:
        if not self.stamps(op) or op.spec.on is None:
            return None
        if isinstance(op.spec.match, IntervalMatch):
            # What comes is at most so far behind the watermark, and much of it is ahead: rows do not tell where time is.
            reach = max(op.spec.match.before_us, op.spec.match.after_us)
            return Timing(op.spec.on[0], {op.name: reach}, tells=False)
        return Timing(op.spec.on[0], {op.name: 0})

    def ordering(self, op: OperatorOf[JoinSpec]) -> Ordering:
        cure = "Join each source by itself, or join by an interval of time (within=)."
        return Ordering("joins", None if isinstance(op.spec.match, IntervalMatch) else cure)

    def keeps_groups(self, op: OperatorOf[JoinSpec]) -> bool:
        return isinstance(op.spec.match, WindowMatch) and op.spec.on is None

    def what(self, op: OperatorOf[JoinSpec]) -> str:
        spec = op.spec
        pairs = zip(spec.left_by, spec.right_by, strict=True)
        keys = ", ".join(a if a == b else f"{a}={b}" for a, b in pairs)
        return f"{spec.how}{f', by {keys}' if keys else ''}, {spec.match}{idle_text(spec.idle_us)}"

    def fingerprint(self, op: OperatorOf[JoinSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        spec = op.spec
        keys = zip(inputs, (spec.left_by, spec.right_by), strict=True)
        frame = keyed_frame(
            tuple(key_of(schema, by) for schema, by in keys), match=_MATCHES[type(spec.match)], on=spec.on
        )
        return Fingerprint(self.name, frame)

    def logic(self, planned: Planned[JoinSpec]) -> KeyedLogic:
        spec, (left, right) = planned.op.spec, planned.inputs
        by, schemas = (spec.left_by, spec.right_by), (left, right)
        shape = PairShape(planned.output, joins.right_names(right, spec), spec.where)
        if spec.on is None:
            assert isinstance(spec.match, WindowMatch)
            form = planned.op.annotations.checkpoint_form
            given = None if form is None else form.group_rows
            profiled = given is None and (form is None or form.kind != "eventual")
            windows = (spec.match.left, spec.match.right)
            return WindowJoin(by, schemas, windows, shape, given or MERGED_ROWS, is_profiled=profiled)
        first, second = (
            planned.timed_port(port, by[port], spec.on[port], spec.delays_us, spec.idle_us) for port in (0, 1)
        )
        ports = (first, second)
        outer = spec.how == "left"
        match spec.match:
            case IntervalMatch(before_us=before, after_us=after):
                return IntervalJoin(ports, schemas, shape, outer, before, after, planned.stamp)
            case AsofMatch(tolerance_us=tolerance, exact=exact):
                return AsofJoin(ports, schemas, shape, outer, tolerance, exact, planned.stamp)
            case WindowMatch(left=mine, right=other):
                return OrderedJoin(ports, schemas, shape, outer, (mine, other))
