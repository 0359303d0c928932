"""The clickshop, killed with SIGKILL in the middle: equal to a computation over all rows in plain Python."""

from __future__ import annotations

import datetime as dt
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import DRIVER_KILLED, fired

from holdfast.ids import RegionName
from holdfast.store.urls import open_store
from holdfast.testing import compare_rows, processes

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "clickshop"
CLICKS = 4_000
VISIT, REVENUE, BEFORE = dt.timedelta(minutes=5), dt.timedelta(minutes=10), dt.timedelta(minutes=2)
RUN = "import sys; from holdfast.cli.main import run; sys.argv[0] = 'holdfast'; sys.exit(run())"

Row = dict[str, Any]


def prepare(here: Path) -> tuple[list[Row], list[Row]]:
    """(clicks, orders), each once, with their times."""
    program = runpy.run_path(str(EXAMPLE / "make_input.py"))
    found = program["make"](CLICKS)
    for rows, name in zip(found, ("clicks", "orders"), strict=True):
        assert len(rows) > len({row["id"] for row in rows}), "some come twice"
        program["write"](here, name, rows)
    return tuple(  # type: ignore[return-value]
        [{**row, "at": moment(row["at"])} for row in {row["id"]: row for row in rows}.values()]
        for rows in found
    )


def moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def visits(clicks: list[Row]) -> Iterator[tuple[Any, ...]]:
    by_user = defaultdict(list)
    for row in clicks:
        by_user[row["user"]].append((row["at"], row["page"]))
    for user, of_user in by_user.items():
        visit: list[tuple[dt.datetime, str]] = []
        for at, page in [*sorted(of_user), (dt.datetime.max.replace(tzinfo=dt.UTC), "")]:
            if visit and at - visit[-1][0] >= VISIT:
                yield user, visit[0][0], visit[-1][0] + VISIT, len(visit), len({page for _, page in visit})
                visit = []
            visit.append((at, page))


def revenue(orders: list[Row]) -> dict[dt.datetime, tuple[int, int]]:
    count: Counter[dt.datetime] = Counter()
    cents: Counter[dt.datetime] = Counter()
    for row in orders:
        start = row["at"] - (row["at"] - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) % REVENUE
        count[start] += 1
        cents[start] += row["cents"]
    return {start: (count[start], cents[start]) for start in count}


def led_to(orders: list[Row], clicks: list[Row]) -> Iterator[tuple[Any, ...]]:
    by_user = defaultdict(list)
    for row in clicks:
        by_user[row["user"]].append(row)
    for order in orders:
        near = [c for c in by_user[order["user"]] if order["at"] - BEFORE <= c["at"] <= order["at"]]
        yield from ((order["id"], click["page"], click["at"]) for click in near)
        if not near:
            yield order["id"], None, None


def written(here: Path, name: str) -> list[Row]:
    files = sorted((here / "out" / name).glob("part-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_killed_in_the_middle_it_gives_what_a_loop_over_all_rows_gives(tmp_path: Path) -> None:
    clicks, orders = prepare(tmp_path)
    store, tag = tmp_path / "store", processes.new_tag("clickshop")
    (tmp_path / "program.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXAMPLE)!r})\nimport clickshop\n"
        f"topology = clickshop.build({str(tmp_path)!r}, period=0.5, rows_per_step=800)\n"
    )
    given = ("run", str(tmp_path / "program.py"), "--store", str(store), "--until", "available", "--close")
    command = [sys.executable, "-c", RUN, *given]
    environment = {**os.environ, processes.TAG: tag}
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            patience = time.monotonic() + 240
            while not _epochs(store):
                assert driver.poll() is None, (tmp_path / "log").read_text()[-3000:]
                assert time.monotonic() < patience
                time.sleep(0.05)
            driver.send_signal(signal.SIGKILL)
            assert driver.wait(60) == -signal.SIGKILL
            fired(DRIVER_KILLED)
        finally:
            processes.kill_all(tag)
            driver.wait()
    assert len(written(tmp_path, "led_to")) < len(orders), "it was in the middle"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    processes.kill_all(tag)
    assert done.returncode == 0, done.stderr[-3000:]
    found_visits = [
        (r["user"], moment(r["window_start"]), moment(r["window_end"]), r["clicks"], r["pages"])
        for r in written(tmp_path, "visits")
    ]
    assert sorted(found_visits) == sorted(visits(clicks))
    found_revenue = {
        moment(r["window_start"]): (r["orders"], r["cents"]) for r in written(tmp_path, "revenue")
    }
    assert found_revenue == revenue(orders)
    pairs = [{"id": i, "page": p, "clicked": c} for i, p, c in led_to(orders, clicks)]
    found = [
        {"id": r["id"], "page": r.get("page"), "clicked": moment(r["clicked"]) if r.get("clicked") else None}
        for r in written(tmp_path, "led_to")
    ]
    compare_rows(pairs, found)


def _epochs(store: Path) -> list[Any]:
    if not store.is_dir():
        return []
    try:
        return list(open_store(f"file:{store}").epochs(RegionName("shop")))
    except Exception:
        return []  # it is being made
