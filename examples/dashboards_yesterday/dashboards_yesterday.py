"""Yesterday's dashboard, made today: a log is asked about one day of its past, and only the segments of that day are read.

    python examples/dashboards_yesterday/dashboards_yesterday.py flights_2013_*.csv.gz --day 2013-02-08

The flights that left New York go into a log, in the order of their files; then the log is asked for one day, by default the day of
the blizzard of 2013. It prints a table by hour and airport and draws a picture.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_AT_ONCE = 500
SEGMENT_BYTES = 64 << 10
"""Small, so that a few months are many segments."""
KEPT = ["at", "origin", "dest", "carrier", "flight", "dep_delay"]
QUESTION = """
    select date_trunc('hour', at) as hour, origin, count(*) as flights,
           count(*) - count(dep_delay) as cancelled, round(avg(dep_delay), 1) as delay
    from yesterday group by all order by hour, origin
"""


def flights(path: Path) -> pa.Table:
    """Flights of a file, with the moment at which each should have left (UTC). One without a delay never left."""
    types = {
        "time_hour": pa.timestamp("s", "UTC"),
        "dep_delay": pa.int64(),
        "minute": pa.int64(),
        "flight": pa.int64(),
    }
    wanted = pyarrow.csv.ConvertOptions(column_types=types, null_values=["", "NA"], strings_can_be_null=True)
    table = pyarrow.csv.read_csv(path, convert_options=wanted)
    seconds = pc.add(table.column("time_hour").cast(pa.int64()), pc.multiply(table.column("minute"), 60))
    at = seconds.cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC"))
    return table.append_column("at", at).select(KEPT)


def fill(path: Path, files: Sequence[Path]) -> None:
    """Append what the files have. A log that is there is left as it is."""
    if hf.Log(path).exists:
        return
    for file in files:
        table = flights(file)
        with hf.Log(path, schema=table.schema, time="at", segment_bytes=SEGMENT_BYTES) as log:
            writer = log.writer("flights")
            for first in range(0, table.num_rows, ROWS_AT_ONCE):
                writer.append(table.slice(first, ROWS_AT_ONCE))
            writer.flush()
            log.compact(4 * SEGMENT_BYTES)


def dashboard(log: hf.Log, day: datetime, spark: SparkSession) -> DataFrame:
    """By hour and airport: flights, those that never left, and how late the others were on average."""
    rows = log.between(day, day + timedelta(days=1), spark=spark)
    rows.createOrReplaceTempView("yesterday")
    return spark.sql(QUESTION)


def show(found: list[dict[str, Any]]) -> None:
    print(f"{'hour':>16} {'airport':>8} {'flights':>8} {'cancelled':>10} {'late, min':>10}")
    for row in found:
        delay = "—" if row["delay"] is None else f"{row['delay']:.1f}"
        print(
            f"{row['hour']:%Y-%m-%d %H:%M} {row['origin']:>8} {row['flights']:>8} {row['cancelled']:>10} {delay:>10}"
        )


def draw(found: list[dict[str, Any]], day: datetime, picture: Path) -> None:
    """Flights and cancelled ones by hour, and how late the others were."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    hours = sorted({row["hour"] for row in found})
    shown = [(hour - day.replace(tzinfo=None)).total_seconds() / 3600 for hour in hours]
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True)
    for name, colour in (("flights", "#9bbad6"), ("cancelled", "#c0392b")):
        sums = [sum(row[name] for row in found if row["hour"] == hour) for hour in hours]
        above.bar(shown, sums, color=colour, label=name)
    above.set_ylabel("flights")
    above.legend()
    for origin in sorted({row["origin"] for row in found}):
        late = {row["hour"]: row["delay"] for row in found if row["origin"] == origin}
        below.plot(shown, [late.get(hour) for hour in hours], marker="o", label=origin)
    below.set_ylabel("minutes late, on average")
    below.set_xlabel(f"hour of {day:%Y-%m-%d} (UTC)")
    below.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("files", nargs="+", type=Path, help="flights_2013_*.csv.gz of nycflights13")
    words.add_argument("--day", type=datetime.fromisoformat, default=datetime(2013, 2, 8))
    words.add_argument("--log", type=Path, help="where the log is; made if it is not there")
    words.add_argument("--picture", type=Path, default=Path("yesterday.png"))
    given = words.parse_args()
    path, day = given.log or Path(tempfile.mkdtemp()) / "flights", given.day.replace(tzinfo=UTC)
    fill(path, sorted(given.files))
    log = hf.Log(path)

    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        found = [row.asDict() for row in dashboard(log, day, spark).collect()]
    finally:
        spark.stop()
    show(found)
    draw(found, day, given.picture)
    print(
        f"\n{sum(row['flights'] for row in found)} flights of {day:%Y-%m-%d}, of {log.bounds().end:,} in {path}; {given.picture}"
    )


if __name__ == "__main__":
    main()
