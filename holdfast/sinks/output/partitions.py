"""Directories named by values, `country=DE/day=2026-01-01`, exactly as Spark names them.

Null and the empty text are `__HIVE_DEFAULT_PARTITION__`; characters that file systems or readers may misread are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset(map(chr, range(0x20))) | frozenset("\"#%'*/:=?\\\x7f{[]^")


def escape(text: str) -> str:
    """A name or value as part of a path."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def directory_of(names: Sequence[str], values: Sequence[str | None]) -> str:
    """The directory, relative to the output, of rows with these values (as text) in the partition columns."""
    parts = (
        f"{escape(name)}={escape(value) if value else NULL}"
        for name, value in zip(names, values, strict=True)
    )
    return "/".join(parts)


def split(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """(directory, its rows in their order, without the partition columns), one directory after the other."""
    if not names:
        yield "", table
        return
    if not table.num_rows:
        return
    texts = [_as_read(pc.cast(table.column(name).combine_chunks(), pa.string())) for name in names]
    codes = np.zeros(table.num_rows, np.int64)
    for text in texts:
        encoded = text.dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        codes = np.unique(codes, return_inverse=True)[1]  # dense again, so that products stay small
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    left = table.drop_columns(list(names))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[start:end]
        values = [text[int(rows[0])].as_py() for text in texts]
        yield directory_of(names, values), left.take(pa.array(rows))


def as_read(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """The rows, with null for the text that is the name of null: Spark gives the two one directory and then fails, since a file is there."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType

    texts = [name for name in names if isinstance(frame.schema[name].dataType, StringType)]
    columns = {name: F.col("`" + name.replace("`", "``") + "`") for name in texts}
    told = {name: F.when(column != NULL, column) for name, column in columns.items()}
    return frame.withColumns(told) if told else frame


def _as_read(texts: pa.Array) -> pa.Array:
    """Values that come back as null are null before rows are put together: they have one directory, and so one file."""
    return pc.if_else(pc.is_in(texts, pa.array(["", NULL])), pa.scalar(None, pa.string()), texts)
