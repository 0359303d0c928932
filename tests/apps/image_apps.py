"""What the examples that keep pictures must say: the truth that was written beside their input."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from app_data import DATA, ROOT, App, Row, compare, output

MUNI = DATA / "muni-bus-snapshot"
BUSES = MUNI / "bus_locations.csv"


def maker(app: str) -> Any:
    """The module that makes the input of an example."""
    name = f"make_input_of_{app}"
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / app / "make_input.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def truth(here: Path) -> list[dict[str, str]]:
    with (here / "truth.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def prepare_bcp(here: Path, rounds: int = 1) -> None:
    made = maker("bcp")
    made.write(BUSES, here, made.Scene(rounds=rounds))


def check_bcp(here: Path, complete: bool) -> None:
    """A row for each bus that was at all four stops."""
    by_bus: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in truth(here):
        by_bus[row["bus"]].append(row)
    golden: list[Row] = []
    for bus, rows in by_bus.items():
        assert len(rows) == 4
        boarding, photographs = (sum(int(row[name]) for row in rows) for name in ("waiting", "photographs"))
        fullest = min(rows, key=lambda row: (-int(row["waiting"]), int(row["camera"])))["camera"]
        golden.append((bus, str(boarding), str(photographs), fullest))
    assert len(golden) % 7 == 0
    assert sum(int(row[1]) for row in golden) > 100
    compare(golden, list(output(here / "out")), complete, "buses")


def prepare_signalguru(here: Path, cycles: int = 3) -> None:
    made = maker("signalguru")
    made.write(here, made.Scene(cycles=cycles))


def check_signalguru(here: Path, complete: bool) -> None:
    """A row for each car that left; cycles by a plain loop."""
    last: dict[str, int] = {}
    cycle: dict[str, int] = {}
    golden: list[Row] = []
    for row in truth(here):
        where, green = row["intersection"], int(row["green"])
        if where in last and green > last[where]:
            cycle[where] = green - last[where]
        last[where] = green
        known = str(cycle[where]) if where in cycle else ""
        golden.append((where, row["phone"], str(green), known, str(green + cycle[where]) if known else ""))
    assert len(golden) % 18 == 0
    compare(golden, list(output(here / "out")), complete, "changes")


BCP = App("bcp", "bcp/bcp.py", "buses", MUNI, prepare_bcp, check_bcp, {"rows_per_step": 50})
SIGNALGURU = App(
    "signalguru", "signalguru/signalguru.py", "signals", MUNI, prepare_signalguru, check_signalguru, {"rows_per_step": 50}
)  # fmt: skip
IMAGE_APPS = {app.name: app for app in (BCP, SIGNALGURU)}
