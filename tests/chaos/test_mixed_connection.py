"""The simulated connection, and why rows that a region sends again are not numbered as they were."""

from __future__ import annotations

from holdfast.chaos.mixed.connection import SimConnection
from holdfast.chaos.mixed.graph import Wire
from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import Account, Books, settle

BORDER = ConnectionId("border")


def connection(opened: int = 0) -> SimConnection:
    return SimConnection(Wire(BORDER, 0, 1, 0, 8, False), opened, 0, 3)


def counted(border: SimConnection, epoch: int) -> int:
    account = Account(ElementName("element"), 1, taken={BORDER: border.taken}, reach=(OperatorName("sink"),))
    accounts, _ = settle(Books({account.element: account}, sent_by_regions={BORDER: epoch}), 2)
    return accounts[account.element].lost_rows


def test_what_waits_is_what_was_sent_and_not_taken() -> None:
    border = connection(opened=10)
    border.put(0b0111)
    border.put(0b1000)
    assert border.take() == 0b0111 << 8
    assert (border.sent, border.taken, border.waiting) == (14, 13, 0b1000)
    border.give_back(13, 0b0110 << 8)
    assert (border.taken, border.waiting) == (11, 0b1110)


def test_after_a_reset_of_the_sender_only_what_waits_gives_its_numbers_back() -> None:
    border = connection()
    for rows in (0b0001, 0b0010, 0b0100):
        border.put(rows)
    border.take()
    border.take()
    border.rewind(1)  # the epoch holds the first row; the second was taken since
    assert (border.sent, border.taken, border.waiting) == (2, 2, 0)


def test_rows_sent_anew_in_another_order_are_counted_in_full_if_nobody_took_them() -> None:
    border = connection()
    border.put(0b0011)
    border.take()
    border.rewind(0)
    border.put(0b1100)  # the region reads other rows first this time; an epoch holds them
    epoch = border.sent
    assert counted(border, epoch) == 2


def test_rows_thrown_away_at_the_border_of_a_region_are_counted_over_resets() -> None:
    port = connection(opened=5)
    port.put(0b0011)
    port.take()
    port.throws_away = True
    port.put(0b0100)
    assert (port.lost, port.taken, port.waiting) == (1, 8, 0)
    port.restored(row=4, lost=2)  # the epoch knows of two lost rows, and of none since this run began
    assert port.lost == 2 + 3
