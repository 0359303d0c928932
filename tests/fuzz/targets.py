"""What is fuzzed: every decoder of bytes or texts that somebody else may have written, with seeds it takes. `resealed` gives
mutated contents the checksum they need, so that what lies behind it is reached.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa

from holdfast.checkpoint import index, manifest, own_records
from holdfast.checkpoint.change.archive import read_members
from holdfast.checkpoint.look.file_printer import print_file
from holdfast.durable import checksum
from holdfast.errors import HoldfastError
from holdfast.ids import Epoch, OperatorName
from holdfast.log.format import frame as frames
from holdfast.log.format import index as log_index
from holdfast.log.format import names, parquet_segment, tail
from holdfast.log.format.note import Note
from holdfast.runtime.persisted.stream_notes import StreamNote
from holdfast.sinks.database.address import Address
from holdfast.sinks.ledger import Ledger
from holdfast.state.eventual import records
from holdfast.state.keyed.segment import open_foreign
from holdfast.state.values import codec
from holdfast.store import identity_record, sealed_file
from holdfast.store.events.as_bytes import decode_mail
from holdfast.store.files import events_and_mail, pack_format
from holdfast.store.objects import contents_log
from holdfast.store.urls import open_store

GOLDEN = Path(__file__).parents[1] / "golden"
STORE, LOG = GOLDEN / "manifest-3" / "store", GOLDEN / "log-2"


@dataclass(frozen=True, slots=True)
class Target:
    """`decode` may return or raise HoldfastError. It is given a directory in memory for what has to be a file."""

    decode: Callable[[bytes, Path], object]
    seeds: Callable[[], list[bytes]]


def _files(root: Path, pattern: str, most: int = 6, largest: int = 1 << 16) -> list[bytes]:
    found = [path.read_bytes() for path in sorted(root.rglob(pattern)) if path.is_file()]
    return [data for data in found if len(data) <= largest][:most]


def _payload(data: bytes) -> bytes:
    return data.partition(b"\n")[2]


def _sealed_fields(data: bytes) -> list[str]:
    return data.partition(b"\n")[0].decode("ascii", "replace").split(" ")


def resealed(data: bytes, kind: str, job: str, name: str) -> bytes:
    return sealed_file.seal(kind, job, name, data)


def on_disk(data: bytes, here: Path, name: str = "x") -> Path:
    path = here / name
    path.write_bytes(data)
    return path


# --- stores -----------------------------------------------------------------------------------------------------------


def manifests() -> list[bytes]:
    return [_payload(data) for data in _files(STORE, "*.manifest")]


def manifest_body(data: bytes, here: Path) -> object:
    return manifest.decode(b"holdfast-manifest 3 crc32=%08x\n%b" % (checksum(data), data), "x")


def records_of_operators(data: bytes, here: Path) -> object:
    _ours_only(lambda: own_records.decode(data, "tally", "x"))
    return own_records.decode(b"holdfast-checkpoint 2 crc32=%08x\n%b" % (checksum(data), data), "tally", "x")


def values() -> list[bytes]:
    many = {"a": [1, 2.5, None, True, "x", b"y", (1, 2), {3, 4}], 7: {"deep": [[[[]]]]}}
    return [
        codec.encode(each) for each in (many, 10**40, pa.table({"k": ["a", "b"], "n": [1, None]}), [many] * 3)
    ]


def segments() -> list[bytes]:
    made = []
    for table in (
        pa.table({"__hf_hash": pa.array([1, 2], pa.int64()), "k": ["a", None], "l": [[1], [2, 3]]}),
        pa.table(
            {
                "d": pa.array(["x", "y"]).dictionary_encode(),
                "m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
            }
        ),
    ):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        made.append(bytes(sink.getvalue()))
    return made


def segment(data: bytes, here: Path) -> object:
    return [column.to_pylist() for column in open_foreign(on_disk(data, here)).columns]


def pack(data: bytes, here: Path) -> object:
    """As it is, and each record with the checksum that it needs."""
    names_tried = ["p"]
    if len(data) >= pack_format.HEADER.size:
        size = pack_format.HEADER.unpack_from(data)[3]
        names_tried.append(
            data[pack_format.HEADER.size : pack_format.HEADER.size + size].decode("utf-8", "replace")
        )
    for name in names_tried:
        _ours_only(lambda name=name: pack_format.decode(data, Path("x"), name, base=False))
    fixed = bytearray(data)
    size = pack_format.RECORD.size
    if len(fixed) >= size:
        key, _flags, value, _ = pack_format.RECORD.unpack_from(fixed)
        end = min(len(fixed), size + key + value)
        crc = checksum(bytes(fixed[size:end]), checksum(bytes(fixed[: size - 4])))
        fixed[size - 4 : size] = crc.to_bytes(4, "little")
    return pack_format.decode_record(bytes(fixed), 0, Path("x"))


def packs() -> list[bytes]:
    whole = pack_format.encode("p", [("k", b"value"), ("gone", None), ("other", b"x" * 40)], base=False)
    records_only = pack_format._encode_record(b"key", b"value")
    return [whole, records_only]


def archives() -> list[bytes]:
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in (("holdfast-export", b"x" * 700), ("manifest-0000", b"y"), ("piece-000000", b"")):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            archive.addfile(member, io.BytesIO(data))
    size = 512 * 6  # three headers, two blocks and one of bytes; tarfile fills up more at the end
    return [out.getvalue()[:size] + bytes(1024)]


def letters() -> list[bytes]:
    return [
        json.dumps(each).encode()
        for each in (["stop", {}], ["savepoint", {"name": "n", "region": None}], ["n", "stop", {"a": [1]}])
    ]


def letter(data: bytes, here: Path) -> object:
    _ours_only(lambda: decode_mail(data, "x"))
    path = on_disk(resealed(data, "mail", "j", "000000000001"), here, "000000000001.mail")
    return events_and_mail._open(path, path, "j")


def sealed(data: bytes, here: Path) -> object:
    fields = _sealed_fields(data)
    kind, job, name = (fields[1], fields[3], fields[4]) if len(fields) == 7 else ("record", "j", "n")
    return sealed_file.unseal(data, "x", kind, job, name)


def lines_of_events(data: bytes, here: Path) -> object:
    text = data.replace(b"\n", b" ")
    on_disk(b"%08x %b\n" % (checksum(text), text), here, "events")
    return events_and_mail._read_file(here / "events")


def contents(data: bytes, here: Path) -> object:
    return contents_log.decode(1, data)


def some_contents() -> list[bytes]:
    ref = ["name", 0, 5, 17]
    fields = {
        "token": 1,
        "owner": {"pid": 1},
        "entries": {"e": {"k": ref}},
        "epochs": {"r": {"1": ref}},
        "records": {"a": ref},
        "nonce": "x",
    }
    return [json.dumps(fields).encode()]


def identity(data: bytes, here: Path) -> object:
    return identity_record.decode("x", data)


def ledger(data: bytes, here: Path) -> object:
    _ours_only(lambda: Ledger.read(on_disk(data, here)))
    try:
        fields = json.loads(data)
        body = json.dumps(fields["ledger"], sort_keys=True).encode()
        again = json.dumps({"crc": checksum(body), "ledger": fields["ledger"]}).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Ledger.read(on_disk(again, here))


# --- logs -------------------------------------------------------------------------------------------------------------


def tails() -> list[bytes]:
    return _files(LOG, "*.tail", most=4)


def whole_tail(data: bytes, here: Path) -> object:
    """Header and frames of a tail, with the header's checksum made right."""
    fields = _sealed_fields(data)
    if len(fields) != 7:
        fields = ["holdfast", "tail", "1", "j", "00000000000000000000-0000000001.tail", "0", "0"]
    name = names.parse(next(iter(sorted(path.name for path in LOG.rglob("*.tail")))))
    assert name is not None
    job = fields[3]
    stem = tail._stem(name)
    size = int(fields[5]) if fields[5].isdigit() and len(fields[5]) < 9 else len(data)
    body, rest = _payload(data)[:size], _payload(data)[size:]
    whole = sealed_file.seal(tail.KIND, job, stem, body) + rest
    read = lambda offset, length: memoryview(whole)[offset : offset + length]  # noqa: E731
    header = tail.decode_header(read, "x", job, name)
    return list(tail.scan(read, len(whole), tail.first_frame(header), b"x"))


