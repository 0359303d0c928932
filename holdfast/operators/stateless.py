"""Operators without state: rows in, rows out, one step at a time. On Spark they are DataFrame transformations, in which
Catalyst does the work; those that need no Spark expressions run on Arrow tables as well."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import and_
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.hosted import ERRORS
from holdfast.language.operators.columns import column_type
from holdfast.language.operators.event_time import EventTimeSpec, event_time_schema
from holdfast.language.operators.stateless import (
    DropSpec,
    FilterSpec,
    MapArrowSpec,
    RenameSpec,
    ReplayableSpec,
    SelectSpec,
    SplitSpec,
    SqlSpec,
    TransformSpec,
    UnionSpec,
    WithColumnsSpec,
)
from holdfast.language.operators.values import idle_text
from holdfast.operators.kind import Kind, OperatorOf, S, Schemas, Timing, refuse, register
from holdfast.operators.python.output_rows import OutputForm
from holdfast.operators.python.user_errors import naming
from holdfast.operators.told_texts import shown


class Frames(Protocol):
    """What Spark offers: this layer does not import it."""

    def frame(self, rows: Any) -> Any:
        """Rows as a DataFrame, with their positions if they have some."""

    def bare(self, rows: Any) -> Any:
        """Rows as a DataFrame without positions."""

    def is_frame(self, value: Any) -> bool: ...

    def column(self, value: Any) -> Any:
        """A Column; text is an expression."""

    def holds(self, value: Any) -> Any:
        """The same as a condition that is false where it is null."""

    def columns(self, frame: Any) -> pa.Schema:
        """The columns of a DataFrame, without positions."""

    def from_table(self, session: Any, table: pa.Table) -> Any:
        """A table as a DataFrame."""

    def sent(self, session: Any, value: Any) -> Any:
        """A value that tasks have: sent to each executor once. A handle with `.value`."""

    def sql(self, frame: Any, query: str) -> Any:
        """A query over the view `this`."""

    def mapped(self, frame: Any, fn: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Any:
        """`fn` over Arrow tables, beside the data."""


class StatelessKind(Kind[S]):
    """`expressions`: it is made of Spark expressions, so that only Spark knows its columns and can run it."""

    role = "stateless"
    expressions: ClassVar[bool] = True

    @abstractmethod
    def frames(self, op: OperatorOf[S], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        """One output frame per port. `stamped`: positions pass through unseen by the user's expressions."""

    def tables(self, op: OperatorOf[S], rows: pa.Table) -> list[pa.Table]:
        """The same without Spark."""
        raise TopologyError(
            f"operator {op.name!r} ({op.kind}) is made of Spark expressions and needs Spark.",
            cure="Run the topology with a Spark session, or use map_arrow in tests without Spark.",
        )

    def schemas(self, op: OperatorOf[S], inputs: Schemas) -> list[pa.Schema]:
        raise TopologyError(
            f"{op.kind} can only be analysed with Spark.",
            cure="Run it on Spark, or use map_arrow, aggregate, union, split and Python operators for local runs.",
        )


