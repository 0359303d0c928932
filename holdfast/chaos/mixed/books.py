"""The books of a simulated run: what is read when it begins, what is written when it begins and ends.

A model of the run time's rim: it reads records, lets `settle` and `close` decide, and writes the result at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from holdfast.chaos.mixed.graph import MixedGraph
from holdfast.chaos.mixed.store import BooksRecord, MixedStore
from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import (
    Account,
    Books,
    TakenByRegion,
    at_borders,
    close,
    settle,
    settled_after,
)


class SimBooks:
    """Subclasses plant defects by overriding one small method."""

    def __init__(self, graph: MixedGraph, store: MixedStore) -> None:
        self.graph = graph
        self.store = store
        self.ports = {
            wire.id: (element.name, element.reach)
            for element in graph.elements if element.in_region
            for wire in element.inputs if not wire.is_link
        }  # fmt: skip

    # --- beginning and end of a run -----------------------------------------------------------------------------

    def opening(self, run: int) -> BooksRecord:
        """The books with which a run begins; nothing is written yet."""
        books = self.books(self.saved_accounts())
        accounts, _ = settle(books, run)
        return self._record(books, accounts, run, closed=False)

    def closing(self, accounts: Mapping[ElementName, Account]) -> BooksRecord:
        """The books with which the run ends, from the accounts in memory."""
        books = self.books(accounts)
        after, _ = close(books)
        return self._record(books, after, self.store.books.run, closed=True)

    def _record(
        self, books: Books, accounts: Mapping[ElementName, Account], run: int, *, closed: bool
    ) -> BooksRecord:
        lost = Counter(self.store.books.border_lost)
        lost.update({connection: loss.rows for connection, loss in at_borders(books).items()})
        return BooksRecord(run, closed, accounts, self.settled(books), lost)

    def settled(self, books: Books) -> Mapping[ConnectionId, int]:
        return settled_after(books)

    # --- what is found ------------------------------------------------------------------------------------------

    def books(self, accounts: Mapping[ElementName, Account]) -> Books:
        return Books(
            accounts,
            {op: checkpoint.covers for op, checkpoint in self.store.checkpoints.items()},
            sent_by_regions=self.sent_by_regions(),
            taken_by_regions=self.taken_by_regions(),
            settled=self.store.books.settled,
            ports=self.ports,
        )

    def saved_accounts(self) -> dict[ElementName, Account]:
        books = self.store.books
        accounts = dict(books.accounts)
        for name, record in self.store.records.items():
            if not books.closed and record.account.run == books.run:
                accounts[name] = up_to_date(record.account, record.uncounted)
        return accounts

    def sent_by_regions(self) -> dict[ConnectionId, int]:
        return {c: row for part in self.store.epoch.values() for c, row in part.sent.items()}

    def taken_by_regions(self) -> dict[ConnectionId, TakenByRegion]:
        return {c: taken for part in self.store.epoch.values() for c, taken in part.taken.items()}

    # --- what a person reads ------------------------------------------------------------------------------------

    def counted(
        self,
        accounts: Mapping[ElementName, Account],
        lost_by_resets: Mapping[ConnectionId, int] | None = None,
    ) -> dict[OperatorName, int]:
        """Rows counted as lost, per sink. `lost_by_resets`: as the run that goes on knows; else as the epoch does."""
        counted: dict[OperatorName, int] = {}
        for account in accounts.values():
            for sink, rows in account.lost.items():
                counted[sink] = counted.get(sink, 0) + rows
        if self.ports:
            if lost_by_resets is None:
                lost_by_resets = {c: taken.lost for c, taken in self.taken_by_regions().items()}
            for connection, (_, sinks) in self.ports.items():
                rows = self.store.books.border_lost.get(connection, 0) + lost_by_resets[connection]
                for sink in sinks:
                    counted[sink] = counted.get(sink, 0) + rows
        return counted


def up_to_date(account: Account, uncounted: int) -> Account:
    """With the rows of a step under way that nobody had counted when it began."""
    return replace(account, in_flight=account.in_flight + uncounted) if uncounted else account
