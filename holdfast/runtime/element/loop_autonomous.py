"""One thread per element outside of regions: best effort, no coordination.

A source's position is saved when its rows are handed out, so after a failure it goes on behind them: at most once.
What was handed out and cannot be proved processed is counted as lost, never silently dropped. Stateful operators
with `.checkpoint(every=…)` save their state on their own schedule and get it back after a failure, without what has
become stale since; without it they start afresh.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.checkpoint.blobs import BlobRef, keys_of, put_blobs
from holdfast.checkpoint.stored_names import entry_of, own_entries, own_key, own_record, positions_record
from holdfast.clock import Clock
from holdfast.compiler.plan import ElementPlan
from holdfast.errors import DamagedError, NoSpaceError, StepFailed
from holdfast.ids import INITIAL_EPOCH, Attempt, ConnectionId, ElementName, Epoch, OwnerToken
from holdfast.language.connectors import Slice
from holdfast.protocol.messages import Marker
from holdfast.runtime.element.aging import Aging
from holdfast.runtime.element.evaluation import Outcome, Work
from holdfast.runtime.element.keyed_run import KeyedRun
from holdfast.runtime.element.loop import IDLE_WAIT_S, ROWS_PER_STEP
from holdfast.runtime.element.operator_runs import Remembering, SinkRun, SourceRun
from holdfast.runtime.element.row_counting import count_later
from holdfast.runtime.element.worker import Worker
from holdfast.runtime.engines.engine import Engine, StepName
from holdfast.runtime.failures import check_engine, is_fatal, story_of
from holdfast.runtime.links.batch import Batch
from holdfast.runtime.links.connection import Connection, Interrupted, Signals
from holdfast.runtime.metrics import ElementMetrics
from holdfast.state.values import codec
from holdfast.store.base import Store

MAX_CONSECUTIVE_FAILURES = 5
SPACE_PROBE_S = 0.5


class AutonomousLoop:
    """The loop of one element outside of regions. `run` is the thread's body."""

    def __init__(
        self,
        plan: ElementPlan,
        worker: Worker,
        engine: Engine,
        store: Store | None,
        inputs: Mapping[ConnectionId, Connection],
        outputs: Mapping[ConnectionId, Connection],
        signals: Signals,
        clock: Clock,
        record_event: Callable[[str, Mapping[str, Any]], None],
        on_fatal: Callable[[BaseException], None],
        token: OwnerToken,
    ) -> None:
        self.plan = plan
        self.worker = worker
        self.metrics = ElementMetrics()
        self.finished = False
        self.failure: StepFailed | None = None
        self._engine = engine
        self._store = store
        self._inputs = inputs
        self._outputs = outputs
        self._signals = signals
        self._clock = clock
        self._record_event = record_event
        self._on_fatal = on_fatal
        self._stopping = False
        self._draining = False
        self._bounded = False
        self._run_number = Attempt(token)
        """Stands for the attempt: no other run gives the same names to what it stores."""
        self._step = 0
        self._failed_in_a_row = 0
        self._clean = True
        self._checkpoints: dict[str, int] = {}
        self._due: dict[str, float] = {}
        policies = {op.name: op.annotations.checkpoint_every_s for op in plan.operators}
        self._every = {
            name: every for name, every in policies.items() if every is not None and store is not None
        }
        kept = [run for run in worker.runs.values() if isinstance(run, KeyedRun) and run.name in self._every]
        self._aging = Aging(worker.plan, kept, clock)

    @property
    def name(self) -> ElementName:
        return self.plan.name

    def bound(self) -> None:
        """End when the bounded sources are dry and all inputs are closed."""
        self._bounded = True

    def stop_when_possible(self) -> None:
        """Read no more from sources; end when the inputs are closed and empty."""
        self._draining = True
        self._signals.notify()

    def stop(self) -> None:
        with self._signals.condition:
            self._stopping = True
            self._signals.condition.notify_all()
        self._engine.cancel(self.name)

    def run(self) -> None:
        """Thread body."""
        try:
            self._restore_everything()
            while not self._stopping and self.failure is None:
                work = self._gather()
                if work is not None:
                    self._attempt(work)
                elif self._is_over():
                    break
                else:
                    self._rest()
            self._save_positions(None)
            self._checkpoint_due(force=True)
        except Interrupted:
            pass
        except BaseException as error:
            self._on_fatal(error)
        finally:
            self.finished = True
            for connection in self._outputs.values():
                connection.close()
            self.worker.close()
            self._signals.notify()

    # --- steps --------------------------------------------------------------------------------------------------

    def _gather(self) -> Work | None:
        batches: dict[ConnectionId, list[Batch]] = {}
        with self._signals.condition:
            for id, connection in self._inputs.items():
                while isinstance(connection.head(), Marker):
                    connection.pop()  # markers end at the border of their region
                taken = connection.take_batches(ROWS_PER_STEP)
                if taken:
                    batches[id] = taken
        slices = {}
        if not self._draining:
            slices = {
                run.name: piece for run in self.worker.sources if (piece := run.next_slice()) is not None
            }
        return Work(slices, batches) if slices or batches else None

    def _attempt(self, work: Work) -> None:
        begun = self._clock.monotonic()
        self._step += 1
        self._save_positions(work)
        try:
            self.metrics.waiting = "step"
            epoch = int(INITIAL_EPOCH)
            self._emit(self.worker.step(work, StepName(self.name, self._run_number, self._step, epoch)))
        except Interrupted:
            raise
        except BaseException as error:
            self._step_failed(work, error)
            return
        finally:
            for batches in work.batches.values():
                for batch in batches:
                    batch.hold.let_go()
        self._failed_in_a_row = 0
        now = self._clock.monotonic()
        self.metrics.step_done(now, now - begun, work.rows, sum(s.bytes or 0 for s in work.slices.values()))
        count_later(self.worker, work, self.metrics, now)
        self._checkpoint_due()

    def _step_failed(self, work: Work, error: BaseException) -> None:
        if is_fatal(error) or self._stopping:
            raise error
        check_engine(self._engine.is_alive(), error)
        self._failed_in_a_row += 1
        self.metrics.failures += 1
        story = story_of(error)
        self._lost(self._rows_of(work), story)
        if self._failed_in_a_row > MAX_CONSECUTIVE_FAILURES:
            self.failure = StepFailed(
                f"element {self.name!r} outside of regions failed {self._failed_in_a_row} times in a row: {story}.",
                cure="Mend the cause and run again; it goes on behind the rows it had taken.",
            )
            return
        self._restore_stateful()

    def _emit(self, outcome: Outcome) -> None:
        self.metrics.counts = self.worker.counts
        for sink, rows in outcome.sink_rows.items():
            self.metrics.add_sink_rows(sink, rows)
        for stream, batch in outcome.batches.items():
            for connection in self.plan.outputs:
                if connection.stream == stream:
                    batch.hold.take()
                    self._outputs[connection.id].put_batch(batch, lambda: self._stopping)
            batch.hold.let_go()

    def _is_over(self) -> bool:
        inputs_over = all(c.closed and c.empty for c in self._inputs.values())
        sources_over = not self.worker.sources or self._draining or (self._bounded and self._sources_dry())
        return inputs_over and sources_over and (bool(self._inputs) or bool(self.worker.sources))

    def _sources_dry(self) -> bool:
        return all(run.dry for run in self.worker.sources)

    def _rest(self) -> None:
        if not self._clean:
            self._save_positions(None)
        self._checkpoint_due()
        self.metrics.waiting = "input"
        with self._signals.condition:
            if not self._stopping:
                self._signals.condition.wait(IDLE_WAIT_S)

    # --- positions ----------------------------------------------------------------------------------------------

    def _save_positions(self, work: Work | None) -> None:
        """Record where the sources are behind the slices of `work`, which is handed out and not known to be
        processed; None: everything handed out is processed."""
        self._clean = work is None
        if work is not None:
            self._aging.took_rows()
        if self._store is None or not (self.worker.sources or self._aging.is_needed):
            return
        positions = {str(run.name): run.source.snapshot() for run in self.worker.sources}
        in_flight = None
        if work is not None:
            slices = {str(name): [piece.rows, piece.detail] for name, piece in work.slices.items()}
            taken = sum(batch.rows for batches in work.batches.values() for batch in batches)
            in_flight = {"slices": slices, "batch_rows": taken}
        record = {
            "positions": positions,
            "in_flight": in_flight,
            "lost": self.metrics.lost_rows,
            "taken": self._aging.taken_s,
        }
        self._save_when_there_is_space(positions_record(self.name), codec.encode(record))

    def _save_when_there_is_space(self, name: str, data: bytes) -> None:
        """A full disk stops this element until there is space again; it neither loses rows nor ends the run."""
        assert self._store is not None
        waited = False
        while True:
            try:
                self._store.save_record(name, data)
                return
            except NoSpaceError as error:
                if self._stopping:
                    return  # what was handed out counts as lost: never too few
                if not waited:
                    self._record_event("element.paused", {"element": self.name, "reason": str(error)})
                waited = True
                self.metrics.waiting = "space in the store"
                time.sleep(SPACE_PROBE_S)

    def _restore_everything(self) -> None:
        raw = None if self._store is None else self._store.load_record(positions_record(self.name))
        record: dict[str, Any] = (
            {"positions": {}, "in_flight": None, "lost": 0} if raw is None else codec.decode(raw)
        )
        self.metrics.lost_rows = record["lost"]
        self._aging.taken_s = record.get("taken")
        if record["in_flight"] is not None:
            self._lost(self._rows_in_flight(record["in_flight"]), "the run ended in the middle of a step")
        for run in self.worker.sources:
            run.dry = False
            run.source.seek(record["positions"].get(str(run.name)))
        self._restore_stateful()

    def _rows_in_flight(self, in_flight: dict[str, Any]) -> int:
        """Rows of the step that was under way when the last run ended, counted from the source if need be."""
        rows = int(in_flight["batch_rows"])
        for run in self.worker.sources:
            found = in_flight["slices"].get(str(run.name))
            if found is not None:
                rows += run.source.count_rows(Slice(None, None, rows=found[0], detail=found[1])) or 0
        return rows

    def _rows_of(self, work: Work) -> int:
        rows = sum(batch.rows for batches in work.batches.values() for batch in batches)
        for run in self.worker.sources:
            piece = work.slices.get(run.name)
            rows += 0 if piece is None else run.source.count_rows(piece) or 0
        return rows

    def _lost(self, rows: int, reason: str) -> None:
        """Rows that were handed out and cannot be proved processed: counted, never silently dropped."""
        if rows:
            self.metrics.lost_rows += rows
            self._record_event("rows.lost", {"element": self.name, "rows": rows, "reason": reason})

    # --- own checkpoints ----------------------------------------------------------------------------------------

    def _stateful(self) -> list[Remembering]:
        return [run for run in self.worker.runs.values() if not isinstance(run, SourceRun | SinkRun)]

    def _restore_stateful(self) -> None:
        for run in self._stateful():
            raw = (
                None
                if self._store is None or run.name not in self._every
                else self._store.load_record(own_record(run.name))
            )
            part = None if raw is None else json.loads(raw)
            self._checkpoints[run.name] = 0 if part is None else part["number"]
            if isinstance(run, KeyedRun):
                run.tolerates_damage = True
                run.missed = self._aging.missed(run, part)
            self._restore(run, part)
            self._due[run.name] = self._clock.monotonic() + self._every.get(run.name, 0.0)
            if isinstance(run, KeyedRun):
                for why, rows in run.lost_groups:
                    self._lost(rows, why)
                self._tell_stale(run)
                if self._aging.restored(run, part):
                    self._due[run.name] = self._clock.monotonic()
        self._checkpoint_due()

    def _restore(self, run: Remembering, part: dict[str, Any] | None) -> None:
        try:
            run.restore(INITIAL_EPOCH, part, self._store)
        except DamagedError as error:
            assert self._store is not None
            anew = f"holdfast checkpoints reset-operator {self._store.url} {run.name}"
            raise DamagedError(
                error.message, cure=f"Restore it from a backup, or let the operator begin anew: `{anew}`."
            ) from error

    def _tell_stale(self, run: KeyedRun) -> None:
        """Rows that a restore removed from windows as too old: counted by the operator, and told."""
        if run.stale_rows:
            self.metrics.counts = self.worker.counts
            reason = f"about {sum(run.missed)} rows since its checkpoint were missed and would have pushed them out"
            told = {
                "element": self.name,
                "operator": run.name,
                "rows": run.stale_rows,
                "missed": list(run.missed),
            }
            self._record_event("rows.stale", {**told, "reason": reason})

    def _checkpoint_due(self, force: bool = False) -> None:
        """Save each operator whose own period has passed. State is taken between steps; writing it blocks this
        element only."""
        for run in self._stateful():
            every = self._every.get(run.name)
            if every is None or (not force and self._clock.monotonic() < self._due[run.name]):
                continue
            try:
                self._checkpoint(run)
            except NoSpaceError as error:  # the one before stays; the next is due after another period
                self._record_event("operator.checkpoint_failed", {"operator": run.name, "reason": str(error)})
            self._due[run.name] = self._clock.monotonic() + every

    def _checkpoint(self, run: Remembering) -> None:
        assert self._store is not None
        number = self._checkpoints[run.name] + 1
        pace = self._aging.measured(run) if isinstance(run, KeyedRun) else None
        part = run.part_of(Epoch(number), run.pin(Epoch(number)))
        entry = entry_of(None, run.name)
        key = own_key(number, self._clock.wall(), run.name)
        blobs = {f"{key}~{kind}": data for kind, data in part.pairs.items()}
        if part.blob is not None:
            blobs[key] = part.blob
        refs: dict[str, BlobRef] = put_blobs(self._store, entry, blobs)
        pairs = [refs[f"{key}~{kind}"] for kind in part.pairs]
        run.stored(Epoch(number), pairs)
        segments = [[[r.entry, r.key, r.size, r.crc] for r in partition] for partition in part.segments]
        record: dict[str, Any] = {
            "number": number,
            "blob": refs.get(key),
            "segments": segments,
            "form": part.form,
        }
        record |= {"pairs": [*part.older, *pairs]}
        if pace is not None:
            record["pace"] = pace
        self._store.save_record(own_record(run.name), json.dumps(record).encode())
        self._checkpoints[run.name] = number
        listed = [*refs.values(), *part.older]
        needed = {(ref["entry"], k) for ref in listed for k in keys_of(ref)}
        needed |= {(ref.entry, ref.key) for partition in part.segments for ref in partition}
        for place in own_entries(run.name):
            gone = [k for k in self._store.keys(place) if (place, k) not in needed]
            if gone:
                self._store.delete(place, gone)
        self._record_event("operator.checkpoint", {"operator": run.name, "number": number})
