"""`Files`: a directory or glob of csv, json, text or parquet files as a replayable source.

A position is [file ordinal, row, byte offset, line]; the last two only save re-scanning. Files must appear whole:
write them under a name that begins with a dot or underscore and rename them. See `known_files` for what is remembered.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from holdfast.errors import ConfigError, InputError, StateError, StepFailed
from holdfast.language.connectors import Lag, Slice, Source, Stamp, TaskReader
from holdfast.language.schema import to_arrow
from holdfast.sources import file_arrow, file_spark
from holdfast.sources.file_cut import DEFAULT_BYTES, Cutter, Limits, Place
from holdfast.sources.file_plan import (
    FilePiece,
    FilePlan,
    count_by_footers,
    count_lines,
    pieces_of,
    stretches,
)
from holdfast.sources.known_files.lag import Unlisted
from holdfast.sources.known_files.listing import SPARE, Listing, Seen
from holdfast.sources.known_files.memory import RENAMED, Changed, FileMemory
from holdfast.sources.known_files.record import FileRecord
from holdfast.sources.line_tasks import MALFORMED
from holdfast.sources.lines import BEGINNING
from holdfast.sources.parquet_tasks import ParquetReader, readable
from holdfast.sources.schemas import TEXT, check_options, infer, line_rules, refuse_foreign_compression
from holdfast.sources.small.sizes import SMALL_BYTES, SMALL_ROWS
from holdfast.sources.text.certain_reader import certain_reader
from holdfast.sources.text.csv_header import column_order, refuse_header_as_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

Format = Literal["csv", "json", "text", "parquet"]
Malformed = Literal["fail", "drop", "null", "stream"]
STATE_FORMAT = 1
QUICK_S = 0.001
"""What takes no longer is done whenever the source is asked."""


@dataclass(frozen=True, slots=True)
class FilesCapture:
    """Where the source is, and what it knows of its files."""

    place: Place
    files: FileRecord
    malformed_rows: int

    def plain(self) -> dict[str, Any]:
        state = {"format": STATE_FORMAT, "position": self.place.plain(), "files": self.files.plain()}
        return state | ({"malformed": self.malformed_rows} if self.malformed_rows else {})


class Files(Source):
    """Rows of files, in the order in which the files were first seen and then by name.

    Example::

        orders = hf.Files("in/orders", "csv", schema="id long, price decimal(10,2), at timestamp")
        topology.source(orders, name="orders")

    `path` is a directory or a glob; names beginning with "." or "_" are ignored; `.gz` is uncompressed. A step holds
    at most `max_rows_per_step` rows, `max_bytes_per_step` bytes and `max_files_per_step` files (default: 128 MiB; a
    parquet file is then never torn). One line is one row, as in Spark with multiLine=false (a json line holds one
    object). With `header` (csv) the first line of each file must name the schema's columns, in any order: rows are read by
    these names. `malformed` says what happens to a row that does not fit: "fail" raises InputError with file and line,
    "drop" leaves it out and counts it (`holdfast status`), "stream" does so too and gives it, with file, line, reason and
    text, as a stream of its own: `stream.malformed`; "null" keeps it with nulls, as Spark's PERMISSIVE does. A line that is
    not UTF-8, a csv line with an open quote, a json array and what follows a json object are malformed. `options` go to Spark's reader.
    A step that ends with a file's end is a boundary (trigger="operator"; max_files_per_step=1 makes every file one).
    A file is known by its real path below the directory, so a glob of the directory or a link to it finds the same files.
    A position belongs to its directory: if that was moved, say `moved_from=` with the path it had.
    Files that were read stay as they are, or go. `changed` says what happens to one that does not: "refuse" raises
    InputError with its name, "warn" goes on without what changed and warns (logger holdfast.sources), "append" is for
    files that only grow, such as logs: reading goes on where it stopped, with whole lines; a bounded run also takes a last
    line without an end.
    With schema=None the first file with rows decides; the answer is stored with the job. A schema that is given counts,
    also on a store that was made with another one: columns may be added or left out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Format = "csv",
        schema: pa.Schema | str | None = None,
        *,
        max_rows_per_step: int | None = None,
        max_bytes_per_step: int | None = None,
        max_files_per_step: int | None = None,
        header: bool = True,
        options: Mapping[str, Any] | None = None,
        malformed: Malformed = "fail",
        recursive: bool = False,
        moved_from: str | None = None,
        changed: Changed = "refuse",
    ) -> None:
        if format not in ("csv", "json", "text", "parquet"):
            raise ConfigError(f"{format!r} is no file format.", cure="Use csv, json, text or parquet.")
        if malformed not in ("fail", "drop", "null", "stream"):
            raise ConfigError(
                f"malformed={malformed!r} is unknown.", cure='Use "fail", "drop", "null" or "stream".'
            )
        if malformed == "stream" and format == "parquet":
            raise ConfigError("Parquet files have no malformed rows.", cure='Leave malformed="stream" out.')
        if changed not in ("refuse", "warn", "append"):
            raise ConfigError(f"changed={changed!r} is unknown.", cure='Use "refuse", "warn" or "append".')
        if changed == "append" and format == "parquet":
            raise ConfigError("a Parquet file cannot grow.", cure='Use changed="refuse" or "warn".')
        for limit in (max_rows_per_step, max_bytes_per_step, max_files_per_step):
            if limit is not None and limit < 1:
                raise ConfigError(f"a step cannot be limited to {limit}.", cure="Give at least 1.")
        if isinstance(path, list | tuple | set):
            raise ConfigError(
                f"Files takes one path, not {len(path)}.",
                cure="Give a glob that finds them all, or write a source for each and a.union(b).",
            )
        path = os.fspath(path)
        self._path, self._format, self._malformed, self._header = path, format, malformed, header
        self._options = check_options(dict(options or {}))
        self._schema = TEXT if format == "text" else None
        self._given = schema is not None
        if schema is not None and format != "text":
            self._schema = to_arrow(schema, f"the schema of the files in {path}")
        self._limits = Limits(max_rows_per_step, max_bytes_per_step, max_files_per_step)
        self._listing = Listing(path, recursive, moved_from)
        self._memory = FileMemory(self._listing, changed)
        self._unlisted = Unlisted(self._listing, lambda name: self._memory.knows(name))
        self._cutter = self._new_cutter()
        self._place = Place(0, BEGINNING)
        self._bounded = False
        self._grows = changed == "append"
        self._looked = False
        self._next_look = 0.0
        self._seen = Seen()
        """The directories of which all files are known."""
        self._session: SparkSession | None = None
        self._in_doubt = False
        """Tasks came upon lines that only Spark's reader should read."""
        self._readable: dict[int, bool] = {}
        """By ordinal, whether tasks can read a Parquet file by themselves; asked once per file."""
        self._left_out: tuple[Any, Any] = (None, None)
        """Where the slice begins that was read last, and its malformed rows, or what counts the others."""
        self._malformed_rows = 0
        self._orders: dict[int, tuple[str, ...] | None] = {}

    def _new_cutter(self) -> Cutter:
        limits = self._limits
        if limits == Limits(None, None, limits.files):
            limits = Limits(None, DEFAULT_BYTES, limits.files)
        whole = self._format == "parquet" and self._limits.bytes is None
        return Cutter(
            self._memory, line_rules(self._format, self._header, self._options), limits, whole_files=whole
        )

    # --- schema ---

    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = self._infer()
        return self._schema

    def use_schema(self, schema: pa.Schema) -> None:
        if not self._given:
            self._schema = schema

    def _infer(self) -> pa.Schema:
        self._listing.check()
        look = FileMemory(self._listing)
        look.refresh()
        for ordinal in range(look.count):
            found = infer(look.path(ordinal), self._format, self._header, self._options)
            if found is not None:
                return found
        raise InputError(f"{self._path} holds no rows to infer a schema from.", cure="Give a schema.")

    # --- position ---

    def check(self) -> None:
        self._listing.check()

    def cut_smaller(self, rows: int) -> None:
        self._limits = replace(self._limits, rows=min(self._limits.rows or rows, rows))
        self._cutter = self._new_cutter()

    def extent(self) -> Any:
        return sorted(self._listing.names())

    def keep_to(self, extent: Any) -> None:
        self._listing.only = frozenset(extent)

    def bound(self) -> None:
        self._bounded = True
        self._memory.freeze()

    def unbound(self) -> None:
        self._bounded = False
        self._memory.thaw()

    def seek(self, state: Any | None) -> None:
        if state is None:
            self._memory.forget()
            self._place, self._malformed_rows = Place(0, BEGINNING), 0
        else:
            if not isinstance(state, dict) or state.get("format") != STATE_FORMAT:
                raise StateError("the snapshot is not one of a file source.", cure="Check the store.")
            self._memory.load(state["files"])
            self._place = Place.of(state["position"])
            self._malformed_rows = int(state.get("malformed", 0))
            if self._place.mark != BEGINNING:
                self._memory.verify(self._place.ordinal, self._place.ordinal)
        self._cutter = self._new_cutter()
        self._orders.clear()
        self._readable.clear()
        if self._bounded:
            self._memory.refresh()
        self._memory.look(self._place.ordinal, everything=True)
        self._looked, self._next_look, self._seen = False, 0.0, Seen()

    def next_slice(self) -> Slice | None:
        if self._place.ordinal >= self._memory.count:
            self._look_around()
        if self._place.ordinal >= self._memory.count:
            return None
        start, cut = self._place, self._cutter.cut(self._place)
        if self._format != "parquet":
            for ordinal in range(start.ordinal, min(cut.end.ordinal + 1, self._memory.count)):
                refuse_foreign_compression(self._memory.path(ordinal))
        self._place = cut.end
        self._orders = {n: order for n, order in self._orders.items() if n >= start.ordinal}
        self._readable = {n: answer for n, answer in self._readable.items() if n >= start.ordinal}
        piece = Slice(start.plain(), cut.end.plain(), cut.rows, cut.bytes, boundary=cut.end.mark == BEGINNING)
        return piece if cut.rows is not None else replace(piece, detail=stretches(self._cutter, piece))

    def _look_around(self) -> None:
        """Nothing is left: find new files, and what happened to those that were read."""
        self._unlisted.put_off()
        if not self._bounded:
            if not self._seen.still_holds():
                self._seen = self._memory.refresh(self._place.ordinal)
            self._look_at_read()
        elif not (self._grows or self._looked):
            self._memory.look(self._place.ordinal, everything=True)
        self._looked = True

    def _look_at_read(self) -> None:
        """Whether files changed that were read: of many for a small share of the time only."""
        if time.monotonic() >= self._next_look:
            begun = time.thread_time()
            self._memory.look(self._place.ordinal)
            took = time.thread_time() - begun
            self._next_look = time.monotonic() + (SPARE * took if took > QUICK_S else 0.0)

    def snapshot(self) -> Any:
        return self._captured(self._place.ordinal).plain()

    def capture(self) -> FilesCapture:
        return self._captured(self._place.ordinal)

    def snapshot_with(self, piece: Slice) -> Any:
        return self._captured(Place.of(piece.start).ordinal).plain()

    def _captured(self, consumed: int) -> FilesCapture:
        """Of the files before ordinal `consumed` only names and facts."""
        return FilesCapture(self._place, self._memory.record(consumed), self._malformed_rows)

    def lag(self) -> Lag:
        return self._memory.lag(self._place.ordinal, self._place.mark.offset)

    def came_since(self) -> Lag:
        return Lag() if self._bounded else self._unlisted.lag()

    # --- rows ---

    def read_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        self._session = session
        counters: list[Observation] = []
        frame = file_spark.read(session, self._plan(piece), stamp, counters)
        self._left_out = (piece.start, counters)
        return frame

    def read_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        rows, left_out = file_arrow.read(self._plan(piece), stamp)
        self._left_out = (piece.start, left_out)
        return rows

    def read_small(self, piece: Slice, stamp: Stamp | None) -> pa.Table | None:
        if self._options or piece.bytes is None or piece.bytes > SMALL_BYTES:
            return None
        plan = self._plan(piece)
        if self._format == "parquet":
            may = all(self._readable[part.ordinal] for part in plan.pieces)
            rows = file_arrow.read_few(plan, stamp, SMALL_ROWS) if may else None
        else:
            rows = file_arrow.read_certain(plan, stamp)
        if rows is not None:
            self._left_out = (piece.start, MALFORMED.empty_table())
        return rows

    # --- malformed rows ---

    def malformed_schema(self) -> pa.Schema | None:
        return MALFORMED if self._malformed == "stream" else None

    def read_malformed_spark(self, session: SparkSession, piece: Slice, stamp: Stamp | None) -> DataFrame:
        return file_spark.malformed(session, self._plan(piece), stamp)

    def read_malformed_arrow(self, piece: Slice, stamp: Stamp | None) -> pa.Table:
        _, left_out = file_arrow.read(self._plan(piece), None)
        return file_arrow.malformed(left_out, stamp)

    def processed(self, piece: Slice) -> None:
        pieces = pieces_of(self._cutter, piece)
        # Once more: files that changed while they were read are refused.
        self._memory.verify(pieces[0].ordinal, pieces[-1].ordinal, may_be_gone=True)
        start, left_out = self._left_out
        if start != piece.start or self._malformed not in ("drop", "stream"):
            return
        if isinstance(left_out, pa.Table):
            self._malformed_rows += left_out.num_rows
        elif left_out:
            assert self._session is not None
            if file_spark.observed(left_out) != self.count_rows(piece):
                self._malformed_rows += file_spark.count_malformed(self._session, self._plan(piece))

    def counts(self) -> dict[str, int]:
        return {"malformed": self._malformed_rows} if self._malformed_rows else {}

    def task_reader(self, piece: Slice, stamp: Stamp | None) -> TaskReader | None:
        if self._options or self._in_doubt:
            return None
        plan = self._plan(piece)
        if self._format != "parquet":
            return certain_reader(plan, stamp, self.describe())
        if not all(self._readable[part.ordinal] for part in plan.pieces):
            return None
        return ParquetReader(plan.pieces, self.schema(), stamp)

    def decline_tasks(self, why: str) -> None:
        self._in_doubt = True

    def _plan(self, piece: Slice) -> FilePlan:
        """What to read, after making sure that the files are still what they were."""
        pieces = pieces_of(self._cutter, piece)
        if pieces:
            self._memory.verify(pieces[0].ordinal, pieces[-1].ordinal)
        rules = self._cutter.rules
        if self._format == "csv":
            pieces = tuple(replace(part, columns=self._order_of(part)) for part in pieces)
        for part in pieces if self._format == "parquet" else ():
            if part.ordinal not in self._readable:
                self._readable[part.ordinal] = readable(part.path, self.schema())
        return FilePlan(
            pieces, self._format, self.schema(), self._malformed, self._options, rules, self._cutter
        )

    def _order_of(self, part: FilePiece) -> tuple[str, ...] | None:
        """Which order of columns a file's header tells; looked at once per file."""
        if part.ordinal not in self._orders:
            options = {name.lower(): value for name, value in self._options.items()}
            look = column_order if self._header else refuse_header_as_row
            self._orders[part.ordinal] = look(part.path, self._cutter.rules, options, self.schema())
        return self._orders[part.ordinal]

    def count_rows(self, piece: Slice) -> int | None:
        if piece.rows is not None:
            return piece.rows
        if self._format == "parquet":
            return count_by_footers(piece.detail)
        return count_lines(piece.detail, self._cutter.rules)

    def explain_failure(self, piece: Slice, error: Exception) -> Exception:
        try:
            if self._memory.follow_renamed():
                return StepFailed(RENAMED)
            if isinstance(error, InputError):
                return error
            plan = self._plan(piece)
            found = file_spark.explain(self._session, plan, error)
        except InputError as better:
            better.__cause__ = error
            return better
        if found is not None:
            found.__cause__ = error
        return found or error

    def describe(self) -> str:
        kind = "glob" if glob.has_magic(self._path) else "directory"
        return f"{self._format} files in the {kind} {self._path}"