def frame_heads() -> list[bytes]:
    found = []
    for data in tails():
        place = data.find(frames.MAGIC)
        if place >= 0:
            found.append(data[place : place + 256])
    return found


def parquets() -> list[bytes]:
    return [*_files(LOG, "*.parquet", most=3), _parquet()]


@cache
def _parquet() -> bytes:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2, None], "b": ["x", "y", "z"]}), sink)
    return bytes(sink.getvalue())


def parquet(data: bytes, here: Path) -> object:
    """As a batch on its way, and as a segment whose name tells the checksum that its footer has."""
    path = on_disk(data, here, "x.parquet")
    _ours_only(lambda: print_file(path, 3))
    with open(path, "rb") as opened:
        crc = parquet_segment.footer_checksum(opened.fileno())
    named = path.rename(here / f"{0:020d}-{20:020d}-0000000002-00000000-{crc:08x}.parquet")
    try:
        with parquet_segment.open_parquet(named) as file:
            found = parquet_segment.read_footer(file, named, _log_id())
            return [
                batch.rows.to_pylist() for batch in parquet_segment.read_groups(file, found, named, 0, 20)
            ]
    finally:
        named.unlink()


@cache
def _log_id() -> str:
    return _sealed_fields((LOG / "log" / "identity").read_bytes())[3]


