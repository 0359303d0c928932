"""Accounts of elements outside of regions: what each took, sent and lost. Pure.

An element saves its account before every step. After any end of the run, a kill included, the next run *settles* the
accounts it finds: it tells how many rows are gone, and where.

    step     taken for a step that is not known to have ended
    state    absorbed by an operator since its own checkpoint
    queue    sent along a connection and never taken
    border   taken into a region by an autonomous port since its newest epoch

Rows of a connection are numbered by its sender, over all runs. Must hold, whatever was killed when: no row is counted too
seldom, and one that is counted but not gone was in the step that its element had under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.ids import ConnectionId, ElementName, OperatorName

Sinks = tuple[OperatorName, ...]
LostBySink = Mapping[OperatorName, int]


@dataclass(frozen=True, slots=True)
class Place:
    """How far a connection was taken: up to `row`, as its sender numbered rows in `attempt` (0 outside of regions)."""

    row: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class SentByRegion:
    """What an epoch knows of a connection that leaves its region: rows sent before the epoch was pinned, in which
    attempt, and where the numbering of that attempt began."""

    row: int = 0
    attempt: int = 0
    base: int = 0


@dataclass(frozen=True, slots=True)
class TakenByRegion:
    """What an epoch knows of a connection that enters its region: rows taken before the epoch was pinned, and rows
    that resets have cost there so far."""

    row: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """Of one element outside of regions, as of the moment before its step number `step` of run `run`."""

    element: ElementName
    run: int
    step: int = 0
    taken: Mapping[ConnectionId, Place] = field(default_factory=dict)
    """Of each input, the step under way included."""
    sent: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of each output, the step under way excluded."""
    in_flight: int = 0
    """Rows of the step under way; 0: none is."""
    absorbed: Mapping[OperatorName, int] = field(default_factory=dict)
    """Rows that each operator with state has taken since its own checkpoint, the step under way excluded."""
    lost: LostBySink = field(default_factory=dict)
    lost_rows: int = 0
    """Rows lost in this element, over all runs."""
    reach: Sinks = ()
    """Sinks that the element's rows lead to."""
    reach_of: Mapping[OperatorName, Sinks] = field(default_factory=dict)
    """The same for each operator with state."""

    def losing(self, losses: Iterable[Loss]) -> Account:
        """The account after losses that happened at once: they may speak of the same rows, so the largest counts."""
        found = list(losses)
        lost = dict(self.lost)
        for sink in {sink for loss in found for sink in loss.sinks}:
            lost[sink] = lost.get(sink, 0) + max(loss.rows for loss in found if sink in loss.sinks)
        rows = max((loss.rows for loss in found), default=0)
        return replace(self, lost=lost, lost_rows=self.lost_rows + rows)


@dataclass(frozen=True, slots=True)
class Loss:
    """Rows that are gone, for the sinks they would have reached."""

    element: ElementName
    rows: int
    reason: str
    sinks: Sinks


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
    sent_by_regions: Mapping[ConnectionId, SentByRegion] = field(default_factory=dict)
    taken_by_regions: Mapping[ConnectionId, TakenByRegion] = field(default_factory=dict)
    settled: Mapping[ConnectionId, int] = field(default_factory=dict)
    """Of connections into regions: rows up to which an earlier settlement counted."""
    ports: Mapping[ConnectionId, tuple[ElementName, Sinks]] = field(default_factory=dict)
    """Of connections into regions: the element they enter, and the sinks behind it."""

    def sender(self, connection: ConnectionId) -> Account | None:
        return next((a for a in self.accounts.values() if connection in a.sent), None)


def settle(books: Books, run: int) -> tuple[dict[ElementName, Account], list[Loss]]:
    """The accounts with which run number `run` begins, and every loss that was found, those at the borders of regions
    included, which no account holds."""
    told: list[Loss] = []
    accounts: dict[ElementName, Account] = {}
    for name, account in books.accounts.items():
        at_once = [*_in_step(account, books), *_in_states(account, books)]  # partly the same rows
        after = _counted(account, at_once, books, told)
        absorbed = dict.fromkeys(account.absorbed, 0)
        accounts[name] = replace(after, run=run, step=0, absorbed=absorbed)
    return accounts, told + list(at_borders(books))


