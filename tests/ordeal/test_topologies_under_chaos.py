"""`holdfast.testing.chaos`: good topologies keep their promises; a planted defect is found; what cannot be judged is said."""

from __future__ import annotations

from pathlib import Path

import faults as told_faults
import programs
import pytest
from programs import ROWS, SCHEMA, orders

import holdfast as hf
from holdfast.errors import ConfigError
from holdfast.testing import PromiseBroken, chaos
from holdfast.testing.ordeal.judge import SinkVerdict
from holdfast.testing.ordeal.trial import Result

KILLS = 3


def of_sink(result: Result, name: str) -> SinkVerdict:
    return next(each for each in result.sinks if each.sink == name)


def test_a_mixed_program_keeps_its_promises_and_touches_nothing_outside(tmp_path: Path) -> None:
    shop, stream = orders()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.csv").write_text("keep me\n")
    stream.sink(hf.FileSink(str(tmp_path / "out")), name="out")
    spent = stream.aggregate("user", n=hf.count(), spent=hf.sum("cents"), name="spent")
    spent.sink(hf.DatabaseSink(f"sqlite:{tmp_path}/shop.db", "spent", "upsert", key="user"), name="spent_out")
    stream.sink(hf.ForeachBatch(lambda rows, step: pytest.fail("called")), name="mails")
    clicks = shop.source(hf.Rows(ROWS, SCHEMA), name="clicks")
    clicks.sink(hf.FileSink(str(tmp_path / "clicks")), name="clicks_out")
    found = chaos(shop, kills=4, seed=5)
    told_faults.fired("fault in a trial", sum(each.in_middle for each in found.faults))
    assert found.verdict == "kept"
    assert {each.fault for each in found.faults} == {
        "driver",
        "store",
        "disk",
        "slow",
    }
    assert all(each.fired for each in found.faults)
    assert any(each.in_middle for each in found.faults)
    promises = {each.sink: each.guarantee for each in found.sinks}
    exact, loose = "exactly-once", "at-least-once"
    assert promises == {"out": exact, "spent_out": exact, "mails": loose, "clicks_out": "best effort"}
    assert of_sink(found, "out").rows == len(ROWS) == of_sink(found, "out").found
    assert of_sink(found, "mails").found >= len(ROWS)
    assert of_sink(found, "clicks_out").missing <= of_sink(found, "clicks_out").counted
    assert any("mails" in note and "not called" in note for note in found.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.csv"]


class TestPlantedDefects:
    """Each is invisible in a run without faults."""

    def test_a_sink_that_doubles(self, tmp_path: Path) -> None:
        shop, stream = orders()
        stream.sink(programs.Doubling(tmp_path / "lines"), name="out")
        found = self.broken(shop)
        assert of_sink(found, "out").doubled > 0
        assert of_sink(found, "out").missing == 0
        assert not (tmp_path / "lines").exists()

    def test_a_sink_that_loses(self, tmp_path: Path) -> None:
        shop, stream = orders()
        stream.sink(programs.Losing(tmp_path / "lines"), name="out")
        assert of_sink(self.broken(shop), "out").missing > 0

    def test_an_operator_that_hides_its_state(self) -> None:
        shop, stream = orders()
        numbered = stream.apply(programs.Forgetful, "id long, n long", name="numbered")
        numbered.sink(hf.MemorySink("unused"), name="out")
        found = of_sink(self.broken(shop), "out")
        assert found.wrong > 0
        assert "n=" in found.first

    def test_an_operator_that_hangs_once_it_was_restored(self) -> None:
        shop, stream = orders()
        stream.apply(programs.Stuck, "id long, n long", name="stuck").sink(
            hf.MemorySink("unused"), name="out"
        )
        assert "hung" in self.broken(shop, patience=2.0).failure

    def broken(self, shop: hf.Topology, patience: float = 20.0) -> Result:
        with pytest.raises(PromiseBroken) as caught:
            chaos(shop, kills=KILLS, faults="driver", seed=11, patience=patience)
        result = caught.value.result
        assert result.verdict == "broken"
        assert result.exit_code == 1
        assert any(each.in_middle for each in result.faults)
        assert "seed 11" in str(caught.value)
        assert "driver: SIGKILL" in str(caught.value)
        return result


def test_what_differs_without_any_fault_is_left_out_and_the_rest_is_judged() -> None:
    shop, stream = orders()
    lucky = stream.map_arrow(programs.stamped, f"{SCHEMA}, luck double", name="lucky")
    lucky.sink(hf.MemorySink("unused"), name="out")
    found = chaos(shop, kills=1, faults="driver", seed=2)
    assert of_sink(found, "out").compared == "rows, without luck"
    assert found.verdict == "kept"
    assert any("differ in the rest" in note for note in found.notes)


def test_the_seed_repeats_the_schedule_and_rows_can_be_fed() -> None:
    shop = hf.Topology("fed")
    lines = shop.source(hf.TcpLines(0), name="lines").consistent("r")
    lines.sink(hf.FileSink("unused"), name="out")
    feed = {"lines": [(f"line {n}",) for n in range(400)]}
    one, two = (chaos(shop, feed, kills=1, faults="driver", seed=9) for _ in range(2))
    assert one.schedule == two.schedule
    assert one.seed == two.seed == 9
    assert one.rows == 400
    assert [each.fault for each in one.faults] == [each.fault for each in two.faults] == ["driver"]


def test_what_cannot_be_tried_is_refused() -> None:
    shop, stream = orders()
    with pytest.raises(ConfigError, match="no worker to kill without Spark"):
        chaos(shop, faults="worker")
    with pytest.raises(ConfigError, match="no fault 'gremlins'"):
        chaos(shop, faults="gremlins")
    stream.filter("cents > 0").sink(hf.MemorySink("unused"), name="out")
    with pytest.raises(ConfigError, match="Spark expressions"):
        chaos(shop)
