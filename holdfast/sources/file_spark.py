"""Reading slices of files by Spark.

Whole files without positions go to Spark's own reader and cost what they cost there. Parquet rows with positions, or
of a torn file, come from the same reader with its row index. Lines with positions, or of a torn file, are read by
tasks as raw text with positions and parsed by Catalyst (`from_csv`, `from_json`) with the same schema and options, and
to the same values: see `exact_strings`.

A malformed row must be found whichever columns the rest of the plan uses: Spark's reader converts only the columns
that are asked for, so unless malformed="null" a condition that mentions every column is put behind it. Where rows may be
left out, the job that reads the others counts them: only if some are missing are the malformed ones counted, one by one.

Spark's csv and text readers replace bytes that are not UTF-8. So files go to them only if all their bytes are; compressed
ones, which would have to be uncompressed to know, are read as lines. So are files with lines that it would take for rows (`odd_lines`).
"""

from __future__ import annotations

import re
import time
import unicodedata
import uuid
from collections import deque
from functools import reduce
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.language.connectors import POSITION_COLUMNS, Stamp
from holdfast.sources.file_plan import FilePiece, FilePlan, balance, malformed_error
from holdfast.sources.line_tasks import MALFORMED, MALFORMED_DDL, TASK_DDL, ReadRanges
from holdfast.sources.lines import blocks, is_decodable
from holdfast.sources.parquet_tasks import read_groups
from holdfast.sources.schemas import spark_schema
from holdfast.sources.text.exact_strings import exact_strings
from holdfast.sources.text.odd_lines import may_have

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

_SOURCE, _ORDINAL, _ROW = POSITION_COLUMNS
_CORRUPT = "__hf_corrupt"
_MODES = {"fail": "FAILFAST", "drop": "DROPMALFORMED", "stream": "DROPMALFORMED", "null": "PERMISSIVE"}
_KEYS = ["__hf_text", _ORDINAL, _ROW, "__hf_line", "__hf_raw"]
_MESSAGE = re.compile(r"holdfast: malformed row in file (\d+)")
_READ_FAILED = re.compile(r"FAILED_READ_FILE|InputError|Arrow|OSError|EOFException|ZipException")
OBSERVED_S = 2.0
"""How long what a job observed may take to arrive after it; jobs that are not Spark SQL's never tell."""
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-!.~'()*,;:$&+=/@")
# Names are taken as they are: "[a].csv" is no glob. (Spark's option __globPaths__ reads some files twice then.)
_GLOB, _ESCAPED = re.compile(r"([{}\[\]*?\\])"), r"\\\1"
RANGE_BYTES_MIN = 1 << 20


def read(
    session: SparkSession, plan: FilePlan, stamp: Stamp | None, counters: list[Observation] | None = None
) -> DataFrame:
    """The slice's rows, with position columns if `stamp` is given. If rows may be left out, `counters` is filled and will
    tell how many were not."""
    counters = [] if counters is None else counters
    frames = [_read(session, group, stamp, counters) for group in plan.groups()]
    together = reduce(lambda a, b: a.unionByName(b), frames)
    if len(frames) == 1 and plan.pieces and plan.pieces[0].columns is None:
        return together
    names = [*plan.schema.names, *(POSITION_COLUMNS if stamp is not None else ())]
    return together.select(*[_quoted(name) for name in names])


def _read(
    session: SparkSession, plan: FilePlan, stamp: Stamp | None, counters: list[Observation]
) -> DataFrame:
    """Rows of files that have the same columns in the same order."""
    from pyspark.sql import functions as F

    if not plan.pieces:
        return _stamped(session.createDataFrame([], spark_schema(plan.schema)), stamp, F.lit(0), F.lit(0))
    if plan.format == "parquet":
        return _native(session, plan) if stamp is None and plan.whole else _parquet_rows(session, plan, stamp)
    if stamp is None and plan.whole and all(_is_plain(piece, plan) for piece in plan.pieces):
        return _native_lines(session, plan, counters)
    frame = _parsed(_lines(session, plan), plan)
    if plan.malformed == "fail":
        frame = frame.filter(_or_raise(F.col(_CORRUPT).isNull()))
    elif plan.malformed != "null":
        frame = counted(frame.filter(F.col(_CORRUPT).isNull()), counters)
    return _stamped(frame, stamp, F.col(_ORDINAL), F.col(_ROW), plan.schema.names)


def _is_plain(piece: FilePiece, plan: FilePlan) -> bool:
    """Whether Spark's own reader may have a file: nothing in it is replaced, nor read although it is malformed."""
    if piece.path.endswith(".gz"):
        return False
    if plan.format != "json" and not is_decodable(piece.path):
        return False
    return (plan.format, plan.malformed) == ("csv", "null") or not may_have(
        piece.path, plan.format, plan.options
    )


