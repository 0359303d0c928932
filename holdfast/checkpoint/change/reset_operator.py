"""Give one operator its initial state back: a new epoch made from the newest one, without a run.

Everything else stays: other operators, source positions, rows on their way. Nothing is copied, the new manifest refers
to what is stored; the epoch before stays as long as retention says. What is carried on tells the epoch in which it
was taken (`OperatorPart.epoch`): the next run shows what sinks were still to show as that epoch's output.

An operator outside of regions has checkpoints of its own: its record is emptied, the next run deletes what it named.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint import own_records
from holdfast.checkpoint.change.founding import refuse_unfinished
from holdfast.checkpoint.change.offline import owning
from holdfast.checkpoint.look.epochs import choose_region, newest_manifest
from holdfast.checkpoint.manifest import Manifest, Origin
from holdfast.checkpoint.parts import ElementPart
from holdfast.checkpoint.stored_names import record_name
from holdfast.errors import ConfigError, DamagedError
from holdfast.ids import Epoch, OwnerToken
from holdfast.protocol.messages import ControllerRecord
from holdfast.store import sealed_file
from holdfast.store.base import Store

KIND = "reset-operator"


@dataclass(frozen=True, slots=True)
class Reset:
    """A new epoch, or what it would be. `before`: the epoch it is made from. Outside of regions: the checkpoint that is
    forgotten, 0 if nobody can read which, and there is no new one."""

    region: str | None
    operator: str
    epoch: int | None
    before: int


def plan_reset(store: Store, operator: str, region: str | None = None) -> Reset:
    """What `reset_operator` would do. ConfigError if it cannot be done. Changes nothing."""
    refuse_unfinished(store)
    if region is None and (number := _own_checkpoint(store, operator)) is not None:
        return Reset(None, operator, None, number)
    name = choose_region(store, region, operator)
    newest = newest_manifest(store, name)
    _refuse_what_cannot_be_reset(newest, operator)
    record = _record(store, newest)
    return Reset(name, operator, record.next_epoch, newest.epoch)


def reset_operator(
    store: Store, operator: str, region: str | None = None, *, wall: float | None = None
) -> Reset:
    """Publish the new epoch. OwnedError if a run is alive. Killed anywhere, the epoch is there or it is not."""
    with owning(store) as token:
        plan = plan_reset(store, operator, region)
        if plan.region is None:
            own_records.save(store, operator, None)
            store.append_events([("operator.reset", {**asdict(plan)})])
            return plan
        newest = newest_manifest(store, choose_region(store, plan.region))
        record = _record(store, newest)
        # As in a run: a number that may be used is remembered first, and never used again.
        after = replace(record, next_epoch=Epoch(record.next_epoch + 1))
        store.save_record(record_name("controller", newest.region), json.dumps(asdict(after)).encode())
        made = _without_state(
            newest, operator, record.next_epoch, token, time.time() if wall is None else wall
        )
        store.publish(newest.region, made.epoch, manifests.encode(made))
        store.append_events([("operator.reset", {**asdict(plan)})])
        return plan


def _own_checkpoint(store: Store, operator: str) -> int | None:
    """The number of an operator's checkpoint outside of regions; None: it has none, 0: it cannot be read."""
    try:
        found = own_records.load(store, operator)
    except DamagedError:
        return 0
    return None if found is None else found.number


def _refuse_what_cannot_be_reset(newest: Manifest, operator: str) -> None:
    kinds = {name: of.kind for name, of in newest.fingerprint.items()}
    stateful = sorted(name for name, kind in kinds.items() if kind not in ("source", "sink"))
    if operator not in kinds:
        raise ConfigError(
            f"epoch {newest.epoch} of region {newest.region!r} has no operator {operator!r} with a state.",
            cure=f"Operators that can be reset are {', '.join(stateful) or 'none'}.",
        )
    if kinds[operator] == "source":
        raise ConfigError(
            f"{operator!r} is a source: from its beginning all its rows would come again and be shown twice.",
            cure=f"Fork without it, with other places for the output: `holdfast checkpoints fork … --drop {operator}`.",
        )
    if kinds[operator] == "sink":
        raise ConfigError(
            f"{operator!r} is a sink: what it showed cannot be taken back.",
            cure="Fork the store, with another place for its output.",
        )


def _record(store: Store, newest: Manifest) -> ControllerRecord:
    """The controller's record, with a number for the next epoch that was never used."""
    raw = store.load_record(record_name("controller", newest.region))
    if raw is None:
        return ControllerRecord(newest.epoch, Epoch(newest.epoch + 1), newest.attempt, 0)
    with sealed_file.understood(f"the controller's record in {store.url}"):
        record = ControllerRecord(**json.loads(raw))
    return replace(record, next_epoch=Epoch(max(record.next_epoch, newest.epoch + 1)))


def _without_state(newest: Manifest, operator: str, epoch: Epoch, token: OwnerToken, wall: float) -> Manifest:
    origin = newest.origin or Origin(KIND, newest.epoch)
    return replace(
        newest,
        epoch=epoch,
        token=token,
        wall=wall,
        previous=newest.epoch,
        parts={name: _carried(part.without({operator}), epoch) for name, part in newest.parts.items()},
        origin=replace(origin, reset=tuple(sorted({operator, *origin.reset}))),
    )


def _carried(part: ElementPart, epoch: Epoch) -> ElementPart:
    """A part as one of a later epoch."""
    operators = {name: replace(each, epoch=each.epoch or part.epoch) for name, each in part.operators.items()}
    return replace(part, epoch=epoch, operators=operators)
