"""Accounts of elements outside of regions: what each took, sent and lost. Pure.

An element saves its account before every step. After any end of the run, a kill included, the next run *settles* the
accounts it finds: it tells how many rows are gone, and where.

    step     taken for a step that is not known to have ended
    state    absorbed by an operator since its own checkpoint
    queue    sent along a connection and never taken
    border   taken into a region by an autonomous port since its newest epoch, and not recorded

What is *recorded* at a border is in the store and comes again in the next run: it is not lost, unless a run begins that cannot find
it, or has no use for it any more.

Rows of a connection are numbered in the order in which they are put into it, over all runs. A region that goes back to
an epoch takes out of the connections that leave it what it put there since, as far as it still waits; the numbers of
those rows are given again. So `sent - taken` is always what waits, and a row that was sent before an epoch was pinned
has a number up to the one that the epoch stores.

Must hold, whatever was killed when: no row is counted too seldom, and one that is counted but not gone was in the step
that its element had under way. A row may be gone in two places, in a queue and in the state of an operator before it:
then both count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.ids import ConnectionId, ElementName, OperatorName

Sinks = tuple[OperatorName, ...]
LostBySink = Mapping[OperatorName, int]
RowsByEnd = Mapping[int, int]
"""Batches of a connection: the number of the last row of each → its rows."""


@dataclass(frozen=True, slots=True)
class TakenByRegion:
    """What an epoch knows of a connection that enters its region: rows taken before the epoch was pinned, and rows
    that resets have cost there so far."""

    row: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Pin:
    """A checkpoint of an operator on its way into the store: the step behind which it was taken, how many of the absorbed rows are in
    it, and when the first row came that is not."""

    step: int
    rows: int
    next_at: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Of one element outside of regions, as of the moment before its step number `step` of run `run`."""

    element: ElementName
    run: int
    step: int = 0
    taken: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of each input, the step under way included."""
    sent: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of each output, the step under way excluded."""
    in_flight: int = 0
    """Rows of the step under way; 0: none is."""
    absorbed: Mapping[OperatorName, int] = field(default_factory=dict)
    """Rows that each operator with state has taken since its own checkpoint, the step under way excluded."""
    pinned: Mapping[OperatorName, Pin] = field(default_factory=dict)
    """Of each operator whose checkpoint is on its way into the store."""
    held: Mapping[OperatorName, int] = field(default_factory=dict)
    """Rows that went into each operator's own checkpoint."""
    lost: LostBySink = field(default_factory=dict)
    lost_rows: int = 0
    """Rows lost in this element, over all runs."""
    reach: Sinks = ()
    """Sinks that the element's rows lead to."""
    reach_of: Mapping[OperatorName, Sinks] = field(default_factory=dict)
    """The same for each operator with state."""
    passed: LostBySink = field(default_factory=dict)
    """Rows of steps that ended well, over all runs, for each stream of the element that may lose a share."""
    since: Mapping[OperatorName, float] = field(default_factory=dict)
    """When each operator with state took the first row that its own checkpoint does not hold. Seconds of the wall clock."""
    last: float = 0.0
    """When the element took rows last."""
    set_back: Mapping[OperatorName, float] = field(default_factory=dict)
    """By how many seconds states were set back on the way to each sink, over all runs."""

    def losing(self, losses: Iterable[Loss]) -> Account:
        """The account after losses that happened at once: they may speak of the same rows, so the largest counts."""
        found = list(losses)
        lost = dict(self.lost)
        for sink in dict.fromkeys(sink for loss in found for sink in loss.sinks):
            lost[sink] = lost.get(sink, 0) + max(loss.rows for loss in found if sink in loss.sinks)
        rows = max((loss.rows for loss in found), default=0)
        return replace(self, lost=lost, lost_rows=self.lost_rows + rows, set_back=self._set_back(found))

    def _set_back(self, losses: list[Loss]) -> dict[OperatorName, float]:
        set_back = dict(self.set_back)
        for sink in dict.fromkeys(sink for loss in losses if loss.seconds for sink in loss.sinks):
            longest = max(loss.seconds for loss in losses if sink in loss.sinks)
            set_back[sink] = set_back.get(sink, 0.0) + longest
        return set_back

    def age(self, operator: OperatorName) -> float:
        """How far an operator goes back if it returns to its own checkpoint: in seconds, by when rows were taken."""
        return max(0.0, self.last - self.since[operator]) if operator in self.since else 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows that are gone, for the sinks they would have reached, and streams with loss budgets (`loss_budget.budget_key`). `seconds`: how far
    an operator with state goes back."""

    element: ElementName
    rows: int
    reason: str
    sinks: Sinks
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Covered:
    """An operator's own checkpoint: the last step it covers."""

    run: int
    step: int