def counted(frame: DataFrame, counters: list[Observation]) -> DataFrame:
    """The same rows; whatever job reads them counts them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counters.append(Observation(f"holdfast-rows-{uuid.uuid4()}"))
    return frame.observe(counters[-1], F.count(F.lit(1)).alias("rows"))


def observed(counters: list[Observation]) -> int | None:
    """How many rows were read; None if no job told."""
    deadline = time.monotonic() + OBSERVED_S
    for counter in counters:
        jvm: Any = counter._jo
        while jvm is None or not jvm.future().isCompleted():
            if jvm is None or time.monotonic() > deadline:
                return None
            time.sleep(0.002)
    return sum(int(counter.get["rows"]) for counter in counters)


def malformed(session: SparkSession, plan: FilePlan, stamp: Stamp | None) -> DataFrame:
    """The slice's malformed rows: file, line, reason, text. They are found by reading it once more."""
    from pyspark.sql import functions as F

    found = [
        _bad_lines(session, group).mapInArrow(group.teller, MALFORMED_DDL)
        for group in plan.groups()
        if group.pieces
    ]
    frame = reduce(lambda a, b: a.unionAll(b), found) if found else session.createDataFrame([], MALFORMED_DDL)
    return _stamped(frame, stamp, F.col(_ORDINAL), F.col(_ROW), MALFORMED.names)


def count_malformed(session: SparkSession, plan: FilePlan) -> int:
    """How many malformed rows the slice has."""
    return sum(_bad_lines(session, group).count() for group in plan.groups() if group.pieces)


def _bad_lines(session: SparkSession, plan: FilePlan) -> DataFrame:
    from pyspark.sql import functions as F

    return _parsed(_lines(session, plan), plan).filter(F.col(_CORRUPT).isNotNull()).select(*_KEYS)


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
    # Whatever the session says: a file that cannot be read is not left out.
    options = {**plan.options, "ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    if plan.format in ("csv", "json"):
        options["mode"] = _MODES[plan.malformed]
    if plan.format == "csv":
        options["header"] = str(plan.rules.header).lower()
        options["columnPruning"] = str(plan.malformed == "null").lower()
    reader = session.read.format(plan.format).schema(spark_schema(plan.schema)).options(**options)
    return reader.load([f"file://{_GLOB.sub(_ESCAPED, piece.path)}" for piece in plan.pieces])


def _native_lines(session: SparkSession, plan: FilePlan, counters: list[Observation]) -> DataFrame:
    frame = _native(session, plan)
    if plan.malformed == "null" or plan.format == "text":
        return frame
    frame = frame.filter(_mentions_all(plan.schema.names))
    return frame if plan.malformed == "fail" else counted(frame, counters)


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
    read = ReadRanges(
        groups, plan.rules, dict(plan.options), exact_strings(plan.schema) if plan.format == "json" else None
    )
    return session.range(0, len(groups), 1, len(groups)).mapInArrow(read, TASK_DDL)


def _parsed(lines: DataFrame, plan: FilePlan) -> DataFrame:
    """The schema's columns, the line's columns, and in _CORRUPT what can be shown of a malformed row."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructType

    if plan.format == "text":
        value = F.col("__hf_text").alias(plan.schema.names[0])
        return lines.select(*_KEYS, value, F.col("__hf_raw").alias(_CORRUPT))
    schema = StructType([*spark_schema(plan.schema).fields]).add(_CORRUPT, StringType())
    options = {**plan.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    if plan.format == "csv":
        parsed = F.from_csv("__hf_text", _ddl(schema), options)
    else:
        parsed = F.from_json(F.coalesce("__hf_exact", "__hf_text"), schema, options)
    # A generator is evaluated once per row; a plain struct column may be parsed again for every field and filter.
    frame = lines.select(*_KEYS, F.inline(F.array(parsed)))
    return frame.withColumn(_CORRUPT, F.coalesce(_CORRUPT, "__hf_raw"))


def _ddl(schema: StructType) -> str:
    return ", ".join(f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _or_raise(fine: Column) -> Column:
    from pyspark.sql import functions as F

    message = F.format_string("holdfast: malformed row in file %d", F.col(_ORDINAL))
    return F.when(fine, F.lit(True)).otherwise(F.raise_error(message).cast("boolean"))


# --- after a failure ---


def explain(session: SparkSession | None, plan: FilePlan, error: Exception) -> InputError | None:
    """The malformed row or the damaged file behind a failed read of this slice, if that was the cause."""
    message = str(error)
    if session is not None and ("MALFORMED_RECORD" in message or _MESSAGE.search(message)):
        found = [first for group in plan.groups() if (first := _first_malformed(session, group)) is not None]
        if found:
            (ordinal, _), line, text, raw = min(found, key=lambda first: first[0])
            return malformed_error(plan, ordinal, line, text, raw)
    return _first_damaged(plan) if _READ_FAILED.search(message) else None


def _first_malformed(
    session: SparkSession, plan: FilePlan
) -> tuple[tuple[int, int], int, str | None, str | None] | None:
    """Read files again, keeping what does not parse: position, line and text of the first."""
    first = _bad_lines(session, plan).orderBy(_ORDINAL, _ROW).head()
    if first is None:
        return None
    return (first[_ORDINAL], first[_ROW]), first["__hf_line"], first["__hf_text"], first["__hf_raw"]


def _first_damaged(plan: FilePlan) -> InputError | None:
    """Read files again, in the driver: which of them cannot be read, and where."""
    try:
        for piece in plan.pieces:
            if plan.format == "parquet":
                deque(read_groups(piece, plan.schema), maxlen=0)
            elif piece.path.endswith(".gz"):
                deque(blocks(piece.path, plan.rules), maxlen=0)
    except InputError as found:
        return found
    return None
