"""What eventual checkpoints cannot do is refused, with a cure; what changed between runs too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import eventual_program
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.compiler.analyse import ArrowAnalyser
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import guarantees
from holdfast.errors import HoldfastError, MismatchError, TopologyError
from holdfast.language.stream import Stream
from holdfast.testing import MemorySink, Rows, run_local

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WINDOW = hf.tumbling(rows=10)
FORM = hf.eventual()


class Once(Rows):
    """Rows that cannot be had again."""

    replayable = False


def rows_of(made: hf.Topology, name: str = "rows", kind: type[Rows] = Rows) -> Stream:
    return made.source(kind([], SCHEMA), name=name)


def counted(rows: Stream, **more: object) -> Stream:
    return rows.aggregate("k", window=more.pop("window", WINDOW), n=hf.count(), name="counted", **more)  # type: ignore[arg-type]


def alone(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made)).checkpoint(form=FORM).sink(log, name="log")


def in_region(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made).consistent("r")).checkpoint(form=FORM).sink(log, name="log")


def running(made: hf.Topology, log: hf.LogSink) -> None:
    rows_of(made).aggregate("k", n=hf.count(), name="counted").checkpoint(form=FORM).sink(log, name="log")


def into_memory(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made)).checkpoint(form=FORM).sink(MemorySink("eventual"), name="memory")


def two_readers(made: hf.Topology, log: hf.LogSink) -> None:
    found = counted(rows_of(made)).checkpoint(form=FORM)
    found.sink(log, name="log")
    found.sink(MemorySink("eventual"), name="memory")


def from_once(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made, kind=Once)).checkpoint(form=FORM).sink(log, name="log")


def from_two(made: hf.Topology, log: hf.LogSink) -> None:
    both = rows_of(made).union(rows_of(made, "others"))
    window = hf.tumbling("1 minute", on="at", delay=0)
    counted(both, window=window).checkpoint(form=FORM).sink(log, name="log")


def beside_others(made: hf.Topology, log: hf.LogSink) -> None:
    rows = rows_of(made)
    counted(rows).checkpoint(form=FORM).sink(log, name="log")
    rows.sink(MemorySink("eventual"), name="memory")


def behind_state(made: hf.Topology, log: hf.LogSink) -> None:
    rows = rows_of(made).sort(on="at", delay=0, name="sorted")
    counted(rows).checkpoint(form=FORM).sink(log, name="log")


def behind_a_border(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made).isolate()).checkpoint(form=FORM).sink(log, name="log")


def with_late_rows(made: hf.Topology, log: hf.LogSink) -> None:
    window = hf.tumbling("1 minute", on="at", delay=0)
    counted(rows_of(made), window=window, late=True).checkpoint(form=FORM).sink(log, name="log")


def twice_checkpointed(made: hf.Topology, log: hf.LogSink) -> None:
    counted(rows_of(made)).checkpoint(every=5, form=FORM).sink(log, name="log")


def met(one: Stream, other: Stream, log: hf.LogSink, **how: Any) -> None:
    one.join(other, by="k", name="met", **how).checkpoint(form=FORM).sink(log, name="log")


def joining(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made), rows_of(made, "others"), log, keep=hf.latest(rows=10))


def joining_per_key(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made), rows_of(made, "others"), log, keep=hf.latest(rows=10, per_key=True))


def joining_in_time(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made), rows_of(made, "others"), log, keep=hf.latest(rows=10), on="at", delay=0)


def joining_by_an_interval(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made), rows_of(made, "others"), log, within=10, on="at", delay=0)


def joining_itself(made: hf.Topology, log: hf.LogSink) -> None:
    rows = rows_of(made)
    met(rows, rows, log, keep=hf.latest(rows=10))


def joining_what_cannot_be_had_again(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made), rows_of(made, "others", Once), log, keep=hf.latest(rows=10))


def joining_in_a_region(made: hf.Topology, log: hf.LogSink) -> None:
    met(rows_of(made).consistent("r"), rows_of(made, "others"), log, keep=hf.latest(rows=10))


def by_a_name_of_records(made: hf.Topology, log: hf.LogSink) -> None:
    rows = rows_of(made).rename(k="kind")
    found = rows.aggregate("kind", window=WINDOW, n=hf.count(), name="counted")
    found.checkpoint(form=FORM).sink(log, name="log")


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (joining_per_key, "keeps rows of each key"),
        (joining_in_time, "joins by time"),
        (joining_by_an_interval, "joins by time"),
        (joining_itself, "come from one source"),
        (joining_what_cannot_be_had_again, "'others', which cannot give a row again"),
        (joining_in_a_region, "belongs to region 'r'"),
        (by_a_name_of_records, "its key 'kind' has the name of a column of the records"),
        (in_region, "belongs to region 'r'"),
        (running, "neither an aggregate over windows nor a join"),
        (into_memory, "is read by 'memory'"),
        (two_readers, "is read by 'log', 'memory'"),
        (from_once, "cannot give a row again"),
        (from_two, "from 2 sources"),
        (beside_others, "shares its source with 'memory'"),
        (behind_state, "shares its source with 'sorted'"),
        (behind_a_border, "from another element"),
        (with_late_rows, "late rows"),
        (twice_checkpointed, "checkpoints of its own"),
    ],
)
def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, build: Callable[[hf.Topology, hf.LogSink], None], why: str
) -> None:
    made = hf.Topology("refused")
    build(made, hf.LogSink(tmp_path / "log"))
    with pytest.raises(TopologyError, match=why) as raised:
        compile_graph(made.graph(), ArrowAnalyser())
    assert raised.value.cure


@pytest.mark.parametrize("build", [alone, joining])
def test_it_is_explained_as_exactly_once(
    tmp_path: Path, build: Callable[[hf.Topology, hf.LogSink], None]
) -> None:
    made = hf.Topology("alone")
    build(made, hf.LogSink(tmp_path / "log"))
    (found,) = guarantees(compile_graph(made.graph(), ArrowAnalyser()))
    assert (found.guarantee, found.visible) == ("exactly-once", "at once")


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"every": "soon"}, {"slow_after": -1}, {"shots": 0}, {"shots": 1.5}], ids=str
)
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(HoldfastError):
        hf.eventual(**wrong)  # type: ignore[arg-type]


def test_another_operator_does_not_go_on_from_the_records(tmp_path: Path) -> None:
    eventual_program.fill(tmp_path, 100)
    run_local(eventual_program.topology(tmp_path, "rows"))
    before = eventual_program.results(tmp_path)
    changed = hf.Topology("windows")
    rows = changed.source(hf.LogSource(tmp_path / "input"), name="input")
    found = rows.aggregate(
        "k", window=hf.tumbling(rows=5), n=hf.count(), total=hf.sum("v"), top=hf.max("v"), name="windows"
    )
    found.checkpoint(form=FORM).sink(hf.LogSink(tmp_path / "output"), name="output")
    with pytest.raises(MismatchError, match="has records of"):
        run_local(changed)
    assert eventual_program.results(tmp_path) == before


def test_a_join_with_other_windows_does_not_go_on_from_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventual_program.fill(tmp_path, 100)
    run_local(eventual_program.topology(tmp_path, "narrow"))
    before = eventual_program.results(tmp_path)
    monkeypatch.setitem(eventual_program.JOINS, "narrow", (50, 9))
    with pytest.raises(MismatchError, match=r"left keeps 40 rows.*left keeps 50 rows"):
        run_local(eventual_program.topology(tmp_path, "narrow"))
    assert eventual_program.results(tmp_path) == before


def test_a_log_with_rows_and_without_records_is_refused(tmp_path: Path) -> None:
    eventual_program.fill(tmp_path, 100)
    made = hf.Topology("windows")
    rows = made.source(hf.LogSource(tmp_path / "input"), name="input")
    found = rows.aggregate(
        "k", window=hf.tumbling(rows=7), n=hf.count(), total=hf.sum("v"), top=hf.max("v"), name="windows"
    )
    found.sink(hf.LogSink(tmp_path / "output"), name="output")
    run_local(made)
    before = eventual_program.results(tmp_path)
    with pytest.raises(MismatchError, match="nothing that tells"):
        run_local(eventual_program.topology(tmp_path, "rows"))
    assert eventual_program.results(tmp_path) == before
