"""Every program on the pages runs: the Python blocks of README.md and docs/, and those in docstrings, one by one, over a few rows.

A block finds what the page speaks of (`orders`, `clicks`, a store with epochs, …) as it would be in a program around it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import holdfast as hf
from scripts.reference import examples

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python(?! title=)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""But for files that a page tells the reader to write: tests/docs carries those out."""
BLOCKS = {
    f"{page.name} {number}": text
    for page in PAGES
    for number, text in enumerate(BLOCK.findall(page.read_text("utf-8")))
}
BLOCKS |= {f"docstring of {place}": text for place, text in examples().items()}
ALTERNATIVES = {"checkpoints.md 0", "docstring of Preserved 0"}
"""Each line of these is a way of its own."""

CLICK = "user string, page string, at timestamp"
TRADE = "symbol string, price double, volume long"
ORDER = "id long, customer string, name string, cents long, text string, age_days long, country string, day string"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs run: with input files, and a store in which a savepoint was made."""
    monkeypatch.chdir(tmp_path)
    orders = [
        {"id": n, "customer": f"c{n % 2}", "name": "n", "cents": n, "text": str(n) if n % 3 else "no number",
         "age_days": 20 * n, "country": "DE", "day": "2026-01-01"} for n in range(6)
    ]  # fmt: skip
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    clicks = [
        {"user": f"u{n % 2}", "page": "p", "at": (at + dt.timedelta(minutes=n)).isoformat()} for n in range(6)
    ]
    trades = [{"symbol": "s", "price": 1.5 * n, "volume": n} for n in range(1, 7)]
    with hf.Log(tmp_path / "logs" / "orders") as log:
        log.append([{"id": n, "cents": n} for n in range(3)])
    with hf.Log(tmp_path / "logs" / "clicks") as log:
        log.append(clicks)
    for name, rows in {"orders": orders, "clicks": clicks, "payments": orders, "trades": trades}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "in" / "orders").mkdir(parents=True)
    (tmp_path / "in" / "orders" / "a.csv").write_text("id,name,cents\n1,a,10\n2,b,many\n")
    return tmp_path


def surroundings(spark: Any, text: str) -> dict[str, Any]:
    """What a block may speak of; of the graph only what it does speak of."""
    shop = hf.Topology("shop")
    found: dict[str, Any] = {
        "hf": hf, "holdfast": hf, "pa": pa, "sqlite3": sqlite3, "closing": closing, "spark": spark,
        "datetime": dt.datetime, "timedelta": dt.timedelta, "CLICK": CLICK, "shop": shop, "topology": shop,
    }  # fmt: skip

    class Reorder:
        def process(self, row: Any, port: int) -> Any:
            return row

    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    found |= {
        "pandas": pandas,
        "pc": pc,
        "url": "sqlite:docs.db",
        "yesterday": yesterday,
        "today": dt.datetime.now(dt.UTC),
    }
    found |= {"Reorder": Reorder, "connect": lambda: sqlite3.connect(":memory:")}

    def given(name: str, schema: str) -> hf.Stream:
        source = shop.source(hf.Files(name, "json", schema=schema), name=f"given_{name}")
        return source.consistent(period=0.5) if "roll=" in text else source

    if "base." in text:
        found["base"] = sqlite3.connect(":memory:")
        found["base"].execute("create table orders (id integer primary key, cents integer)")
        found["base"].execute("insert into orders values (2, 0)")
    if "listeners=" in text:
        given("orders", ORDER).sink(hf.FileSink("heard", "json"), name="heard")
    if "hf.replay(topology" in text:
        rows = shop.source(hf.Files("nothing", "json", schema="id long, cents long"), name="orders")
        rows.sink(hf.FileSink("unwritten", "json"), name="out")
        return found
    if re.search(r"\b(trades)\b", text):
        found["trades"] = given("trades", TRADE)
        return found
    if re.search(r"\b(counts|cleaned)\.sink", text):
        found["cleaned"] = given("clicks", CLICK)
        found["counts"] = found["cleaned"].aggregate("page", count=hf.count(), name="counts")
        return found
    makes_its_own = "hf.Topology" in text or "shop.source" in text
    if re.search(r"\b(orders|totals|pairs|submit|spent)\b", text) and not makes_its_own:
        orders = found["orders"] = given("orders", ORDER)
        found["totals"] = orders.aggregate("customer", cents=hf.sum("cents"), name="totals")
        if "spent.sink" in text:
            found["spent"] = orders.aggregate("customer", cents=hf.sum("cents"), name="spent")
    if re.search(r"\b(payments|pairs)\b", text):
        found["payments"] = given("payments", ORDER)
    if "pairs" in text:
        found["pairs"] = orders.join(found["payments"], "customer", keep=hf.latest(rows=5), name="pairs")
    if "clicks" in text:
        found["clicks"] = given("clicks", CLICK)
    return found


def run_shop(spark: Any, *savepoints: str) -> None:
    """The program of the README with some savepoints, each an epoch."""
    made: dict[str, Any] = {}
    exec(BLOCKS["README.md 0"], made)
    run = made["shop"].submit(spark, store="store")
    patience = time.monotonic() + 60
    while not all(element["rows"] for element in run.status()["elements"].values()):
        assert time.monotonic() < patience, "no rows came within 60 s"
        time.sleep(0.05)
    for name in savepoints:
        run.savepoint(name)
    run.stop()


RELATIVE = re.compile(r'(\b(?:save|load|start)\(|"checkpointLocation", )"(\w+)"')
"""Paths that Spark's JVM looks up in its own working directory, which is not the test's."""


def execute(text: str, spark: Any) -> dict[str, Any]:
    text = RELATIVE.sub(lambda found: f'{found[1]}"{Path.cwd() / found[2]}"', text)
    names = surroundings(spark, text)
    exec(compile(text, "page", "exec"), names)
    if names["shop"].graph().operators:
        names["shop"].explain(spark=spark)
    if ".sink(" in text and ".run(" not in text and "in_transaction" not in text and "hf.replay" not in text:
        names["shop"].run(spark, store="sinks", until="available")
    return names


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, spark: Any, place: Path) -> None:
    text = BLOCKS[block]
    if "read_state" in text:
        run_shop(spark, "monday", *(f"n{number}" for number in range(7)))
        names = surroundings(spark, text)
        for line in text.splitlines():
            exec(f"shown = {line.partition('= ')[2]}" if " = holdfast" in line else f"shown = {line}", names)
            assert "customer" in names["shown"].columns
            assert names["shown"].collect() is not None
    elif "submit" in text:
        region = (re.findall(r'regions\["(\w+)"\]', text) or ["books"])[0]
        names = execute(f"orders.consistent({region!r}, period=0.5)\n{text}", spark)
        for handle in {value for value in names.values() if isinstance(value, hf.Run)}:
            handle.stop()
    else:
        for one in text.splitlines() if block in ALTERNATIVES else [text]:
            execute(one, spark)
