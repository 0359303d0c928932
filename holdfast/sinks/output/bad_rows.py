"""Rows that file sinks cannot write so that readers find what was in them: asked row by row with on_error="stream".

A function of the row alone, columns at a time; it ships to tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.sinks.output.partitions import NULL, escape

NAME_BYTES = 255
"""What file systems take as the name of a directory."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FileRowCheck:
    """Why a row cannot be written in a form; the first reason that holds."""

    format: str
    partition_by: tuple[str, ...]

    def __call__(self, table: pa.Table) -> list[str | None]:
        reasons = np.full(table.num_rows, None, dtype=object)
        for name in self.partition_by:
            if _is_text(table.schema.field(name).type):
                _partition(table.column(name), name, reasons)
        written = [field for field in table.schema if field.name not in self.partition_by]
        for field in written:
            column = table.column(field.name)
            if self.format == "csv" and _is_text(field.type):
                broken = _mask(pc.match_substring_regex(column, r"[\r\n]"))
                _say(
                    reasons,
                    broken,
                    f"the column {field.name!r} has a line break, where csv readers see two rows",
                )
            if self.format == "json" and pa.types.is_floating(field.type):
                odd = _mask(pc.invert(pc.is_finite(column.cast(pa.float64()))))
                _say(reasons, odd, f"the column {field.name!r} is no number that json has (NaN or infinite)")
        if self.format == "csv" and len(written) == 1:
            empty = _mask(table.column(written[0].name).is_null())
            _say(
                reasons,
                empty,
                f"its only column {written[0].name!r} is null: csv readers skip the empty line",
            )
        return list(reasons)


def _partition(column: pa.ChunkedArray, name: str, reasons: npt.NDArray[np.object_]) -> None:
    """Texts that are no name of a directory, or of one that is read back as null."""
    lost = _mask(pc.is_in(column, pa.array(["", NULL], column.type)))
    _say(
        reasons,
        lost,
        f"the partition column {name!r} is a text that is read as null: empty, or {NULL} itself",
    )
    # Escaping makes three bytes of one at most: few texts need a closer look.
    begin = len(escape(name).encode()) + 1
    long = _mask(pc.greater(pc.multiply(pc.binary_length(column), 3), NAME_BYTES - begin))
    for row in np.flatnonzero(long):
        if begin + len(escape(column[int(row)].as_py()).encode()) > NAME_BYTES:
            reasons[row] = reasons[row] or (
                f"the partition column {name!r} is too long for the name of a directory, which has {NAME_BYTES} bytes"
            )


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _mask(found: pa.ChunkedArray) -> Mask:
    """True where it is; null is not."""
    return np.asarray(pc.fill_null(found, False), dtype=np.bool_)


def _say(reasons: npt.NDArray[np.object_], where: Mask, why: str) -> None:
    reasons[where & pa.array(reasons, pa.string()).is_null().to_numpy(zero_copy_only=False)] = why
