"""Can a topology go on from a stored epoch? Operators are found by name; what does not fit is refused before anything
changes, by a MismatchError that names it. What fits and is another than it was is told."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.checkpoint.manifest import Manifest
from holdfast.compiler.plan import Plan, RegionPlan
from holdfast.errors import MismatchError
from holdfast.operators.fingerprint import Fingerprint, changes, misfit
from holdfast.runtime.telling.events import TopologyChanged


def fingerprint_of(plan: Plan, region: RegionPlan) -> dict[str, Fingerprint]:
    """What must not change of the region's operators, by name."""
    members = set(region.members)
    return {str(name): of for name, of in plan.fingerprint.items() if name in members}


def numbers_of(plan: Plan, region: RegionPlan) -> dict[str, int]:
    """The numbers that positions of the region's rows carry: of operators whose rows are stamped."""
    stamped, members = {stream.operator for stream in plan.stamped}, set(region.members)
    return {str(name): n for name, n in plan.source_index.items() if name in stamped and name in members}


class RegionNow:
    """A region as the topology has it now, beside what an epoch knows of it. `fingerprint`, `numbers`: what the next epochs hold."""

    def __init__(self, plan: Plan, region: RegionPlan) -> None:
        self._plan = plan
        self.fingerprint = fingerprint_of(plan, region)
        self.numbers = numbers_of(plan, region)

    def check(self, manifest: Manifest) -> None:
        """MismatchError if the topology cannot go on from the epoch."""
        _check_operators(manifest, self.fingerprint)
        _check_numbers(manifest, self.numbers)
        _check_kept(manifest, self._plan)

    def change_since(self, manifest: Manifest) -> TopologyChanged | None:
        """None: nothing has changed."""
        return change_since(manifest, self.fingerprint)


def change_since(manifest: Manifest, fingerprint: Mapping[str, Fingerprint]) -> TopologyChanged | None:
    """What a topology that fits has and the epoch has not, and the other way round; None: nothing."""
    then = manifest.fingerprint
    changed = {}
    for name in sorted(then.keys() & fingerprint.keys()):
        new, gone = changes(then[name], fingerprint[name])
        if new or gone:
            changed[name] = {"new": new, "gone": gone}
    found = TopologyChanged(
        manifest.region,
        manifest.epoch,
        tuple(sorted(fingerprint.keys() - then.keys())),
        tuple(sorted(then.keys() - fingerprint.keys())),
        changed,
    )
    return found if found.new or found.gone or found.changed else None


def _check_operators(manifest: Manifest, fingerprint: Mapping[str, Fingerprint]) -> None:
    _refuse_renamed(manifest, fingerprint)
    for name in sorted(set(fingerprint) | set(manifest.fingerprint)):
        now, then = fingerprint.get(name), manifest.fingerprint.get(name)
        if then is None and manifest.may_begin(name):
            continue
        why: str | None = f"it was {then or 'not there'}, now it is {now or 'gone'}"
        if now is not None and then is not None:
            why = misfit(then, now)
        if why:
            raise MismatchError(
                f"operator {name!r} does not fit the stored state: {why}.",
                cure="Undo the change, start with a new store, or fork this one: `holdfast checkpoints fork`.",
            )


def _refuse_renamed(manifest: Manifest, fingerprint: Mapping[str, Fingerprint]) -> None:
    """An operator that is gone, and a new one that could have its state."""
    then = manifest.fingerprint
    new = sorted(name for name in fingerprint.keys() - then.keys() if not manifest.may_begin(name))
    for gone in sorted(then.keys() - fingerprint.keys()):
        for name in new:
            if misfit(then[gone], fingerprint[name]) is None:
                raise MismatchError(
                    f"operator {name!r} is new and operator {gone!r}, which could be the same, is gone: what is stored of an "
                    "operator is found by its name.",
                    cure=f"Name it {gone!r} again, start with a new store, or fork this one: `holdfast checkpoints fork`.",
                )


def _check_numbers(manifest: Manifest, numbers: Mapping[str, int]) -> None:
    """Positions of stored rows carry the numbers that operators had then."""
    for name, number in manifest.numbers.items():
        if numbers.get(name, number) != number:
            raise MismatchError(
                f"operator {name!r} was number {number} of those that number rows, now it is {numbers[name]}: stored "
                "rows would be taken for another operator's.",
                cure="Keep the sources and operators whose names come before it in the alphabet; call new ones later.",
            )


def _check_kept(manifest: Manifest, plan: Plan) -> None:
    """Rows on their way are sent again along the connection on which they were, by the element that sent them."""
    senders = {connection.id: connection.source for connection in plan.connections}
    for element, part in manifest.parts.items():
        for connection, batches in part.kept.items():
            if batches and senders.get(connection) != element:
                raise MismatchError(
                    f"epoch {manifest.epoch} of region {manifest.region!r} holds rows on their way along "
                    f"{connection!r}, which this topology does not have.",
                    cure="Stop the earlier topology well, or begin with a savepoint: nothing is on its way then.",
                )
