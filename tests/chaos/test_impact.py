"""Operators killed one after another, without Spark: what it does to each sink, and that nothing of the user's is touched."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import holdfast as hf
from holdfast.chaos.impact.one_run import Setting
from holdfast.chaos.impact.recording import check_program
from holdfast.chaos.impact.study import Study, study
from holdfast.cli.impact.command import _keys
from holdfast.cli.impact.picture import check_target, draw
from holdfast.cli.impact.table import show
from holdfast.cli.places import free_place
from holdfast.errors import ConfigError
from holdfast.runtime.engines.local import LocalEngine

ROWS = [{"id": n, "k": "ab"[n % 2], "v": float(n % 7)} for n in range(400)]
COLUMNS = "id long, k string, v double"


class Seen(hf.Operator):
    """Numbers what it sees: forgetful, if it is killed."""

    def __init__(self) -> None:
        self.seen = 0

    def process(self, row: Any, port: int) -> tuple[int, int]:
        self.seen += 1
        return row.id, self.seen


class Doubled(hf.Operator):
    """Has nothing to remember."""

    def process(self, row: Any, port: int) -> tuple[int, float]:
        return row.id, 2 * row.v


def program(
    out: Path,
    *,
    every: float | None = None,
    region: float | None = None,
    sink: Callable[[str], hf.Sink] | None = None,
) -> hf.Topology:
    made = hf.Topology("shop")
    rows = made.source(hf.Rows(ROWS, COLUMNS), name="rows")
    if region is not None:
        rows = rows.consistent("shop", period=region)
    seen = rows.apply(Seen(), "id long, seen long", name="seen")
    if every is not None:
        seen = seen.checkpoint(every=every)
    place = sink or (lambda name: hf.FileSink(str(out / name), "parquet"))
    seen.sink(place("numbered"), name="numbered")
    rows.apply(Doubled(), "id long, twice double", name="doubled").sink(place("doubles"), name="doubles")
    return made


def studied(tmp_path: Path, make: Callable[[], hf.Topology], **options: Any) -> Study:
    return study(Setting(lambda: make().graph(), lambda: LocalEngine(2), tmp_path / "stores", 1.0), **options)


def told(found: Study) -> dict[str, Any]:
    return {each["operator"]: each for each in found.as_dict()["operators"]}


def test_an_operator_that_forgets_is_recommended_and_one_that_has_nothing_to_forget_is_not(
    tmp_path: Path,
) -> None:
    found = studied(tmp_path, lambda: program(tmp_path / "out"))
    operators = told(found)
    assert set(operators) == {"rows", "seen", "numbered", "doubled", "doubles"}
    seen = operators["seen"]
    assert seen["verdict"] == "checkpoint"
    lost = seen["sinks"]["numbered"]
    # Killed at the 21st of 40 slices of ten rows: those are gone, and what it had counted until then.
    assert (seen["killed_at_s"], lost["missing"], lost["extra"], lost["wrong"]) == (21.0, 10, 0, 190)
    assert lost["agrees_after_rows"] is None
    assert seen["sinks"]["doubles"] == {**seen["sinks"]["doubles"], "missing": 0, "wrong": 0, "effect": 0.0}
    kept = seen["sinks_the_other_way"]["numbered"]
    assert (kept["missing"], kept["wrong"]) == (10, 190)
    assert kept["deviation"]["seen"] < 0.2 * lost["deviation"]["seen"]
    assert operators["doubled"]["verdict"] == "leave"
    assert operators["doubled"]["sinks"]["doubles"]["missing"] == 10
    assert operators["doubled"]["sinks"]["doubles"]["agrees_after_rows"] == 10
    assert operators["rows"]["verdict"] == "no state"
    assert operators["rows"]["sinks"]["doubles"]["missing"] == 10
    assert found.as_dict()["recommended"] == ["seen"]
    assert not (tmp_path / "out").exists(), "nothing may reach the program's own output"


def test_the_same_study_finds_the_same(tmp_path: Path) -> None:
    first = studied(tmp_path / "a", lambda: program(tmp_path / "out"), chosen=["seen"])
    again = studied(tmp_path / "b", lambda: program(tmp_path / "out"), chosen=["seen"])
    assert first.as_dict() == again.as_dict()


def test_a_checkpoint_that_the_program_has_is_judged_by_what_happens_without_it(tmp_path: Path) -> None:
    found = studied(tmp_path, lambda: program(tmp_path / "out", every=1.0), chosen=["seen"])
    seen = told(found)["seen"]
    assert seen["verdict"] == "keep"
    assert seen["effect"] < seen["effect_the_other_way"]


def test_in_a_region_a_kill_costs_nothing(tmp_path: Path) -> None:
    found = studied(tmp_path, lambda: program(tmp_path / "out", region=5.0))
    assert {each["verdict"] for each in told(found).values()} == {"region"}
    assert all(each["effect"] == 0.0 for each in told(found).values()), told(found)


def test_a_sink_that_cannot_take_rows_back_gets_them_twice(tmp_path: Path) -> None:
    def make() -> hf.Topology:
        # Killed at the 21st slice, one a second: the newest epoch is some of them old.
        return program(tmp_path, region=7.0, sink=lambda name: hf.ConsoleSink())

    found = studied(tmp_path, make, chosen=["seen"])
    (loss,) = (each["sinks"]["numbered"] for each in told(found).values())
    assert loss["missing"] == 0
    assert loss["extra"] > 0


def test_a_keyed_operator_loses_its_sums(tmp_path: Path) -> None:
    def make() -> hf.Topology:
        made = hf.Topology("sums")
        rows = made.source(hf.Rows(ROWS, COLUMNS), name="rows")
        rows.aggregate("k", n=hf.count(), name="sums").sink(hf.MemorySink("sums"), name="out")
        return made

    found = studied(tmp_path, make, chosen=["sums"])
    sums = told(found)["sums"]
    assert found.pairings["out"].key == ("k",)  # type: ignore[index]
    assert sums["verdict"] == "checkpoint"
    assert sums["sinks"]["out"]["wrong"] == 2 * 19
    assert hf.MemorySink.table("sums") is None, "the program's own sink was not written to"


def test_sinks_that_cannot_be_redirected_are_refused_by_name(tmp_path: Path) -> None:
    def make() -> hf.Topology:
        return program(tmp_path, sink=lambda name: hf.ForeachBatch(lambda batch, id: None))

    with pytest.raises(ConfigError, match=r"cannot be redirected.*'numbered'.*'doubles'") as refused:
        check_program(make().graph(), [])
    assert "--record numbered --record doubles" in refused.value.cure
    with pytest.raises(ConfigError, match="'numbered'"):
        check_program(make().graph(), ["doubles"])
    check_program(make().graph(), ["doubles", "numbered"])
    with pytest.raises(ConfigError, match="no sink 'nowhere'"):
        check_program(make().graph(), ["nowhere"])


def test_names_that_do_not_exist_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no operator 'sene'"):
        studied(tmp_path, lambda: program(tmp_path), chosen=["sene"])
    with pytest.raises(ConfigError, match="has no column 'idd'"):
        studied(tmp_path, lambda: program(tmp_path), keys={"numbered": ["idd"]})
    with pytest.raises(ConfigError, match="--key x"):
        _keys(["x"])
    with pytest.raises(ConfigError, match="no picture"):
        check_target(Path("effects.doc"))


def test_an_input_without_rows_is_refused(tmp_path: Path) -> None:
    def make() -> hf.Topology:
        made = hf.Topology("empty")
        made.source(hf.Rows([], COLUMNS), name="rows").sink(hf.MemorySink("none"), name="out")
        return made

    with pytest.raises(ConfigError, match="no rows"):
        studied(tmp_path, make)


def test_a_store_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert free_place(tmp_path / "store", "impact") == tmp_path / "store"
    (tmp_path / "store" / "identity").write_text("mine")
    assert free_place(tmp_path / "store", "impact") == tmp_path / "store.impact-1"
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["identity"]


def test_what_was_found_is_shown_and_drawn(tmp_path: Path) -> None:
    found = studied(tmp_path, lambda: program(tmp_path / "out"), chosen=["seen", "doubled"])
    result = json.loads(json.dumps({**found.as_dict(), "stores": None}))
    out = io.StringIO()
    show(result, Console(file=out, width=160))
    said = out.getvalue()
    assert "deserves" in said
    assert "with a checkpoint" in said
    draw(result, tmp_path / "effects.svg")
    assert (tmp_path / "effects.svg").stat().st_size > 1000
