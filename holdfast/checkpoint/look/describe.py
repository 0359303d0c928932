"""An epoch as plain data for people and machines: what `holdfast checkpoints show` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.checkpoint import savepoints
from holdfast.checkpoint.look.epoch_difference import StateFiles, decoded
from holdfast.checkpoint.look.epochs import find_operator
from holdfast.checkpoint.look.segment_files import SegmentFiles
from holdfast.checkpoint.look.state_rows import rows_that_count
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import Kept, OperatorPart
from holdfast.checkpoint.typed_json import plain
from holdfast.errors import ConfigError
from holdfast.operators.stored.parts import Part
from holdfast.operators.stored.views import View
from holdfast.state.columns import arrow_frames
from holdfast.store.base import SegmentRef, Store
from holdfast.store.files.file_store import FileStore

HEAD = ("job", "topology", "region", "epoch", "previous", "attempt", "token", "wall")


def describe_epoch(store: Store | None, manifest: Manifest, operator: str | None = None) -> dict[str, Any]:
    """All that a manifest says, in the words of the documents. Without a store: no values, no numbers of rows.
    `operator`: of this one alone, with more detail where that costs something."""
    if operator is not None:
        find_operator(manifest, operator)
    points = {} if store is None else savepoints.names_by_epoch(store, manifest.region)
    parts = manifest.parts.values()
    return {
        **{name: getattr(manifest, name) for name in HEAD},
        "origin": plain(manifest.origin),
        "savepoint": points.get(manifest.epoch),
        "operators": [
            _describe_operator(store, manifest, whole.element, name, part, operator is not None)
            for whole in parts
            for name, part in whole.operators.items()
            if operator in (None, name)
        ],
        "kept": [each for part in parts for each in _batches(part.element, part.kept)],
        "captured": [each for part in parts for each in _batches(part.element, part.captured)],
        "borders": {name: plain(counts) for part in parts for name, counts in part.borders.items()},
    }


def _batches(element: str, kept: Kept) -> Iterator[dict[str, Any]]:
    for connection, batches in kept.items():
        for batch in batches:
            files = [_named(ref) for ref in batch.files]
            yield {"element": element, "connection": connection, **plain(batch), "files": files}


def _describe_operator(
    store: Store | None, manifest: Manifest, element: str, name: str, part: OperatorPart, in_detail: bool
) -> dict[str, Any]:
    fingerprint = manifest.fingerprint.get(name)
    chains = [
        [{**_named(ref), "rows": _rows(store, ref, in_detail)} for ref in partition]
        for partition in part.segments
    ]
    return {
        "operator": name,
        "element": element,
        "of_epoch": part.epoch,
        "kind": "" if fingerprint is None else fingerprint.kind,
        "fingerprint": None if fingerprint is None else fingerprint.to_json(),
        "form": None if part.form is None else {**plain(part.form), "deltas": part.form.deltas},
        "bytes": part.bytes,
        "blob": plain(part.blob),
        "pairs": plain(part.pairs),
        "value": None if store is None else decoded(store, part),
        "partitions": chains,
    }


def _named(ref: SegmentRef) -> dict[str, Any]:
    return {"entry": ref.entry, "key": ref.key, "bytes": ref.size, "crc": f"{ref.crc:08x}"}


def _rows(store: Store | None, ref: SegmentRef, in_detail: bool) -> int | None:
    """The rows of a segment, from what frames them; None if that is not at hand."""
    if isinstance(store, FileStore):
        return rows_in(store.segment_path(ref.entry, ref.key))
    if store is None or not in_detail:
        return None
    with SegmentFiles(store) as files:
        return rows_in(files.path(ref))


def rows_in(path: Path) -> int | None:
    """Rows of an Arrow file; None if it is missing or not one."""
    try:
        return arrow_frames.rows_in(path)
    except (pa.ArrowException, OSError, ValueError):
        return None


def first_rows(store: Store, manifest: Manifest, operator: str, rows: int) -> dict[str, pa.Table]:
    """The first rows of each part of an operator's state, as people want to see them."""
    if not any(find_operator(manifest, operator).segments):
        raise ConfigError(
            f"operator {operator!r} has no keyed rows in epoch {manifest.epoch}.",
            cure="Leave --rows out to see its value.",
        )
    found = {}
    with SegmentFiles(store) as files:
        state = StateFiles(store, files, manifest, operator)
        for name, part in state.parts().items():
            view = state.view(part)
            tables = [view.schema.empty_table()]
            for table in _shown(state, part, view):
                tables.append(table.slice(0, rows - sum(each.num_rows for each in tables)))
                if sum(each.num_rows for each in tables) >= rows:
                    break
            # Copied: what is shown must outlive the files it was read from.
            found[name] = pa.Table.from_pylist(pa.concat_tables(tables).to_pylist(), view.schema)
    return found


def _shown(state: StateFiles, part: Part, view: View) -> Iterator[pa.Table]:
    """The rows of all partitions, as people want to see them."""
    for number in range(len(state.partitions)):
        for counted in rows_that_count(part, state.side(part, number).tables, view.rows_at_once):
            yield view.finish(view.prepare(counted))[0]