def footers() -> list[bytes]:
    return [
        json.dumps(
            {
                "log": "l",
                "partition": 0,
                "first": 0,
                "end": 3,
                "t_before": 0,
                "t_run_max": 0,
                "time": None,
                "groups": [[[[0, 3]], 1, 2]],
                "notes": [1, 2],
            }
        ).encode()
    ]


def footer(data: bytes, here: Path) -> object:
    return parquet_segment.Footer.decode(
        sealed_file.seal(parquet_segment.KIND, "l", "0-3", data), "x", "l", 0, 3
    )


def index_of_a_log(data: bytes, here: Path) -> object:
    name = names.parse("00000000000000000000-0000000001.tail")
    assert name is not None
    return log_index.decode(sealed_file.seal(log_index.KIND, "l", str(name), data), "l", name)


def name_of_a_segment(data: bytes, here: Path) -> object:
    text = data.decode("utf-8", "replace")
    return names.parse(text), names.lay_out([text])


def windows(data: bytes, here: Path) -> object:
    return records.decode(records.MAGIC + bytes([records.VERSION]) + data)


def note_of_a_stream(data: bytes, here: Path) -> object:
    return StreamNote.of(Note(0, 1, data, 3))


def notes_of_streams() -> list[bytes]:
    clock = {"watermark": 5, "reached": [[0, "events", 7]], "silent": []}
    made = (StreamNote({OperatorName("a"): {"next": 3}}), StreamNote(None, ((0, 1), (3, 5)), clock))
    return [note.encode() for note in made]


def some_windows() -> list[bytes]:
    whole = {
        "made": 1,
        "n_open": 0,
        "before": [0, 0],
        "after": [0, 0],
        "upto": [0, 0],
        "counts": {},
        "now_us": 0,
        "more": 0,
    }
    return [codec.encode({"marks": b"", "checks": b"", "number": 1, "note": each}) for each in (None, whole)]


# --- texts ------------------------------------------------------------------------------------------------------------

URLS = [
    "file:a/b", "sqlite:x", "redis://u:secret@127.0.0.1:6379/0?name=j&timeout=3", "rediss://h/0?name=j", "memory:x",
    "s3://bucket/path?lease=30", "objects+file:/tmp/x", "unix:///x?name=j", "redis://h:1,h:2/0?name=j", "file://localhost/x",
]  # fmt: skip
ADDRESSES = [
    "postgresql://u:secret@h:5432/d?sslpassword=x",
    "sqlite:a/b.db",
    "sqlite:///x",
    "postgres://[::1]/d",
]


