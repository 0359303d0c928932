"""`holdfast.udaf`: aggregates over windows that the user writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.language.operators.aggregates import Aggregate
from holdfast.language.schema import to_arrow
from holdfast.state.aggregates.function_names import UserFunction

_CURE = 'Write hf.udaf(lambda price: pc.max(price).as_py() - pc.min(price).as_py(), "price", type="double").'


def udaf(fn: Callable[..., Any], *columns: str, type: Any) -> Aggregate:
    """An aggregate of your own: `fn` is given the columns of all rows of a window and key as Arrow arrays, in the order of
    the source, nulls among them, and returns one value of `type`, or None.

        def vwap(price, volume):
            return pc.sum(pc.multiply(price, volume)).as_py() / pc.sum(volume).as_py()

        trades.aggregate("symbol", window=hf.tumbling(rows=100), vwap=hf.udaf(vwap, "price", "volume", type="double"))

    It goes with windows of all kinds. As with `collect` all rows are kept until the window is complete, and rows of one
    source are needed that keep their positions; without a window they are kept for ever. `fn` is sent to the executors
    with what it refers to, and should depend on nothing but its arguments.
    """
    if not callable(fn):
        raise TopologyError(f"udaf() takes a function, not {fn!r}.", cure=_CURE)
    if not columns or not all(isinstance(name, str) and name for name in columns):
        raise TopologyError(f"udaf() takes the names of columns, not {columns!r}.", cure=_CURE)
    if len(set(columns)) < len(columns):
        raise TopologyError(f"udaf() was given a column twice: {', '.join(columns)}.", cure="Name each once.")
    return Aggregate(UserFunction(fn, columns, _type(type)), columns[0])


def _type(type_: Any) -> pa.DataType:
    if isinstance(type_, pa.DataType):
        return type_
    if not isinstance(type_, str):
        raise TopologyError(
            f"type={type_!r} is no type.", cure="Write type='double', or give a pyarrow type."
        )
    schema = to_arrow(f"value {type_}", "the type of udaf()")
    if len(schema) != 1:
        raise TopologyError(f"type={type_!r} is not one type.", cure="Write type='double'.")
    return schema.field(0).type
