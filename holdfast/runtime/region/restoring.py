"""A region's restores: how long the next will take, how long the last one took, and whether the bound is kept.

Restore time runs from the decision to reset (or from the first look at the store when a driver starts) until every
element has its state and sources are positioned. What was learned is kept in the store, beside the epochs.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.checkpoint.stored_names import record_name
from holdfast.clock import Clock
from holdfast.compiler.plan import RegionPlan
from holdfast.errors import StoreError
from holdfast.ids import INITIAL_EPOCH, Epoch
from holdfast.runtime.region.epochs import RegionEpochs
from holdfast.runtime.region.restore_budget import RestoreBudget
from holdfast.runtime.telling.events import RestoreBoundExceeded
from holdfast.runtime.telling.feed import Announce

logger = logging.getLogger("holdfast")


class Restoring:
    """Of one region; called by its thread."""

    def __init__(self, plan: RegionPlan, epochs: RegionEpochs, clock: Clock, announce: Announce) -> None:
        self.budget = RestoreBudget(plan.settings.restore_within_s)
        self._plan = plan
        self._store = epochs.store
        self._record = record_name("restore-speed", plan.name)
        self._clock = clock
        self._announce = announce
        self._begun: float | None = None
        self._last: dict[str, Any] = {}
        self._warned = False

    def begin(self) -> None:
        """A restore is decided. One that another interrupts goes on counting."""
        if self._begun is None:
            self._begun = self._clock.monotonic()
            raw = self._store.load_record(self._record)
            if raw is not None:
                self.budget.speed = Speed.from_data(json.loads(raw))

    def done(self, epoch: Epoch) -> dict[str, Any]:
        """Every element has its state; what to tell about it."""
        if self._begun is None:
            return {}
        measured, self._begun = self._clock.monotonic() - self._begun, None
        predicted = self.budget.predicted_s
        self._last = {"restore_s": round(measured, 3), "restore_predicted_s": round(predicted, 3)}
        if epoch == INITIAL_EPOCH or not predicted:
            return self._last
        bound = self.budget.bound_s
        if bound is not None:
            self._last["restore_within_s"] = bound
        self.budget.learn(measured)
        try:
            self._store.save_record(self._record, json.dumps(self.budget.speed.as_data()).encode())
        except StoreError as error:
            logger.warning("what the restore taught could not be kept: %s", error)
        return self._last

    def predicted(self) -> float:
        """How long restoring the epoch just published will take. Says once if that cannot keep the bound."""
        late = self.budget.too_large
        if late and not self._warned:
            self._warned = True
            figures = (tuple(late), self.budget.bound_s, round(self.budget.predicted_s, 3))
            self._announce(RestoreBoundExceeded(self._plan.name, *figures))
        return round(self.budget.predicted_s, 3)

    def status(self) -> dict[str, Any]:
        """For `holdfast status`."""
        return {"restore_next_s": round(self.budget.predicted_s, 3), **self._last}
