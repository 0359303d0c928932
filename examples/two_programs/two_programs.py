"""Two programs joined by a log: one writes readings into it, the other one reports on them. Each may die at any moment.

    python examples/two_programs/two_programs.py            # both run, each is killed twice; what comes out is compared

What the demonstration starts, and you may start by hand, each in a terminal of its own:

    python examples/two_programs/two_programs.py meter two_programs
    python examples/two_programs/two_programs.py report two_programs
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa

import holdfast as hf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demonstration import Program, run, wait_for

SENSORS = 7
READING = pa.schema(
    [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("sensor", pa.int64()), ("value", pa.int64())]
)


def reading(number: int) -> tuple[int, int]:
    """(sensor, value): what a row holds depends on its number only."""
    return number % SENSORS, number * 7919 % 1000


def read_off(ticks: pa.Table) -> pa.Table:
    found = [reading(number) for number in ticks.column("id").to_pylist()]
    columns = [ticks.column("id"), ticks.column("timestamp"), [s for s, _ in found], [v for _, v in found]]
    return pa.table(dict(zip(READING.names, columns, strict=True)), schema=READING)


def meter(here: Path, rows: int, rate: float, period: float) -> hf.Topology:
    """The first program: readings, at a rate, into the log."""
    made = hf.Topology("meter")
    ticks = made.source(hf.Beacon(rows=rows, rate=rate), name="ticks").consistent("meter", period=period)
    ticks.map_arrow(read_off, READING).sink(hf.LogSink(here / "readings", time="at"), name="readings")
    return made


def report(here: Path, period: float) -> hf.Topology:
    """The second one: for each reading how many its sensor has given by then, and their sum."""
    made = hf.Topology("report")
    rows = made.source(hf.LogSource(here / "readings", schema=READING), name="readings")
    rows = rows.consistent("report", period=period)
    sums = rows.aggregate("sensor", readings=hf.count(), total=hf.sum("value"), emit="each", name="sums")
    sums.sink(hf.FileSink(here / "report", "json"), name="report")
    return made


def written(here: Path) -> int:
    log = hf.Log(here / "readings")
    return log.bounds().end if log.exists else 0


def reported(here: Path) -> list[tuple[int, int, int]]:
    lines = [line for path in (here / "report").glob("part-*.json") for line in path.read_text().splitlines()]
    return [(row["sensor"], row["readings"], row["total"]) for row in map(json.loads, lines)]


def expected(rows: int) -> list[tuple[int, int, int]]:
    """The same by a loop."""
    count: Counter[int] = Counter()
    total: Counter[int] = Counter()
    found = []
    for sensor, value in map(reading, range(rows)):
        count[sensor] += 1
        total[sensor] += value
        found.append((sensor, count[sensor], total[sensor]))
    return found


def demonstrate(here: Path, rows: int, rate: float, period: float, local: bool, kills: int) -> bool:
    """True if the report is what a loop over all readings gives."""
    here.mkdir(parents=True, exist_ok=True)
    words = ["--rows", rows, "--rate", rate, "--period", period, *(["--local"] if local else [])]
    first = Program(here / "meter.txt", __file__, "meter", here, *words)
    second = Program(here / "report.txt", __file__, "report", here, *words)
    try:
        for number in range(1, kills + 1):
            share = rows * number // (kills + 1)
            wait_for(lambda share=share: written(here) >= share, "readings", first, second)
            first.kill_and_restart()
            print(
                f"meter killed;  the log has {written(here):>6,} readings, the report {len(reported(here)):>6,} rows"
            )
            wait_for(lambda share=share: len(reported(here)) >= share // 2, "the report", first, second)
            second.kill_and_restart()
            print(
                f"report killed; the log has {written(here):>6,} readings, the report {len(reported(here)):>6,} rows"
            )
        first.finish()
        wait_for(lambda: len(reported(here)) >= rows, "the last rows of the report", second)
        second.finish(ask=True)
    finally:
        first.close()
        second.close()
    found, wanted = Counter(reported(here)), Counter(expected(rows))
    lost, doubled = (wanted - found).total(), (found - wanted).total()
    print(f"\n{rows:,} readings; meter killed {first.kills} times, report killed {second.kills} times")
    print(f"rows lost: {lost}, doubled or wrong: {doubled}; {'exactly once' if found == wanted else 'WRONG'}")
    return found == wanted


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("what", nargs="?", default="demo", choices=["demo", "meter", "report"])
    words.add_argument("directory", nargs="?", type=Path)
    words.add_argument("--rows", type=int, default=20_000)
    words.add_argument("--rate", type=float, default=500.0, help="readings per second")
    words.add_argument("--period", type=float, default=1.0, help="seconds between epochs")
    words.add_argument("--kills", type=int, default=2, help="of each program")
    words.add_argument("--local", action="store_true", help="without Spark")
    given = words.parse_args()
    here = given.directory or Path(tempfile.mkdtemp(prefix="two_programs_"))
    match given.what:
        case "meter":
            made = meter(here, given.rows, given.rate, given.period)
            run(made, here / "store-meter", "available", given.local)
        case "report":
            run(report(here, given.period), here / "store-report", None, given.local)
        case _:
            print(f"in {here}")
            done = demonstrate(here, given.rows, given.rate, given.period, given.local, given.kills)
            sys.exit(not done)


if __name__ == "__main__":
    main()
