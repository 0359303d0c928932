"""Reading slices of files by Spark.

Whole files without positions go to Spark's own reader and cost what they cost there. Parquet rows with positions, or
of a torn file, come from the same reader with its row index. Lines with positions, or of a torn file, are read by
tasks as raw text with positions and parsed by Catalyst (`from_csv`, `from_json`) with the same schema and options.

A malformed row must be found whichever columns the rest of the plan uses: Spark's reader converts only the columns
that are asked for, so with malformed="fail" or "drop" a condition that mentions every column is put behind it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import reduce
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.language.connectors import POSITION_COLUMNS, Stamp
from holdfast.sources.file_plan import FilePlan, balance, malformed_error
from holdfast.sources.line_tasks import LINE_DDL, ReadRanges
from holdfast.sources.schemas import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SOURCE, _ORDINAL, _ROW = POSITION_COLUMNS
_CORRUPT = "__hf_corrupt"
_MODES = {"fail": "FAILFAST", "drop": "DROPMALFORMED", "null": "PERMISSIVE"}
_MESSAGE = re.compile(r"holdfast: malformed row in file (\d+) line (\d+): (.*)")
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=/@")
# Names are taken as they are: "[a].csv" is no glob. (Spark's option __globPaths__ reads some files twice then.)
_GLOB, _ESCAPED = re.compile(r"([{}\[\]*?\\])"), r"\\\1"
RANGE_BYTES_MIN = 1 << 20


def read(session: SparkSession, plan: FilePlan, stamp: Stamp | None) -> DataFrame:
    """The slice's rows, with position columns if `stamp` is given."""
    frames = [_read(session, group, stamp) for group in plan.groups()]
    together = reduce(lambda a, b: a.unionByName(b), frames)
    if len(frames) == 1 and plan.pieces and plan.pieces[0].columns is None:
        return together
    names = [*plan.schema.names, *(POSITION_COLUMNS if stamp is not None else ())]
    return together.select(*[_quoted(name) for name in names])


def _read(session: SparkSession, plan: FilePlan, stamp: Stamp | None) -> DataFrame:
    """Rows of files that have the same columns in the same order."""
    from pyspark.sql import functions as F

    if not plan.pieces:
        return _stamped(session.createDataFrame([], spark_schema(plan.schema)), stamp, F.lit(0), F.lit(0))
    if plan.format == "parquet":
        return _native(session, plan) if stamp is None and plan.whole else _parquet_rows(session, plan, stamp)
    if stamp is None and plan.whole:
        return _native(session, plan)
    frame = _parsed(_lines(session, plan), plan)
    if plan.malformed == "fail":
        frame = frame.filter(_or_raise(F.col(_CORRUPT).isNull()))
    elif plan.malformed == "drop":
        frame = frame.filter(F.col(_CORRUPT).isNull())
    return _stamped(frame, stamp, F.col(_ORDINAL), F.col(_ROW), plan.schema.names)


def _stamped(
    frame: DataFrame, stamp: Stamp | None, ordinal: Column, row: Column, names: list[str] | None = None
) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.col(_quoted(name)) for name in names or frame.columns]
    if stamp is not None:
        columns.append(F.lit(stamp.source_index).cast("int").alias(_SOURCE))
        columns += [ordinal.cast("bigint").alias(_ORDINAL), row.cast("bigint").alias(_ROW)]
    return frame.select(*columns)


# --- Spark's own reader ---


def _native(session: SparkSession, plan: FilePlan) -> DataFrame:
    strict = plan.malformed != "null" and plan.format in ("csv", "json")
    options = dict(plan.options)
    if plan.format in ("csv", "json"):
        options["mode"] = _MODES[plan.malformed]
    if plan.format == "csv":
        options["header"] = str(plan.rules.header).lower()
        options["columnPruning"] = str(not strict).lower()
    reader = session.read.format(plan.format).schema(spark_schema(plan.schema)).options(**options)
    frame = reader.load([f"file://{_GLOB.sub(_ESCAPED, piece.path)}" for piece in plan.pieces])
    return frame.filter(_mentions_all(plan.schema.names)) if strict else frame


def _mentions_all(names: list[str]) -> Column:
    """A condition that always holds, needs every column, and that the optimiser cannot see through."""
    from pyspark.sql import functions as F

    missing = [F.col(_quoted(name)).isNull().cast("int") for name in names]
    return reduce(lambda a, b: a + b, missing, F.lit(1)) > 0


