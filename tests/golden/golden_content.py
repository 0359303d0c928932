"""What a golden store must have in it, told by the store alone."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.checkpoint import own_records, savepoints
from holdfast.checkpoint.look.describe import first_rows
from holdfast.checkpoint.look.epochs import choose_epoch, open_reader, read_manifest
from holdfast.checkpoint.manifest import Manifest
from holdfast.checkpoint.own_records import OwnCheckpoint
from holdfast.checkpoint.parts import Chained, Groups, OperatorPart
from holdfast.checkpoint.stored_names import BOOKS, record_name
from holdfast.ids import ConnectionId, RegionName
from holdfast.state.values import codec
from holdfast.store.base import Store


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
    positions: tuple[str, ...] = ()
    """Elements outside of the region that have sources, before there were accounts."""
    accounts: tuple[str, ...] = ()
    """Elements outside of the region."""
    losing: tuple[str, ...] = ()
    """Those of them that have lost rows."""
    captured: tuple[str, ...] = ()
    """Connections with batches that a token went ahead of, one of them processed in part."""
    entrances: tuple[str, ...] = ()
    """Connections by which rows entered the region. All of them are in the epoch."""
    exits: tuple[str, ...] = ()
    """Connections by which rows left the region. All that the epoch knows of were taken."""


SIZE_MAX = 400_000
"""Bytes of a golden directory."""
DELTAS = 2
"""So many at least lie behind a base."""


def lacking(root: Path, wanted: Content) -> list[str]:
    """What is not in the store of a golden directory, in words."""
    store = open_reader(f"file:{root / 'store'}")
    region = RegionName(wanted.region)
    published = store.epochs(region)
    if not published:
        return ["an epoch"]
    manifest = read_manifest(store, region, choose_epoch(store, region))
    found = (_in_epoch, _at_borders, _beside)
    return [*(told for look in found for told in look(store, manifest, wanted)), *_paths(root)]


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
    captured = {id: batches for part in manifest.parts.values() for id, batches in part.captured.items()}
    for name in wanted.captured:
        if not any(batch.skip for batch in captured.get(ConnectionId(name), ())):
            yield f"{name}: captured batches, some rows of which were processed"
    if not manifest.numbers:
        yield "numbers of sources"


def _at_borders(store: Store, manifest: Manifest, wanted: Content) -> Iterator[str]:
    """What the epoch and the accounts say of the same connections."""
    counted = {id: numbers for part in manifest.parts.values() for id, numbers in part.borders.items()}
    accounts = [_account(store, name) for name in wanted.accounts]
    for name in wanted.entrances:
        sent = max((account["sent"].get(name, 0) for account in accounts), default=0)
        if not 0 < sent == counted.get(ConnectionId(name), {}).get("taken"):
            yield f"{name}: rows that entered the region, all of them in the epoch"
    for name in wanted.exits:
        taken = max((account["taken"].get(name, 0) for account in accounts), default=0)
        if not 0 < counted.get(ConnectionId(name), {}).get("sent", 0) <= taken:
            yield f"{name}: rows that left the region, all of them taken"


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
    for name in wanted.accounts:
        account = _account(store, name)
        if not account["step"] or account["in_flight"] or not _covered(account, own):
            yield f"{name}: an account, with nothing on its way and nothing that its own checkpoints lack"
    for name in wanted.losing:
        if not _account(store, name)["lost_rows"]:
            yield f"{name}: lost rows"
    for name in wanted.positions:
        raw = store.load_record(record_name("positions", name))
        if raw is None or codec.decode(raw)["in_flight"] is not None:
            yield f"{name}: a position of its own, with nothing on its way"


def _account(store: Store, element: str) -> dict[str, Any]:
    """As the element itself wrote it in the run that the books tell of; those were written when the run began."""
    books, raw = store.load_record(BOOKS), store.load_record(record_name("account", element))
    found = None if books is None or raw is None else codec.decode(raw)["account"]
    if found is None or codec.decode(books)["closed"] or codec.decode(books)["run"] != found["run"]:
        return {"step": 0, "in_flight": 0, "absorbed": {}, "lost_rows": 0, "sent": {}, "taken": {}}
    return dict(found)


def _covered(account: Mapping[str, Any], own: Mapping[str, OwnCheckpoint]) -> bool:
    """Whether the checkpoints of an element's operators hold all of its steps."""
    return all(own[name].covers >= (account["run"], account["step"]) for name in account["absorbed"])


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
