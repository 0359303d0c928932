"""What Python operators are told about their place, and how they refuse it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import holdfast as hf
from holdfast.errors import ConfigError, TopologyError
from holdfast.language.context import Context
from holdfast.testing import MemorySink, Rows, run_local

SHELF = "operator-context"


def topology_of(operator: Any, **settings: Any) -> hf.Topology:
    topology = hf.Topology("places")
    rows = topology.source(Rows([(n,) for n in range(30)], "n long", rows_per_step=3), name="rows")
    if settings:
        rows = rows.consistent("shop", **settings)
    rows.apply(operator, "n long", name="mine").sink(MemorySink(SHELF), name="out")
    return topology


class Told(hf.Operator):
    places: ClassVar[list[Any]] = []
    epochs: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.seen = 0

    def open(self) -> None:
        c = self.context
        Told.places.append((c.operator, c.in_region, c.region, c.mode, c.trigger, c.is_start))

    def process(self, row: Any, port: int) -> Any:
        Told.epochs.append(self.context.epoch)
        return row


def test_an_operator_knows_its_region_and_its_epoch() -> None:
    Told.places.clear()
    Told.epochs.clear()
    run_local(topology_of(Told, mode="drain", trigger="manual"), "memory:operator-context-1")
    assert Told.places == [("mine", True, "shop", "drain", "manual", False)]
    assert Told.epochs == [0] * 30
    Told.epochs.clear()
    more = topology_of(Told, mode="drain", trigger="manual")
    more.source(Rows([(1,)], "n long"), name="we").apply(Told, "n long", name="we_beside").sink(
        MemorySink(SHELF + "2"), name="out2"
    )
    run_local(more, "memory:operator-context-1")
    assert ("we_beside", False, None, None, None, False) in Told.places
    assert Told.places[1:].count(("mine", True, "shop", "drain", "manual", False)) == 1


def test_the_epoch_is_the_one_it_went_on_from() -> None:
    class Epochs(hf.Operator):
        opened: ClassVar[list[int]] = []

        def open(self) -> None:
            Epochs.opened.append(self.context.epoch)

        def process(self, row: Any, port: int) -> Any:
            return row

    for _ in range(2):
        run_local(topology_of(Epochs, trigger="manual"), "memory:operator-context-2")
    assert Epochs.opened == [0, 1]


def test_there_is_no_context_before_the_run_and_no_state_in_it() -> None:
    with pytest.raises(RuntimeError, match="only while the topology runs"):
        _ = Told().context
    with pytest.raises(RuntimeError, match="works only while"):
        Context("mine").permit()


class NotInRegions:
    @classmethod
    def check(cls, context: Context) -> str | None:
        return (
            f"it asks a clock, and region {context.region} would see other rows."
            if context.in_region
            else None
        )

    def process(self, row: Any, port: int) -> Any:
        return row


class OnlyDrained:
    def __init__(self, mode: str = "drain") -> None:
        self.mode = mode

    def check(self, context: Context) -> None:
        if context.mode != self.mode:
            raise ValueError(f"it needs mode {self.mode}, not {context.mode}.")

    def process(self, row: Any, port: int) -> Any:
        return row


class Raises:
    @staticmethod
    def check(context: Context) -> None:
        raise ConfigError("no key.", cure="Set KEY.")

    def process(self, row: Any, port: int) -> Any:
        return row


class Odd(NotInRegions):
    @classmethod
    def check(cls, context: Context) -> Any:
        return False


@pytest.mark.parametrize(
    ("operator", "sentence"),
    [
        (NotInRegions, "Operator 'mine' refuses its place: it asks a clock, and region shop would"),
        (NotInRegions(), "it asks a clock"),
        (lambda: NotInRegions(), "it asks a clock"),
        (OnlyDrained, "Operator 'mine' refuses its place: it needs mode drain, not async"),
        (OnlyDrained("token"), "it needs mode token, not async"),
        (Raises, r"Operator 'mine' refuses its place: no key\. Set KEY"),
        (Odd, "answered False"),
    ],
)
def test_an_operator_refuses_its_place_before_anything_runs(operator: Any, sentence: str) -> None:
    MemorySink.clear(SHELF)
    with pytest.raises(TopologyError, match=sentence):
        run_local(topology_of(operator, period=1), "memory:operator-context-3")
    assert not MemorySink.rows(SHELF)


def test_a_place_that_suits_is_not_refused() -> None:
    MemorySink.clear(SHELF)
    run_local(topology_of(NotInRegions))
    assert len(MemorySink.rows(SHELF)) == 30
    run_local(topology_of(OnlyDrained, mode="drain"), "memory:operator-context-4")
