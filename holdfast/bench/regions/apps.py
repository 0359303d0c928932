"""The five applications: input of so many copies of their data, their topology, and what they wrote in a form that can be compared.

vwap, logwatch and the word counts are the programs in `examples/` over the data they are tested with; the signal application is made here.
"""

from __future__ import annotations

import csv
import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.bench.measure.examples import data, example
from holdfast.language.graph import Graph, RegionSettings
from holdfast.language.operators.aggregates import count
from holdfast.language.topology import Topology
from holdfast.sinks import FileSink
from holdfast.sources import Files

LINES_PER_FILE = 40_000
READ_MAX: int | None = None
"""Lines of the data in a copy; None: all."""
STEPS_PER_FILE = 5
"""Where an epoch comes after each file."""


@dataclass(frozen=True)
class RegionsApp:
    """`make(here, copies)` fills `here`/in and returns the number of rows; `build(here)` is the application with its region;
    `look(here)`: what it wrote, whatever the steps were. `operator_driven`: an epoch comes after each file."""

    name: str
    make: Callable[[Path, int], int]
    build: Callable[[str], Topology]
    look: Callable[[Path], Any]
    operator_driven: bool = False


class Reframed(Topology):
    """A topology with other settings of its region, or without a region."""

    def __init__(self, made: Topology, period_s: float | None, operator_driven: bool = False) -> None:
        self.name = made.name
        self._made = made
        self._period_s = period_s
        self._operator_driven = operator_driven

    def graph(self) -> Graph:
        graph = self._made.graph()
        changed = {
            name: replace(
                operator,
                annotations=replace(
                    operator.annotations, consistent=self._settings(operator.annotations.consistent)
                ),
            )
            for name, operator in graph.operators.items()
        }
        return replace(graph, operators=changed)

    def _settings(self, settings: RegionSettings | None) -> RegionSettings | None:
        if settings is None or self._period_s is None:
            return None
        if self._operator_driven:
            return replace(settings, trigger="operator")
        return replace(settings, period_s=self._period_s)


# --- what was written -----------------------------------------------------------------------------------------------------


def same_lines(here: Path) -> dict[str, tuple[int, int]]:
    """Rows of every directory of files, in any order: how many, and what their checksums add up to."""
    found = {}
    for directory in sorted({path.parent for path in (here / "out").rglob("part-*")}):
        lines = [line for path in directory.glob("part-*.csv") for line in path.read_bytes().splitlines()[1:]]
        found[directory.name] = (len(lines), sum(map(zlib.crc32, lines)))
    return found


def same_counts(here: Path) -> tuple[int, int]:
    """Words, and what their counts add up to: which counts are told between depends on the steps."""
    counts: dict[str, int] = {}
    for path in (here / "out").glob("part-*.csv"):
        with path.open(newline="") as file:
            for word, times in list(csv.reader(file))[1:]:
                counts[word] = max(counts.get(word, 0), int(times))
    return len(counts), sum(counts.values())


# --- inputs ---------------------------------------------------------------------------------------------------------------


def _write(directory: Path, lines: Iterator[bytes], per_file: int = LINES_PER_FILE) -> int:
    """Lines in files of equal size."""
    directory.mkdir(parents=True)
    kept: list[bytes] = []
    number = rows = 0

    def put() -> None:
        (directory / f"part-{number:05}.txt").write_bytes(b"".join(kept))

    for line in lines:
        kept.append(line)
        rows += 1
        if len(kept) == per_file:
            put()
            kept, number = [], number + 1
    if kept:
        put()
    return rows


def make_vwap(here: Path, copies: int) -> int:
    """Every line as often, of another ticker each time: time goes on as in the original."""
    with gzip.open(data("taq-vwap") / "TradesAndQuotes.csv.gz") as file:
        lines = [line for line in file if not line.startswith(b"#")][:READ_MAX]
    made = (b"%d" % copy + line for line in lines for copy in range(copies))
    return _write(here / "in", made)


def make_logwatch(here: Path, copies: int) -> int:
    with gzip.open(data("logwatch") / "messages.gz") as file:
        lines = file.readlines()[:READ_MAX]
    return _write(here / "in", (line for _ in range(copies) for line in lines))


def _mail_lines() -> list[bytes]:
    with tarfile.open(data("enron-mail") / "mails.tar.gz") as archive:
        members = sorted((m for m in archive.getmembers() if m.isfile()), key=lambda member: member.name)
        whole = b"\n".join(file.read() for m in members if (file := archive.extractfile(m)) is not None)
    return [line + b"\n" for line in whole.splitlines()[:READ_MAX]]


def make_mails(here: Path, copies: int) -> int:
    """Files of several steps: an epoch comes after each file."""
    lines = _mail_lines()
    return _write(
        here / "in", (line for _ in range(copies) for line in lines), STEPS_PER_FILE * LINES_PER_FILE
    )


SOURCES = 5