def url(data: bytes, here: Path) -> object:
    return repr(open_store(data.decode("utf-8", "surrogateescape")).url)


def address(data: bytes, here: Path) -> object:
    return repr(Address.of(data.decode("utf-8", "surrogateescape")))


def anything_printed(data: bytes, here: Path) -> object:
    """Any file, as `holdfast checkpoints show` takes it; a sealed one also with its checksum right."""
    _ours_only(lambda: print_file(on_disk(data, here), 3))
    fields = _sealed_fields(data)
    if len(fields) == 7 and fields[0] == "holdfast":
        return print_file(on_disk(resealed(_payload(data), fields[1], fields[3], fields[4]), here), 3)
    return None


def every_kind_of_file() -> list[bytes]:
    kinds: dict[str, bytes] = {}
    for path in sorted(STORE.rglob("*")):
        if path.is_file() and 0 < path.stat().st_size < 1 << 15:
            kinds.setdefault(re.sub(r"[0-9a-f]+", "", path.name)[:12] + path.suffix, path.read_bytes())
    return [*kinds.values(), *values(), *segments()]


def _ours_only(call: Callable[[], object]) -> None:
    try:
        call()
    except HoldfastError:
        return


def _texts(*texts: str) -> Callable[[], list[bytes]]:
    return lambda: [text.encode() for text in texts]


TARGETS: dict[str, Target] = {
    "manifest": Target(lambda data, here: manifest.decode(data, "x"), lambda: _bodies("*.manifest")),
    "manifest-body": Target(manifest_body, lambda: [_payload(each) for each in _bodies("*.manifest")]),
    "operator-record": Target(records_of_operators, lambda: [_payload(each) for each in _bodies("state.*.rec")]),
    "value": Target(lambda data, here: codec.decode(data), values),
    "variables": Target(lambda data, here: index.decode(data, Epoch(3), "x"), lambda: _indexes()),
    "segment": Target(segment, segments),
    "pack": Target(pack, packs),
    "archive": Target(lambda data, here: read_members(io.BytesIO(data), "x"), archives),
    "mail": Target(letter, letters),
    "sealed": Target(sealed, lambda: _files(STORE, "*.rec", most=4)),
    "events": Target(lines_of_events, lambda: [b'[0,1.5,"kind",{"a":1}]']),
    "contents": Target(contents, some_contents),
    "identity": Target(identity, lambda: [b'{"format":1,"job_id":"j","topology":"t"}']),
    "ledger": Target(ledger, lambda: _files(GOLDEN / "manifest-3" / "output", "ledger.json", most=3)),
    "log-tail": Target(whole_tail, tails),
    "log-frame": Target(lambda data, here: frames.unpack(memoryview(data)), frame_heads),
    "log-parquet": Target(parquet, parquets),
    "log-footer": Target(footer, footers),
    "log-index": Target(index_of_a_log, lambda: [bytes(24), bytes(range(48))]),
    "log-name": Target(name_of_a_segment, _texts("00000000000000000000-0000000001.tail", "0" * 20 + "-" + "0" * 20 + "-0000000001-00000000-00000000.parquet")),
    "windows": Target(windows, some_windows),
    "stream-note": Target(note_of_a_stream, notes_of_streams),
    "url": Target(url, _texts(*URLS)),
    "address": Target(address, _texts(*ADDRESSES)),
    "printed": Target(anything_printed, every_kind_of_file),
}  # fmt: skip


def _bodies(pattern: str) -> list[bytes]:
    """What lies in sealed files of a golden store."""
    return [_payload(data) for data in _files(STORE, pattern)]


def _indexes() -> list[bytes]:
    return [index.encode(rows, Epoch(3)) for rows in _rows_of_indexes()]


def _rows_of_indexes() -> Iterator[list[index.Entry]]:
    yield []
    yield [index.Entry(0, 10), index.Entry(10, 300, index.Place(Epoch(1), 0))]
    yield [index.Entry(number * 7, 7) for number in range(200)]
