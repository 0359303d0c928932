"""The accounts of all elements outside of regions, as they are stored. The arithmetic is in `protocol/accounts.py`.

    books               written when a run begins or ends: every account at that moment, positions of sources
    account.<element>   written before each step of an element, with the positions of its sources

An element's own record counts while it belongs to the run that the books name, and that run did not end in order;
otherwise all of it is in the books. So one write of the books settles everything at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.checkpoint import own_records
from holdfast.checkpoint.stored_names import BOOKS, record_name
from holdfast.compiler.plan import ConnectionPlan, ElementPlan, Plan
from holdfast.compiler.traverse import counted_behind
from holdfast.ids import ConnectionId, ElementName, OperatorName, OwnerToken
from holdfast.language.connectors import Slice
from holdfast.language.graph import SinkSpec, SourceSpec
from holdfast.operators.kinds import kind_of
from holdfast.protocol.accounts import (
    Account,
    Books,
    Covered,
    Loss,
    RowsByEnd,
    Sinks,
    at_borders,
    close,
    outstanding_after,
    settle,
    settled_after,
)
from holdfast.protocol.bounds.loss_budget import Use, budget_key, is_budget_key
from holdfast.runtime.element.account_data import as_data, from_data
from holdfast.runtime.element.borders import KnownBorders
from holdfast.runtime.element.own_checkpoints import known_checkpoint
from holdfast.runtime.source_positions import KnownPosition
from holdfast.runtime.telling.events import RowsLost
from holdfast.runtime.telling.feed import Announce
from holdfast.state.values import codec
from holdfast.store.base import Store


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A slice that was taken and whose rows nobody has counted. `absorbed`: its step has ended."""

    source: OperatorName
    detail: Any
    absorbed: bool


@dataclass
class Ledger:
    """What the store holds: the books, brought up to date by the elements' own records."""

    run: int = 0
    closed: bool = True
    accounts: dict[ElementName, Account] = field(default_factory=dict)
    positions: dict[OperatorName, KnownPosition] = field(default_factory=dict)
    taken_s: dict[ElementName, float] = field(default_factory=dict)
    """When each element last took rows, by the wall clock."""
    settled: dict[ConnectionId, int] = field(default_factory=dict)
    border_lost: dict[ConnectionId, int] = field(default_factory=dict)
    """Rows lost at connections into regions, over all runs."""
    ports: dict[ConnectionId, tuple[ElementName, Sinks]] = field(default_factory=dict)
    """Connections into regions, of this program and of those before: the element they enter, the sinks behind it."""
    outstanding: Mapping[ConnectionId, RowsByEnd] = field(default_factory=dict)
    """Batches that entered regions and that are not counted as lost because they are recorded."""


