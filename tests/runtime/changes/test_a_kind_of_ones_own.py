"""A kind of operator that is all in this file: spec, verb, logic and kind, and one line that registers it. It is checked,
planned, explained, run, killed, restored and read by the tools as those that come with holdfast are."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from killed import killed_at

import holdfast as hf
from holdfast.checkpoint.look.describe import describe_epoch, first_rows
from holdfast.checkpoint.look.epoch_difference import compare
from holdfast.checkpoint.look.epochs import choose_region, newest_manifest, open_reader
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import explain_text
from holdfast.errors import MismatchError, TopologyError
from holdfast.ids import OperatorName
from holdfast.language.connectors import POSITION_COLUMNS
from holdfast.language.graph import Spec
from holdfast.language.operators.columns import key_fields
from holdfast.language.stream import Stream, attach
from holdfast.operators.fingerprint import Fingerprint, key_of, keyed_frame
from holdfast.operators.kind import KeyedKind, OperatorOf, Ordering, Planned, Schemas, refuse, register
from holdfast.operators.shared.keyed_maps import MapLogic
from holdfast.operators.shared.logic import Applied, Place, Segments, by_position
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.expiry import of_lives
from holdfast.testing import arm, disarm, run_local

# --- the kind -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EveryNthSpec(Spec):
    """Every n-th row of a key passes."""

    n: int
    by: tuple[str, ...]


def every_nth(stream: Stream, n: int, by: str, name: str | None = None) -> Stream:
    """The verb."""
    return attach(EveryNthSpec(n, (by,)), (stream,), name)


@dataclass(frozen=True)
class EveryNth(MapLogic):
    """The state is a keyed map: how many rows each key had."""

    n: int

    @property
    def columns(self) -> tuple[tuple[str, ...], ...]:
        return ((*self.output.names, *POSITION_COLUMNS),)

    def apply(self, segments: Segments, meta: Any, arrived: list[pa.Table], place: Place) -> Applied:
        rows = by_position(pa.concat_tables(arrived))
        always = np.zeros(rows.num_rows, dtype=np.int64)
        counted, changed = of_lives(self.keyed_map, segments, rows, always, None, each=True)
        seen = counted.column("seen")
        passed = rows.filter(pc.equal(pc.multiply(pc.divide(seen, self.n), self.n), seen))
        output = passed.select(self.outputs[0].names).cast(self.outputs[0])
        return Applied(self.advanced(segments, changed, place), (output,))


@register
class EveryNthKind(KeyedKind[EveryNthSpec]):
    spec = EveryNthSpec
    keeps_positions = True
    needs_positions = Ordering("counts the rows of each key", several="Count those of each source by itself.")

    def check(self, op: OperatorOf[EveryNthSpec]) -> None:
        if op.spec.n < 1:
            raise refuse(op, f"lets every {op.spec.n}-th row pass", "Give 1 or more.")

    def schemas(self, op: OperatorOf[EveryNthSpec], inputs: Schemas) -> list[pa.Schema]:
        key_fields(inputs[0], op.spec.by)
        return [inputs[0]]

    def what(self, op: OperatorOf[EveryNthSpec]) -> str:
        return f"every {op.spec.n}-th row by {', '.join(op.spec.by)}"

    def fingerprint(self, op: OperatorOf[EveryNthSpec], inputs: Schemas, outputs: Schemas) -> Fingerprint:
        seen = {"seen": {"function": "count", "type": "int64"}}
        return Fingerprint(self.name, keyed_frame(key_of(inputs[0], op.spec.by)), {"aggregates": seen})

    def logic(self, planned: Planned[EveryNthSpec]) -> EveryNth:
        (schema,), spec = planned.inputs, planned.op.spec
        seen = Aggregation.plan(spec.by, (("seen", "count", None),), schema)
        return EveryNth(seen, schema, planned.stamped, spec.n)


# --- what it does ---------------------------------------------------------------------------------------------------

ROWS = [(number, "abcde"[number * 7 % 11 % 5]) for number in range(200)]
N = 3


def topology(here: str, n: int = N, by: str = "k", rows: int = len(ROWS)) -> hf.Topology:
    made = hf.Topology("own")
    source = made.source(hf.Rows(ROWS[:rows], "number long, k string", rows_per_step=7), name="rows")
    chosen = every_nth(source.consistent("r", period=0.01, keep=1000), n, by, name="chosen")
    # What follows orders by the positions of rows that passed.
    numbered = chosen.aggregate("k", "each", n=hf.count(), last=hf.max("number"), name="numbered")
    numbered.sink(hf.FileSink(f"{here}/out", format="json"), name="out")
    return made


def expected() -> list[tuple[str, int, int]]:
    seen: Counter[str] = Counter()
    found = []
    for number, k in ROWS:
        seen[k] += 1
        if not seen[k] % N:
            found.append((k, seen[k] // N, number))
    return sorted(found)


def written(here: Path) -> list[tuple[str, int, int]]:
    lines = [line for file in (here / "out").glob("part-*") for line in file.read_text().splitlines()]
    return sorted((row["k"], row["n"], row["last"]) for row in map(json.loads, lines))


def run(here: str, **changed: Any) -> dict[str, Any]:
    status: dict[str, Any] = run_local(topology(here, **changed), f"file:{here}/store", partitions=3)
    return status


@pytest.fixture(autouse=True)
def _no_failpoints() -> Iterator[None]:
    disarm()
    yield
    disarm()


def test_it_is_planned_and_explained(tmp_path: Path) -> None:
    plan = compile_graph(topology(str(tmp_path)).graph(), ArrowAnalyser())
    assert {str(stream) for stream in plan.stamped} == {"rows", "chosen"}
    assert "chosen    every_nth  every 3-th row by k" in explain_text(plan)
    assert plan.fingerprint[OperatorName("chosen")].kind == "every_nth"


def test_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"'chosen' \(every_nth\) lets every 0-th row pass"):
        compile_graph(topology(str(tmp_path), n=0).graph(), ArrowAnalyser())
    with pytest.raises(TopologyError, match=r"'chosen' \(every_nth\): There is no column 'nobody'"):
        compile_graph(topology(str(tmp_path), by="nobody").graph(), ArrowAnalyser())
    two = hf.Topology("two")
    a, b = (two.source(hf.Rows(ROWS, "number long, k string"), name=name) for name in "ab")
    every_nth(a.union(b), 2, "k", name="chosen")
    with pytest.raises(
        TopologyError, match="'chosen' counts the rows of each key, but its input comes from several"
    ):
        compile_graph(two.graph(), ArrowAnalyser())


def test_a_kind_that_nobody_registered_is_refused() -> None:
    class NobodysSpec(Spec):
        """Nobody knows what to do with it."""

    made = hf.Topology("t")
    attach(NobodysSpec(), (made.source(hf.Rows(ROWS, "number long, k string"), name="rows"),), "lost")
    with pytest.raises(TopologyError, match="'lost' is of a kind that nobody knows: nobodys"):
        compile_graph(made.graph(), ArrowAnalyser())


def test_a_step_that_fails_is_repeated_from_the_last_epoch(tmp_path: Path) -> None:
    arm("step.end=raise@9")
    status = run(str(tmp_path))
    assert status["regions"]["r"]["resets"] == 1
    assert written(tmp_path) == expected()


@pytest.mark.parametrize(
    "failpoint", ["step.end=kill@11", "ckpt.op.put_done=kill", "ckpt.epoch.published=kill"]
)
def test_a_driver_that_was_killed_goes_on(failpoint: str, tmp_path: Path) -> None:
    killed_at(failpoint, Path(__file__), str(tmp_path))
    assert written(tmp_path) != expected(), "it was over before it was killed"
    run(str(tmp_path))
    assert written(tmp_path) == expected()


def test_its_state_is_read_by_the_tools(tmp_path: Path) -> None:
    run(str(tmp_path), rows=100)
    store = open_reader(tmp_path / "store")
    region = choose_region(store, None)
    half = newest_manifest(store, region)
    run(str(tmp_path))
    manifest = newest_manifest(store, region)
    told = describe_epoch(store, manifest, "chosen")["operators"][0]
    assert (told["kind"], told["fingerprint"]["frame"]["key"]) == ("every_nth", (("k", "string"),))
    rows = first_rows(store, manifest, "chosen", 100)["state"].to_pylist()
    assert {row["k"]: row["seen"] for row in rows} == Counter(k for _, k in ROWS)
    (change,) = compare(store, half, manifest, ["chosen"], rows=99)
    grown = {row["k"]: row["seen"] for what, row in change.parts["state"].samples if what != "changed from"}
    assert (change.kind, grown) == ("every_nth", Counter(k for _, k in ROWS))


def test_another_key_is_refused_and_another_number_is_not(tmp_path: Path) -> None:
    run(str(tmp_path))
    with pytest.raises(MismatchError) as caught:
        run(str(tmp_path), by="number")
    assert caught.value.message == (
        "operator 'chosen' does not fit the stored state: its key was (k string), now it is (number int64)."
    )
    run(str(tmp_path), n=5)
    assert written(tmp_path) == expected(), "there were no more rows"


if __name__ == "__main__":
    run(sys.argv[1])
