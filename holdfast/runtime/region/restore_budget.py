"""How long a region's restore may take, shared out among its operators.

Each operator that stores bases and deltas says how long restoring it will take; what the others need is not left for it.
Operators are taken to be restored one after another: they share the machine's cores and its disk.

Must hold: a delta that is accepted keeps the bound, together with all that the others have stored or been promised by then.
A base is stored whatever the others have; if it has grown too much for their deltas, they make way by bases at the next epoch.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from holdfast.checkpoint.adaptive import (
    Cost,
    Form,
    History,
    Limits,
    next_form,
    restore_seconds,
    taken,
    tracking,
)
from holdfast.checkpoint.costs.restore_time import Speed
from holdfast.checkpoint.parts import Chained, StoredForm
from holdfast.ids import OperatorName


class RestoreBudget:
    """One region's. `bound_s`: what the user allows; None: no bound. Any thread may call it."""

    def __init__(self, bound_s: float | None = None, speed: Speed | None = None) -> None:
        self.bound_s = bound_s
        self.speed = speed or Speed()
        self.lock = threading.Lock()
        """Held while a chooser looks for room and takes it."""
        self._choosers: list[Chooser] = []

    def chooser(self, operator: OperatorName, limits: Limits) -> Chooser:
        """A new operator's part in the budget."""
        chooser = Chooser(operator, limits, self)
        self._choosers.append(chooser)
        return chooser

    def left_for(self, chooser: Chooser) -> float | None:
        """Seconds the bound leaves for an operator; None: as many as it likes."""
        if self.bound_s is None:
            return None
        return self.bound_s - sum(other.promised_s for other in self._choosers if other is not chooser)

    @property
    def predicted_s(self) -> float:
        """How long restoring the newest checkpoints will take."""
        return sum(chooser.predicted_s for chooser in self._choosers)

    @property
    def too_large(self) -> list[OperatorName]:
        """Operators whose bases take longer than there is time, even if no operator had deltas."""
        stored = [chooser for chooser in self._choosers if chooser.history.base is not None]
        all_are = self.bound_s is not None and sum(chooser.base_s for chooser in stored) > self.bound_s
        return [chooser.operator for chooser in stored if all_are or chooser.base_is_too_large]

    @property
    def wants_bases(self) -> bool:
        """Restoring takes longer than it may, as was learned since, and bases in the place of deltas would change that."""
        late = [
            c for c in self._choosers if c.limits.seconds is not None and c.predicted_s > c.limits.seconds
        ]
        return any(chooser.base_s < chooser.predicted_s for chooser in late)

    def learn(self, measured_s: float) -> None:
        """Restoring the newest checkpoints really took so long."""
        restored = sum(chooser.history.base is not None for chooser in self._choosers)
        self.speed = self.speed.learned(self.predicted_s, measured_s, restored)


class Chooser:
    """Base or delta for one operator: its history, within its own limits and its region's budget."""

    def __init__(self, operator: OperatorName, limits: Limits, budget: RestoreBudget) -> None:
        self.operator = operator
        self.history = History()
        self._own = limits
        self._budget = budget
        self._promised: Cost | None = None
        """A delta that was accepted and is not stored yet."""

    @property
    def limits(self) -> Limits:
        left = self._budget.left_for(self)
        own = self._own.seconds
        seconds = left if own is None else own if left is None else min(own, left)
        return replace(self._own, seconds=seconds)

    @property
    def tracking(self) -> bool:
        return tracking(self.history)

    @property
    def tracks_behind_base(self) -> bool:
        """Whether changes will be followed behind a base that is like the last one."""
        cost = self.history.base
        return cost is None or tracking(
            taken(self.history, "base", cost, self.limits, speed=self._budget.speed)
        )

    def accepts_delta(self, size: int | None = None) -> bool:
        """True if the next checkpoint is a delta. `size`: the bytes it has, if known yet; then there is room for it until
        the checkpoint is stored."""
        with self._budget.lock:
            form = next_form(self.history, self.limits, pending=size, speed=self._budget.speed)
            self._promised = Cost(size, 0.0) if size is not None and form == "delta" else None
        return form == "delta"

    def may_accept(self, least: int, most: int) -> bool:
        """True if a delta that will have between `least` and `most` bytes is worth being built."""
        between = (least, most)
        return next_form(self.history, self.limits, between=between, speed=self._budget.speed) == "delta"

    def took(self, form: Form, cost: Cost, refused: int | None = None) -> None:
        """A checkpoint is stored. `refused`: bytes, at least, of the delta in whose place a base was stored."""
        not_taken = None if refused is None else Cost(refused, cost.seconds)
        speed = self._budget.speed
        self.history = taken(self.history, form, cost, self.limits, refused=not_taken, speed=speed)
        self._promised = None

    @property
    def predicted_s(self) -> float:
        """How long restoring the newest checkpoint will take."""
        return restore_seconds(self.history, self._budget.speed)

    @property
    def promised_s(self) -> float:
        """The same, with a delta that is being stored."""
        promised = self._promised
        history = self.history if promised is None else taken(self.history, "delta", promised, self._own)
        return restore_seconds(history, self._budget.speed)

    @property
    def base_s(self) -> float:
        """How long restoring the base alone would take."""
        return restore_seconds(replace(self.history, deltas=0), self._budget.speed)

    @property
    def base_is_too_large(self) -> bool:
        """True if restoring the base alone takes longer than the operator's own bound allows."""
        return self._own.seconds is not None and self.base_s > self._own.seconds

    def base_fits(self, size: int) -> bool:
        """True if a base of so many bytes keeps the bound."""
        seconds = self.limits.seconds
        base = History(base=Cost(size, 0.0))
        return seconds is None or restore_seconds(base, self._budget.speed) <= seconds

    def record(self, form: Form) -> Chained:
        """For the manifest: what the newest checkpoint is."""
        return Chained(form, self.history, round(self.predicted_s, 3))

    def resume(self, form: StoredForm | None) -> None:
        """Go on from a restored checkpoint; if it was not chained, the next one is a base."""
        self.history = form.history if isinstance(form, Chained) else History()
        self._promised = None
