"""What each function of an expression does on Arrow columns: the same as Spark, for every value, or Declined.

Nulls go through as nulls, except where a function is about them. Doubles compare as in Spark: NaN equals NaN and is larger
than all others. Whole numbers that overflow, and divisors that are zero, are errors in ANSI mode: then the rows are declined,
and Catalyst decides; else they wrap around, or give null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.language.connectors import Declined
from holdfast.operators.expressions.nodes import Call, Constant, Expression, Ref

Value = Any
"""A pa.ChunkedArray, or a pa.Scalar that stands for all rows."""

_MANY = 8
"""From so many values on `in` is one look-up."""

FAILURES = (pa.ArrowException, OverflowError, ValueError)


def evaluate(expression: Expression, table: pa.Table) -> Value:
    """The expression over all rows. Declined if a kernel fails."""
    if isinstance(expression, Ref):
        return table.column(expression.name)
    if isinstance(expression, Constant):
        return expression.scalar
    try:
        return KERNELS[expression.function](expression, [evaluate(arg, table) for arg in expression.args])
    except FAILURES as error:
        raise Declined(f"{expression.function}: {error}") from error


def as_column(value: Value, rows: int) -> Value:
    """A value that stands for all rows as a column."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


# --- arithmetic ---


def _checked(name: str) -> Callable[[Call, Sequence[Value]], Value]:
    """An Arrow kernel of which there is a form that checks for overflow."""

    def compute(call: Call, args: Sequence[Value]) -> Value:
        kernel = name if pa.types.is_floating(call.type) or not call.ansi else f"{name}_checked"
        return _typed(pc.call_function(kernel, list(args)), call.type)

    return compute


def _typed(value: Value, type_: pa.DataType) -> Value:
    return value if value.type == type_ else value.cast(type_)


def _divisor(value: Value, call: Call) -> Value:
    """A divisor without zeros."""
    zero = pc.equal(value, pa.scalar(0, value.type))
    if isinstance(zero, pa.Scalar):
        found = zero.as_py() is True
    else:
        found = bool(pc.any(zero).as_py())
    if not found:
        return value
    if call.ansi:
        raise Declined("a divisor is zero")
    return pc.if_else(_filled(zero), pa.scalar(None, value.type), value)


def _divide(call: Call, args: Sequence[Value]) -> Value:
    return pc.divide(args[0], _divisor(args[1], call))


def _whole_divide(call: Call, args: Sequence[Value]) -> Value:
    kernel = pc.divide_checked if call.ansi else pc.divide
    divisor = _divisor(args[1], call)
    if not call.ansi and _has(divisor, -1):
        raise Declined("the smallest number might be divided by -1")
    return kernel(args[0], divisor)


def _remainder(call: Call, args: Sequence[Value]) -> Value:
    """With the sign of the dividend, as in Java."""
    number, divisor = args[0], _divisor(args[1], call)
    if pa.types.is_floating(call.type):
        return _float_remainder(number, divisor, call.type)
    if _has(divisor, -1):  # the quotient of the smallest number would not fit
        one = pa.scalar(1, call.type)
        divisor = pc.if_else(_filled(pc.equal(divisor, pa.scalar(-1, call.type))), one, divisor)
    return pc.subtract(number, pc.multiply(pc.divide(number, divisor), divisor))


def _float_remainder(number: Value, divisor: Value, type_: pa.DataType) -> Value:
    if isinstance(number, pa.Scalar) and isinstance(divisor, pa.Scalar):
        raise Declined("a remainder of constants")
    rows = len(divisor) if isinstance(number, pa.Scalar) else len(number)
    left, right = (_one_chunk(as_column(value, rows)) for value in (number, divisor))
    with np.errstate(invalid="ignore"):
        found = np.fmod(
            *(np.asarray(side.fill_null(1).to_numpy(zero_copy_only=False)) for side in (left, right))
        )
    gone = pc.or_(left.is_null(), right.is_null())
    return pa.chunked_array([pc.if_else(gone, pa.scalar(None, type_), pa.array(found, type_))])


