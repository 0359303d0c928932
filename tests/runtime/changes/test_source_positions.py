"""A program is edited between two runs: each source goes on where it was, or is refused with both names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import HoldfastError, MismatchError
from holdfast.ids import Epoch, OperatorName, RegionName
from holdfast.language.topology import Topology
from holdfast.runtime.source_positions import KnownPosition, RegionThen, SourceNow, beginnings
from holdfast.sinks import FileSink
from holdfast.sources import Files
from holdfast.testing import run_local

# --- the function -----------------------------------------------------------------------------------------------------


def now(region: str | None = None, reads: str = "a", named: bool = True) -> SourceNow:
    return SourceNow(None if region is None else RegionName(region), reads, named)


def alone(**known: tuple[Any, str | None]) -> dict[OperatorName, KnownPosition]:
    return {OperatorName(name): KnownPosition(*position) for name, position in known.items()}


def regions(**known: set[str]) -> dict[RegionName, RegionThen]:
    return {
        RegionName(name): RegionThen(Epoch(7), frozenset(map(OperatorName, sources)))
        for name, sources in known.items()
    }


def found(
    sources: dict[str, SourceNow],
    positions: dict[OperatorName, KnownPosition],
    epochs: dict[RegionName, RegionThen],
) -> dict[str, Any]:
    return dict(beginnings({OperatorName(name): s for name, s in sources.items()}, positions, epochs))


@pytest.mark.parametrize(
    ("sources", "positions", "epochs", "begin"),
    [
        ({"x": now()}, {}, {}, {}),
        ({"x": now()}, alone(x=(5, "a")), {}, {}),
        ({"x": now("r")}, alone(x=(5, "a")), {}, {"x": 5}),
        ({"x": now("r")}, alone(x=(5, None)), {}, {"x": 5}),
        ({"x": now("r")}, alone(x=(5, "a")), regions(r={"x"}), {}),
        ({"x": now("r"), "y": now("s", "b")}, alone(x=(5, "a")), regions(s={"y"}), {"x": 5}),
        ({"y": now(reads="b")}, alone(x=(5, "a")), {}, {}),
        ({"x": now(reads="b")}, alone(x=(5, "a")), {}, {}),
        ({"x": now(named=False, reads="b")}, alone(x=(5, "a")), {}, {}),
        ({"x": now(), "y": now()}, alone(x=(5, "a")), {}, {}),
        ({"x": now(reads="b"), "y": now(reads="b")}, alone(x=(5, "a"), y=(9, "b")), {}, {}),
    ],
    ids=[
        "a new source",
        "the loop knows where a source outside of regions stands",
        "moved into a region without epochs",
        "the same, from a store that did not say what it reads",
        "what a region holds counts more than what was before",
        "another region has epochs",
        "one gone, another new that reads something else",
        "a name decides, if the user gave it",
        "an unnamed one reads something that nobody read before",
        "a second one reads the same",
        "a named one reads what another one reads as before",
    ],
)
def test_where_sources_begin(sources: Any, positions: Any, epochs: Any, begin: dict[str, Any]) -> None:
    assert found(sources, positions, epochs) == begin


@pytest.mark.parametrize(
    ("sources", "positions", "epochs", "told"),
    [
        ({"y": now()}, alone(x=(5, "a")), {}, ["'x'", "'y'", "again"]),
        ({"y": now()}, alone(x=(5, None)), {}, ["'x'", "'y'"]),
        (
            {"s1": now(reads="b", named=False), "s2": now(reads="a", named=False)},
            alone(s1=(5, "a"), s2=(9, "b")),
            {},
            ["'s1'", "'s2'", "reads b"],
        ),
        (
            {"s1": now(reads="b", named=False)},
            alone(s1=(5, "a"), s2=(9, "b")),
            {},
            ["'s1'", "'s2'"],
        ),
        (
            {"x": now(reads="b"), "y": now(reads="c"), "z": now(reads="a")},
            alone(x=(5, "a"), y=(9, "b"), z=(2, "c")),
            {},
            ["'x'", "'y'"],
        ),
        ({"x": now()}, {}, regions(r={"x"}), ["'x'", "'r'", "epoch 7", "outside of regions"]),
        ({"x": now("s")}, {}, regions(r={"x"}), ["'x'", "'r'", "'s'"]),
        ({"x": now("r")}, alone(x=(5, "a")), regions(r={"y"}), ["'x'", "'r'"]),
        ({"y": now("r")}, alone(x=(5, "a")), {}, ["'x'", "'y'"]),
    ],
    ids=[
        "renamed",
        "renamed, from a store that did not say what it reads",
        "two lines swapped",
        "the line before deleted",
        "names exchanged, three of them",
        "out of a region",
        "the region renamed",
        "into a region that has epochs",
        "renamed and moved into a region",
    ],
)
def test_what_cannot_be_found_is_refused_with_both_names(
    sources: Any, positions: Any, epochs: Any, told: list[str]
) -> None:
    with pytest.raises(MismatchError) as refused:
        found(sources, positions, epochs)
    for word in told:
        assert word in str(refused.value)


# --- programs ---------------------------------------------------------------------------------------------------------


class Place:
    """Two directories of input, which grow between the runs, and two sinks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files = 0

    def files(self, name: str) -> Files:
        return Files(str(self.root / name), "json", "id long", max_rows_per_step=4)

    def sink(self, name: str) -> FileSink:
        return FileSink(str(self.root / "out" / name), "json")

    def add(self) -> None:
        """A file in each directory; numbers go on."""
        for offset, name in enumerate(("a", "b")):
            (self.root / name).mkdir(exist_ok=True)
            rows = [json.dumps({"id": 1000 * offset + 10 * self._files + n}) for n in range(10)]
            (self.root / name / f"{self._files:03}.json").write_text("\n".join(rows) + "\n")
        self._files += 1

    def written(self, name: str) -> list[int]:
        files = (self.root / "out" / name).glob("part-*.json")
        return sorted(json.loads(line)["id"] for path in files for line in path.read_text().splitlines())

    @property
    def rows(self) -> dict[str, list[int]]:
        """What should be in the sinks."""
        return {"a": list(range(10 * self._files)), "b": list(range(1000, 1000 + 10 * self._files))}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ids(table: pa.Table) -> pa.Table:
    return table.select(["id"])