def close(books: Books) -> tuple[dict[ElementName, Account], list[Loss]]:
    """The accounts that a run leaves when it ends, and what its end cost. What operators hold is not lost before another
    run begins without it."""
    told: list[Loss] = []
    accounts = {
        name: _counted(account, list(_in_step(account, books)), books, told)
        for name, account in books.accounts.items()
    }
    return accounts, told + list(at_borders(books))


def _counted(account: Account, at_once: list[Loss], books: Books, told: list[Loss]) -> Account:
    """The account with nothing under way: what was lost is counted, what was sent and never taken is over."""
    told += [max(at_once, key=lambda loss: loss.rows)] if at_once else []
    after = account.losing(at_once)
    for loss in _in_queues(account, books):
        told.append(loss)
        after = after.losing([loss])
    sent = {c: max(row, _taken(c, books)) for c, row in account.sent.items()}
    taken = {c: _begin(c, place, books) for c, place in account.taken.items()}
    return replace(after, in_flight=0, sent=sent, taken=taken)


def _in_step(account: Account, books: Books) -> Iterable[Loss]:
    if account.in_flight and not _has_ended(account, books):
        reason = "the run ended in the middle of a step"
        yield Loss(account.element, account.in_flight, reason, account.reach)


def _has_ended(account: Account, books: Books) -> bool:
    """True if the step under way is known to have ended: somebody has what came after it, everywhere it went."""
    if any(_covers(books.covered.get(name), account) for name in account.absorbed):
        return True
    if not account.sent:
        return False
    return all(_taken(connection, books) > sent for connection, sent in account.sent.items())


def _covers(covered: Covered | None, account: Account) -> bool:
    return covered is not None and (covered.run, covered.step) >= (account.run, account.step)


def _taken(connection: ConnectionId, books: Books) -> int:
    """How far the receiver of a connection is known to have come."""
    if connection in books.taken_by_regions:
        return books.taken_by_regions[connection].row
    places = [a.taken[connection].row for a in books.accounts.values() if connection in a.taken]
    return max(places, default=0)


def _in_states(account: Account, books: Books) -> Iterable[Loss]:
    for name, absorbed in account.absorbed.items():
        rows = absorbed + account.in_flight
        if rows and not _covers(books.covered.get(name), account):
            reason = f"operator {name} took them after its last checkpoint, or has none"
            yield Loss(account.element, rows, reason, account.reach_of.get(name, account.reach))


def _in_queues(account: Account, books: Books) -> Iterable[Loss]:
    for connection, place in account.taken.items():
        rows = _sent(connection, place, books) - place.row
        if rows > 0:
            yield Loss(account.element, rows, "they waited in a queue when the run ended", account.reach)


def _sent(connection: ConnectionId, place: Place, books: Books) -> int:
    """Up to which row a connection will never bring again what was sent along it, in the numbering of `place`."""
    out = books.sent_by_regions.get(connection)
    if out is None:
        sender = books.sender(connection)
        return 0 if sender is None else sender.sent[connection]
    if place.attempt == out.attempt:
        return out.row
    # What was taken in another attempt, behind the base of this one, was sent again: no part of it is proved.
    return out.row + max(0, place.row - out.base)


def at_borders(books: Books) -> Iterable[Loss]:
    """Rows that entered regions, or waited to, and that no epoch holds."""
    for connection, (element, sinks) in books.ports.items():
        sender = books.sender(connection)
        held = books.taken_by_regions.get(connection, TakenByRegion()).row
        rows = 0 if sender is None else sender.sent[connection] - max(held, books.settled.get(connection, 0))
        if rows > 0:
            yield Loss(element, rows, "they entered a region after its newest epoch, or waited to", sinks)


def _begin(connection: ConnectionId, place: Place, books: Books) -> Place:
    out = books.sent_by_regions.get(connection)
    if out is not None:
        return Place(out.row, out.attempt)
    return Place(max(place.row, _sent(connection, place, books)), place.attempt)
