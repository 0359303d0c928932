"""The examples with logs: their programs are killed as the demonstrations do it, here without Spark, and nothing is lost or doubled."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from app_data import DATA, WITHOUT_DATA
from faults import DRIVER_KILLED, fired

import holdfast as hf
from holdfast.log.query.wanted import between

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "lives"), [("two_programs", 2), ("socket_exactly_once", 1)])
@pytest.mark.sampled(keep=1)
def test_a_demonstration_finds_each_row_once(
    name: str, lives: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example(name).demonstrate(tmp_path / "here", 3000, 1500.0, 0.05, local=True, kills=1)
    fired(DRIVER_KILLED, lives)
    said = capsys.readouterr().out
    assert said.count("killed") == 2 * lives
    assert "rows lost: 0, doubled or wrong: 0; exactly once" in said


def test_a_demonstration_notices_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("two_programs")
    right = module.expected(300)
    monkeypatch.setattr(module, "expected", lambda rows: [*right[1:], right[1]])
    assert not module.demonstrate(tmp_path / "here", 300, 3000.0, 0.05, local=True, kills=0)


# --- dashboards_yesterday ---

FLIGHTS = sorted((DATA / "nycflights13").glob("flights_2013_0[12].csv.gz"))
DAY = dt.datetime(2013, 2, 8, tzinfo=dt.UTC)


def by_hand() -> dict[tuple[dt.datetime, str], tuple[int, int, float | None]]:
    """(hour, airport) → flights, cancelled, minutes late on average: by a loop over the files."""
    found: dict[tuple[dt.datetime, str], list[int | None]] = defaultdict(list)
    for path in FLIGHTS:
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(file):
                at = dt.datetime.fromisoformat(row["time_hour"])  # the hour in which it should have left
                if DAY <= at < DAY + dt.timedelta(days=1):
                    late = None if row["dep_delay"] in ("", "NA") else int(row["dep_delay"])
                    found[at.replace(tzinfo=None), row["origin"]].append(late)
    return {key: (len(all_), all_.count(None), _mean(all_)) for key, all_ in found.items()}


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


@pytest.mark.spark
@pytest.mark.skipif(len(FLIGHTS) < 2, reason=WITHOUT_DATA)
def test_a_dashboard_of_a_day_is_what_a_loop_over_the_files_gives(spark: Any, tmp_path: Path) -> None:
    module = example("dashboards_yesterday")
    module.fill(tmp_path / "flights", FLIGHTS)
    log = hf.Log(tmp_path / "flights")
    found = [row.asDict() for row in module.dashboard(log, DAY, spark).collect()]
    expected = by_hand()
    assert {(r["hour"], r["origin"]): (r["flights"], r["cancelled"]) for r in found} == {
        key: (flights, cancelled) for key, (flights, cancelled, _) in expected.items()
    }
    for row in found:
        late = expected[row["hour"], row["origin"]][2]
        assert row["delay"] == (None if late is None else pytest.approx(late, abs=0.051))
    assert sum(row["cancelled"] for row in found) > 100, "it was the day of the blizzard"
    chosen = log.choose(between(DAY, DAY + dt.timedelta(days=1)))
    assert len(chosen.chosen) * 2 < chosen.segments, "most segments were not looked at"
    module.show(found)
    module.draw(found, DAY, tmp_path / "yesterday.png")
    assert (tmp_path / "yesterday.png").read_bytes().startswith(b"\x89PNG")
