"""Loss budgets at work: what is counted is compared with what may be lost, and what the user chose follows.

The comparison is pure (`protocol/bounds/loss_budget.py`). What is counted is in the accounts, which survive every end of a run; how a budget
stands (what a person accepted, whether the stream has become consistent) is the record `budgets`, written before anything follows from it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.checkpoint.stored_names import BUDGETS
from holdfast.compiler.plan import ElementPlan, Plan
from holdfast.errors import BudgetExceededError, ConfigError
from holdfast.ids import ElementName, OperatorName
from holdfast.language.graph import Graph
from holdfast.protocol.bounds.loss_budget import LossBudget, Standing, Use, exceeded, judge
from holdfast.runtime.telling.feed import Announce
from holdfast.runtime.telling.loss_events import BudgetExceeded, BudgetResumed
from holdfast.store.base import Store

Standings = dict[OperatorName, Standing]
Park = Callable[[ElementName, bool], None]


def budgets_of(graph: Graph) -> dict[OperatorName, LossBudget]:
    """By the operator whose stream has one."""
    marks = {name: operator.annotations.may_lose for name, operator in graph.operators.items()}
    return {name: budget for name, budget in marks.items() if budget is not None}


def load_standings(store: Store | None) -> Standings:
    """How budgets stood when the last run ended."""
    raw = None if store is None else store.load_record(BUDGETS)
    data = {} if raw is None else json.loads(raw)
    return {
        OperatorName(name): Standing(Use(**told["before"]), False, told["is_consistent"])
        for name, told in data.items()
    }


def become_consistent(graph: Graph, store: Store | None) -> frozenset[OperatorName]:
    """Operators whose streams lost too much in an earlier run, and that are consistent from then on."""
    budgets = budgets_of(graph)
    if store is None:
        for name, budget in budgets.items():
            if budget.then == "consistent":
                raise ConfigError(
                    f"operator {name!r} is to become consistent when too much is lost, which needs a store.",
                    cure='Pass one: topology.run(store="file:path/to/store").',
                )
    known = load_standings(store)
    return frozenset(
        name
        for name, budget in budgets.items()
        if budget.then == "consistent" and name in known and known[name].is_consistent
    )


def parked_by(plan: Plan, operator: OperatorName) -> list[ElementName]:
    """The elements that take nothing while the stream of an operator is parked: the one that makes it, and those before it all of whose
    rows lead there only. What would wait in queues between them stays where it came from."""
    by_name = {element.name: element for element in plan.elements}
    parked = [e.name for e in plan.elements if any(op.name == operator for op in e.operators)]

    def leads_there_only(element: ElementPlan) -> bool:
        delivers = any(not op.outputs for op in element.operators)
        return not delivers and all(c.target in parked for c in element.outputs)

    for name in parked:  # grows meanwhile
        before = {c.source: by_name[c.source] for c in by_name[name].inputs}
        parked += [
            e.name
            for e in before.values()
            if e.region is None and e.name not in parked and leads_there_only(e)
        ]
    return parked


@dataclass(frozen=True, slots=True)
class OfTheRun:
    """What budgets ask of the run they belong to."""

    use_of: Callable[[OperatorName], Use]
    park: Park
    keep_all: Callable[[], None]


class LossBudgets:
    """Of one run. `check`, `resume` and `status` may be called from any thread."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        store: Store | None,
        announce: Announce,
        run: OfTheRun,
    ) -> None:
        now = budgets_of(plan.graph)
        self._budgets = budgets_of(graph)
        self.became_consistent = tuple(name for name in self._budgets if name not in now)
        self._plan, self._store, self._announce = plan, store, announce
        self._run = run
        self._lock = threading.RLock()
        self._standings = load_standings(store)
        self.wants_restart = False
        """True if a stream becomes consistent with the next run."""

    def check(self) -> None:
        """Compare, tell, and do what the user chose."""
        with self._lock:
            for name, budget in self._budgets.items():
                if name not in self.became_consistent:
                    self._check(name, budget)

    def _check(self, name: OperatorName, budget: LossBudget) -> None:
        known, use = self._standings.get(name, Standing()), self._run.use_of(name)
        found = judge(budget, known, use)
        if found.standing == known:
            return
        self._standings[name] = found.standing
        if found.then is None:
            return
        self._save()
        spent = use.since(known.before)
        figures = (spent.lost, spent.passed, round(spent.seconds, 3))
        self._announce(BudgetExceeded(name, found.then, found.reasons, *figures))
        if found.then == "park":
            self._park_all(name, True)
        if found.then == "consistent":
            self._run.keep_all()
            self.wants_restart = True

    def _park_all(self, name: OperatorName, now: bool) -> None:
        for element in parked_by(self._plan, name):
            self._run.park(element, now)

    def resume(self) -> None:
        """Go on with what is parked: what is lost by now does not count any more."""
        with self._lock:
            for name in self.parked:
                self._standings[name] = self._standings[name].resumed(self._run.use_of(name))
                self._save()
                self._park_all(name, False)
                self._announce(BudgetResumed(name))

    @property
    def parked(self) -> tuple[OperatorName, ...]:
        """Operators whose streams are parked."""
        over = [name for name, standing in self._standings.items() if standing.is_over]
        return tuple(name for name in over if name in self._budgets and self._budgets[name].then == "park")

    def error(self) -> BudgetExceededError:
        """For whoever waits for a run in which something is parked."""
        name = self.parked[0]
        use = self._run.use_of(name).since(self._standings[name].before)
        return BudgetExceededError(
            f"the stream of operator {name!r} is parked: {'; '.join(exceeded(self._budgets[name], use))}.",
            cure="Mend the cause, then run again with a larger may_lose(…), or `holdfast resume` while the run waits.",
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """For people: budgets and what is used of them."""
        with self._lock:
            return {str(name): self._as_data(name, budget) for name, budget in self._budgets.items()}

    def _as_data(self, name: OperatorName, budget: LossBudget) -> dict[str, Any]:
        standing = self._standings.get(name, Standing())
        use = self._run.use_of(name).since(standing.before)
        state = f"exceeded, {budget.then}" if standing.is_over else "within"
        return {
            "may_lose": budget.words(),
            "then": budget.then,
            "lost": use.lost,
            "share": None if budget.share is None else round(use.share, 6),
            "seconds": round(use.seconds, 3),
            "state": "consistent" if name in self.became_consistent else state,
        }

    def _save(self) -> None:
        if self._store is not None:
            self._store.save_record(BUDGETS, json.dumps(_as_data(self._standings), sort_keys=True).encode())


def _as_data(standings: Mapping[OperatorName, Standing]) -> dict[str, Any]:
    return {
        str(name): {"before": asdict(standing.before), "is_consistent": standing.is_consistent}
        for name, standing in standings.items()
    }
