"""Files of a log for people: a tail frame by frame, a Parquet segment group by group. Verifies what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import durable
from holdfast.errors import ConfigError, HoldfastError
from holdfast.log.format import parquet_segment, tail
from holdfast.log.format.file_bytes import FileBytes
from holdfast.log.format.frame import NO_EPOCH, Kind, note_of
from holdfast.log.format.names import SegmentName, parse
from holdfast.log.place import LogFacts
from holdfast.log.rows import shown_time
from holdfast.state.eventual import records


def print_segment(path: Path, facts: LogFacts) -> dict[str, Any]:
    """What a segment holds: `head`, `frames` (or row groups) and, as a sentence, how it ends."""
    name = parse(path.name)
    if name is None:
        raise ConfigError(
            f"{path} is not a segment of a log.", cure="Name a .tail or .parquet file of a partition."
        )
    return _tail(path, facts, name) if name.is_tail else _parquet(path, facts, name)


def _tail(path: Path, facts: LogFacts, name: SegmentName) -> dict[str, Any]:
    frames, notes = [], []
    with FileBytes(path) as file:
        header = tail.decode_header(file, path, facts.id, name)
        offset, position = header.bytes, header.state.next
        for placed in tail.scan(file, file.size, tail.first_frame(header), facts.id_bytes):
            frame = placed.frame
            offset, position = placed.offset + frame.bytes, frame.next
            frames.append({
                "offset": placed.offset, "kind": frame.kind.name.lower(), "position": frame.position, "rows": frame.rows,
                "writer": frame.writer, "sequence": frame.sequence, "epoch": None if frame.epoch == NO_EPOCH else frame.epoch,
                "from": shown_time(frame.t_min), "to": shown_time(frame.t_max), "running maximum": shown_time(frame.t_run_max),
                "stable": frame.stable, "bytes": frame.bytes, "crc": f"{frame.payload_crc:08x}",
            })  # fmt: skip
            if frame.kind is Kind.NOTE:
                notes += _note(placed.offset, note_of(tail.payload_of(file, placed)))
        size = file.size
        proof = None if offset == size else tail.proof_of_damage(file, size, offset, facts.id_bytes)
    if offset == size:
        end = f"whole up to its end at byte {size}, position {position}"
    elif proof is None:
        end = f"torn at byte {offset}, position {position}: {size - offset} bytes do not count"
    else:
        end = f"DAMAGED at byte {offset}, position {position}: the frame at byte {proof.offset} says it was durable"
    return {"path": str(path), "head": tail.summary(header), "frames": frames, "notes": notes, "end": end}


def _note(offset: int, data: bytes) -> list[str]:
    """What a note says, in lines: records of windows; of others how long it is."""
    try:
        part = records.decode(data)
    except HoldfastError as error:
        return [f"{offset}: {error.message}"]
    lines = [f"{len(data)} bytes"] if part is None else list(records.described(part))
    return [f"{offset}: {lines[0]}", *lines[1:]]


def _parquet(path: Path, facts: LogFacts, name: SegmentName) -> dict[str, Any]:
    with parquet_segment.open_parquet(path) as file:
        footer = parquet_segment.read_footer(file, path, facts.id)
        columns = {field.name: str(field.type) for field in file.schema_arrow}
    crc, size = durable.checksum_file(path)
    groups = [
        {
            "group": number,
            "positions": ", ".join(f"{first} to {first + rows}" for first, rows in group.runs),
            "rows": sum(rows for _, rows in group.runs),
            "from": shown_time(group.t_min),
            "to": shown_time(group.t_max),
        }
        for number, group in enumerate(footer.groups)
    ]
    head = {
        "log": footer.log, "partition": footer.partition, "first": footer.first, "end": footer.end,
        "notes": 0 if footer.notes is None else footer.notes[0], "time": footer.time, "newest before": shown_time(footer.t_before), "newest": shown_time(footer.t_run_max),
        "columns": columns,
    }  # fmt: skip
    matches = "matches" if crc == name.crc else "DOES NOT MATCH"
    return {
        "path": str(path),
        "head": head,
        "frames": groups,
        "end": f"{size} bytes; the checksum {matches} its name",
    }
