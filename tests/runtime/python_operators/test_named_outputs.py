"""Python operators with several outputs: by name, in the stream form and in the topology's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.testing import run_local

SCHEMAS = {"main": "n long", "late": "n long, why string"}


class Parts(hf.Operator):
    def process(self, row: Any, port: int) -> Any:
        if row.n == 7:
            raise ValueError("seven")
        if row.n % 2:
            self.submit({"n": row.n, "why": "odd"}, port="late")
            return None
        return {"n": row.n}


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.node.name
    for port in ("main", "late", "errors"):
        hf.MemorySink.clear(f"{request.node.name} {port}")


def rows_of(topology: hf.Topology) -> hf.Stream:
    source = topology.source(hf.Rows([(n,) for n in range(8)], "n long"), name="rows")
    return source.consistent("r", period=0.02)


@pytest.mark.parametrize("form", ["stream", "topology"])
def test_rows_leave_by_the_output_that_is_named(form: str, shelf: str, tmp_path: Path) -> None:
    topology = hf.Topology("parts")
    if form == "stream":
        made = rows_of(topology).apply(Parts, schemas=SCHEMAS, name="parts", on_error="stream")
    else:
        made = topology.operator(Parts, [rows_of(topology)], schemas=SCHEMAS, name="parts", on_error="stream")
    main, late = made
    assert (made["main"], made["late"]) == (main, late)
    for port, stream in (("main", made[0]), ("late", made["late"]), ("errors", made.errors)):
        stream.sink(hf.MemorySink(f"{shelf} {port}"), name=port)
    run_local(topology, f"file:{tmp_path}/store")
    assert [row["n"] for row in hf.MemorySink.rows(f"{shelf} main")] == [0, 2, 4, 6]
    assert hf.MemorySink.rows(f"{shelf} late") == [{"n": n, "why": "odd"} for n in (1, 3, 5)]
    assert [letter["row"] for letter in hf.MemorySink.rows(f"{shelf} errors")] == ['{"n": 7}']


def test_an_output_that_is_not_there_is_named_with_the_nearest_one(shelf: str, tmp_path: Path) -> None:
    class Misspelt(hf.Operator):
        def process(self, row: Any, port: int) -> None:
            self.submit({"n": 1}, port="lat")

    topology = hf.Topology("parts")
    made = rows_of(topology).apply(Misspelt, schemas=SCHEMAS, name="parts")
    made["main"].sink(hf.MemorySink(f"{shelf} main"), name="out")
    with pytest.raises(
        TopologyError, match=r"operator 'parts' submitted to port 'lat'.*Did you mean 'late'\?"
    ):
        run_local(topology, f"file:{tmp_path}/store")
    with pytest.raises(TopologyError, match=r"no output 'lat'\. There are: main, late"):
        made["lat"]


def test_what_outputs_cannot_be_is_refused() -> None:
    rows = rows_of(hf.Topology("parts"))
    with pytest.raises(TopologyError, match="was given schema and schemas"):
        rows.apply(Parts, "n long", schemas=SCHEMAS)  # type: ignore[call-overload]
    with pytest.raises(TopologyError, match=r"apply\(\) of Parts has no schema"):
        rows.apply(Parts, schemas={})
    with pytest.raises(TopologyError, match="cannot have an output called 'errors'"):
        rows.apply(Parts, schemas={"errors": "n long"})
    with pytest.raises(TopologyError, match="none with a name"):
        rows.apply(Parts, schemas=["n long", "n long"])["late"]
