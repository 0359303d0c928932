"""Any file that holdfast writes, read and verified for people: `holdfast checkpoints show FILE`.

What a file is shows in its first bytes, not in its name. Formats: docs/formats. Data only: nothing is executed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.checkpoint import index, own_records, stored_names
from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint.change.archive import read_members
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.stored_names import OWN_PREFIX
from holdfast.checkpoint.typed_json import plain
from holdfast.durable import checksum, checksum_file
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ids import Epoch
from holdfast.state.columns import parquet_frames
from holdfast.state.keyed.segment import open_foreign
from holdfast.state.values import codec
from holdfast.store import sealed_file
from holdfast.store.events.large import joined
from holdfast.store.files import pack_format
from holdfast.store.files.events_and_mail import decode

SQLITE = b"SQLite format 3\0"
_ARROW, _PARQUET = b"ARROW1", b"PAR1"
_TAR = slice(257, 262)
MOST_BYTES = 1 << 29
"""Packs are the largest: they are begun anew long before."""


@dataclass(frozen=True)
class Printed:
    """A file taken apart: facts, then rows. `manifest`: if it is one; `raw`: what `--raw` prints."""

    file: str
    format: str
    facts: dict[str, Any]
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    manifest: Manifest | None = None
    raw: bytes = b""


def print_file(path: Path, rows: int = 10) -> Printed:
    """What a file holds; `rows`: how many of a segment or batch. DamagedError if it is not as written, ConfigError if
    it is no file of holdfast's."""
    head = _head(path)
    with sealed_file.understood(path):
        return _printed(path, head, rows)


def _printed(path: Path, head: bytes, rows: int) -> Printed:
    if head.startswith(_ARROW):
        return _table(path, "segment", open_foreign(path), rows)
    if head.startswith(_PARQUET):
        return _parquet(path, rows)
    if head[_TAR] == b"ustar":
        return _archive(path)
    _refuse_large(path)
    data = sealed_file.read_whole(path) or b""
    if head.startswith(pack_format.MAGIC):
        return _pack(path, data)
    if head.startswith(manifests.MAGIC.encode()):
        return _manifest(path, data, {})
    if head.startswith(sealed_file.MAGIC.encode() + b" "):
        return _sealed(path, data)
    if head[:1] == bytes([codec.VERSION]):
        return Printed(str(path), "encoded value", {"value": codec.decode(data), **_size(data)}, raw=data)
    return _json_file(path, data)


