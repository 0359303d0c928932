"""`persist` as it is written: rows pass, with new positions, which are their places in a log. Before anything runs, the compiler
puts the two ends of the log in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from holdfast.language.operators.persist import PersistSpec
from holdfast.operators.kind import OperatorOf, Schemas, Timing, register
from holdfast.operators.stateless import Frames, StatelessKind


@register
class PersistKind(StatelessKind[PersistSpec]):
    spec = PersistSpec
    makes_positions = True
    expressions = False

    def timing(self, op: OperatorOf[PersistSpec], given: Sequence[Timing | None]) -> Timing | None:
        """If the rows alone tell it, it goes on as it is. Else the log has the watermark beside the rows, at the row where it rises."""
        before = given[0]
        if before is None:
            return None
        if self._is_told_by_rows(before):
            (delay,) = before.delays_us.values()
            return replace(before, delays_us={op.name: delay})
        if op.spec.only_outages:
            return None
        return Timing(before.column, {op.name: 0}, tells=False, offset_us=before.offset_us)

    def _is_told_by_rows(self, given: Timing) -> bool:
        alone = given.direct and given.tells and given.column is not None and not given.offset_us
        return alone and len(given.delays_us) == 1

    def untimed(self, op: OperatorOf[PersistSpec]) -> str:
        return "lets rows go by memory, and of these some that moved time on were left out, or come from several sources"

    def schemas(self, op: OperatorOf[PersistSpec], inputs: Schemas) -> list[pa.Schema]:
        return [inputs[0]]

    def what(self, op: OperatorOf[PersistSpec]) -> str:
        return "goes through a log"

    def frames(self, op: OperatorOf[PersistSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        return [rows]

    def tables(self, op: OperatorOf[PersistSpec], rows: pa.Table) -> list[pa.Table]:
        return [rows]
