"""The applications in examples/, their real input and what must come out of them."""

from __future__ import annotations

import bisect
import csv
import functools
import gzip
import importlib.util
import itertools
import math
import os
import re
import shutil
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from holdfast.testing import GoldenMismatch, compare_rows, compare_sequence

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
DATA = SHARED / "data"
WITHOUT_DATA = f"needs {DATA}; HOLDFAST_SHARED may name another shared/"

Row = tuple[str, ...]


@dataclass(frozen=True)
class App:
    """An example that runs in a directory of its own: input in `in`, output in `out`.

    `prepare(here)` fills `in`; `check(here, complete)` compares `out` with the reference. If not `complete`, something
    must be there, not everything, and nothing that does not belong there.
    """

    name: str
    program: str
    region: str
    data: Path
    prepare: Callable[[Path], None]
    check: Callable[[Path, bool], None]
    small_steps: dict[str, int]

    @property
    def file(self) -> Path:
        return ROOT / "examples" / self.program

    def build(self, here: Path, **options: Any) -> Any:
        """The example's topology over `here`. Its file is loaded as `holdfast run` would, with `here` in its variable."""
        os.environ[self.name.upper()] = str(here)
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[self.file.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.build(str(here), **options)


def rows_of(path: Path) -> list[Row]:
    """The rows of a csv file, without its header."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def output(directory: Path) -> Iterator[Row]:
    """All visible rows of a sink, epoch by epoch."""
    for path in sorted(directory.glob("part-*.csv")):
        yield from rows_of(path)


def compare(golden: list[Row], found: list[Row], complete: bool, what: str) -> None:
    """The same rows in any order; if not `complete`, some of them, none twice."""
    if complete:
        compare_rows(golden, found, what)
        return
    compare_rows([], (Counter(found) - Counter(golden)).elements(), f"{what} that do not belong here")
    if len(found) == len(golden) > 0:
        raise GoldenMismatch(f"{what}: all {len(golden)} rows are there already")


# --- logwatch ---

LOGWATCH = DATA / "logwatch"
MADE_UP = """\
Mar  1 00:00:00 monza sshd(pam_unix)[1]: session opened for user eve by (uid=0)
Mar  1 00:00:01 monza sshd(pam_unix)[2]: authentication failure; logname= uid=0 tty=ssh ruser= rhost=bad.example user=adm
Mar  1 00:00:11 monza sshd(pam_unix)[3]: authentication failure; logname= uid=0 tty=ssh ruser= rhost=bad.example user=eve
Mar  1 00:00:21 monza sshd(pam_unix)[4]: authentication failure; logname= uid=0 tty=ssh ruser= rhost=bad.example\x20
Mar  1 00:00:31 monza sshd(pam_unix)[5]: authentication failure; logname= uid=0 tty=ssh ruser= rhost=bad.example user=adm
Mar  1 00:00:41 monza sshd(pam_unix)[6]: authentication failure; logname= uid=0 tty=ssh ruser= rhost=bad.example user=eve
Mar  1 00:00:42 monza sshd(pam_unix)[7]: session opened for user adm by (uid=0)
Mar  1 00:01:41 monza sshd(pam_unix)[8]: session opened for user eve by (uid=0)
Mar  1 00:01:42 monza sshd(pam_unix)[9]: session opened for user eve by (uid=0)
"""
"""The real log has no break-in, so here is one: eve at line 8, exactly a minute after the alarm."""
LINES = 19_852
MADE_UP_RESULT: dict[str, list[Row]] = {
    "RealTime": [
        (f"{LINES + 6}", "bad.example", "eve", "5", "2011-03-01 00:00:01", "2011-03-01 00:00:41", "40")
    ],
    "Breakins": [("2011-03-01 00:01:41", "bad.example", "eve", f"{LINES + 8}", f"{LINES + 6}")],
}


def prepare_logwatch(here: Path) -> None:
    shutil.copy(LOGWATCH / "messages.gz", here / "in")
    (here / "in" / "messages.made-up").write_text(MADE_UP)


def check_logwatch(here: Path, complete: bool) -> None:
    sizes = {"RealTime": 2231, "MediumTerm": 214, "LongTerm": 31, "Breakins": 0}
    for name, size in sizes.items():
        golden = rows_of(LOGWATCH / f"reference_{name}.csv")
        assert len(golden) == size
        golden += MADE_UP_RESULT.get(name, [])
        compare(golden, list(output(here / "out" / name.lower())), complete, name)


# --- mails: word count ---

ENRON = DATA / "enron-mail"


def mails() -> Iterator[tuple[str, bytes]]:
    """Name and content of every mail, in the order of their names."""
    with tarfile.open(ENRON / "mails.tar.gz") as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if content := archive.extractfile(member):
                yield Path(member.name).name, content.read()


def prepare_mails(here: Path) -> None:
    """All mails in one file, one right after the other: so the reference was counted."""
    (here / "in" / "all.txt").write_bytes(b"".join(content for _, content in mails()))


def count_words(directory: Path) -> dict[str, int]:
    """The same by a plain loop."""
    counts: Counter[str] = Counter()
    for path in directory.iterdir():
        counts.update(re.findall("[a-z]+", path.read_text("ascii").lower()))
    return counts


def check_mails(here: Path, complete: bool) -> None:
    golden = {word: int(count) for word, count in rows_of(ENRON / "reference_wordcount.csv.gz")}
    assert len(golden) == 17_369
    assert sum(golden.values()) == 749_402
    check_words(golden, here, complete)


def check_words(golden: dict[str, int], here: Path, complete: bool) -> None:
    """The changelog merged is the golden count. A count that appears twice was counted or written twice."""
    found = [(word, int(count)) for word, count in output(here / "out")]
    repeated = [row for row, times in Counter(found).items() if times > 1]
    compare_rows([], repeated, "counts of a word that appear twice")
    merged: dict[str, int] = {}
    for word, count in found:
        merged[word] = max(count, merged.get(word, 0))
    if complete:
        compare_rows(golden.items(), merged.items(), "words")
    else:
        assert 0 < sum(merged.values()) < sum(golden.values())
        compare_rows(
            [], [row for row in found if row[1] > golden.get(row[0], 0)], "counts that are too large"
        )


# --- anomalies ---

NAB = DATA / "nab"
SERIES = ("nyc_taxi", "ambient_temperature_system_failure", "ec2_cpu_utilization_5f5533")
TOLERANCE = 1e-9


def series_files(series: tuple[str, ...] = SERIES) -> list[Path]:
    return sorted(path for path in NAB.glob("data/*/*.csv.gz") if path.name.split(".")[0] in series)


def all_series() -> tuple[str, ...]:
    return tuple(path.name.split(".")[0] for path in NAB.glob("data/*/*.csv.gz"))


def prepare_anomalies(here: Path) -> None:
    for path in series_files():
        shutil.copy(path, here / "in")


def check_anomalies(here: Path, complete: bool) -> None:
    """Row by row, in the order of the rows' numbers; each row once."""
    found: dict[str, list[Row]] = {}
    for series, number, *row in sorted(output(here / "out"), key=lambda row: int(row[1])):
        found.setdefault(series, []).append(tuple(row))
        assert len(found[series]) == int(number), f"{series}: rows before {number} are missing or repeated"
    names = sorted(path.name.split(".")[0] for path in (here / "in").iterdir())
    for series in names:
        (path,) = NAB.glob(f"golden_windowedGaussian/*/{series}.csv.gz")
        golden, rows = rows_of(path), found.pop(series, [])
        if complete:
            assert len(rows) == len(golden), series
        else:
            assert len(rows) < len(golden), f"{series}: nothing is left to do"
        golden = golden[: len(rows)]
        compare_sequence([row[0] for row in golden], [row[0] for row in rows], f"times of {series}")
        for (_, value, score, _), (time, given, computed) in zip(golden, rows, strict=True):
            assert math.isclose(float(value), float(given), rel_tol=TOLERANCE), f"{series} at {time}"
            assert abs(float(score) - float(computed)) < TOLERANCE, f"{series} at {time}: {computed}"
    assert not found


# --- vwap ---

TAQ = DATA / "taq-vwap"
DAY = "2005-12-27 "


def prepare_vwap(here: Path) -> None:
    shutil.copy(TAQ / "TradesAndQuotes.csv.gz", here / "in")


def check_vwap(here: Path, complete: bool) -> None:
    golden = rows_of(TAQ / "reference_vwap_10s_slide1s.csv.gz")
    assert len(golden) == 41_543
    averages = [
        (ticker, end.removeprefix(DAY), *rest) for ticker, end, *rest in output(here / "out" / "vwap")
    ]
    compare(golden, averages, complete, "averages")
    found = list(output(here / "out" / "bargains"))
    compare(bargains(golden), [bargain(*row[:5]) for row in found], complete, "bargains")
    for ticker, at, vwap, price, size, index in found:
        gain = float(vwap) - float(price)
        wanted = int(size) * math.exp(gain) if gain > 0 else 0.0
        assert math.isclose(float(index), wanted, rel_tol=1e-12), f"{ticker} at {at}"
    if complete:
        check_published(found)


def bargain(ticker: str, at: str, vwap: str, price: str, size: str) -> Row:
    """A quote with its average, in numbers of digits that do not depend on who computed it."""
    return ticker, at.removeprefix(DAY), f"{float(vwap):.6f}", f"{float(price):.4f}", size


def bargains(averages: list[Row]) -> list[Row]:
    """Quotes and averages matched by a plain loop: the second that has just ended, or ends with the quote."""
    known = {(ticker, end): vwap for ticker, end, _, _, vwap in averages}
    made = []
    for row in rows_of(TAQ / "TradesAndQuotes.csv.gz"):
        ticker, at, kind, price, size = row[0], row[2], row[4], row[14], row[15]
        if kind != "Quote" or not price:
            continue
        second, _, fraction = at.partition(".")
        candidates = [second] if int(fraction) else [second, second_before(second)]
        vwap = next((known[ticker, end] for end in candidates if (ticker, end) in known), None)
        if vwap is not None:
            made.append(bargain(ticker, at, vwap, price, size))
    return made


def second_before(time: str) -> str:
    return f"{datetime.strptime(time, '%H:%M:%S') - timedelta(seconds=1):%H:%M:%S}"


def check_published(found: list[Row]) -> None:
    """The records in the documentation of the original sample are among the rows, to the last digits, as often."""
    lines = Counter((TAQ / "published_output.txt").read_text().splitlines())
    assert lines.total() == 4
    for line, times in lines.items():
        record = dict(re.findall(r'(\w+)="?([^",}]+)', line))
        wanted = [float(record[name]) for name in ("vwap", "askprice", "asksize", "index")]
        name = (record["ticker"], f"{DAY}{record['time']}")
        same = [row for row in found if row[:2] == name and nearly(wanted, map(float, row[2:]))]
        assert len(same) >= times, record


def nearly(wanted: Iterable[float], found: Iterable[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(wanted, found, strict=True))


# --- tmi ---

GEOLIFE = DATA / "geolife-sample"
BATCH, MODES, ROUNDS, BREAK_S = 10_000, ("still", "walking", "cycling", "driving"), 12, 120
PER_FILE, POSITIONS = 25_000, 120_000


def prepare_tmi(here: Path, positions: int | None = POSITIONS) -> None:
    """Several plain files: what is compressed must be read from its beginning for every step. The first positions, or all."""
    with gzip.open(GEOLIFE / "geolife_sample.txt.gz", "rt") as file:
        header, *lines = file.readlines()
    lines = lines[:positions]
    for begin in range(0, len(lines), PER_FILE):
        path = here / "in" / f"positions-{begin // PER_FILE:02}.csv"
        path.write_text("".join([header, *lines[begin : begin + PER_FILE]]))


@functools.cache
def modes_of_travel() -> tuple[tuple[int, str, float, int], ...]:
    """Clusters of every full batch, by plain loops."""
    rows = rows_of(GEOLIFE / "geolife_sample.txt.gz")
    found = []
    for number in range(len(rows) // BATCH):
        batch = rows[number * BATCH : (number + 1) * BATCH]
        for mode, (centre, count) in zip(MODES, clusters(list(speeds(batch))), strict=True):
            found.append((number + 1, mode, centre * 3.6, count))
    return tuple(found)


def speeds(rows: list[Row]) -> Iterator[float]:
    for (lat, lng, at, user), (lat_2, lng_2, at_2, user_2) in itertools.pairwise(rows):
        passed = (datetime.fromisoformat(at_2) - datetime.fromisoformat(at)).total_seconds()
        if user == user_2 and 0 < passed <= BREAK_S:
            north, north_2 = math.radians(float(lat)), math.radians(float(lat_2))
            east = (math.radians(float(lng_2)) - math.radians(float(lng))) * math.cos((north + north_2) / 2)
            yield 6_371_000 * math.hypot(north_2 - north, east) / passed


def clusters(values: list[float]) -> list[tuple[float, int]]:
    """Lloyd's algorithm from quantiles, one value after the other."""
    ordered, k = sorted(values), len(MODES)
    centres = []
    for number in range(k):
        place = (number + 0.5) / k * (len(ordered) - 1)
        low, share = int(place), place % 1
        centres.append(ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * share)
    members: list[list[float]] = []
    for _ in range(ROUNDS):
        borders = [(one + other) / 2 for one, other in itertools.pairwise(centres)]
        members = [[] for _ in range(k)]
        for value in ordered:
            members[bisect.bisect_left(borders, value)].append(value)
        centres = [sum(m) / len(m) if m else centre for m, centre in zip(members, centres, strict=True)]
    return [(centre, len(m)) for centre, m in zip(centres, members, strict=True)]


def check_tmi(here: Path, complete: bool) -> None:
    batches = sum(len(rows_of(path)) for path in (here / "in").iterdir()) // BATCH
    assert batches in (12, 21)
    golden = {
        (number, mode): (kmh, count) for number, mode, kmh, count in modes_of_travel() if number <= batches
    }
    found = [(int(number), mode, float(kmh), int(count)) for number, mode, kmh, count in output(here / "out")]
    compare(
        [(str(n), mode) for n, mode in golden],
        [(str(n), mode) for n, mode, _, _ in found],
        complete,
        "clusters",
    )
    for number, mode, kmh, count in found:
        centre, wanted = golden[number, mode]
        assert count == wanted, f"batch {number}, {mode}"
        assert math.isclose(kmh, centre, rel_tol=1e-6, abs_tol=1e-9), f"batch {number}, {mode}"


_APPS = (
    App("logwatch", "logwatch/logwatch.py", "watch", LOGWATCH, prepare_logwatch, check_logwatch, {"lines_per_step": 2_000}),
    App("mails", "wordcount/mail_wordcount.py", "words", ENRON, prepare_mails, check_mails, {"lines_per_step": 10_000}),
    App("anomalies", "anomalies/anomalies.py", "detectors", NAB, prepare_anomalies, check_anomalies, {"rows_per_step": 100}),
    App("vwap", "vwap/vwap.py", "market", TAQ, prepare_vwap, check_vwap, {"rows_per_step": 4_000}),
    App("tmi", "tmi/tmi.py", "travel", GEOLIFE, prepare_tmi, check_tmi, {"rows_per_step": 12_000}),
)  # fmt: skip
APPS = {app.name: app for app in _APPS}


def place(parent: Path, app: App) -> Path:
    """A directory with the application's input."""
    here = parent / app.name
    (here / "in").mkdir(parents=True)
    app.prepare(here)
    return here
