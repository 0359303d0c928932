"""Catalyst's analysed plans, read as expressions that tasks compute on Arrow columns by themselves.

Names, types and casts are Catalyst's own: what it prints of a plan as JSON is read, nothing is parsed again. Whatever is not
known here to be computed exactly alike is Declined, and goes on being a DataFrame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from holdfast.language.connectors import Declined
from holdfast.operators.expressions.change import Change
from holdfast.operators.expressions.nodes import Call, Constant, Expression, Ref

Node = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits that hold every whole number of so many bits, as Spark counts them."""
_PRECISION_MAX = 38
_EXACT_FLOAT = 1 << 24
"""Whole numbers up to here are floats, too."""

_ARITHMETIC = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply"}
_COMPARING = {
    "EqualTo": "equal",
    "EqualNullSafe": "same",
    "LessThan": "less",
    "GreaterThan": "greater",
    "LessThanOrEqual": "less_equal",
    "GreaterThanOrEqual": "greater_equal",
}
_LOGIC = {"And": "and", "Or": "or", "Not": "not", "IsNull": "is_null", "IsNotNull": "is_not_null"}
_TEXTS = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}
_REPLACED = frozenset({"Between", "Nvl", "Nvl2", "NullIf"})
"""Written by people; Catalyst computes what stands below them."""


def change_of(plan: str, inputs: pa.Schema, schema: pa.Schema, ansi: bool, utc: bool) -> Change:
    """What a plan (as JSON) does to its only input, whose columns are `inputs`. `schema`: of its output. `utc`: texts of times
    are in UTC. Declined if tasks cannot do it exactly alike."""
    conditions: list[Expression] = []
    nodes = json.loads(plan)
    names = _leaf(nodes[-1], inputs)
    for node in reversed(nodes[:-1]):  # from the input upwards: each has one child
        kind = _kind(node)
        read = _Reading(names, ansi, utc).tree
        if kind == "Filter":
            conditions.append(_boolean(read(node["condition"])))
        elif kind == "Project":
            outputs = [_output(columns, read) for columns in node["projectList"]]
            names = {id_: expression for id_, _, expression in outputs}
        else:
            raise Declined(f"a plan with {kind}")
        if node["num-children"] != 1:
            raise Declined(f"{kind} of several inputs")
    found = _columns(nodes, names, inputs.names)
    if [name for name, _ in found] != schema.names or len(set(schema.names)) < len(schema.names):
        raise Declined("columns under other names")
    for (name, expression), field in zip(found, schema, strict=True):
        if expression.type != field.type and not isinstance(expression, Ref):
            raise Declined(f"column {name!r} would be {expression.type}, not {field.type}")
    return Change(tuple(conditions), tuple(found), schema, inputs.names[0])


def _columns(
    nodes: Sequence[Node], names: Mapping[int, Expression], inputs: Sequence[str]
) -> list[tuple[str, Expression]]:
    """The columns of the uppermost projection; of the input, if there is none."""
    top = next((node for node in nodes if _kind(node) == "Project"), None)
    if top is None:
        return list(zip(inputs, names.values(), strict=True))
    return [(columns[0]["name"], names[columns[0]["exprId"]["id"]]) for columns in top["projectList"]]


def _leaf(node: Node, inputs: pa.Schema) -> dict[int, Expression]:
    """The input's columns by Catalyst's numbers for them. A type that is not known here may only pass through."""
    if node["num-children"] or _kind(node) not in ("LogicalRDD", "LocalRelation"):
        raise Declined(f"a plan over {_kind(node)}")
    columns = [column[0] for column in node["output"]]
    if [column["name"] for column in columns] != inputs.names:
        raise Declined("a plan over other columns")
    types = [_type(column["dataType"], passing=True) for column in columns]
    known = [type_ if type_ == field.type else pa.null() for type_, field in zip(types, inputs, strict=True)]
    return {c["exprId"]["id"]: Ref(c["name"], type_) for c, type_ in zip(columns, known, strict=True)}


def _output(
    columns: Sequence[Node], read: Callable[[Sequence[Node]], Expression]
) -> tuple[int, str, Expression]:
    first = columns[0]
    if _kind(first) not in ("Alias", "AttributeReference"):
        raise Declined(f"a column that is {_kind(first)}")
    return first["exprId"]["id"], first["name"], read(columns)


def _kind(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]


