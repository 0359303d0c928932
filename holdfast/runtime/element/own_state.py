"""Checkpoints of operators outside of regions: each stores its state on its own schedule and gets it back by itself.

An operator that cannot read its checkpoint begins anew; what that costs is counted, and nobody else pays for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.blobs import BlobRef, keys_of, put_blobs
from holdfast.checkpoint.change.reset_operator import own_record
from holdfast.checkpoint.retention import entry_of
from holdfast.clock import Clock
from holdfast.errors import DamagedError, NoSpaceError
from holdfast.ids import INITIAL_EPOCH, Epoch, OperatorName, RegionName
from holdfast.protocol.accounts import Covered
from holdfast.runtime.element.aging import Aging
from holdfast.runtime.element.keyed_run import KeyedRun
from holdfast.runtime.element.operator_runs import Remembering, SinkRun, SourceRun
from holdfast.runtime.element.worker import Worker
from holdfast.store.base import Store

AUTONOMOUS = RegionName("autonomous")

TellEvent = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restore of an operator cost beyond the rows since its checkpoint."""

    lost: int = 0
    reason: str = ""


class OwnCheckpoints:
    """Of the operators of one element. Called by its thread."""

    def __init__(self, worker: Worker, store: Store | None, clock: Clock, tell: TellEvent) -> None:
        self._store = store
        self._clock = clock
        self._tell = tell
        self.runs: dict[OperatorName, Remembering] = {
            run.name: run for run in worker.runs.values() if not isinstance(run, SourceRun | SinkRun)
        }
        policies = {op.name: op.annotations.checkpoint_every_s for op in worker.element.operators}
        self._every = {name: every for name in self.runs if (every := policies[name]) is not None and store}
        kept = [run for run in self.runs.values() if isinstance(run, KeyedRun) and run.name in self._every]
        self.aging = Aging(worker.plan, kept, clock)
        self._numbers: dict[OperatorName, int] = {}
        self._rows: dict[OperatorName, int] = {}
        """Rows that went into each stored state."""
        self._due: dict[OperatorName, float] = {}

    @property
    def kept(self) -> frozenset[OperatorName]:
        """Operators that store checkpoints."""
        return frozenset(self._every)

    def due(self) -> frozenset[OperatorName]:
        now = self._clock.monotonic()
        return frozenset(name for name in self._every if now >= self._due.get(name, 0.0))

    # --- restoring ----------------------------------------------------------------------------------------------

    def restore(self, name: OperatorName) -> Restoration:
        """Give an operator the state of its checkpoint; without a readable one, the initial state."""
        run = self.runs[name]
        part = self._part(name)
        self._numbers[name] = 0 if part is None else part["number"]
        self._rows[name] = 0 if part is None else part.get("rows", 0)
        if isinstance(run, KeyedRun):
            run.tolerates_damage = True
            run.missed = self.aging.missed(run, part)
        try:
            run.restore(INITIAL_EPOCH, part, self._store)
        except DamagedError as error:
            damage = f"the checkpoint of operator {name} is damaged, it begins anew: {error.message}"
            self._tell("operator.damaged", {"operator": name, "reason": error.message})
            run.restore(INITIAL_EPOCH, None, self._store)
            self._wait(name)
            return Restoration(self._rows.pop(name), damage)
        self._wait(name)
        return self._restored(run, part) if isinstance(run, KeyedRun) else Restoration()

    def _restored(self, run: KeyedRun, part: dict[str, Any] | None) -> Restoration:
        if run.stale_rows:
            missed = sum(run.missed)
            reason = f"about {missed} rows since its checkpoint were missed and would have pushed them out"
            told = {"operator": run.name, "rows": run.stale_rows, "missed": list(run.missed)}
            self._tell("rows.stale", {**told, "reason": reason})
        if self.aging.restored(run, part):
            self._due[run.name] = self._clock.monotonic()
        return Restoration(
            sum(rows for _, rows in run.lost_groups), "; ".join(why for why, _ in run.lost_groups)
        )

    def _part(self, name: OperatorName) -> dict[str, Any] | None:
        if self._store is None or name not in self._every:
            return None
        raw = self._store.load_record(own_record(name))
        found: dict[str, Any] | None = None if raw is None else json.loads(raw)
        return found

    def _wait(self, name: OperatorName) -> None:
        self._due[name] = self._clock.monotonic() + self._every.get(name, 0.0)

    # --- storing ------------------------------------------------------------------------------------------------

    def store(self, name: OperatorName, covers: Covered, rows: int) -> bool:
        """Store the state of an operator as it is now, `rows` rows after the checkpoint before, which stays if there is
        no space: then False."""
        try:
            self._put(self.runs[name], covers, self._rows.get(name, 0) + rows)
        except NoSpaceError as error:
            self._tell("operator.checkpoint_failed", {"operator": name, "reason": str(error)})
            return False
        finally:
            self._wait(name)
        return True

    def _put(self, run: Remembering, covers: Covered, rows: int) -> None:
        assert self._store is not None
        number = self._numbers[run.name] + 1
        pace = self.aging.measured(run) if isinstance(run, KeyedRun) else None
        part = run.part_of(Epoch(number), run.pin(Epoch(number)))
        entry = entry_of(AUTONOMOUS, run.name)
        key = f"e{number}-t{self._clock.wall():.6f}-{run.name}"
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
            "covers": [covers.run, covers.step],
            "rows": rows,
        }
        record |= {"pairs": [*part.older, *pairs]}
        if pace is not None:
            record["pace"] = pace
        self._store.save_record(own_record(run.name), json.dumps(record).encode())
        self._numbers[run.name], self._rows[run.name] = number, rows
        listed = [*refs.values(), *part.older]
        needed = {k for ref in listed for k in keys_of(ref)} | {ref[1] for p in segments for ref in p}
        self._store.delete(entry, [k for k in self._store.keys(entry) if k not in needed])
        self._tell("operator.checkpoint", {"operator": run.name, "number": number})


def covered_by(store: Store, operator: OperatorName) -> Covered | None:
    """The last step that the stored checkpoint of an operator covers; None: it has none, or does not tell."""
    raw = store.load_record(own_record(operator))
    record = None if raw is None else json.loads(raw)
    return None if not record or "covers" not in record else Covered(*record["covers"])