def _one_chunk(value: Value) -> pa.Array:
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def _has(value: Value, number: int) -> bool:
    same = pc.equal(value, pa.scalar(number, value.type))
    return bool(same.as_py() if isinstance(same, pa.Scalar) else pc.any(same).as_py())


def _cast(call: Call, args: Sequence[Value]) -> Value:
    """Only such as lose nothing, or round as Java does."""
    return args[0].cast(call.type, safe=not pa.types.is_floating(call.type))


# --- comparison ---


def equal(left: Value, right: Value) -> Value:
    same = pc.equal(left, right)
    if not pa.types.is_floating(left.type):
        return same
    return pc.or_kleene(same, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def less(left: Value, right: Value) -> Value:
    smaller = pc.less(left, right)
    if not pa.types.is_floating(left.type):
        return smaller
    return pc.or_kleene(smaller, pc.and_kleene(pc.invert(pc.is_nan(left)), pc.is_nan(right)))


def _same(call: Call, args: Sequence[Value]) -> Value:
    """Null equals null, and nothing else."""
    both = pc.and_(pc.is_null(args[0]), pc.is_null(args[1]))
    return pc.or_(_filled(equal(*args)), both)


def _filled(condition: Value) -> Value:
    """False where it is null."""
    return pc.coalesce(condition, pa.scalar(False))


def _in(call: Call, args: Sequence[Value]) -> Value:
    value, *wanted = args
    if (
        len(wanted) < _MANY
        or isinstance(value, pa.Scalar)
        or pa.types.is_floating(value.type)
        or not all(isinstance(each, Constant) for each in call.args[1:])
    ):
        return reduce(pc.or_kleene, [equal(value, each) for each in wanted])
    present = [each for each in wanted if each.is_valid]
    found = pc.is_in(value, value_set=pa.array([each.as_py() for each in present], value.type))
    unknown = pc.is_null(value) if len(present) == len(wanted) else pc.invert(found)
    return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)


# --- choice ---


def _case(call: Call, args: Sequence[Value]) -> Value:
    """condition, value, condition, value, …, what is left."""
    *branches, chosen = args
    for condition, value in zip(branches[-2::-2], branches[::-2], strict=True):
        chosen = pc.if_else(_filled(condition), value, chosen)
    return chosen


KERNELS: dict[str, Callable[[Call, Sequence[Value]], Value]] = {
    "add": _checked("add"),
    "subtract": _checked("subtract"),
    "multiply": _checked("multiply"),
    "negate": _checked("negate"),
    "abs": _checked("abs"),
    "divide": _divide,
    "whole_divide": _whole_divide,
    "remainder": _remainder,
    "cast": _cast,
    "equal": lambda call, args: equal(*args),
    "same": _same,
    "less": lambda call, args: less(*args),
    "greater": lambda call, args: less(args[1], args[0]),
    "less_equal": lambda call, args: pc.invert(less(args[1], args[0])),
    "greater_equal": lambda call, args: pc.invert(less(*args)),
    "in": _in,
    "and": lambda call, args: pc.and_kleene(*args),
    "or": lambda call, args: pc.or_kleene(*args),
    "not": lambda call, args: pc.invert(args[0]),
    "is_null": lambda call, args: pc.is_null(args[0]),
    "is_not_null": lambda call, args: pc.is_valid(args[0]),
    "is_nan": lambda call, args: _filled(pc.is_nan(args[0])),
    "coalesce": lambda call, args: pc.coalesce(*args),
    "case": _case,
    "starts_with": lambda call, args: pc.starts_with(args[0], args[1].as_py()),
    "ends_with": lambda call, args: pc.ends_with(args[0], args[1].as_py()),
    "contains": lambda call, args: pc.match_substring(args[0], args[1].as_py()),
}
"""By the name in `Call.function`."""