def _type(name: Any, passing: bool = False) -> pa.DataType:
    """A type as Catalyst calls it. `passing`: of a column that may just go through, whatever it is."""
    found = _TYPES.get(name) if isinstance(name, str) else None
    if found is not None:
        return found
    if isinstance(name, str) and (decimal := _DECIMAL.fullmatch(name)):
        return pa.decimal128(*(int(digits) for digits in decimal.groups()))
    if passing:
        return pa.null()
    raise Declined(f"the type {name}")


class _Reading:
    """Reads one expression: a list of nodes in which each is followed by its children."""

    def __init__(self, names: Mapping[int, Expression], ansi: bool, utc: bool) -> None:
        self._names = names
        self._ansi = ansi
        self._utc = utc
        self._common: list[Expression] = []

    def tree(self, nodes: Sequence[Node]) -> Expression:
        found, rest = self._next(nodes)
        if rest:
            raise Declined("an expression with more below it than it says")
        return found

    def _next(self, nodes: Sequence[Node]) -> tuple[Expression, Sequence[Node]]:
        node, rest = nodes[0], nodes[1:]
        kind = _kind(node)
        if kind == "With":
            return self._shared(node, rest)
        args = []
        for _ in range(node["num-children"]):
            arg, rest = self._next(rest)
            args.append(arg)
        return self._read(kind, node, args), rest

    def _shared(self, node: Node, rest: Sequence[Node]) -> tuple[Expression, Sequence[Node]]:
        """Something computed once and used twice (`between`): the definition comes behind its use."""
        if node["num-children"] != 2:
            raise Declined("several shared expressions")
        used = _end_of(rest)
        definition, after = self._next(rest[used:])
        self._common.append(definition)
        try:
            child, left = self._next(rest[:used])
        finally:
            self._common.pop()
        if left:
            raise Declined("a shared expression in an unknown form")
        return child, after

    def _read(self, kind: str, node: Node, args: list[Expression]) -> Expression:
        if kind == "AttributeReference":
            return self._names[node["exprId"]["id"]]
        if kind == "CommonExpressionRef" and self._common:
            return self._common[-1]
        if kind == "Literal":
            return _constant(node["value"], node["dataType"], self._utc)
        if kind in ("Alias", "CommonExpressionDef") or kind in _REPLACED:
            return args[0]
        if kind == "Cast":
            return _cast(args[0], _type(node["dataType"]))
        return self._call(kind, args)

    def _call(self, kind: str, args: list[Expression]) -> Expression:
        types = [arg.type for arg in args]
        if kind in _ARITHMETIC:
            return self._made(_ARITHMETIC[kind], args, _result_type(kind, *types))
        if kind in ("UnaryMinus", "Abs"):
            return self._made("abs" if kind == "Abs" else "negate", args, _number(types[0]))
        if kind == "Divide" and types == [pa.float64()] * 2:
            return self._made("divide", args, pa.float64())
        if kind == "IntegralDivide" and types == [pa.int64()] * 2:
            return self._made("whole_divide", args, pa.int64())
        if kind == "Remainder" and types[0] == types[1]:
            return self._made("remainder", args, _number(types[0]))
        if kind in ("IsNull", "IsNotNull"):
            if types[0] == pa.null() and not isinstance(args[0], Ref):
                raise Declined("a null without a type")
            return self._made(_LOGIC[kind], args, pa.bool_())
        if kind in _LOGIC:
            return self._made(_LOGIC[kind], [_boolean(arg) for arg in args], pa.bool_())
        if kind in _COMPARING or kind == "In":
            _alike(types)
            return self._made(_COMPARING.get(kind, "in"), args, pa.bool_())
        if kind == "IsNaN" and pa.types.is_floating(types[0]):
            return self._made("is_nan", args, pa.bool_())
        if kind in _TEXTS and _is_pattern(args):
            return self._made(_TEXTS[kind], args, pa.bool_())
        if kind == "Coalesce":
            return self._made("coalesce", args, _alike(types))
        if kind in ("If", "CaseWhen"):
            return self._case(args)
        raise Declined(f"the expression {kind}")

    def _case(self, args: list[Expression]) -> Expression:
        values = args[1::2] if len(args) % 2 == 0 else [*args[1::2], args[-1]]
        type_ = _alike([value.type for value in values])
        conditions = [_boolean(condition) for condition in args[0 : len(args) - 1 : 2]]
        otherwise = args[-1] if len(args) % 2 else Constant(None, type_)
        pairs = zip(conditions, args[1::2], strict=True)
        return self._made("case", [*(each for pair in pairs for each in pair), otherwise], type_)

    def _made(self, function: str, args: Sequence[Expression], type_: pa.DataType) -> Call:
        return Call(function, tuple(args), type_, self._ansi)


