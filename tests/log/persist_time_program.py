"""Event time that rows alone do not tell, through a log: `python persist_time_program.py SHAPE DIRECTORY`.

SHAPE says what is before the log: r a region, s an element without state outside of regions, b one that is best effort, u two sources in
an element without state, q two in a region, e an aggregate with eventual checkpoints; and what is behind it: r a region, b best effort, n: as r, but there
is no log. With a third letter what is behind it has no epochs but the last. The last rows are all left out before the log: only time tells that windows are complete."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf
from holdfast.language.graph import Spec
from holdfast.language.run import RunStatus
from holdfast.language.stream import Stream, attach
from holdfast.operators.kind import OperatorOf, Schemas, register
from holdfast.operators.stateless import Frames, StatelessKind
from holdfast.testing import run_local

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
ROWS, LAST, DELAY_S = 400, 330, 30
EVENTS = [(BEGIN + timedelta(seconds=n + (n * 7) % 50), n % 3, n) for n in range(ROWS)]
SCHEMA = "at timestamp, k long, n long"


@dataclass(frozen=True, slots=True)
class FewSpec(Spec):
    """One row in three passes, and of the last none."""


@register
class FewKind(StatelessKind[FewSpec]):
    """A filter that needs no Spark."""

    spec = FewSpec
    keeps_positions = True
    expressions = False

    def schemas(self, op: OperatorOf[FewSpec], inputs: Schemas) -> list[pa.Schema]:
        return [inputs[0]]

    def frames(self, op: OperatorOf[FewSpec], rows: Any, stamped: bool, spark: Frames) -> list[Any]:
        raise NotImplementedError

    def tables(self, op: OperatorOf[FewSpec], rows: pa.Table) -> list[pa.Table]:
        n = rows.column("n")
        passes = pc.and_(pc.equal(pc.bit_wise_and(n, pa.scalar(3)), 1), pc.less(n, LAST))
        return [rows.filter(passes)]


class Same:
    def process(self, row: Any, port: int) -> Any:
        return {"at": row.at, "k": row.k, "n": row.n}


def few(stream: Stream, name: str) -> Stream:
    return attach(FewSpec(), (stream,), name)


def made(shape: str, here: Path) -> hf.Topology:
    topology = hf.Topology("timed")
    events = topology.source(hf.Rows(EVENTS, SCHEMA, rows_per_step=7), name="events")
    if shape[0] in "rq" or shape[1] == "n":
        events = events.consistent("first", period=0.02)
    if shape[0] in "uq":  # the other source is far ahead and soon over: only a clock that is kept knows of it
        ahead = [(BEGIN + timedelta(seconds=5000 + n), n % 3, n) for n in range(60)]
        more = topology.source(hf.Rows(ahead, SCHEMA, rows_per_step=11), name="more")
        events = events.union(
            more if shape[0] == "u" and shape[1] != "n" else more.consistent("first", period=0.02)
        )
    timed = events.event_time("at", delay=DELAY_S)
    if shape[0] == "e":
        panes = timed.aggregate("k", window=hf.tumbling(10), rows=hf.count(), name="panes")
        chosen = panes if shape[1] == "n" else panes.checkpoint(form=hf.eventual(every=0.01, slow_after=0.01))
        how: dict[str, Any] = {"rows": hf.sum("rows")}
    else:
        chosen, how = few(timed, "few"), {"rows": hf.count(), "n": hf.sum("n")}
    if shape[0] == "b":
        chosen = chosen.apply(Same, SCHEMA, name="same")
    stream = chosen if shape[1] == "n" else chosen.persist("middle")
    if shape[1] == "r":
        stream = stream.consistent("second", period=0.02 if len(shape) == 2 else 3600)
    elif shape[1] == "b":
        stream = stream.autonomous().isolate()
    window = hf.tumbling(50 if shape[0] == "e" else 10)
    windows = stream.aggregate("k", window=window, late=True, name="windows", **how)
    windows.sink(hf.LogSink(here / "out"), name="out")
    windows.late.sink(hf.LogSink(here / "late"), name="late")
    return topology


def run(shape: str, here: Path, **options: Any) -> RunStatus:
    return run_local(made(shape, here), store=f"file:{here}/store", **options)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]))