def make_five(here: Path, copies: int) -> int:
    """Each source has a fifth of the lines."""
    lines = _mail_lines()
    return sum(
        _write(here / "in" / f"source-{n}", (line for _ in range(copies) for line in lines[n::SOURCES]))
        for n in range(SOURCES)
    )


CHANNELS, SAMPLES, BLOCKS_PER_FILE = 8, 4096, 200
SIGNAL = pa.schema([("channel", pa.int32()), ("block", pa.int64()), ("samples", pa.binary())])
SPECTRUM = "channel int, block long, bin int, power double"


def make_signal(here: Path, copies: int) -> int:
    """Blocks of samples of some channels: a tone of each channel in noise."""
    (here / "in").mkdir(parents=True)
    chance = np.random.default_rng(3)
    at = np.arange(SAMPLES)
    block = 0
    for number in range(10 * copies):
        rows = []
        for _ in range(BLOCKS_PER_FILE):
            channel = block % CHANNELS
            tone = np.sin(2 * np.pi * (channel + 1) * 37 * at / SAMPLES)
            noisy = (tone + chance.normal(0, 1, SAMPLES)).astype(np.float32)
            rows.append({"channel": channel, "block": block, "samples": noisy.tobytes()})
            block += 1
        pq.write_table(pa.Table.from_pylist(rows, schema=SIGNAL), here / "in" / f"blocks-{number:05}.parquet")
    return block


def strongest(table: pa.Table) -> pa.Table:
    """Of each block where its spectrum is strongest, and how strong: the whole work of this application."""
    samples = [np.frombuffer(one, dtype=np.float32) for one in table["samples"].to_pylist()]
    stacked = np.stack(samples) if samples else np.zeros((0, SAMPLES), dtype=np.float32)
    power = np.zeros((len(stacked), SAMPLES // 2 + 1))
    for shift in range(0, SAMPLES, SAMPLES // 16):  # averaged over shifted windows
        turned = np.roll(stacked, shift, axis=1) * np.hanning(SAMPLES)
        power += np.abs(np.fft.rfft(turned, axis=1)) ** 2
    bins = power.argmax(axis=1) if len(power) else np.zeros(0, dtype=int)
    best = power[np.arange(len(power)), bins] if len(power) else np.zeros(0)
    return pa.table(
        {
            "channel": table["channel"],
            "block": table["block"],
            "bin": pa.array(bins, pa.int32()),
            "power": pa.array(np.round(best, 3)),
        }
    )


# --- topologies -----------------------------------------------------------------------------------------------------------


def build_five(here: str) -> Topology:
    """The word count of `examples/`, reading five directories."""
    made = Topology("wordcount_fs")
    streams = []
    for number in range(SOURCES):
        files = Files(f"{here}/in/source-{number}", "text", max_rows_per_step=LINES_PER_FILE // SOURCES)
        streams.append(made.source(files, name=f"mails_{number}").consistent("words"))
    words = (
        streams[0]
        .union(*streams[1:])
        .select("explode(regexp_extract_all(lower(value), '([a-z]+)', 1)) as word")
    )
    counts = words.aggregate("word", count=count(), name="counts")
    counts.sink(FileSink(f"{here}/out", "csv"), name="out")
    return made


def build_signal(here: str) -> Topology:
    """Spectra in tasks, then what each channel heard."""
    made = Topology("signal")
    files = Files(f"{here}/in", "parquet", schema=SIGNAL, max_files_per_step=1)
    blocks = made.source(files, name="blocks").consistent("signal")
    found = blocks.map_arrow(strongest, SPECTRUM, name="spectra")
    found.sink(FileSink(f"{here}/out/spectra", "csv"), name="spectra_out")
    heard = found.aggregate(["channel", "bin"], blocks=count(), name="heard")
    heard.filter("blocks % 100 = 0").sink(FileSink(f"{here}/out/heard", "csv"), name="heard_out")
    return made


def same_spectra(here: Path) -> Any:
    """Which counts are told depends on the steps; spectra do not."""
    return same_lines(here).get("spectra")


def _example(name: str, **options: Any) -> Callable[[str], Topology]:
    def build(here: str) -> Topology:
        made: Topology = example(name).build(here, **options)
        return made

    return build


APPS = {
    app.name: app
    for app in (
        RegionsApp("vwap", make_vwap, _example("vwap/vwap", rows_per_step=LINES_PER_FILE), same_lines),
        RegionsApp(
            "logwatch",
            make_logwatch,
            _example("logwatch/logwatch", lines_per_step=LINES_PER_FILE),
            same_lines,
        ),
        RegionsApp(
            "wordcount-ds",
            make_mails,
            _example("wordcount/mail_wordcount", lines_per_step=LINES_PER_FILE),
            same_counts,
            operator_driven=True,
        ),
        RegionsApp("wordcount-fs", make_five, build_five, same_counts),
        RegionsApp("signal", make_signal, build_signal, same_spectra),
    )
}