def _parquet_rows(session: SparkSession, plan: FilePlan, stamp: Stamp | None) -> DataFrame:
    from pyspark.sql import functions as F

    row, path = F.col("_metadata.row_index"), F.col("_metadata.file_path")
    frame = _native(session, plan).select("*", row.alias(_ROW), path.alias("__hf_path"))
    if len(plan.pieces) == 1:
        frame = frame.withColumn(_ORDINAL, F.lit(plan.pieces[0].ordinal).cast("bigint"))
    else:
        known = [(file_uri(piece.path), piece.ordinal) for piece in plan.pieces]
        ordinals = session.createDataFrame(known, f"__hf_known string, {_ORDINAL} bigint")
        found = F.col("__hf_path") == F.col("__hf_known")
        frame = frame.join(F.broadcast(ordinals), found, "left")
        unknown = F.raise_error(F.concat(F.lit("holdfast: no ordinal for "), "__hf_path")).cast("boolean")
        frame = frame.filter(F.when(F.col(_ORDINAL).isNotNull(), F.lit(True)).otherwise(unknown))
    for piece in plan.pieces:
        inside = F.col(_ROW) >= piece.begin.row
        if piece.end is not None:
            inside &= F.col(_ROW) < piece.end.row
        if not piece.whole:
            frame = frame.filter((F.col(_ORDINAL) != piece.ordinal) | inside)
    return _stamped(frame, stamp, F.col(_ORDINAL), F.col(_ROW), plan.schema.names)


def file_uri(path: str) -> str:
    """The path as Spark's `_metadata.file_path` spells it: Java's URI quoting of an absolute path."""
    return "file:" + "".join(_quoted_byte(char) for char in path)


def _quoted_byte(char: str) -> str:
    if char in _LEGAL or (ord(char) > 127 and unicodedata.category(char) not in ("Cc", "Zs", "Zl", "Zp")):
        return char
    return "".join(f"%{byte:02X}" for byte in char.encode())


# --- lines with positions ---


def _lines(session: SparkSession, plan: FilePlan) -> DataFrame:
    """Raw lines (LINE_SCHEMA) read by as many tasks as there are cores."""
    cores = session.sparkContext.defaultParallelism
    total = sum((p.end.offset if p.end else p.size) - p.begin.offset for p in plan.pieces)
    ranges = plan.ranges(max(RANGE_BYTES_MIN, total // cores))
    groups = balance(ranges, cores)
    return session.range(0, len(groups), 1, len(groups)).mapInArrow(ReadRanges(groups, plan.rules), LINE_DDL)


def _parsed(lines: DataFrame, plan: FilePlan) -> DataFrame:
    """The schema's columns, the line's columns, and the raw text of a malformed row in _CORRUPT."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    keys = ["__hf_text", _ORDINAL, _ROW, "__hf_line"]
    if plan.format == "text":
        value = F.col("__hf_text").alias(plan.schema.names[0])
        return lines.select(*keys, value, F.lit(None).cast("string").alias(_CORRUPT))
    schema = StructType([*spark_schema(plan.schema).fields]).add(_CORRUPT, StringType())
    options = {**plan.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if plan.format == "csv":
        parsed = F.from_csv("__hf_text", _ddl(schema), options)
    else:
        parsed = F.from_json("__hf_text", schema, options)
    # A generator is evaluated once per row; a plain struct column may be parsed again for every field and filter.
    return lines.select(*keys, F.inline(F.array(parsed)))


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _or_raise(fine: Column) -> Column:
    from pyspark.sql import functions as F

    message = F.format_string(
        "holdfast: malformed row in file %d line %d: %s",
        F.col(_ORDINAL),
        F.col("__hf_line"),
        F.col("__hf_text"),
    )
    return F.when(fine, F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))


# --- after a failure ---


def explain(session: SparkSession | None, plan: FilePlan, error: Exception) -> InputError | None:
    """The malformed row behind a failed read of this slice, if that was the cause."""
    message = str(error)
    if told := _MESSAGE.search(message):
        ordinal, line = int(told[1]), int(told[2])
        return malformed_error(plan.piece(ordinal), line, told[3], plan.schema)
    if "MALFORMED_RECORD" not in message or session is None or plan.format not in ("csv", "json"):
        return None
    found = [first for group in plan.groups() if (first := _first_malformed(session, group)) is not None]
    if not found:
        return None
    ordinal, _, line, text = min(found)
    return malformed_error(plan.piece(ordinal), line, text, plan.schema)


def _first_malformed(session: SparkSession, plan: FilePlan) -> tuple[int, int, int, str] | None:
    """Read files again, keeping what does not parse: ordinal, row, line and text of the first."""
    from pyspark.sql import functions as F

    bad = _parsed(_lines(session, plan), plan).filter(F.col(_CORRUPT).isNotNull())
    first = bad.orderBy(_ORDINAL, _ROW).select(_ORDINAL, _ROW, "__hf_line", "__hf_text").head()
    return None if first is None else (first[0], first[1], first[2], first[3])
