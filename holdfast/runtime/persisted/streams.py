"""The persisted streams of a run: what the store remembers of them, when they end, and who holds their logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.checkpoint.blobs import get_blob
from holdfast.compiler.persisted.in_plan import Persisted, persisted_in
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.errors import HoldfastError, MismatchError
from holdfast.ids import ElementName, OperatorName, RegionName
from holdfast.language.graph import SinkSpec, SourceSpec
from holdfast.log.log import Log
from holdfast.log.look.standing import holders_of, standing_of
from holdfast.log.machines.partition_state import rows_in
from holdfast.runtime.element.life import OutsideLife
from holdfast.runtime.element.loop import ElementLoop
from holdfast.runtime.persisted.connectors import PersistSink, SharedLog
from holdfast.runtime.persisted.logs_in_use import LogsInUse
from holdfast.runtime.persisted.outage.shared import OutageLog
from holdfast.runtime.region.region import Region
from holdfast.runtime.source_positions import KnownPosition
from holdfast.runtime.telling.events import ElementGaveUp, RunEvent
from holdfast.state.values import codec
from holdfast.store.base import Store

RECORD = "persisted"


class PersistedStreams:
    """Made with the plan. `check` comes before anything is changed, `remember` when all fits."""

    def __init__(self, plan: Plan, store: Store | None) -> None:
        self._store = store
        self.found = persisted_in(plan)
        self._in_use = LogsInUse(plan)
        self._sources = {
            op.name: op.spec.source for op in plan.graph.operators.values() if isinstance(op.spec, SourceSpec)
        }
        self._loops: Mapping[ElementName, ElementLoop] = {}
        self._given_up: set[ElementName] = set()
        self._element_of = {op.name: element.name for element in plan.elements for op in element.operators}

    def check(self) -> None:
        """MismatchError if the program has no use any more for rows that wait in the log of a stream."""
        now = {str(each.name): _shared(each).path for each in self.found}
        still = {str(each.name) for each in self.found if each.sink.only_outages}
        for name in sorted(self._for_outages() - still):
            raise MismatchError(
                f"the stream {name!r} was persisted for outages only: rows of it that were in memory are told by what its reader knows of the sources.",
                cure=f'Write .persist("{name}", when="outage") as it was, or begin with a new store.',
            )
        for name, path in self._known().items():
            left = 0 if path == now.get(name) else unread(path, name)
            if left:
                where = "goes through another log now" if name in now else "is not persisted any more"
                raise MismatchError(
                    f"the stream {name!r} {where}, and {left} rows in the log {path} are still held: nobody has read them, or epochs that are"
                    " kept would read them again.",
                    cure=f'Run it once more with .persist("{name}") as it was; with a new store the stream may go another way.',
                )

    def noted(self) -> dict[OperatorName, KnownPosition]:
        """Sources outside of regions, in the run before, whose place the last rows of a log tell better than the store does."""
        found: dict[OperatorName, KnownPosition] = {}
        for each in self.found:
            assert isinstance(each.sink, PersistSink)
            if each.sink.only_outages:
                continue  # that takes what the reader knows: see `begin_readers`
            found |= {
                name: KnownPosition(state, self._sources[name].describe())
                for name, state in each.sink.noted_sources().items()
                if name in self._sources
            }
        return found

    def begin_readers(
        self, regions: Mapping[RegionName, Region], alone: Mapping[OperatorName, KnownPosition]
    ) -> None:
        """Streams that are persisted for outages learn where their readers begin: what those had not is made again."""
        for each in self.found:
            shared = _shared(each)
            if isinstance(shared, OutageLog):
                manifest = None if each.reading is None else regions[each.reading].manifest
                part = None if manifest is None else manifest.operators().get(each.name)
                at = alone.get(each.name)
                known = None if at is None else at.state
                if part is not None and part.blob is not None and self._store is not None:
                    known = codec.decode(get_blob(self._store, part.blob))
                shared.begin_with(known)

    def remember(self) -> None:
        if self._store is None:
            return
        paths = {
            str(each.name): {"path": each_path(each), "when": "outage"}
            if each.sink.only_outages
            else each_path(each)
            for each in self.found
        }
        data = json.dumps(paths, sort_keys=True).encode()
        if (self._store.load_record(RECORD) or b"{}") != data:
            self._store.save_record(RECORD, data)

    def _record(self) -> dict[str, Any]:
        raw = None if self._store is None else self._store.load_record(RECORD)
        found: dict[str, Any] = json.loads(raw or b"{}")
        return found

    def _for_outages(self) -> set[str]:
        return {name for name, told in self._record().items() if isinstance(told, dict)}

    def _known(self) -> dict[str, Path]:
        """Of the run before: the stream, and where its log was."""
        logs = None if self._store is None else self._store.logs
        found = {}
        for name, told in self._record().items():
            path = told["path"] if isinstance(told, dict) else told
            place = Path(path) if path is not None else None if logs is None else logs / name
            if place is not None:
                found[name] = place
        return found

    def connect(self, loops: Mapping[ElementName, ElementLoop], regions: Mapping[RegionName, Region]) -> None:
        """Let each source know whether more comes to its log."""
        self._loops = loops
        for each in self.found:
            loop = loops[self._element_of[each.into]]
            region = None if each.writing is None else regions[each.writing]
            _shared(each).is_over = partial(_is_over, loop, region)

    def on_event(self, event: RunEvent) -> None:
        """An element gave up: what only leads to it is not read from logs any more. There it waits for the next run."""
        if isinstance(event, ElementGaveUp):
            self._given_up.add(ElementName(event.element))
            for each in self.found:
                loop = self._loops[self._element_of[each.name]]
                if isinstance(loop.life, OutsideLife) and self._is_useless(loop.plan):
                    loop.life.stop_when_possible()

    def _is_useless(self, element: ElementPlan) -> bool:
        """Whether all that it makes goes to elements that gave up."""
        if element.name in self._given_up:
            return True
        has_sink = any(isinstance(op.spec, SinkSpec) for op in element.operators)
        targets = [self._loops[c.target].plan for c in element.outputs]
        return bool(targets) and not has_sink and all(self._is_useless(target) for target in targets)

    def status(self) -> dict[str, Any]:
        """For people: how many rows wait in each log of the run, how many it holds, and for whom."""
        found = self._in_use.status()
        for each in self.found:
            shared = _shared(each)
            more = shared.told() if isinstance(shared, OutageLog) else {}
            found[str(each.name)] = {**_standing(shared, str(each.name)), **more}
        return found


def _is_over(loop: ElementLoop, region: Region | None) -> bool:
    """A parked producer makes nothing before somebody resumes it: what comes then is for the next run."""
    is_parked = (
        region.parked if region is not None else isinstance(loop.life, OutsideLife) and loop.life.is_parked
    )
    return loop.finished or is_parked


def _shared(each: Persisted) -> SharedLog:
    assert isinstance(each.sink, PersistSink)
    return each.sink.shared


def each_path(each: Persisted) -> str | None:
    """Where its log is, if the program says so; in the store else."""
    return _shared(each).spec.path


def unread(path: Path, consumer: str) -> int:
    """Rows of a log that a consumer has not behind it; all, if it never came."""
    log = Log(path)
    if not log.exists:
        return 0
    bounds = log.bounds()
    at = {each.name: each.positions.get(0, 0) for each in log.consumers()}.get(consumer, bounds.low)
    return rows_in(max(at, bounds.low), bounds.end, bounds.withdrawn)


def _standing(shared: SharedLog, consumer: str) -> dict[str, Any]:
    assert shared.path is not None
    try:
        log = shared.log or Log(shared.path)
        if not log.exists:
            return {"log": str(shared.path), "rows": 0, "waiting": 0, "held_by": {}}
        bounds = log.bounds()
        at = None if shared.source is None else shared.source.stands_at
        return standing_of(log, [bounds], [at or (0, holders_of(log, [bounds]).get(consumer, 0))])
    except HoldfastError as error:
        return {"log": str(shared.path), "problem": str(error)}
