"""Someone who reads the output directory all the time, during crashes, never sees a row twice or one that vanishes."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import campaign
import pytest
from campaign import ROWS, Place

pytestmark = pytest.mark.slow


def read_all_the_time(directory: Path, report: Path, stop: Path) -> None:
    """Body of the reader's process: a plain listing, every visible file, again and again."""
    seen: dict[int, str] = {}
    readings = 0
    problems: list[str] = []
    while not problems:
        last = stop.exists()
        now: dict[int, str] = {}
        for path in sorted(directory.iterdir()) if directory.exists() else []:
            if path.name.startswith((".", "_")):
                continue
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if row["seq"] in now:
                    problems.append(f"row {row['seq']} is in {now[row['seq']]} and in {path.name}")
                now[row["seq"]] = path.name
        vanished = seen.keys() - now.keys()
        problems += [f"row {seq} of {seen[seq]} vanished" for seq in sorted(vanished)]
        seen, readings = now, readings + 1
        if last:
            break
    report.write_text(json.dumps({"readings": readings, "rows": len(seen), "problems": problems[:3]}))


@pytest.mark.parametrize("mode", ["async", "drain"])
def test_a_live_reader_sees_every_row_once_and_for_ever(place: Place, mode: str) -> None:
    stop, report = place.root / "stop-reading", place.root / "what-was-read"
    place.root.mkdir(parents=True, exist_ok=True)
    reader = multiprocessing.get_context("forkserver").Process(
        target=read_all_the_time, args=(place.ledger, report, stop)
    )
    reader.start()
    faults = [
        "sink.commit.begin=kill",
        "sink.commit.applied=kill",
        "step.end=raise;ckpt.manifest.renamed=kill@2",
    ]
    for number, fault in enumerate(faults):
        campaign.live(place, mode=mode, fp=fault, arm_after_row=30 * (number + 1), arm_after_epoch=number + 1)
    assert campaign.live(place, mode=mode, schedule=False).exit == 0
    stop.touch()
    reader.join(30)
    assert reader.exitcode == 0
    found = json.loads(report.read_text())
    assert not found["problems"], found
    assert found["rows"] == ROWS
    assert found["readings"] > 20
    assert len(campaign.story(place).firings) == len(faults) + 1
    campaign.check(place)