@dataclass(frozen=True, slots=True)
class Books:
    """All that is known when a run begins or ends."""

    accounts: Mapping[ElementName, Account]
    covered: Mapping[OperatorName, Covered] = field(default_factory=dict)
    dropped: Mapping[OperatorName, int] = field(default_factory=dict)
    """Rows in own checkpoints that the program does not read any more."""
    sent_by_regions: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of connections that leave regions: rows sent before the newest epoch was pinned."""
    taken_by_regions: Mapping[ConnectionId, TakenByRegion] = field(default_factory=dict)
    settled: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of connections into regions: rows up to which an earlier settlement counted."""
    ports: Mapping[ConnectionId, tuple[ElementName, Sinks]] = field(default_factory=dict)
    """Of connections into regions, in this program and in those before: the element they enter, and the sinks behind."""

    recorded: Mapping[ConnectionId, RowsByEnd] = field(default_factory=dict)
    """Of connections into regions: batches that come again, those that epochs hold perhaps included."""
    outstanding: Mapping[ConnectionId, RowsByEnd] = field(default_factory=dict)
    """Those that an earlier settlement did not count because they were recorded."""

    def sender(self, connection: ConnectionId) -> Account | None:
        return next((a for a in self.accounts.values() if connection in a.sent), None)


def settle(books: Books, run: int) -> tuple[dict[ElementName, Account], list[Loss]]:
    """The accounts with which run number `run` begins, and every loss that was found, those at the borders of regions
    included, which no account holds."""
    losses: list[Loss] = []
    accounts: dict[ElementName, Account] = {}
    for name, account in books.accounts.items():
        at_once = [*_in_step(account), *_in_states(account, books)]  # partly the same rows
        after = _counted(account, at_once, books, losses)
        absorbed = dict.fromkeys(account.absorbed, 0)
        held = {op: rows for op, rows in account.held.items() if op not in books.dropped}
        accounts[name] = replace(after, run=run, step=0, absorbed=absorbed, pinned={}, held=held, since={})
    return accounts, [*losses, *at_borders(books).values()]


def close(books: Books) -> tuple[dict[ElementName, Account], list[Loss]]:
    """The accounts that a run leaves when it ends, and what its end cost. What operators hold is not lost before another
    run begins without it."""
    losses: list[Loss] = []
    accounts = {
        name: _counted(account, list(_in_step(account)), books, losses)
        for name, account in books.accounts.items()
    }
    return accounts, [*losses, *at_borders(books).values()]


def _counted(account: Account, at_once: list[Loss], books: Books, losses: list[Loss]) -> Account:
    """The account with nothing under way: what was lost is counted, what was sent and never taken is over."""
    losses += [max(at_once, key=lambda loss: loss.rows)] if at_once else []
    after = account.losing(at_once)
    for loss in _in_queues(account, books):
        losses.append(loss)
        after = after.losing([loss])
    sent = {c: max(row, _taken(c, books)) for c, row in account.sent.items()}
    taken = {c: _next(c, row, books) for c, row in account.taken.items()}
    return replace(after, in_flight=0, sent=sent, taken=taken)


def _in_step(account: Account) -> Iterable[Loss]:
    # Whether it ended is not asked: what receivers have taken does not tell what it gave back, or kept for others.
    if account.in_flight:
        reason = "the run ended in the middle of a step"
        yield Loss(account.element, account.in_flight, reason, account.reach)


def _covers(covered: Covered | None, account: Account) -> bool:
    return covered is not None and (covered.run, covered.step) >= (account.run, account.step)


def _taken(connection: ConnectionId, books: Books) -> int:
    """How far the receiver of a connection is known to have come."""
    if connection in books.taken_by_regions:
        return max(_held(connection, books), _recorded_up_to(connection, books))
    return max((a.taken[connection] for a in books.accounts.values() if connection in a.taken), default=0)