class AccountBooks:
    """Of one run. `read` and `settle` come first and change nothing, then `begin`; `save` is called by element threads, each for its
    own element."""

    def __init__(self, store: Store | None, plan: Plan, token: OwnerToken, announce: Announce) -> None:
        self._store = store
        self._plan = plan
        self._run = int(token)
        self._announce = announce
        self._reach = counted_behind(plan.graph)
        self.ledger = Ledger()
        self._losses: list[Loss] = []
        self._dropped: tuple[OperatorName, ...] = ()

    # --- opening ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Find what earlier runs left. Changes nothing."""
        self.ledger = self._read()

    def settle(self, borders: KnownBorders) -> None:
        """Count what is gone."""
        ledger = self.ledger
        books = self._books(ledger, borders)
        accounts, self._losses = settle(books, self._run)
        self._dropped = tuple(books.dropped)
        for element in self._plan.elements:
            if element.region is None:
                accounts[element.name] = self._fitted(element, accounts.get(element.name))
        self.ledger = replace(
            ledger,
            run=self._run,
            closed=False,
            accounts=accounts,
            settled=settled_after(books),
            border_lost=self._border_lost(ledger, books),
            ports=dict(books.ports),
            outstanding=outstanding_after(books),
        )

    def _border_lost(self, ledger: Ledger, books: Books) -> dict[ConnectionId, int]:
        """Rows lost at each entrance of a region, over all runs."""
        new = {id: loss.rows for id, loss in at_borders(books).items()}
        known = {id: taken.lost for id, taken in books.taken_by_regions.items()}
        return {
            id: max(known.get(id, 0), ledger.border_lost.get(id, 0)) + new.get(id, 0) for id in books.ports
        }

    def begin(self) -> None:
        """The run begins: what was found is written at once, and told."""
        self._write()
        for name in self._dropped:
            assert self._store is not None
            own_records.save(self._store, name, None)  # counted: it must not come back
        self._tell_all(self._losses)

    def account_of(self, element: ElementName) -> Account:
        return self.ledger.accounts[element]

    def _fitted(self, element: ElementPlan, known: Account | None) -> Account:
        """The account of an element of this plan: what it had before, for the connections and operators it has now."""
        before = known or Account(element.name, self._run)
        stateful = [op.name for op in element.operators if kind_of(op).role in ("keyed", "hosted")]
        marks = {op.name: op.annotations.may_lose for op in element.operators}
        shares = [budget_key(op) for op, budget in marks.items() if budget and budget.share is not None]
        return replace(
            before,
            run=self._run,
            taken={c.id: before.taken.get(c.id, 0) for c in element.inputs},
            sent={c.id: before.sent.get(c.id, 0) for c in element.outputs},
            absorbed=dict.fromkeys(stateful, 0),
            pinned={},
            reach=tuple(sorted({sink for op in element.operators for sink in self._reach[op.name]})),
            reach_of={name: self._reach[name] for name in stateful},
            passed={key: before.passed.get(key, 0) for key in shares},
        )

    def _books(self, ledger: Ledger, borders: KnownBorders) -> Books:
        covered: dict[OperatorName, Covered] = {}
        dropped: dict[OperatorName, int] = {}
        readers = self._readers()
        for name in {name for account in ledger.accounts.values() for name in account.absorbed}:
            found = None if self._store is None else known_checkpoint(self._store, name)
            if found is not None and len(found.covers) == 2:
                covered[name] = Covered(*found.covers)
            if found is not None and name not in readers:
                dropped[name] = found.rows
        return Books(
            ledger.accounts,
            covered,
            dropped,
            borders.sent,
            borders.taken,
            ledger.settled,
            self._ports(ledger),
            borders.recorded,
            ledger.outstanding,
        )

    def _readers(self) -> set[OperatorName]:
        """Operators that go on from checkpoints of their own."""
        alone = [op for element in self._plan.elements if element.region is None for op in element.operators]
        return {op.name for op in alone if op.annotations.checkpoint_every_s is not None} | self._plan.adopted

    def _ports(self, ledger: Ledger) -> dict[ConnectionId, tuple[ElementName, Sinks]]:
        """Connections that enter a region from outside, or did in an earlier program; also those between elements that have
        epochs of their own."""
        regions = {element.name: element.region for element in self._plan.elements}
        return ledger.ports | {
            c.id: (c.target, self._behind(c))
            for c in self._plan.connections
            if regions[c.target] is not None and (regions[c.source] is None or c.preserved)
        }

    def _behind(self, c: ConnectionPlan) -> Sinks:
        """For whom is counted what is lost at an entrance: all behind it, and the stream that enters there, if it may lose so much only."""
        behind = {sink for op, _ in c.ports for sink in self._reach[op]}
        is_limited = self._plan.graph.operators[c.stream.operator].annotations.may_lose is not None
        return tuple(sorted(behind | ({budget_key(c.stream.operator)} if is_limited else set())))

    # --- while the run goes on ----------------------------------------------------------------------------------

    def save(
        self,
        account: Account,
        positions: Mapping[OperatorName, KnownPosition],
        uncounted: Iterable[Uncounted] = (),
        taken_s: float | None = None,
    ) -> None:
        """Write an element's account before its step; durable when it returns."""
        if self._store is not None:
            record = {
                "account": as_data(account),
                "positions": {name: [p.state, p.described] for name, p in positions.items()},
                "uncounted": [[u.source, u.detail, u.absorbed] for u in uncounted],
                "taken_s": taken_s,
            }
            self._store.save_record(record_name("account", account.element), codec.encode(record))

    def close(self, accounts: Mapping[ElementName, Account], borders: KnownBorders) -> None:
        """The run ends, and no element works any more: what its end cost is counted, and told."""
        books = self._books(replace(self.ledger, accounts={**self.ledger.accounts, **accounts}), borders)
        after, losses = close(books)
        records = self._read()  # positions as they were saved last
        self.ledger = replace(
            records,
            run=self._run,
            closed=True,
            accounts=after,
            settled=settled_after(books),
            border_lost=self._border_lost(self.ledger, books),
            ports=dict(books.ports),
            outstanding=outstanding_after(books),
        )
        self._write()
        self._tell_all(losses)

    def lost_by_sink(
        self, accounts: Iterable[Account], at_borders: Mapping[ConnectionId, int]
    ) -> dict[str, int]:
        """For people: rows that each sink lacks because they were lost, over all runs; 0 where none were."""
        graph = self._plan.graph
        lost = Counter({op.name: 0 for op in graph.operators.values() if isinstance(op.spec, SinkSpec)})
        for account in accounts:
            lost.update(account.lost)
        for id, (_, sinks) in self.ledger.ports.items():
            lost.update(dict.fromkeys(sinks, at_borders.get(id, self.ledger.border_lost.get(id, 0))))
        return {str(sink): rows for sink, rows in lost.items() if not is_budget_key(sink)}

    def use_of(
        self, operator: OperatorName, accounts: Iterable[Account], at_borders: Mapping[ConnectionId, int]
    ) -> Use:
        """What is counted against the loss budget of an operator's stream, over all runs."""
        key, found = budget_key(operator), list(accounts)
        borders = [id for id, (_, behind) in self.ledger.ports.items() if key in behind]
        lost = {id: at_borders.get(id, self.ledger.border_lost.get(id, 0)) for id in borders}
        # What was lost at an entrance right behind the stream had passed it.
        behind = sum(lost.get(c.id, 0) for c in self._plan.connections if c.stream.operator == operator)
        return Use(
            sum(account.lost.get(key, 0) for account in found) + sum(lost.values()),
            max(0, sum(account.passed.get(key, 0) for account in found) - behind),
            sum(account.set_back.get(key, 0.0) for account in found),
        )

    def _tell_all(self, losses: Iterable[Loss]) -> None:
        for loss in losses:
            self._announce(rows_lost(loss))

    # --- the store ----------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self._store is None:
            return
        ledger = self.ledger
        record = {
            "run": ledger.run,
            "closed": ledger.closed,
            "accounts": {name: as_data(account) for name, account in ledger.accounts.items()},
            "positions": {name: [p.state, p.described] for name, p in ledger.positions.items()},
            "taken_s": ledger.taken_s,
            "settled": ledger.settled,
            "border_lost": ledger.border_lost,
            "ports": {id: [element, list(sinks)] for id, (element, sinks) in ledger.ports.items()},
            "outstanding": {id: dict(batches) for id, batches in ledger.outstanding.items() if batches},
        }
        self._store.save_record(BOOKS, codec.encode(record))

    def _read(self) -> Ledger:
        if self._store is None:
            return Ledger()
        raw = self._store.load_record(BOOKS)
        if raw is None:
            return self._read_before_books()
        data = codec.decode(raw)
        ledger = Ledger(
            data["run"],
            data["closed"],
            {ElementName(name): from_data(account) for name, account in data["accounts"].items()},
            {OperatorName(name): KnownPosition(*known) for name, known in data["positions"].items()},
            dict(data["taken_s"]),
            dict(data["settled"]),
            dict(data["border_lost"]),
            {id: (element, tuple(sinks)) for id, (element, sinks) in data.get("ports", {}).items()},
            data.get("outstanding", {}),
        )
        if not ledger.closed:
            for name in list(ledger.accounts):
                self._bring_up_to_date(ledger, name)
        return ledger

    def _bring_up_to_date(self, ledger: Ledger, name: ElementName) -> None:
        assert self._store is not None
        raw = self._store.load_record(record_name("account", name))
        record = None if raw is None else codec.decode(raw)
        if record is None or record["account"]["run"] != ledger.run:
            return
        uncounted = [Uncounted(*each) for each in record["uncounted"]]
        ledger.accounts[name] = self._with_counts(from_data(record["account"]), uncounted)
        for source, known in record["positions"].items():
            ledger.positions[OperatorName(source)] = KnownPosition(*known)
        if record["taken_s"] is not None:
            ledger.taken_s[name] = record["taken_s"]

    def _with_counts(self, account: Account, uncounted: Iterable[Uncounted]) -> Account:
        """Count what nobody had counted when the account was saved."""
        in_flight, absorbed, passed = account.in_flight, dict(account.absorbed), dict(account.passed)
        for each in uncounted:
            rows = self._rows_of(each)
            if not each.absorbed:
                in_flight += rows
            else:
                absorbed = {name: old + rows for name, old in absorbed.items()}
                passed = {key: old + rows for key, old in passed.items()}
        return replace(account, in_flight=in_flight, absorbed=absorbed, passed=passed)

    def _rows_of(self, uncounted: Uncounted) -> int:
        op = self._plan.graph.operators.get(uncounted.source)
        if op is None or not isinstance(op.spec, SourceSpec):
            return 0
        return op.spec.source.count_rows(Slice(None, None, detail=uncounted.detail)) or 0

    def _read_before_books(self) -> Ledger:
        """What a run without books left: a record with positions per element."""
        assert self._store is not None
        ledger = Ledger(closed=False)
        for element in self._plan.elements:
            raw = self._store.load_record(record_name("positions", element.name))
            if raw is None:
                continue
            record = codec.decode(raw)
            reach = tuple(sorted({sink for op in element.operators for sink in self._reach[op.name]}))
            account = Account(element.name, 0, lost=dict.fromkeys(reach, record["lost"]), reach=reach)
            under_way = record["in_flight"] or {"slices": {}, "batch_rows": 0}
            uncounted = [
                Uncounted(OperatorName(source), detail, False)
                for source, (rows, detail) in under_way["slices"].items()
                if rows is None
            ]
            counted = sum(rows or 0 for rows, _ in under_way["slices"].values())
            account = replace(account, lost_rows=record["lost"], in_flight=counted + under_way["batch_rows"])
            ledger.accounts[element.name] = self._with_counts(account, uncounted)
            for source, state in record["positions"].items():
                ledger.positions[OperatorName(source)] = KnownPosition(state)
            if record.get("taken") is not None:
                ledger.taken_s[element.name] = record["taken"]
        return ledger


def rows_lost(loss: Loss) -> RowsLost:
    """A loss for people: sinks only."""
    sinks = tuple(sink for sink in loss.sinks if not is_budget_key(sink))
    return RowsLost(loss.element, loss.rows, loss.reason, sinks=sinks)