Program = Callable[[Topology, Place], None]


def named(topology: Topology, place: Place) -> None:
    for name in ("a", "b"):
        topology.source(place.files(name), name=name).sink(place.sink(name), name=f"{name}_out")


def unnamed(topology: Topology, place: Place) -> None:
    for name in ("a", "b"):
        topology.source(place.files(name)).sink(place.sink(name), name=f"{name}_out")


def isolated(topology: Topology, place: Place) -> None:
    """An operator more, in an element of its own; the elements have other names now."""
    a = topology.source(place.files("a"), name="a").isolate().map_arrow(ids, "id long", name="more")
    a.isolate().map_arrow(ids, "id long", name="and_more").sink(place.sink("a"), name="a_out")
    topology.source(place.files("b"), name="b").sink(place.sink("b"), name="b_out")


def together(topology: Topology, place: Place) -> None:
    """Both sources in one element, whose name is that of the other one."""
    b = topology.source(place.files("b"), name="b")
    a = topology.source(place.files("a"), name="a")
    both = b.union(a, name="both")
    both.sink(place.sink("a"), name="a_out")


def in_a_region(name: str, source: str = "a") -> Program:
    def build(topology: Topology, place: Place) -> None:
        a = topology.source(place.files("a"), name=source).consistent(name, period=0.05)
        a.sink(place.sink("a"), name="a_out")
        topology.source(place.files("b"), name="b").sink(place.sink("b"), name="b_out")

    return build


def both_in_a_region(topology: Topology, place: Place) -> None:
    for name in ("a", "b"):
        stream = topology.source(place.files(name), name=name).consistent("r", period=0.05)
        stream.sink(place.sink(name), name=f"{name}_out")


def swapped(topology: Topology, place: Place) -> None:
    for name in ("b", "a"):
        topology.source(place.files(name)).sink(place.sink(name), name=f"{name}_out")


def names_exchanged(topology: Topology, place: Place) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        topology.source(place.files(name), name=other).sink(place.sink(name), name=f"{name}_out")


def renamed(topology: Topology, place: Place) -> None:
    topology.source(place.files("a"), name="first").sink(place.sink("a"), name="a_out")
    topology.source(place.files("b"), name="b").sink(place.sink("b"), name="b_out")


def run(build: Program, place: Place) -> dict[str, Any]:
    topology = Topology("edited")
    build(topology, place)
    return run_local(topology, f"file:{place.root}/store")


GOES_ON: dict[str, tuple[Program, Program]] = {
    "operators isolated": (named, isolated),
    "operators joined again": (isolated, named),
    "moved into a region without epochs": (named, in_a_region("r")),
    "a region beside": (in_a_region("r"), in_a_region("r")),
}


@pytest.mark.parametrize("edit", GOES_ON)
def test_sources_go_on_where_they_were(edit: str, place: Place) -> None:
    before, after = GOES_ON[edit]
    for build in (before, after, after):
        place.add()
        status = run(build, place)
        assert {name: place.written(name) for name in ("a", "b")} == place.rows
        assert set(status["lost_rows"].values()) == {0}


def test_sources_that_share_an_element_now_go_on_where_each_was(place: Place) -> None:
    place.add()
    run(named, place)
    place.add()
    run(together, place)
    assert place.written("a") == [*range(20), *range(1010, 1020)]


REFUSED: dict[str, tuple[Program, Program, list[str]]] = {
    "two lines of unnamed sources swapped": (unnamed, swapped, ["'source_1'", "'source_2'"]),
    "a source renamed": (named, renamed, ["'a'", "'first'"]),
    "a name given": (unnamed, named, ["'source_1'", "'a'"]),
    "a region renamed": (in_a_region("r"), in_a_region("s"), ["'a'", "'r'", "'s'"]),
    "a source of a region renamed": (in_a_region("r"), in_a_region("r", "first"), ["'a'", "'first'"]),
    "out of a region": (in_a_region("r"), named, ["'a'", "'r'"]),
    "into a region that has epochs": (in_a_region("r"), both_in_a_region, ["'b'", "'r'"]),
    "names exchanged": (named, names_exchanged, ["'a'"]),
}


@pytest.mark.parametrize("edit", REFUSED)
@pytest.mark.fault("U06", "D05")
def test_an_edit_that_would_bring_rows_again_is_refused_and_changes_nothing(edit: str, place: Place) -> None:
    before, after, told = REFUSED[edit]
    place.add()
    run(before, place)
    place.add()
    with pytest.raises(HoldfastError) as refused:
        run(after, place)
    for word in told:
        assert word in str(refused.value)
    place.add()
    run(before, place)
    assert {name: place.written(name) for name in ("a", "b")} == place.rows