def _end_of(nodes: Sequence[Node]) -> int:
    """How many nodes the first of them and all below it are."""
    open_, count = 1, 0
    while open_:
        open_ += nodes[count]["num-children"] - 1
        count += 1
    return count


# --- types ---


def _boolean(expression: Expression) -> Expression:
    if expression.type != pa.bool_():
        raise Declined(f"a condition of type {expression.type}")
    return expression


def _number(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return type_
    raise Declined(f"arithmetic with {type_}")


def _alike(types: Sequence[pa.DataType]) -> pa.DataType:
    if len(set(types)) != 1 or types[0] == pa.null():
        raise Declined(f"values of the types {', '.join(map(str, types))} together")
    return types[0]


def _is_pattern(args: Sequence[Expression]) -> bool:
    texts = all(arg.type == pa.string() for arg in args)
    return texts and isinstance(args[1], Constant) and args[1].value is not None


def _result_type(kind: str, left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Of decimals the type that loses nothing, which is Spark's as long as it has enough digits."""
    if not (pa.types.is_decimal(left) and pa.types.is_decimal(right)):
        return _number(_alike([left, right]))
    if kind == "Multiply":
        precision, scale = left.precision + right.precision + 1, left.scale + right.scale
    else:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale + 1
    if precision > _PRECISION_MAX:
        raise Declined("decimals with more digits than there are")
    return pa.decimal128(precision, scale)


def _cast(value: Expression, to: pa.DataType) -> Expression:
    """A cast that cannot fail; of a constant its result."""
    if value.type == to:
        return value
    if isinstance(value, Constant):
        return _cast_constant(value, to)
    if _is_wider(value.type, to):
        return Call("cast", (value,), to)
    raise Declined(f"a cast of {value.type} to {to}")


def _cast_constant(value: Constant, to: pa.DataType) -> Constant:
    if value.value is None:
        return Constant(None, to)
    if pa.types.is_integer(value.type) and pa.types.is_floating(to):
        if abs(value.value) > _EXACT_FLOAT:
            raise Declined(f"the constant {value.value} as {to}")
        return Constant(float(value.value), to)
    if pa.types.is_decimal(to) and (pa.types.is_integer(value.type) or pa.types.is_decimal(value.type)):
        return _fitting(Decimal(value.value), to)
    if pa.types.is_decimal(value.type) and to == pa.float64():
        return Constant(float(value.value), to)
    if _is_wider(value.type, to):
        return Constant(value.value, to)
    raise Declined(f"a cast of the constant {value.value} to {to}")


def _fitting(value: Any, type_: pa.DataType) -> Constant:
    try:
        scalar = pa.scalar(value, type_)
    except (pa.ArrowException, OverflowError) as error:
        raise Declined(f"{value} as {type_}") from error
    return Constant(scalar.as_py(), type_)


def _is_wider(found: pa.DataType, to: pa.DataType) -> bool:
    """Whether every value has one of the other type, and Arrow finds the same as Java."""
    if pa.types.is_integer(found):
        if pa.types.is_decimal(to):
            return bool(to.precision - to.scale >= _DIGITS[found.bit_width])
        return bool(pa.types.is_floating(to) or (pa.types.is_integer(to) and found.bit_width <= to.bit_width))
    if pa.types.is_decimal(found) and pa.types.is_decimal(to):
        return bool(to.scale >= found.scale and to.precision - to.scale >= found.precision - found.scale)
    return bool(found == pa.float32() and to == pa.float64())


# --- constants ---


def _constant(text: str | None, type_name: Any, utc: bool) -> Constant:
    if type_name == "void":
        return Constant(None, pa.null())
    type_ = _type(type_name)
    return Constant(None if text is None else _value(text, type_, utc), type_)


def _value(text: str, type_: pa.DataType, utc: bool) -> Any:
    if pa.types.is_boolean(type_):
        return text == "true"
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_floating(type_):
        return float(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_string(type_):
        return text
    return _time(text, type_, utc)


def _time(text: str, type_: pa.DataType, utc: bool) -> int:
    """Days or microseconds since 1970."""
    try:
        if pa.types.is_date(type_):
            return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()
        if _TIME.fullmatch(text) and (utc or type_.tz is None):
            since = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    except ValueError as error:
        raise Declined(f"the time {text}") from error
    raise Declined(f"the time {text}")
