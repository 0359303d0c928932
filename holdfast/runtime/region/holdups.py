"""Who holds up an epoch: pure, from what the controller and its elements know.

An element that has not acknowledged is behind for a reason of its own, or because a marker has not come to it yet; then who has
not sent the marker is behind. Only those with a reason of their own are named, unless there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.ids import ConnectionId, ElementName
from holdfast.protocol.commands import UnderWay
from holdfast.protocol.element_phases import STATELESS, ElementPhase

STEP = "step"
"""What an element's thread does while it works."""


@dataclass(frozen=True, slots=True)
class ElementFacts:
    """What is known of an element that has not acknowledged."""

    phase: ElementPhase
    joined: bool
    """It takes part in the epoch already."""
    storing: bool
    """Its state of the epoch is pinned, and on its way into the store."""
    inputs: frozenset[ConnectionId]
    """Links into it that have not delivered the epoch's marker."""
    ahead: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Those of them in whose queue the marker lies, and how many rows lie before it."""
    unready: tuple[str, ...] = ()
    """Operators that may not be checkpointed yet."""
    doing: str = ""
    """For people: what its thread does."""
    call: str = ""
    """For people: a call into the user's code that does not return."""


@dataclass(frozen=True, slots=True)
class Holdup:
    """An element behind, and why. `connections`: the links whose marker it lacks."""

    element: ElementName
    what: str
    connections: tuple[ConnectionId, ...] = ()
    operators: tuple[str, ...] = ()
    works: bool = False
    """It is in a step, and in no call of the user's code that does not return: with more time it may come to the end of it."""


def holdups(under_way: UnderWay, facts: Mapping[ElementName, ElementFacts]) -> list[Holdup]:
    """The elements that hold up the epoch; those that wait for markers if nobody has a reason of his own."""
    own: list[Holdup] = []
    waiting: list[Holdup] = []
    for name in sorted(under_way.silent & facts.keys()):
        known = facts[name]
        found = _own_reason(name, known, name in under_way.asked)
        if found is not None:
            found = replace(found, works=found.works and known.doing == STEP and not known.call)
            own.append(replace(found, what=f"{found.what}; it is in {known.call}") if known.call else found)
        elif known.inputs and known.phase is not ElementPhase.HELD:
            waiting.append(Holdup(name, "the marker has not come", tuple(sorted(known.inputs))))
    return own or waiting


def _own_reason(name: ElementName, known: ElementFacts, is_asked: bool) -> Holdup | None:
    if known.unready:
        return Holdup(name, "operators may not be checkpointed yet", operators=known.unready)
    if known.storing:
        return Holdup(name, "its state is on its way into the store")
    if known.phase in STATELESS:
        return Holdup(name, "it has no state: it failed, or is being restored")
    if is_asked and not known.joined:
        said = f"it has not begun: {known.doing}" if known.doing else "it has not begun"
        return Holdup(name, said, works=True)
    if known.ahead and known.phase is not ElementPhase.HELD:
        rows = sum(known.ahead.values())
        links = tuple(sorted(known.ahead))
        return Holdup(name, f"it works on {rows} rows ahead of the marker", links, works=True)
    if known.joined and not known.inputs:
        return Holdup(name, f"it drains: {known.doing}" if known.doing else "it drains", works=True)
    return None


def sentence(found: Sequence[Holdup]) -> str:
    """For logs and errors: one clause per element."""
    return "; ".join(
        f"{each.element}: {each.what}"
        + (f" ({', '.join(each.operators)})" if each.operators else "")
        + (f" on {', '.join(each.connections)}" if each.connections else "")
        for each in found
    )
