"""`explain` says of a region that nobody wrote that it needs a store, if the program may be run without one."""

from __future__ import annotations

import holdfast as hf
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import explain_text
from holdfast.runtime.engines.local import LocalEngine
from holdfast.testing import MemorySink


def explained(topology: hf.Topology, **given: bool) -> str:
    engine = LocalEngine(1)
    try:
        return explain_text(compile_graph(topology.graph(), engine.analyser(), **given))
    finally:
        engine.stop()


def pairs(name: str = "ab") -> hf.Topology:
    made = hf.Topology("pairs")
    a, b = (made.source(hf.Rows([(1,)], f"{each} long"), name=each) for each in "ab")
    a.zip(b, name=name).sink(MemorySink("explained"), name="out")
    return made


SAYS = "store    needed: in a run without one there is no such region, and a row that is lost before ab leaves wrong pairs"


def test_of_a_region_that_nobody_wrote() -> None:
    text = explained(pairs())
    assert "region pairs-ab" in text
    assert SAYS in text


def test_a_run_without_a_store_has_no_such_region_as_it_says() -> None:
    assert "region pairs-ab" not in explained(pairs(), has_store=False)


def test_not_where_another_region_needs_a_store_anyway() -> None:
    made = pairs()
    other = made.source(hf.Rows([(1,)], "n long"), name="other").consistent("r")
    other.sink(MemorySink("explained"), name="others")
    text = explained(made)
    assert "region pairs-ab" in text
    assert "store    needed" not in text


def test_not_of_a_region_that_the_user_called_so() -> None:
    made = hf.Topology("pairs")
    a, b = (made.source(hf.Rows([(1,)], f"{each} long"), name=each) for each in "ab")
    a.consistent("pairs-own").zip(b.consistent("pairs-own"), name="ab").sink(MemorySink("x"), name="out")
    assert "store    needed" not in explained(made)