class PassingKind(StatelessKind[S]):
    """Rows pass as they are."""

    keeps_positions = True
    expressions = False

    def schemas(self, op: OperatorOf[S], inputs: Schemas) -> list[pa.Schema]:
        return [inputs[0]]

    def frames(self, op: OperatorOf[S], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [rows]

    def tables(self, op: OperatorOf[S], rows: pa.Table) -> list[pa.Table]:
        return [rows]


@register
class FilterKind(StatelessKind[FilterSpec]):
    spec = FilterSpec
    keeps_positions = True

    def frames(self, op: OperatorOf[FilterSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [spark.frame(rows).filter(op.spec.condition)]

    def what(self, op: OperatorOf[FilterSpec]) -> str:
        return shown(op.spec.condition)


@register
class SelectKind(StatelessKind[SelectSpec]):
    spec = SelectSpec
    keeps_positions = True

    def leaves_time(self, op: OperatorOf[SelectSpec], given: Timing) -> bool:
        return any(isinstance(column, str) and column in (given.column, "*") for column in op.spec.columns)

    def frames(self, op: OperatorOf[SelectSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        frame, columns = spark.frame(rows), [spark.column(column) for column in op.spec.columns]
        selected = frame.select(*columns)
        # A star brings the positions along by itself.
        missing = [name for name in POSITION_COLUMNS if stamped and name not in selected.columns]
        return [frame.select(*columns, *missing) if missing else selected]

    def what(self, op: OperatorOf[SelectSpec]) -> str:
        return shown(op.spec.columns)


@register
class WithColumnsKind(StatelessKind[WithColumnsSpec]):
    spec = WithColumnsSpec
    keeps_positions = True

    def leaves_time(self, op: OperatorOf[WithColumnsSpec], given: Timing) -> bool:
        return given.column not in op.spec.columns

    def frames(self, op: OperatorOf[WithColumnsSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        columns = {name: spark.column(column) for name, column in op.spec.columns.items()}
        return [spark.frame(rows).withColumns(columns)]

    def what(self, op: OperatorOf[WithColumnsSpec]) -> str:
        return shown(op.spec.columns)


@register
class DropKind(StatelessKind[DropSpec]):
    spec = DropSpec
    keeps_positions = True
    expressions = False

    def leaves_time(self, op: OperatorOf[DropSpec], given: Timing) -> bool:
        return given.column not in op.spec.columns

    def schemas(self, op: OperatorOf[DropSpec], inputs: Schemas) -> list[pa.Schema]:
        for name in op.spec.columns:
            column_type(inputs[0], name, " to drop")
        left = [field for field in inputs[0] if field.name not in op.spec.columns]
        if not left:
            raise refuse(op, "leaves no column", "Drop fewer columns.")
        return [pa.schema(left)]

    def frames(self, op: OperatorOf[DropSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [spark.frame(rows).drop(*op.spec.columns)]

    def tables(self, op: OperatorOf[DropSpec], rows: pa.Table) -> list[pa.Table]:
        return [rows.drop_columns(list(op.spec.columns))]

    def what(self, op: OperatorOf[DropSpec]) -> str:
        return ", ".join(op.spec.columns)


@register
class RenameKind(StatelessKind[RenameSpec]):
    spec = RenameSpec
    keeps_positions = True
    expressions = False

    def timing(self, op: OperatorOf[RenameSpec], given: Sequence[Timing | None]) -> Timing | None:
        """The event time goes on under its new name."""
        time = given[0]
        if time is None or time.column is None:
            return time
        return replace(time, column=op.spec.columns.get(time.column, time.column))

    def schemas(self, op: OperatorOf[RenameSpec], inputs: Schemas) -> list[pa.Schema]:
        for name in op.spec.columns:
            column_type(inputs[0], name, " to rename")
        names = [op.spec.columns.get(name, name) for name in inputs[0].names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise refuse(
                op, f"makes two columns called {twice[0]!r}", "Choose another name, or drop one before."
            )
        return [pa.schema([field.with_name(name) for field, name in zip(inputs[0], names, strict=True)])]

    def frames(self, op: OperatorOf[RenameSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        # All at once: withColumnsRenamed goes one by one, so that two columns could not change places.
        frame = spark.frame(rows)
        return [frame.toDF(*(op.spec.columns.get(name, name) for name in frame.columns))]

    def tables(self, op: OperatorOf[RenameSpec], rows: pa.Table) -> list[pa.Table]:
        return [rows.rename_columns([op.spec.columns.get(name, name) for name in rows.column_names])]

    def what(self, op: OperatorOf[RenameSpec]) -> str:
        return ", ".join(f"{old} → {new}" for old, new in op.spec.columns.items())


@register
class EventTimeKind(PassingKind[EventTimeSpec]):
    """Rows pass as they are: what is said about them is for the compiler."""

    spec = EventTimeSpec

    def schemas(self, op: OperatorOf[EventTimeSpec], inputs: Schemas) -> list[pa.Schema]:
        return [event_time_schema(inputs[0], op.spec)]

    def what(self, op: OperatorOf[EventTimeSpec]) -> str:
        if op.spec.beside:
            return "how far it has come lies beside the rows"
        delays = [f"{us / 1e6:g} s{f' of {name}' if name else ''}" for name, us in op.spec.delays_us]
        return f"{op.spec.on}, at most {', '.join(delays)} out of order{idle_text(op.spec.idle_us)}"


@register
class TransformKind(StatelessKind[TransformSpec]):
    spec = TransformSpec

    def frames(self, op: OperatorOf[TransformSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        result = op.spec.fn(spark.bare(rows))
        if not spark.is_frame(result):
            raise TopologyError(
                f"the function of transform {op.name!r} returned a {type(result).__name__}, not a DataFrame.",
                cure="Return the transformed DataFrame.",
            )
        return [result]

    def what(self, op: OperatorOf[TransformSpec]) -> str:
        return shown(op.spec.fn)


@register
class SqlKind(StatelessKind[SqlSpec]):
    spec = SqlSpec

    def frames(self, op: OperatorOf[SqlSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [spark.sql(spark.bare(rows), op.spec.query)]

    def what(self, op: OperatorOf[SqlSpec]) -> str:
        return shown(op.spec.query)


@register
class SplitKind(StatelessKind[SplitSpec]):
    spec = SplitSpec
    keeps_positions = True

    def schemas(self, op: OperatorOf[SplitSpec], inputs: Schemas) -> list[pa.Schema]:
        return [inputs[0]] * op.outputs

    def frames(self, op: OperatorOf[SplitSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        frame, holds = spark.frame(rows), [spark.holds(condition) for condition in op.spec.conditions]
        chosen = [[*(~h for h in holds[:index]), condition] for index, condition in enumerate(holds)]
        if op.spec.otherwise:
            chosen.append([~h for h in holds])
        return [frame.filter(reduce(and_, conditions)) for conditions in chosen]

    def what(self, op: OperatorOf[SplitSpec]) -> str:
        return f"into {', '.join(op.spec.names) or op.outputs}: {shown(op.spec.conditions)}"


@register
class MapArrowKind(StatelessKind[MapArrowSpec]):
    spec = MapArrowSpec
    expressions = False

    def schemas(self, op: OperatorOf[MapArrowSpec], inputs: Schemas) -> list[pa.Schema]:
        return [op.spec.schema, *[ERRORS] * op.spec.letters]

    def frames(self, op: OperatorOf[MapArrowSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [spark.mapped(spark.bare(rows), partial(_mapped, op.name, op.spec), op.spec.schema)]

    def tables(self, op: OperatorOf[MapArrowSpec], rows: pa.Table) -> list[pa.Table]:
        bare = rows.drop_columns([name for name in POSITION_COLUMNS if name in rows.column_names])
        return [_mapped(op.name, op.spec, bare)]

    def what(self, op: OperatorOf[MapArrowSpec]) -> str:
        return shown(op.spec.fn)


def _mapped(operator: str, spec: MapArrowSpec, rows: pa.Table) -> pa.Table:
    """What the user's function makes, with the columns of the schema; its errors tell in which operator they happened."""
    with naming(f"operator {operator!r}"):
        made = spec.fn(rows)
    if isinstance(made, pa.RecordBatch):
        made = pa.Table.from_batches([made])
    if not isinstance(made, pa.Table):
        raise TopologyError(
            f"operator {operator!r} gave a {type(made).__name__}, not a table.",
            cure="Return a pyarrow Table.",
        )
    wanted = spec.schema.names
    has_all = set(wanted) <= set(made.column_names)
    form = OutputForm(operator, spec.schema, cure="Let the function return all columns of its schema.")
    return form.table(made.select(wanted) if has_all else made)


@register
class UnionKind(PassingKind[UnionSpec]):
    """Streams met at its port already."""

    spec = UnionSpec

    def leaves_time(self, op: OperatorOf[UnionSpec], given: Timing) -> bool:
        return True


@register
class ReplayableKind(PassingKind[ReplayableSpec]):
    """Rows pass; who keeps them is the element, at the border of its region (`runtime/element/borders.py`)."""

    spec = ReplayableSpec

    def leaves_time(self, op: OperatorOf[ReplayableSpec], given: Timing) -> bool:
        return True

    def what(self, op: OperatorOf[ReplayableSpec]) -> str:
        return "keeps rows until an epoch has them"
