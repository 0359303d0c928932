"""What a golden store must have in it, told by the store alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from holdfast.checkpoint import own_records, savepoints
from holdfast.checkpoint.look.describe import first_rows
from holdfast.checkpoint.look.epochs import choose_epoch, open_reader, read_manifest
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.checkpoint.parts import Chained, Groups, OperatorPart
from holdfast.checkpoint.stored_names import positions_record
from holdfast.ids import RegionName
from holdfast.state.values import codec
from holdfast.store.base import Store

SIZE_MAX = 300_000
"""Bytes of a golden directory."""
DELTAS = 2
"""So many at least lie behind a base."""


@dataclass(frozen=True, slots=True)
class Content:
    """Names of operators, by what the newest epoch has of them, or by what lies beside it."""

    region: str
    savepoint: str
    keyed: tuple[str, ...]
    """Segments of a base and of several deltas."""
    variables: tuple[str, ...]
    """Pairs of a base and of several deltas."""
    groups: tuple[str, ...]
    joins: tuple[str, ...]
    """Rows of both sides."""
    timers: tuple[str, ...]
    own_variables: tuple[str, ...]
    """Outside of the region: pairs of a base and a delta."""
    own_keyed: tuple[str, ...]
    """Outside of the region: segments of a base and a delta."""
    own_paced: tuple[str, ...]
    positions: tuple[str, ...]
    """Elements outside of the region that have sources."""


def lacking(root: Path, wanted: Content) -> list[str]:
    """What is not in the store of a golden directory, in words."""
    store = open_reader(f"file:{root / 'store'}")
    region = RegionName(wanted.region)
    published = store.epochs(region)
    if not published:
        return ["an epoch"]
    manifest = read_manifest(store, region, choose_epoch(store, region))
    return [*_in_epoch(store, manifest, wanted), *_beside(store, manifest, wanted), *_paths(root)]


def _in_epoch(store: Store, manifest: Manifest, wanted: Content) -> Iterator[str]:
    operators = manifest.operators()
    for name in wanted.keyed:
        if not _has_deltas(operators[name], DELTAS) or not _grew(store, manifest, name):
            yield f"{name}: a base and {DELTAS} deltas"
    for name in wanted.variables:
        if not _has_deltas(operators[name], DELTAS) or _versions(operators[name]) <= DELTAS:
            yield f"{name}: a base and {DELTAS} deltas in pairs"
    for name in wanted.groups:
        form = operators[name].form
        if not isinstance(form, Groups) or len(form.rows) < 2:
            yield f"{name}: groups"
    for name in wanted.joins:
        rows = first_rows(store, manifest, name, 1)
        if not all(side in rows and rows[side].num_rows for side in ("left", "right")):
            yield f"{name}: rows of both sides"
    for name in wanted.timers:
        rows = first_rows(store, manifest, name, 1)
        if "wake-ups" not in rows or not rows["wake-ups"].num_rows:
            yield f"{name}: timers"
    if not any(batches for part in manifest.parts.values() for batches in part.kept.values()):
        yield "kept batches"
    if not manifest.numbers:
        yield "numbers of sources"


def _beside(store: Store, manifest: Manifest, wanted: Content) -> Iterator[str]:
    """In records, each on its own."""
    point = savepoints.read(store, manifest.region).get(wanted.savepoint)
    if point is None or point.epoch >= manifest.previous:
        yield f"the savepoint {wanted.savepoint}, on an epoch that nothing else keeps"
    own = {name: _own(store, name) for name in (*wanted.own_variables, *wanted.own_keyed, *wanted.own_paced)}
    for name in wanted.own_variables:
        if not _has_deltas(own[name].part, 1) or _versions(own[name].part) < 2:
            yield f"{name}: a checkpoint of its own, a base and a delta in pairs"
    for name in wanted.own_keyed:
        if not _has_deltas(own[name].part, 1) or not _delta_bytes(own[name].part):
            yield f"{name}: a checkpoint of its own, a base and a delta"
    for name in wanted.own_paced:
        if own[name].pace is None:
            yield f"{name}: the pace of its rows"
    for name in wanted.positions:
        raw = store.load_record(positions_record(name))
        if raw is None or codec.decode(raw)["in_flight"] is not None:
            yield f"{name}: a position of its own, with nothing on its way"


def _own(store: Store, operator: str) -> OwnCheckpoint:
    return own_records.load(store, operator) or OwnCheckpoint(0, OperatorPart())


def _has_deltas(part: OperatorPart, least: int) -> bool:
    return isinstance(part.form, Chained) and part.form.kind == "delta" and part.form.deltas >= least


def _delta_bytes(part: OperatorPart) -> int:
    return part.form.history.chain.bytes if isinstance(part.form, Chained) else 0


def _grew(store: Store, manifest: Manifest, operator: str) -> bool:
    """Whether each of the last epochs added something to what the base had: deltas may be empty."""
    epochs = store.epochs(manifest.region)[-1 - DELTAS :]
    chains = []
    for epoch in epochs:
        part = read_manifest(store, manifest.region, epoch).operators()[operator]
        names = {ref.key for partition in part.segments for ref in partition}
        chains.append({name for name in names if not name.endswith("-wake")})
    return len(chains) > DELTAS and all(before < after for before, after in pairwise(chains))


def _versions(part: OperatorPart) -> int:
    """Epochs of which versions of variables are needed."""
    return sum(pair.key.endswith("~incr") for pair in part.pairs)


def _paths(root: Path) -> Iterator[str]:
    """What is stored must not name the place where it was made."""
    places = (str(root).encode(), tempfile.gettempdir().encode() + b"/", b"/home/")
    for path in sorted(root.rglob("*")):
        if path.is_file() and any(place in path.read_bytes() for place in places):
            yield f"{path.relative_to(root)} without a path of the machine"


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
