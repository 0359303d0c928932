"""Someone who reads the output directories all the time, during crashes, never sees a row twice or one that vanishes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import campaign
import forked
import pytest
from campaign import ROWS, Place

pytestmark = pytest.mark.slow

HEADER = "user,n,total,top"
"""The first line of each csv file."""


@dataclass
class Watched:
    """One sink's directory, and what was visible in it when somebody looked last."""

    directory: Path
    seen: dict[str, str] = field(default_factory=dict)
    """Row → its file. Rows differ: a ledger row by its number, a change of a total by user and count."""

    def look(self) -> list[str]:
        """Read every visible file; what is wrong with it, and with it compared to the last look."""
        now: dict[str, str] = {}
        problems = []
        for name, row in visible_rows(self.directory):
            if row in now:
                problems.append(f"{row} is in {now[row]} and in {name}")
            now[row] = name
        vanished = self.seen.keys() - now.keys()
        problems += [f"{row} of {self.seen[row]} vanished" for row in sorted(vanished)]
        self.seen = now
        return problems


def visible_rows(directory: Path) -> Iterator[tuple[str, str]]:
    """By a plain listing: (file name, row)."""
    for path in sorted(directory.iterdir()) if directory.exists() else []:
        if not path.name.startswith((".", "_")):
            for number, row in enumerate(path.read_text().splitlines()):
                if row != HEADER or number:
                    yield path.name, row


def read_all_the_time(directories: dict[str, Path], report: Path, stop: Path) -> None:
    """Body of the reader's process: all sinks in turn, again and again."""
    watched = {sink: Watched(directory) for sink, directory in directories.items()}
    readings = 0
    problems: list[str] = []
    while not problems:
        last = stop.exists()
        for sink, each in watched.items():
            problems += [f"{sink}: {problem}" for problem in each.look()]
        readings += 1
        if last:
            break
    rows = {sink: len(each.seen) for sink, each in watched.items()}
    report.write_text(json.dumps({"readings": readings, "rows": rows, "problems": problems[:3]}))


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
@pytest.mark.fault("X08", "O02")
def test_a_live_reader_sees_every_row_of_every_sink_once_and_for_ever(place: Place, mode: str) -> None:
    stop, report = place.root / "stop-reading", place.root / "what-was-read"
    place.root.mkdir(parents=True, exist_ok=True)
    reader = forked.start(read_all_the_time, {"ledger": place.ledger, "totals": place.totals}, report, stop)
    faults = [
        "sink.commit.begin=kill",
        "sink.commit.applied=kill",
        "step.end=raise;ckpt.manifest.renamed=kill@2",
    ]
    for number, fault in enumerate(faults):
        campaign.live(place, mode=mode, fp=fault, arm_after_row=30 * (number + 1), arm_after_epoch=number + 1)
    assert campaign.live(place, mode=mode, schedule=False).exit == 0
    stop.touch()
    assert forked.finish(reader) == 0
    found = json.loads(report.read_text())
    assert not found["problems"], found
    assert found["rows"] == {"ledger": ROWS, "totals": len(campaign.totals_rows(place))}
    assert found["rows"]["totals"] > len(campaign.expected(place.input)[1]), (
        "totals changed in one epoch only"
    )
    assert found["readings"] > 20
    assert len(campaign.story(place).firings) == len(faults) + 1
    campaign.check(place)


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_the_reader_notices_what_appears_twice_or_vanishes(tmp_path: Path, suffix: str) -> None:
    head = f"{HEADER}\n" if suffix == "csv" else ""
    first, second = tmp_path / f"part-0.{suffix}", tmp_path / f"part-1.{suffix}"
    reader = Watched(tmp_path)
    first.write_text(f"{head}one\ntwo\n")
    assert reader.look() == []
    second.write_text(f"{head}one\n")
    assert reader.look() == [f"one is in {first.name} and in {second.name}"]
    second.unlink()
    first.write_text(f"{head}one\n")
    assert reader.look() == [f"two of {first.name} vanished"]
