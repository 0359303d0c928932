"""The kinds of operators that aggregate: running aggregates, and aggregates over windows of time or of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pyarrow as pa

from holdfast.language.operators.aggregates import (
    EMITS,
    Aggregates,
    AggregateSpec,
    WindowSpec,
    aggregate_schema,
)
from holdfast.language.operators.rows import check_ttl_column
from holdfast.language.operators.values import (
    CountWindow,
    DeltaWindow,
    EventWindow,
    MarkedWindow,
    SessionWindow,
    TimeWindow,
)
from holdfast.language.operators.windows import attribute_of, window_schema
from holdfast.operators.aggregates import running
from holdfast.operators.aggregates.eventual_rows import EventualCounted, EventualRuns
from holdfast.operators.aggregates.eventual_times import EventualSessions, EventualWindowed
from holdfast.operators.aggregates.sessions import SessionAggregate
from holdfast.operators.aggregates.windowed import WindowedAggregate
from holdfast.operators.fingerprint import Fields, Fingerprint, key_of, keyed_frame, type_text
from holdfast.operators.kind import (
    KeyedKind,
    OperatorOf,
    Ordering,
    Planned,
    Schemas,
    Timing,
    refuse,
    register,
)
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.operators.stored.rows import RowsOfWindows
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.aggregates.function_names import FUNCTIONS, is_function, is_growing, is_ordered
from holdfast.state.keyed.expiry import remembering
from holdfast.state.windows.count_windows import CountWindows
from holdfast.state.windows.delta_windows import DeltaWindows
from holdfast.state.windows.row_windows import ROWS
from holdfast.state.windows.run_windows import RunWindows
from holdfast.state.windows.session_windows import Sessions
from holdfast.state.windows.time_windows import END, START, Windows

A = TypeVar("A", AggregateSpec, WindowSpec)


class AggregatingKind(KeyedKind[A]):
    """What both have in common."""

    def check(self, op: OperatorOf[A]) -> None:
        """Known functions, and columns that do not collide."""
        for _, function, column in op.spec.aggregates:
            if not is_function(function) or (column is None and function != "count"):
                raise refuse(
                    op, f"uses {function}({column or ''}), which is not known", f"Use {', '.join(FUNCTIONS)}."
                )
        names = [*self.own_columns(op), *op.spec.by, *(name for name, _, _ in op.spec.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise refuse(
                op, f"would make two columns called {', '.join(twice)}", "Give the aggregates other names."
            )

    def own_columns(self, op: OperatorOf[A]) -> list[str]:
        """Columns that come out beside keys and aggregates."""
        return []

    def ordering(self, op: OperatorOf[A]) -> Ordering | None:
        """What is computed may depend on the order of rows: `last(price)`, …"""
        ordered = [
            f"{function}({column})" for _, function, column in op.spec.aggregates if is_ordered(function)
        ]
        if not ordered:
            return None
        cure = "Use functions that need no order (min, max, collect_set), or aggregate each source by itself."
        return Ordering(f"computes {', '.join(ordered)}", cure)

    def what(self, op: OperatorOf[A]) -> str:
        computed = ", ".join(f"{name}={fn}({column or ''})" for name, fn, column in op.spec.aggregates)
        return f"by {', '.join(op.spec.by) or 'nothing'}: {computed}"


def entries_of(aggregates: Aggregates, made: pa.Schema) -> dict[str, Fields]:
    """What is computed, as entries of a fingerprint."""
    return {
        name: {
            "function": str(function),
            **({} if column is None else {"column": column}),
            "type": type_text(made.field(name).type),
        }
        for name, function, column in aggregates
    }


@register
class AggregateKind(AggregatingKind[AggregateSpec]):
    """Running aggregates."""

    spec = AggregateSpec

    def check(self, op: OperatorOf[AggregateSpec]) -> None:
        spec = op.spec
        if not spec.by or not spec.aggregates:
            missing = "key columns" if spec.aggregates else "aggregates"
            raise refuse(op, f"has no {missing}", "Write aggregate('key', n=holdfast.count()).")
        super().check(op)
        growing = [(f, c) for _, f, c in spec.aggregates if spec.emit == "each" and is_growing(f)]
        for function, column in growing:
            raise refuse(
                op,
                f"has emit='each' and computes {function}({column}), which keeps lists: one for every row would cost"
                " the square of the rows",
                "Use emit='changes', or compute it in an aggregate of its own.",
            )
        if spec.emit not in EMITS:
            raise refuse(op, f"has emit={spec.emit!r}", "Use 'changes' or 'each'.")

    def schemas(self, op: OperatorOf[AggregateSpec], inputs: Schemas) -> list[pa.Schema]:
        check_ttl_column(inputs[0], op.spec.ttl)
        return [aggregate_schema(inputs[0], op.spec)]

    def carries(self, op: OperatorOf[AggregateSpec]) -> bool:
        return op.spec.emit == "each"

    def ordering(self, op: OperatorOf[AggregateSpec]) -> Ordering | None:
        if (computed := super().ordering(op)) is not None:
            return computed
        if op.spec.emit == "each":
            return Ordering(
                "has emit='each'",
                "Use emit='changes', or bring the rows into one order before: .sort(on='at', …).",
                "Use emit='changes', or keep positions by using only filter, select, with_columns and split before it.",
            )
        if op.spec.ttl is None or op.spec.ttl.on is None:
            return None
        cure = "Aggregate each source by itself, forget by processing time (ttl=holdfast.ttl(seconds)), or sort before."
        return Ordering("forgets keys by event time", cure)

    def what(self, op: OperatorOf[AggregateSpec]) -> str:
        lives = "" if op.spec.ttl is None else f", {op.spec.ttl}"
        return f"{super().what(op)}, emit {op.spec.emit}{lives}"

    def fingerprint(self, op: OperatorOf[AggregateSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        spec = op.spec
        lifetime = None if spec.ttl is None else spec.ttl.on or "clock"
        frame = keyed_frame(key_of(inputs[0], spec.by), lifetime=lifetime)
        return Fingerprint(self.name, frame, {"aggregates": entries_of(spec.aggregates, outputs[0])})

    def logic(self, planned: Planned[AggregateSpec]) -> KeyedLogic:
        spec, (schema,), made = planned.op.spec, planned.inputs, (planned.output, planned.stamped)
        plan = Aggregation.plan if spec.ttl is None else remembering
        rows = plan(spec.by, spec.aggregates, schema)
        if spec.ttl is None and spec.emit == "changes":
            return running.SummedAggregate(rows, *made)
        ttl = None if spec.ttl is None else planned.lifetime(spec.ttl)
        return running.RowAggregate(rows, *made, ttl, spec.emit)


@register
class WindowKind(AggregatingKind[WindowSpec]):
    """Aggregates over windows."""

    spec = WindowSpec
    stored = RowsOfWindows

    def check(self, op: OperatorOf[WindowSpec]) -> None:
        if not op.spec.aggregates:
            raise refuse(op, "has no aggregates", "Write aggregate('key', window=…, n=holdfast.count()).")
        super().check(op)

    def own_columns(self, op: OperatorOf[WindowSpec]) -> list[str]:
        return [START, END] if isinstance(op.spec.window, EventWindow) else [ROWS]

    def schemas(self, op: OperatorOf[WindowSpec], inputs: Schemas) -> list[pa.Schema]:
        return window_schema(inputs[0], op.spec)

    def stamps(self, op: OperatorOf[WindowSpec]) -> bool:
        """Results of windows over time come in the order of time, so time is their place."""
        window = op.spec.window
        corrects = isinstance(window, TimeWindow) and bool(window.lateness_us)
        return isinstance(window, EventWindow) and not corrects and not op.spec.late

    def carries(self, op: OperatorOf[WindowSpec]) -> bool:
        """What rows complete has the position of the row that completed it."""
        return not isinstance(op.spec.window, EventWindow)

    def timing(self, op: OperatorOf[WindowSpec], given: Sequence[Timing | None]) -> Timing | None:
        """A window over windows closes with them: it need not wait for the next one."""
        return Timing(END, {op.name: 0}, offset_us=-1) if self.stamps(op) else super().timing(op, given)

    def ordering(self, op: OperatorOf[WindowSpec]) -> Ordering:
        if (computed := super().ordering(op)) is not None:
            return computed
        if isinstance(op.spec.window, EventWindow):
            return Ordering("is over windows", several=None)
        counts = isinstance(op.spec.window, CountWindow)
        cure = "Use windows over event time, or bring the rows into one order before: .sort(on='at', …)."
        return Ordering("counts rows" if counts else "is over rows in their order", cure)

    def what(self, op: OperatorOf[WindowSpec]) -> str:
        return f"{super().what(op)}, windows {op.spec.window}"

    def fingerprint(self, op: OperatorOf[WindowSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        spec = op.spec
        frame = {**keyed_frame(key_of(inputs[0], spec.by)), **spec.window.frame}
        return Fingerprint(self.name, frame, {"aggregates": entries_of(spec.aggregates, outputs[0])})

    def logic(self, planned: Planned[WindowSpec]) -> KeyedLogic:
        spec, (schema,) = planned.op.spec, planned.inputs
        of, made = (spec.by, spec.aggregates, schema), (planned.output, planned.stamped, spec.by)
        form = planned.op.annotations.checkpoint_form
        tells = form is not None and form.kind == "eventual"
        parted = EventualRuns if tells else running.RowWindowAggregate
        match spec.window:
            case CountWindow(size=size, every=every):
                counted = EventualCounted if tells else running.CountedAggregate
                return counted.over(CountWindows.plan(size, every, *of), *made)
            case MarkedWindow(until=until):
                return parted.over(RunWindows.plan(until, *of), *made)
            case DeltaWindow(every=None) as window:
                return parted.over(RunWindows.plan(attribute_of(schema, window), *of), *made)
            case DeltaWindow(every=int(every)) as window:
                near = DeltaWindows.plan(attribute_of(schema, window), every, *of)
                return parted.over(near, *made)
            case TimeWindow() as window:
                windows = Windows.plan(window.size_us, window.slide_us, window.lateness_us, *of)
                port = planned.timed_port(0, spec.by, window.on, window.delays_us, window.idle_us)
                windowed = EventualWindowed if tells else WindowedAggregate
                return windowed(port, schema, planned.output, spec.late, planned.stamp, windows)
            case SessionWindow() as window:
                port = planned.timed_port(0, spec.by, window.on, window.delays_us, window.idle_us)
                sessions = Sessions.plan(window.gap_us, *of)
                aggregated = EventualSessions if tells else SessionAggregate
                return aggregated(port, schema, planned.output, spec.late, planned.stamp, sessions)
        raise AssertionError(spec.window)
