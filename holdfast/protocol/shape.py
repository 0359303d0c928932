"""The part of a plan the protocol needs: elements of one region and the consistent links between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from holdfast.ids import ConnectionId, ElementName, RegionName

Mode = Literal["drain", "token", "async", "independent"]
"""How a region establishes epochs."""

MarkerKind = Literal["drain", "cascade", "token", "reset"]

MODES: tuple[Mode, ...] = ("async", "token", "drain", "independent")

TOGETHER: tuple[Mode, ...] = ("drain", "token", "async")
"""The modes in which the elements of a region establish an epoch together."""


STYLE_OF: Mapping[Mode, MarkerKind] = {
    "drain": "drain",
    "token": "cascade",
    "async": "token",
    "independent": "cascade",
}
"""The markers of a mode's ordinary epochs: `drain` and `cascade` go from element to element, a `token` one hop only."""


@dataclass(frozen=True, slots=True)
class Link:
    """A consistent connection inside a region. `control` links end at a control port and may close a cycle."""

    id: ConnectionId
    source: ElementName
    target: ElementName
    control: bool = False


@dataclass(frozen=True, slots=True)
class RegionShape:
    """Elements of a region in topological order (over data links), and its links.

    Must hold: data links alone form no cycle; every link joins two elements of the region.
    """

    name: RegionName
    elements: tuple[ElementName, ...]
    links: tuple[Link, ...] = ()
    conditional: frozenset[ElementName] = frozenset()
    """Elements with operators that can be checkpointed at certain points only."""

    @property
    def drains(self) -> bool:
        """Whether an epoch can be drained anywhere in the input. An element that waits for a point of its own must be able
        to leave input waiting, unless it has none."""
        return not any(link.target in self.conditional for link in self.links)

    _into: Mapping[ElementName, tuple[Link, ...]] = field(init=False, repr=False, compare=False)
    _out_of: Mapping[ElementName, tuple[Link, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Regions may have thousands of elements, each of which asks for its own links.
        into: dict[ElementName, list[Link]] = {}
        out_of: dict[ElementName, list[Link]] = {}
        for link in self.links:
            into.setdefault(link.target, []).append(link)
            out_of.setdefault(link.source, []).append(link)
        object.__setattr__(self, "_into", {name: tuple(links) for name, links in into.items()})
        object.__setattr__(self, "_out_of", {name: tuple(links) for name, links in out_of.items()})

    def data_inputs(self, element: ElementName) -> frozenset[ConnectionId]:
        return frozenset(link.id for link in self._into.get(element, ()) if not link.control)

    def control_inputs(self, element: ElementName) -> frozenset[ConnectionId]:
        return frozenset(link.id for link in self._into.get(element, ()) if link.control)

    def outputs(self, element: ElementName) -> tuple[ConnectionId, ...]:
        return tuple(link.id for link in self._out_of.get(element, ()))

    def starts(self) -> tuple[ElementName, ...]:
        """Elements no consistent data link leads into: markers begin there."""
        return tuple(e for e in self.elements if not self.data_inputs(e))
