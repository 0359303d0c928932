"""One life of a trial, in the process that lives it: the program over its input, with taps on its sources, told what to do by its parent.

The parent writes a line of JSON at a time: {"allow": 0.4, "most": 0.5}, {"arm": "ckpt.op.put=eio"}. The end of the pipe is the parent's death.
What the life tells: `progress` all the time, `about.json` once it knows the program, `report-N.json` when it ends.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast import failpoints
from holdfast.compiler.compile import compile_graph
from holdfast.compiler.explain import guarantees
from holdfast.compiler.plan import Plan
from holdfast.compiler.traverse import sinks_behind
from holdfast.errors import ConfigError, HoldfastError
from holdfast.ids import OperatorName
from holdfast.language.graph import Graph, SinkSpec
from holdfast.language.operators.aggregates import AggregateSpec
from holdfast.language.topology import Topology
from holdfast.operators.kinds import kind_of
from holdfast.runtime.api import run_to_end
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.local import LocalEngine
from holdfast.runtime.job import Job
from holdfast.sinks.memory import MemorySink
from holdfast.sources.logs.preserved import Preserved
from holdfast.store.urls import open_store
from holdfast.testing.ordeal.elsewhere import (
    Input,
    is_recorded,
    live_source,
    rows_of,
    sinks_of,
    sources_of,
    trial_graph,
)
from holdfast.testing.ordeal.taps import Gate, Taps

RECORDED = "recorded-input"
FAILED = 1
"""Exit code of a life that ended by an error that is none of ours."""


@dataclass(frozen=True, slots=True)
class Life:
    """What a life is told before it begins. Plain data."""

    root: str
    """Of the trial."""
    run: str
    """Which run it belongs to: a directory beneath `root`."""
    number: int
    rows_per_slice: Mapping[str, int] = field(default_factory=dict)
    """By source. Empty: slices as the program has them."""
    totals: Mapping[str, int] | None = None
    """Rows of each source, as the first run found."""
    allowed: float = 1.0
    """Share of the input that may be given at any pace."""
    most: float = 1.0
    """Share that may be given at all: beyond `allowed` a slice every `beat_s`."""
    beat_s: float = 0.0
    pace_s: float = 0.0
    close: bool = False
    record_s: float = 20.0
    """So much of a live input is recorded, once."""
    period_s: float = 0.7

    @property
    def place(self) -> Path:
        return Path(self.root) / self.run

    @property
    def output(self) -> Path:
        return self.place / "out"

    @property
    def store(self) -> str:
        return f"file:{self.place / 'store'}"


def live(
    life: Life, control: int, graph_of: Callable[[], Graph], engine_of: Callable[[Graph], Engine]
) -> int:
    """Runs to the end of the input; returns the exit code. Whoever calls it is a process of its own that ends then."""
    life.place.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {"begun": time.time()}
    code = 0
    try:
        taps = Taps(life.place, life.totals, Gate(life.allowed, life.most, life.beat_s), life.pace_s)
        threading.Thread(target=_obey, args=(control, taps), name="ordeal-control", daemon=True).start()
        report |= _lived(life, taps, graph_of(), engine_of)
    except BaseException as error:
        said = error.message if isinstance(error, HoldfastError) else str(error)
        report |= {"error": type(error).__name__, "message": said, "cure": getattr(error, "cure", None)}
        code = error.exit_code if isinstance(error, HoldfastError) else FAILED
    _write(life.place / f"report-{life.number}.json", report)
    return code


def _lived(life: Life, taps: Taps, graph: Graph, engine_of: Callable[[Graph], Engine]) -> dict[str, Any]:
    engine = engine_of(graph)
    try:
        about = _about(life, graph, engine)
        inputs = {name: Input(**each) for name, each in about["inputs"].items()}
        trial = trial_graph(graph, life.output, inputs, life.period_s)
        for name, source in sources_of(trial).items():
            if name in life.rows_per_slice:
                source.cut_smaller(life.rows_per_slice[name])
            taps.put_on(str(name), source)
        engine.check_workers()
        job = Job(
            trial, engine, open_store(life.store), until="available", close=life.close, take_over=life.number > 0
        ).start()  # fmt: skip
    except BaseException:
        engine.stop()
        raise
    status = run_to_end(job).as_dict()
    _write_rows(life, graph)
    return {
        "lost_rows": status["lost_rows"],
        "given": taps.given,
        "slices": taps.slices,
        "epochs": {name: region["epoch"] for name, region in status["regions"].items()},
        "resets": sum(region["resets"] for region in status["regions"].values()),
    }


def _write_rows(life: Life, graph: Graph) -> None:
    """What the sinks show, a line of JSON per row, so that nobody else needs the program to compare it."""
    (life.place / "rows").mkdir(exist_ok=True)
    for name, sink in sinks_of(graph).items():
        lines = (json.dumps(dict(row), default=repr) for row in rows_of(str(name), sink, life.output))
        (life.place / "rows" / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _obey(control: int, taps: Taps) -> None:
    with os.fdopen(control, "r") as lines:
        for line in lines:
            told = json.loads(line)
            if "allow" in told:
                taps.gate = replace(taps.gate, allowed=told["allow"], most=told["most"])
            if "arm" in told:
                failpoints.arm(told["arm"])
    os._exit(FAILED)


# --- what the program is ----------------------------------------------------------------------------------------------


def _about(life: Life, graph: Graph, engine: Engine) -> dict[str, Any]:
    """Told by the first life of all, and read by the others: all have the same input."""
    path = Path(life.root) / "about.json"
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    check_graph(graph)
    plan = compile_graph(graph, engine.analyser(), logs=Path(life.root) / "unused")
    about = {
        "topology": graph.name,
        "regions": [str(region.name) for region in plan.regions],
        "sinks": {str(name): _about_sink(life, plan, graph, name) for name in sinks_of(graph)},
        "notes": notes_of(life, graph),
        "inputs": {
            str(name): asdict(_input_of(life, str(name), source))
            for name, source in sources_of(graph).items()
        },
    }
    _write(path, about)
    return about


def check_graph(graph: Graph) -> None:
    """ConfigError if the program cannot be tried at all."""
    if not sinks_of(graph):
        raise ConfigError("the program has no sink: nothing could be judged.", cure="Give it one.")


def _about_sink(life: Life, plan: Plan, graph: Graph, name: OperatorName) -> dict[str, Any]:
    promised = next(each for each in guarantees(plan) if each.sink == name)
    behind = sinks_behind(graph)
    before = [
        op for op in reversed(list(graph.operators.values())) if name in behind[op.name] and op.name != name
    ]
    region_before = any(name in behind[member] for region in plan.regions for member in region.members)
    return {
        "guarantee": promised.guarantee,
        "reason": promised.reason,
        "may_repeat": region_before,
        "has_state": any(kind_of(op).role in ("keyed", "hosted") for op in before),
        "recorded": is_recorded(str(name), sinks_of(graph)[name], life.output),
        "keys": [list(by) for op in before if (by := getattr(op.spec, "by", ()))],
        "running": any(isinstance(op.spec, AggregateSpec) and op.spec.emit == "changes" for op in before),
    }


def notes_of(life: Life, graph: Graph) -> list[str]:
    """What cannot be judged of the program, or is done for real, in sentences."""
    said = []
    for op in graph.operators.values():
        if isinstance(op.spec, SinkSpec) and (why := is_recorded(str(op.name), op.spec.sink, life.output)):
            said.append(
                f"sink {op.name}: {why}; its rows are recorded in its place, and only they are judged"
            )
        if op.kind in ("async", "async_map"):
            said.append(
                f"operator {op.name}: the service that it asks is really asked, again after each fault"
            )
        if op.annotations.may_lose is not None:
            said.append(f"operator {op.name}: its loss budget does not count in a trial")
    return said


def _input_of(life: Life, name: str, source: Any) -> Input:
    """What all runs read. A live source is recorded for a while; one whose log is there already is read from it."""
    inner = live_source(source)
    if inner is None:
        return Input(extent=source.extent())
    if isinstance(source, Preserved) and (stored := source.stored()) is not None and stored[2] > stored[1]:
        return Input(log=stored[0], start=stored[1], end=stored[2])
    return _recorded(life, name, inner)


def _recorded(life: Life, name: str, source: Any) -> Input:
    log = Path(life.root) / RECORDED / name
    kept = Preserved(source, log)
    topology = Topology("recording")
    topology.source(kept, name=name).sink(MemorySink(f"recording {name}"), name="seen")
    job = Job(topology.graph(), LocalEngine(1), None).start()
    try:
        job.await_termination(timeout=life.record_s)
    finally:
        job.stop()
        MemorySink.clear(f"recording {name}")
    stored = Preserved(source, log).stored()
    if stored is None or stored[2] == stored[1]:
        raise ConfigError(
            f"source {name!r} gave no row in {life.record_s:g} s, and both runs need the same rows.",
            cure="Send it something while the trial begins, or let it record for longer.",
        )
    return Input(log=stored[0], start=stored[1], end=stored[2])


def _write(path: Path, data: Any) -> None:
    """At once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps(data, default=str))
    os.replace(path.with_suffix(".new"), path)
