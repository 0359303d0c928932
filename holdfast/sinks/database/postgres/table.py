"""What a table of PostgreSQL looks like, and whether the columns of a stream fit into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.errors import ConfigError
from holdfast.sinks.database.columns import Columns
from holdfast.sinks.database.postgres.connections import Connection
from holdfast.sinks.database.postgres.types import Fit, fit, natural_type
from holdfast.sinks.database.statements import literal, names, quoted


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its type without numbers, and in full."""

    name: str
    base: str
    full: str
    is_enum: bool
    is_needed: bool
    has_default: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A table as it is. `relation`: quoted, with its schema."""

    schema: str
    name: str
    columns: dict[str, Column]
    uniques: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def relation(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def split_name(table: str) -> tuple[str | None, str]:
    schema, _, name = table.rpartition(".")
    return schema or None, name


def current_schema(connection: Connection) -> str | None:
    """Where tables are made whose schema is not named."""
    found = connection.rows("SELECT current_schema()::text")[0][0]
    return None if found is None else str(found)


def find(connection: Connection, table: str) -> Found | None:
    """The table, by the server's own rules for names; None: there is none."""
    schema, name = split_name(table)
    relation = quoted(name) if schema is None else f"{quoted(schema)}.{quoted(name)}"
    placed = connection.rows(
        "SELECT n.nspname::text, c.relname::text, c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        f"WHERE c.oid = to_regclass({literal(relation)}) AND c.relkind IN ('r', 'p', 'v', 'f')"
    )
    if not placed:
        return None
    oid = placed[0][2]
    columns = connection.rows(
        "SELECT a.attname::text, format_type(coalesce(nullif(t.typbasetype, 0), t.oid), NULL)::text, "
        "format_type(a.atttypid, a.atttypmod)::text, coalesce(b.typtype, t.typtype) = 'e', a.attnotnull, "
        "a.atthasdef OR a.attidentity <> '' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "LEFT JOIN pg_type b ON b.oid = t.typbasetype "
        f"WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
    )
    uniques = connection.rows(
        "SELECT i.indexrelid::regclass::text, string_agg(a.attname::text, chr(10)) FROM pg_index i "
        "LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey) "
        f"WHERE i.indrelid = {oid} AND i.indisunique GROUP BY 1"
    )
    return Found(
        str(placed[0][0]),
        str(placed[0][1]),
        {str(row[0]): Column(*row) for row in columns},
        {str(name): tuple(str(of or "").split("\n")) for name, of in uniques},
    )


def create_statement(relation: str, columns: Columns) -> str:
    """A table for a stream."""
    parts = [f"{quoted(field.name)} {natural_type(field.type)}" for field in columns.data]
    if columns.key:
        parts.append(f"PRIMARY KEY ({names(columns.key)})")
    return f"CREATE TABLE IF NOT EXISTS {relation} ({', '.join(parts)})"


def fits_of(found: Found, columns: Columns, where: str) -> dict[str, Fit]:
    """How each column gets into the table; ConfigError in one sentence if one does not."""
    fits: dict[str, Fit] = {}
    for each in columns.data:
        column = found.columns.get(each.name)
        if column is None:
            raise ConfigError(
                f"{where} has no column {each.name!r}; it has {', '.join(found.columns)}.",
                cure="Drop or rename the column before the sink, or add it to the table.",
            )
        how = fit(each.type, column.base, column.full, column.is_enum)
        if how is None:
            raise ConfigError(
                f"the column {each.name!r} is {each.type} in the stream and {column.full} in {where}, which cannot hold "
                "every value unchanged.",
                cure=f"Cast it before the sink, or make it {natural_type(each.type)} in the table.",
            )
        fits[each.name] = how
    missing = [
        column.name
        for column in found.columns.values()
        if column.is_needed and not column.has_default and column.name not in fits
    ]
    if missing:
        raise ConfigError(
            f"{where} needs a value for {missing[0]!r}, which the stream has not.",
            cure="Add the column before the sink, or give it a default in the table.",
        )
    return fits


def others_unique(found: Found, key: Sequence[str]) -> list[str]:
    """Unique indexes other than the key's: a row that repeats a value of one ends the run."""
    return sorted(name for name, of in found.uniques.items() if not key or set(of) != set(key))
