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

from holdfast.checkpoint.blobs import get_blob
from holdfast.checkpoint.manifest import Manifest
from holdfast.durable import remove_quietly
from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.runtime.element.keyed_load import STATE, fetched
from holdfast.runtime.element.operator_runs import SinkRun, SourceRun
from holdfast.runtime.element.worker import Worker
from holdfast.state.values import codec
from holdfast.store.base import SegmentRef, Store

AT_ONCE = 4
"""Segments verified at the same time: checksums leave Python's lock."""


def verify(manifest: Manifest | None, workers: Iterable[Worker], store: Store, live: Path) -> None:
    """Raises what restoring would raise: DamagedError, MismatchError, InputError."""
    runs = [run for worker in workers for run in worker.runs.values()]
    epoch = INITIAL_EPOCH if manifest is None else manifest.epoch
    parts = {} if manifest is None else manifest.operators()
    values = {name: _value(store, part) for name, part in parts.items()}
    if manifest is not None:
        _verify_segments(manifest, store, live)
    for run in runs:
        if isinstance(run, SourceRun):
            run.source.seek(values.get(run.name))
    for run in runs:
        if isinstance(run, SinkRun):
            shown = Epoch(parts.get(run.name, {}).get("epoch", epoch))
            run.sink.verify(shown, values.get(run.name))


def _value(store: Store, part: dict[str, Any]) -> Any:
    for ref in part.get("pairs", ()):
        get_blob(store, ref)
    return None if part["blob"] is None else codec.decode(get_blob(store, part["blob"]))


def _verify_segments(manifest: Manifest, store: Store, live: Path) -> None:
    """State stays where restoring looks for it, so that it is read once; batches on their way are read again."""
    state = [
        SegmentRef(*ref)
        for part in manifest.operators().values()
        for partition in part["segments"]
        for ref in partition
    ]
    kept = [
        SegmentRef(*ref)
        for part in manifest.parts.values()
        for batches in part.get("kept", {}).values()
        for batch in batches
        for ref in batch["files"]
    ]
    scratch = live / "verify"
    for directory in (scratch, live / STATE):
        directory.mkdir(parents=True, exist_ok=True)

    def look_at(ref: SegmentRef) -> None:
        path = scratch / secrets.token_hex(8)
        try:
            store.fetch_segment(ref, path)
        finally:
            remove_quietly(path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda ref: fetched(store, ref, live / STATE), state))
        list(pool.map(look_at, kept))
