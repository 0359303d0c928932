"""Expressions over columns as plain data, with all types settled: they travel to tasks by pickle.

`runtime/engines/spark/expressions/catalyst.py` makes them of what Catalyst analysed, `kernels.py` computes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Ref:
    """An input column."""

    name: str
    type: pa.DataType


@dataclass(frozen=True)
class Constant:
    """A value of a type; of times and dates their number since 1970."""

    value: Any
    type: pa.DataType

    @property
    def scalar(self) -> pa.Scalar:
        return pa.scalar(self.value, self.type)


@dataclass(frozen=True)
class Call:
    """One of `kernels.KERNELS` over other expressions. `ansi`: what cannot be computed is an error, not null or what is left of
    it."""

    function: str
    args: tuple[Expression, ...]
    type: pa.DataType
    ansi: bool = True


Expression = Ref | Constant | Call


def refs(expression: Expression) -> Iterator[str]:
    """Names of the columns it reads; some may come twice."""
    if isinstance(expression, Ref):
        yield expression.name
    if isinstance(expression, Call):
        for arg in expression.args:
            yield from refs(arg)
