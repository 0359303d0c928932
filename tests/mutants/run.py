"""Plants defects one by one and runs the tests that must turn red: `make mutants`. A table; exit code 1 if one stays green."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from sound_plants import sound

from mutants.planting import ENV
from mutants.plants import BY_NAME, Plant

ROOT = Path(__file__).parents[2]
LIMIT_S = 120


def red(plant: Plant) -> str:
    """The first test that fails with the defect planted; '' if all of them pass."""
    name = plant.plant.__name__
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "mutants.planting",
        "-p",
        "no:cacheprovider",
        "--tables",
    ]
    command += [str(ROOT / "build" / "mutant-tables.txt"), *(f"tests/{test}" for test in plant.tests)]
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    environment = {
        **os.environ,
        ENV: name,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "COLUMNS": "500",
    }
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"hung for {LIMIT_S} s"  # a hang is a failure
    told = [line for line in done.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    if done.returncode == 1 and told:
        return sound(name, told[0]).split(" ")[1].removeprefix("tests/")
    if done.returncode not in (0, 1):
        raise RuntimeError(
            f"{name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return ""


def main(names: list[str]) -> int:
    green = 0
    for name in names or BY_NAME:
        plant = BY_NAME[name]
        found = red(plant)
        green += not found
        print(
            f"{plant.about:<48} {'red: ' + found[:110] if found else 'GREEN: ' + ', '.join(plant.tests)}",
            flush=True,
        )
    print(f"{len(names or BY_NAME)} defects, {green} not noticed")
    return 1 if green else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
