"""Event time is declared once and travels: behind operators that drop rows, over connections, to the end of the input.

What comes out is compared with loops over rows, for several cuts into steps, and after kills.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import event_time_program as program
import pytest
from killed import killed_and_finished, lived, written

import holdfast as hf
from holdfast.errors import ConfigError, TopologyError
from holdfast.testing import MemorySink, run_local

FILE = Path(program.__file__)
Row = tuple[int, int, dt.datetime]


def in_time() -> list[tuple[Row, dt.datetime]]:
    """The rows that are not late for a sort, with the watermark at each."""
    mark = dt.datetime.min.replace(tzinfo=dt.UTC)
    found = []
    for row in program.rows():
        mark = max(mark, row[2] - dt.timedelta(seconds=program.DELAY))
        if row[2] >= mark:
            found.append((row, mark))
    return found


def counted(size: int) -> Counter[dt.datetime]:
    """Rows by the beginning of their window, without those that came after its end."""
    mark = dt.datetime.min.replace(tzinfo=dt.UTC)
    found: Counter[dt.datetime] = Counter()
    for _, _, at in program.rows():
        mark = max(mark, at - dt.timedelta(seconds=program.DELAY))
        start = at - dt.timedelta(seconds=(at - program.BEGIN).total_seconds() % size)
        if start + dt.timedelta(seconds=size) > mark:
            found[start] += 1
    return found


def expected() -> dict[str, list[tuple[Any, ...]]]:
    nested: Counter[dt.datetime] = Counter()
    for start, count in counted(20).items():
        nested[start - dt.timedelta(seconds=(start - program.BEGIN).total_seconds() % 60)] += count
    firsts: Counter[dt.datetime] = Counter()
    best: dict[dt.datetime, int] = {}
    for number, _, at in program.rows()[:7]:
        minute = at - dt.timedelta(seconds=(at - program.BEGIN).total_seconds() % 60)
        firsts[minute] += 1
        best[minute] = number
    ordered = sorted((row for row, _ in in_time()), key=lambda row: (row[2], row[0]))
    return {
        "dropped": sorted(firsts.items()),
        "best": sorted(best.items()),
        "nested": sorted(nested.items()),
        "sorted": [(row[0],) for row in ordered],
        "quiet": sorted(quiet()),
        "ordered": sorted(sessions()),
        "sessions": sorted(sessions()),
        "late": [(row[0], row[0] not in {kept[0] for kept, _ in in_time()}) for row in program.rows()],
    }


def sessions() -> list[tuple[int, int, dt.datetime]]:
    """(key, rows, end) of rows in time."""
    found = []
    for key in range(7):
        times = sorted(row[2] for row, _ in in_time() if row[1] == key)
        session: list[dt.datetime] = []
        for at in [*times, dt.datetime.max.replace(tzinfo=dt.UTC)]:
            if session and at - session[-1] >= dt.timedelta(seconds=program.GAP):
                found.append((key, len(session), session[-1] + dt.timedelta(seconds=program.GAP)))
                session = []
            session.append(at)
    return found


def quiet() -> list[tuple[int, int, dt.datetime]]:
    """What the keyed operator tells: timers are called before the first row at which the watermark has reached them."""
    seen: Counter[int] = Counter()
    until: dict[int, dt.datetime] = {}
    found = []
    mark = dt.datetime.min.replace(tzinfo=dt.UTC)
    for _, k, at in program.rows():
        mark = max(mark, at - dt.timedelta(seconds=program.DELAY))
        if k in until and until[k] <= mark:
            found.append((k, seen[k], until.pop(k)))
        seen[k] += 1
        until[k] = at + dt.timedelta(seconds=12)
        if until[k] <= mark:  # set for a time that is over: called at once
            found.append((k, seen[k], until.pop(k)))
    return [*found, *((k, seen[k], at) for k, at in until.items())]


def results(here: Path) -> dict[str, list[tuple[Any, ...]]]:
    columns = {
        "dropped": ("window_start", "n"),
        "best": ("window_start", "id"),
        "nested": ("window_start", "n"),
        "quiet": ("k", "seen", "at"),
        "ordered": ("k", "n", "ended"),
        "sessions": ("k", "n", "window_end"),
        "late": ("id", "late"),
    }
    found = {
        name: sorted(tuple(row[c] for c in chosen) for row in written(here, name))
        for name, chosen in columns.items()
    }
    ordered = sorted(written(here, "sorted"), key=lambda row: (row["at"], row["id"]))
    return {**found, "sorted": [(row["id"],) for row in ordered]}


@pytest.mark.sampled(per=["rows_per_step"])
@pytest.mark.parametrize("apart", ["together", "apart"])
@pytest.mark.parametrize("rows_per_step", [3, 13, 300])
@pytest.mark.fault("I01")
def test_what_time_decides_does_not_depend_on_steps_or_elements(
    rows_per_step: int, apart: str, tmp_path: Path
) -> None:
    program.main(str(rows_per_step), apart, str(tmp_path))
    assert results(tmp_path) == expected()


@pytest.mark.sampled
@pytest.mark.parametrize("apart", ["together", "apart"])
@pytest.mark.fault("I01", "P09")
def test_after_kills_it_is_the_same(apart: str, tmp_path: Path) -> None:
    kills = ["step.end=kill@9", "ckpt.op.put_done=kill@5", "sink.commit.applied=kill@2"]
    killed_and_finished(FILE, tmp_path, kills, "11", apart)
    assert results(tmp_path) == expected()


def test_a_kill_while_time_ends_does_not_keep_windows_open(tmp_path: Path) -> None:
    for hit in (27, 28, 29):  # 300 rows in steps of 11: the last steps, and the one without rows
        here = tmp_path / str(hit)
        lived(FILE, here, f"step.end=kill@{hit}", "11", "together")
        assert lived(FILE, here, "", "11", "together") == 0
        assert results(here) == expected(), f"killed at step {hit}"


# --- what is written, and what is refused ---


def numbers(topology: hf.Topology) -> hf.Stream:
    return topology.source(hf.Rows(program.rows(), program.SCHEMA), name="numbers")


class Tables:
    def process_batch(self, table: Any, port: int) -> Any:
        return table


Write = Callable[[hf.Stream], Any]


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda s: s.aggregate("k", window=hf.tumbling(60), n=hf.count()), "nobody said where it is"),
        (
            lambda s: s.aggregate("k", window=hf.tumbling(60, on="at"), n=hf.count()),
            "nobody said how far rows",
        ),
        (lambda s: s.sort("at"), "nobody said how far rows"),
        (lambda s: s.sort(), "nobody said where it is"),
        (lambda s: s.dedup("id", ttl=hf.ttl(60, on="at")), "nobody said how far rows"),
        (lambda s: s.join(s, "k", within=5, on="at"), "nobody said how far rows"),
        (lambda s: s.asof_join(s, "k"), "nobody said where it is"),
        (lambda s: s.event_time("k", delay=0).sort(), "'k', which is of type int64"),
        (lambda s: s.event_time("at", delay={"other": 5}).sort(), "no row of the stream comes from"),
        (
            lambda s: (
                s.map_arrow(lambda rows: rows, program.SCHEMA, name="m").event_time("at", delay=0).sort()
            ),
            r"declares event time.*map_arrow 'm' does not keep positions",
        ),
        (
            lambda s: s.event_time("at", delay=0).apply(Tables, program.SCHEMA, name="thru").sort(),
            r"was declared, but hosted 'thru' has process_batch.*again behind 'thru'",
        ),
    ],
)
def test_event_time_and_delay_must_be_said(write: Write, says: str, tmp_path: Path) -> None:
    topology = hf.Topology("t")
    write(numbers(topology)).sink(MemorySink("unused"), name="out")
    with pytest.raises(TopologyError, match=says):
        run_local(topology, store=f"file:{tmp_path}/store")


def test_closing_needs_an_end_of_the_input(tmp_path: Path) -> None:
    topology = hf.Topology("t")
    numbers(topology).sink(MemorySink("unused"), name="out")
    with pytest.raises(ConfigError, match="close=True needs an end"):
        run_local(topology, store=f"file:{tmp_path}/store", until=None, close=True)


def test_an_operator_may_have_a_delay_of_its_own(tmp_path: Path) -> None:
    """With a delay that is long enough nothing is late, whatever the stream declared."""
    topology = hf.Topology("t")
    stream = numbers(topology).event_time("at", delay=0)
    for name, window in {"own": hf.tumbling(60, delay=60), "declared": hf.tumbling(60)}.items():
        made = stream.aggregate([], window=window, n=hf.count(), name=name)
        made.sink(MemorySink(f"{tmp_path}/{name}"), name=f"{name}_out")
    run_local(topology, store=f"file:{tmp_path}/store", close=True)
    own, declared = (
        sum(row["n"] for row in MemorySink.rows(f"{tmp_path}/{name}")) for name in ("own", "declared")
    )
    assert own == len(program.rows())
    assert declared < own