def _in_states(account: Account, books: Books) -> Iterable[Loss]:
    for name, absorbed in account.absorbed.items():
        rows = _since(books.covered.get(name), account, name, absorbed)
        reason = f"operator {name} took them after its last checkpoint, or has none"
        if name in books.dropped:
            rows += books.dropped[name]
            reason = f"operator {name} had them in its checkpoint, which the program does not read any more"
        if rows:
            reach = account.reach_of.get(name, account.reach)
            yield Loss(account.element, rows, reason, reach, _age(books.covered.get(name), account, name))


def _since(covered: Covered | None, account: Account, name: OperatorName, absorbed: int) -> int:
    """Rows that an operator took and that its stored checkpoint lacks."""
    if _covers(covered, account):
        return 0
    pin = _arrived(covered, account, name)
    return absorbed + account.in_flight - (0 if pin is None else pin.rows)


def _arrived(covered: Covered | None, account: Account, name: OperatorName) -> Pin | None:
    """The checkpoint that became durable, and that the element had no time to note."""
    pin = account.pinned.get(name)
    if pin is None or covered is None or (covered.run, covered.step) != (account.run, pin.step):
        return None
    return pin


def _age(covered: Covered | None, account: Account, name: OperatorName) -> float:
    pin = _arrived(covered, account, name)
    if pin is None:
        return account.age(name)
    return 0.0 if pin.next_at is None else max(0.0, account.last - pin.next_at)


def _in_queues(account: Account, books: Books) -> Iterable[Loss]:
    for connection, taken in account.taken.items():
        rows = _sent(connection, books) - taken
        if rows > 0:
            yield Loss(account.element, rows, "they waited in a queue when the run ended", account.reach)


def _sent(connection: ConnectionId, books: Books) -> int:
    """Up to which row a connection will never bring again what was sent along it."""
    if connection in books.sent_by_regions:
        return books.sent_by_regions[connection]
    sender = books.sender(connection)
    return 0 if sender is None else sender.sent[connection]


def _next(connection: ConnectionId, taken: int, books: Books) -> int:
    """The row behind which the next run goes on to take from a connection."""
    if connection in books.sent_by_regions:
        return books.sent_by_regions[connection]  # the region sends again what came after its epoch
    return max(taken, _sent(connection, books))


def at_borders(books: Books) -> dict[ConnectionId, Loss]:
    """Rows that entered regions, or waited to, and that no epoch holds."""
    losses: dict[ConnectionId, Loss] = {}
    for connection, (element, sinks) in books.ports.items():
        known = _counted_up_to(connection, books)
        rows = max(_sent(connection, books), _recorded_up_to(connection, books)) - known
        recorded = books.recorded.get(connection, {})
        rows -= sum(size for end, size in recorded.items() if end > known)
        # Counted on as recorded before, and nowhere to be found now.
        rows += sum(
            size
            for end, size in books.outstanding.get(connection, {}).items()
            if end > _held(connection, books) and end not in recorded
        )
        if rows > 0:
            reason = "they entered a region after its newest epoch, or waited to"
            losses[connection] = Loss(element, rows, reason, sinks)
    return losses


def settled_after(books: Books) -> dict[ConnectionId, int]:
    """Of connections into regions: rows up to which everything is counted once `at_borders` is. The next `settled`."""
    return {c: max(_sent(c, books), _recorded_up_to(c, books), _counted_up_to(c, books)) for c in books.ports}


def outstanding_after(books: Books) -> dict[ConnectionId, dict[int, int]]:
    """Batches that no epoch holds and that were not counted because they are recorded. The next `outstanding`."""
    return {
        c: {end: rows for end, rows in recorded.items() if end > _held(c, books)}
        for c, recorded in books.recorded.items()
    }


def _counted_up_to(connection: ConnectionId, books: Books) -> int:
    """Rows that the newest epoch holds or that an earlier settlement counted."""
    return max(_held(connection, books), books.settled.get(connection, 0))


def _held(connection: ConnectionId, books: Books) -> int:
    return books.taken_by_regions.get(connection, TakenByRegion()).row


def _recorded_up_to(connection: ConnectionId, books: Books) -> int:
    return max(books.recorded.get(connection, {}), default=0)
