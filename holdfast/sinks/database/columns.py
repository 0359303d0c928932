"""What is written into a table: its columns, the key, and what a row does. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from holdfast.errors import ConfigError

Mode = Literal["append", "upsert", "changelog"]
MODES: tuple[str, ...] = get_args(Mode)

WRITER, DELETES = "__hf_writer", "__hf_deletes"
"""Who staged a row; whether it deletes its key."""
ORDER = ("__hf_step", "__hf_source", "__hf_ordinal", "__hf_row")
"""What came later has the larger of these, compared one after the other."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user said of a table. `op`: the column that tells what a row of a changelog does."""

    table: str
    mode: Mode
    key: tuple[str, ...] = ()
    op: str | None = None
    create: bool = False

    @classmethod
    def of(cls, table: str, mode: str, key: str | Sequence[str] | None, op: str, create: bool) -> Wanted:
        """ConfigError if it has no meaning."""
        if mode not in MODES:
            raise ConfigError(f"mode={mode!r} is unknown.", cure='Use "append", "upsert" or "changelog".')
        keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
        if not table or table.count(".") > 1 or table.startswith(".") or table.endswith("."):
            raise ConfigError(
                f"{table!r} is no name of a table.",
                cure="Write 'orders', or 'sales.orders' for a table in a schema.",
            )
        if mode == "append" and keys:
            raise ConfigError(
                "mode='append' takes no key: every row is added.", cure="Use mode='upsert', or leave key out."
            )
        if mode != "append" and (not keys or len(set(keys)) < len(keys)):
            raise ConfigError(
                f"mode={mode!r} needs a key of different columns, not {list(keys)}.",
                cure="Give key='id', or key=['country', 'id'].",
            )
        return cls(table, _mode(mode), keys, op if mode == "changelog" else None, create)


def _mode(mode: Any) -> Mode:
    found: Mode = mode
    return found


@dataclass(frozen=True)
class Columns:
    """The columns of a stream that go into a table, in its order."""

    data: pa.Schema
    key: tuple[str, ...]
    op: str | None

    @property
    def is_keyed(self) -> bool:
        return bool(self.key)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.data.names)


def columns_of(schema: pa.Schema, wanted: Wanted, shown: str) -> Columns:
    """What of a stream goes into the table; ConfigError if that cannot be."""
    for name in (*wanted.key, *((wanted.op,) if wanted.op is not None else ())):
        if name not in schema.names:
            role = "op" if name == wanted.op else "key"
            raise ConfigError(
                f"the {role} column {name!r} of {shown} is not in the stream, which has {', '.join(schema.names)}.",
                cure=f"Name one of these as {role}=, or add the column before the sink.",
            )
    if wanted.op is not None:
        type_ = schema.field(wanted.op).type
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_boolean(type_)):
            raise ConfigError(
                f"the op column {wanted.op!r} of {shown} is {type_}.",
                cure="It must be a text ('upsert', 'delete') or a boolean (true: delete).",
            )
    nested = [name for name in wanted.key if pa.types.is_nested(schema.field(name).type)]
    if nested:
        raise ConfigError(
            f"the key column {nested[0]!r} of {shown} is nested.", cure="Use columns with plain values."
        )
    untyped = [field.name for field in schema if pa.types.is_null(field.type)]
    if untyped:
        raise ConfigError(
            f"the column {untyped[0]!r} of {shown} has no type.", cure="Cast it before the sink."
        )
    data = pa.schema([field for field in schema if field.name != wanted.op])
    return Columns(data, wanted.key, wanted.op)