def _refuse_large(path: Path) -> None:
    """ConfigError for what would be read whole and is larger than anything of holdfast's that is."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ConfigError(
            f"{path} has {size} bytes; files of this kind that holdfast writes have at most {MOST_BYTES}.",
            cure="Name a file of a store, or a segment.",
        )


def _head(path: Path) -> bytes:
    with sealed_file.opened(path) as file:
        if file is None:
            raise ConfigError(f"there is no file {path}.", cure="Check the path.")
        return file.read(512)


def _size(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "crc": f"{checksum(data):08x}"}


def _table(path: Path, kind: str, table: pa.Table, rows: int, count: int | None = None) -> Printed:
    """The first rows of a table; the file itself is only passed through, it may be large."""
    crc, size = checksum_file(path)
    shown = zip(*(column.slice(0, rows).to_pylist() for column in table.columns), strict=True)
    schema = ", ".join(f"{field.name} {field.type}" for field in table.schema)
    facts = {"rows": table.num_rows if count is None else count, "bytes": size, "crc": f"{crc:08x}"}
    facts["columns"] = schema
    return Printed(str(path), kind, facts, tuple(table.column_names), tuple(shown), raw=schema.encode())


def _parquet(path: Path, rows: int) -> Printed:
    try:
        parquet_frames.check(path, compressed=True)
        with pq.ParquetFile(path, **parquet_frames.LIMITS) as file:
            first = next(file.iter_batches(max(rows, 1)), None)
            table = pa.Table.from_batches([] if first is None else [first], file.schema_arrow)
            count = file.metadata.num_rows
    except (pa.ArrowException, OSError, ValueError) as error:
        raise sealed_file.damaged(path, f"cannot be read ({error})") from error
    return _table(path, "batch (parquet)", table, rows, count)


def _archive(path: Path) -> Printed:
    """What `holdfast checkpoints export` wrote."""
    with path.open("rb") as file:
        members = read_members(file, str(path))
    crc, size = checksum_file(path)
    facts = {"files": len(members), "bytes": size, "crc": f"{crc:08x}"}
    rows = tuple((member.name, member.size) for member in members)
    return Printed(str(path), "archive", facts, ("name", "bytes"), rows)


def _pack(path: Path, data: bytes) -> Printed:
    """The pairs of a pack; values that are encoded are decoded."""
    size = pack_format.HEADER.size
    if len(data) < size:
        raise sealed_file.damaged(path, "is shorter than its header")
    _, version, flags, name_size, count = pack_format.HEADER.unpack_from(data)
    name = data[size : size + name_size].decode("utf-8", "replace")
    base = bool(flags & pack_format.BASE)
    rows = []
    for record in pack_format.decode(data, path, name, base=base):
        value = pack_format.decode_record(data, record.offset, path)[1]
        shown = None if record.gone else _pair(record.key, value, path)
        rows.append((record.key, record.gone, len(value), shown))
    facts = {"name": name, "version": version, "base": base, "records": count, **_size(data)}
    return Printed(str(path), "pack", facts, ("key", "deleted", "bytes", "value"), tuple(rows), raw=data)


def _pair(key: str, data: bytes, path: Path) -> Any:
    """What a pair holds: the index of variables, new versions of them, or an encoded value."""
    found = stored_names.PAIR_KEY.fullmatch(key)
    if found is None or found[2] == stored_names.NON:
        return _value(data)
    if found[2] != stored_names.INDEX:
        return data
    entries = index.decode(data, Epoch(int(found[1])), f"{path} ({key})")
    return [
        {"form": each.form, "bytes": each.size, **({"after": asdict(each.previous)} if each.previous else {})}
        for each in entries
    ]


def _value(data: bytes) -> Any:
    """An encoded value decoded, other bytes as they are."""
    try:
        return codec.decode(data)
    except HoldfastError:
        return data


def _sealed(path: Path, data: bytes) -> Printed:
    fields = data.partition(b"\n")[0].decode("ascii", "replace").split(" ")
    if len(fields) != 7:
        raise sealed_file.damaged(path, "has a header nobody wrote")
    _, kind, version, job, name, _, crc = fields
    payload = sealed_file.unseal(data, path, kind, job, name)
    facts = {"kind": kind, "version": version, "job": job, "name": name, "bytes": len(payload), "crc": crc}
    if kind == "manifest":
        return _manifest(path, payload, facts)
    return Printed(str(path), kind, {**facts, "content": _content(path, name, payload)}, raw=payload)


def _content(path: Path, name: str, payload: bytes) -> Any:
    """What a record holds: a checkpoint of an operator outside of regions, JSON, a schema or an encoded value."""
    if name.startswith(OWN_PREFIX):
        return plain(own_records.decode(payload, name.removeprefix(OWN_PREFIX), str(path)))
    try:
        content = json.loads(payload)
    except ValueError:
        content = _value(payload)
    return _arrow_schema(content) if isinstance(content, bytes) and name.startswith("schema.") else content


def _arrow_schema(data: bytes) -> Any:
    try:
        return str(pa.ipc.read_schema(pa.py_buffer(data)))
    except (pa.ArrowException, OSError, ValueError):
        return data


def _manifest(path: Path, payload: bytes, facts: dict[str, Any]) -> Printed:
    manifest = manifests.decode(payload, str(path))
    header, _, body = payload.partition(b"\n")
    return Printed(str(path), "manifest", {**facts, "header": header.decode()}, manifest=manifest, raw=body)


def _json_file(path: Path, data: bytes) -> Printed:
    """The ledger of a sink, or an event log: the files of holdfast's that begin like any other text."""
    lines = data.splitlines()
    if data.startswith(b"{"):
        return _ledger(path, data)
    if lines and decode(lines[0]):
        events = [event for line in lines if (event := decode(line))]
        facts = {"events": len(events), "damaged lines": len(lines) - len(events), **_size(data)}
        rows = tuple((e.number, e.wall, e.kind, e.data) for e in joined(events))
        return Printed(str(path), "event log", facts, ("number", "wall", "kind", "data"), rows)
    raise ConfigError(
        f"{path} is not a file that holdfast writes.",
        cure="Name a store, or a manifest, segment, pack, record, event log or ledger in one.",
    )


def _ledger(path: Path, data: bytes) -> Printed:
    try:
        found = json.loads(data)
        body = json.dumps(found["ledger"], sort_keys=True).encode()
        if found["crc"] != checksum(body):
            raise ValueError("its checksum does not match")
    except (ValueError, KeyError, TypeError) as error:
        raise sealed_file.damaged(path, f"is damaged, or not the ledger of a sink: {error}") from error
    return Printed(str(path), "ledger", dict(found["ledger"]), raw=data)
