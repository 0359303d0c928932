"""The header of a csv file, compared by name with the schema: which column of the file is which.

A header counts as the schema's if it has the same names, in any order; case and white space around them do not matter.
Anything else is refused: a file without a header would lose its first row, one with other columns would be misread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.sources.lines import LineRules, blocks
from holdfast.sources.text.values import fields_of

_LOOK_BYTES = 1 << 14
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"PK\x03\x04": "a zip archive (or a workbook)",
    b"SQLite format 3": "a SQLite database",
}
"""How files begin that people take for csv."""
_CURE = "If the files have no header, say header=False; else give the schema the names that the file has."


def column_order(
    path: str, rules: LineRules, options: dict[str, str], schema: pa.Schema
) -> tuple[str, ...] | None:
    """The schema's names in the file's order; None if that is the schema's, or the file has no row at all."""
    text = first_line(path, rules)
    if text is None:
        return None
    found = fields_of(text, options)
    if found == schema.names:
        return None
    known = {_plain(name): name for name in schema.names}
    order = tuple(known.get(_plain(name or ""), "") for name in found)
    if len(known) == len(schema.names) and sorted(order) == sorted(schema.names):
        return None if list(order) == schema.names else order
    raise InputError(
        f"{path}: the first line is not a header of the schema's columns. It has {_shown(found)}; the schema has "
        f"{_shown(schema.names)}.",
        cure=_CURE,
    )


def refuse_header_as_row(path: str, rules: LineRules, options: dict[str, str], schema: pa.Schema) -> None:
    """Without header: refuse a first line that is one. Where all columns are text nothing else would tell; where they are not
    it would be told as a row that does not fit, or be one of nulls."""
    text = first_line(path, rules)
    if text is not None and [_plain(name) for name in fields_of(text, options)] == [
        *map(_plain, schema.names)
    ]:
        raise InputError(
            f"{path}: the first line is a header, {_shown(schema.names)}, and would be read as a row.",
            cure="Say header=True.",
        )


def first_line(path: str, rules: LineRules) -> str | None:
    """The first line that is neither blank nor a comment. InputError if this is no text at all, but a file of a known form."""
    with open(path, "rb") as file:
        begins = file.read(max(map(len, _MAGIC)))
    for magic, form in _MAGIC.items():
        if begins.startswith(magic):
            raise InputError(
                f"{path} is not text: it begins like {form}.",
                cure='Say which format the files have (format="parquet", for instance), or take this one away.',
            )
    for block in blocks(path, replace(rules, header=False), block_bytes=_LOOK_BYTES):
        if len(block.starts):
            raw = block.data[block.starts[0] : block.ends[0]].tobytes()
            try:
                return raw.decode()
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}, line {block.begin.line + int(block.lines[0]) + 1}: the header is not UTF-8.",
                    cure="Write the file as UTF-8.",
                ) from error
    return None


def refuse_row_as_header(path: str, names: Sequence[str]) -> None:
    """When columns are called after a file's first line: refuse one that is a row, to all appearances."""
    for name in names:
        try:
            float(name)
        except ValueError:
            continue
        raise InputError(
            f"{path}: the first line looks like a row, not like a header: {_shown(names)}.",
            cure="If the files have no header, say header=False; if they have, give a schema with these names.",
        )


def _plain(name: str) -> str:
    return name.strip().casefold()


def _shown(names: Sequence[str | None]) -> str:
    text = ", ".join(repr(name or "") for name in names)
    return text if len(text) <= 300 else text[:300] + "…"
