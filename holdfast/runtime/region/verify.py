"""Before a restarted driver changes anything, all that restoring the newest epoch reads is read and verified.

A refusal must leave everything as it is, but elements restore side by side: while one finds a damaged file, a sink of
another one may already have rolled its output forward. So a driver looks first, once, when it starts. A reset in place
does not look again: its files were verified or written by this very process.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.checkpoint import chain
from holdfast.checkpoint.blobs import BlobRef, get_blob, unusable
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.parts import Piece
from holdfast.checkpoint.read_ahead import SeenPairs
from holdfast.durable import remove_quietly
from holdfast.ids import INITIAL_EPOCH
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import STATE
from holdfast.runtime.runs.hosted.hosted_run import HostedRun
from holdfast.runtime.runs.keyed_load import fetched
from holdfast.runtime.runs.operator_runs import SinkRun, SourceRun
from holdfast.state.columns import parquet_frames
from holdfast.state.values import codec
from holdfast.store.base import Store

AT_ONCE = 4
"""Pieces verified at the same time: checksums leave Python's lock."""


def verify(
    manifest: Manifest | None, workers: Iterable[Worker], store: Store, live: Path, seen: SeenPairs
) -> None:
    """Raises what restoring would raise: DamagedError, MismatchError, InputError. Pairs are read by `seen`, which has
    them for the restore."""
    runs = [run for worker in workers for run in worker.runs.values()]
    epoch = INITIAL_EPOCH if manifest is None else manifest.epoch
    parts = {} if manifest is None else manifest.operators()
    values = {} if manifest is None else _read(manifest, store, live, seen)
    for run in runs:
        if isinstance(run, SourceRun | SinkRun) and run.name in parts and run.name not in values:
            get_blob(store, None)
        if isinstance(run, SourceRun):
            run.source.seek(values.get(run.name))
        elif isinstance(run, HostedRun) and run.name in parts:
            pairs = parts[run.name].pairs
            run.check_stored(chain.rest_of(seen, pairs) if pairs else values[run.name])
    for run in runs:
        if isinstance(run, SinkRun):
            shown = parts[run.name].epoch if run.name in parts else None
            run.sink.verify(shown or epoch, values.get(run.name))


def _read(manifest: Manifest, store: Store, live: Path, seen: SeenPairs) -> dict[str, Any]:
    """Read every piece; returns the blobs, decoded, by operator. State stays where restoring looks for it, so that it is
    read once; batches on their way are read again."""
    scratch = live / "verify"
    for directory in (scratch, live / STATE):
        directory.mkdir(parents=True, exist_ok=True)

    def look_at(piece: Piece) -> Any:
        if isinstance(piece.ref, BlobRef):
            data = get_blob(seen, piece.ref)
            return codec.decode(data) if piece.kind == "blob" else None
        if piece.kind == "segment":
            return fetched(store, piece.ref, live / STATE)
        path = scratch / secrets.token_hex(8)
        try:
            store.fetch_segment(piece.ref, path)
            return _check_rows(path, store.describe(piece.ref.entry, piece.ref.key))
        finally:
            remove_quietly(path)

    pieces = list(manifest.pieces())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(look_at, pieces))
    return {piece.owner: each for piece, each in zip(pieces, found, strict=True) if piece.kind == "blob"}


def _check_rows(path: Path, place: str) -> None:
    """DamagedError unless a batch on its way is one that holdfast wrote."""
    try:
        parquet_frames.check(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unusable(
            f"{place} has the right checksum, but is no batch that holdfast wrote: {error}."
        ) from error
