"""What the accounts of elements outside of regions tell after the end of a run."""

from __future__ import annotations

from dataclasses import replace

from holdfast.ids import ConnectionId, ElementName, OperatorName
from holdfast.protocol.accounts import (
    Account,
    Books,
    Covered,
    Loss,
    TakenByRegion,
    at_borders,
    close,
    settle,
    settled_after,
)

READER, WRITER = ElementName("reader"), ElementName("writer")
WIRE, PORT, BORDER = ConnectionId("wire"), ConnectionId("port"), ConnectionId("border")
SINK, ASIDE = OperatorName("sink"), OperatorName("aside")
COUNTER, OTHER = OperatorName("counter"), OperatorName("other")


def reader(**fields: object) -> Account:
    """Of an element that sends along the wire; its rows lead to both sinks."""
    account = Account(READER, 1, 5, sent={WIRE: 20}, reach=(SINK, ASIDE))
    return replace(account, **fields)  # type: ignore[arg-type]


def writer(**fields: object) -> Account:
    """Of the element behind the wire; one sink."""
    return replace(Account(WRITER, 1, 4, taken={WIRE: 20}, reach=(SINK,)), **fields)  # type: ignore[arg-type]


def books(*accounts: Account, **known: object) -> Books:
    return replace(Books({a.element: a for a in accounts}), **known)  # type: ignore[arg-type]


def lost(accounts: dict[ElementName, Account]) -> dict[OperatorName, int]:
    sinks = {sink for account in accounts.values() for sink in account.lost}
    return {sink: sum(account.lost.get(sink, 0) for account in accounts.values()) for sink in sinks}


# --- what is counted ------------------------------------------------------------------------------------------------------


def test_a_run_that_left_nothing_under_way_lost_nothing() -> None:
    accounts, losses = settle(books(reader(), writer()), 2)
    assert losses == []
    assert lost(accounts) == {}
    assert {account.run for account in accounts.values()} == {2}
    assert {account.step for account in accounts.values()} == {0}


def test_a_step_that_was_under_way_is_lost_for_all_sinks_behind_it() -> None:
    accounts, losses = settle(books(reader(in_flight=3), writer()), 2)
    assert lost(accounts) == {SINK: 3, ASIDE: 3}
    assert accounts[READER].lost_rows == 3
    assert accounts[READER].in_flight == 0
    assert [(loss.element, loss.rows) for loss in losses] == [(READER, 3)]


def test_a_step_counts_even_if_its_rows_were_taken_since() -> None:
    """It may have given some of its rows back: what others took does not tell."""
    accounts, _ = settle(books(reader(in_flight=10), writer(taken={WIRE: 26})), 2)
    assert accounts[READER].lost == {SINK: 10, ASIDE: 10}
    assert accounts[READER].sent == accounts[WRITER].taken == {WIRE: 26}


def test_rows_that_waited_in_a_queue_are_lost_for_the_sinks_of_the_receiver() -> None:
    accounts, _ = settle(books(reader(), writer(taken={WIRE: 14})), 2)
    assert lost(accounts) == {SINK: 6}
    assert accounts[WRITER].taken == {WIRE: 20}, "the next run begins behind them"


def test_rows_absorbed_since_a_checkpoint_are_lost_once_with_the_step_under_way() -> None:
    account = reader(in_flight=2, absorbed={COUNTER: 7}, reach_of={COUNTER: (SINK,)})
    accounts, losses = settle(books(account, writer()), 2)
    assert lost(accounts) == {SINK: 9, ASIDE: 2}
    assert accounts[READER].lost_rows == 9
    assert [loss.rows for loss in losses] == [9]
    assert accounts[READER].absorbed == {COUNTER: 0}


def test_two_operators_that_lose_the_same_rows_count_them_once() -> None:
    behind = {COUNTER: (SINK,), OTHER: (SINK,)}
    account = reader(absorbed={COUNTER: 7, OTHER: 4}, reach_of=behind)
    accounts, _ = settle(books(account, writer()), 2)
    assert lost(accounts) == {SINK: 7}


def test_a_checkpoint_covers_what_its_operator_absorbed() -> None:
    account = reader(absorbed={COUNTER: 7, OTHER: 4}, reach_of={COUNTER: (SINK,), OTHER: (ASIDE,)})
    covered = {COUNTER: Covered(1, 5), OTHER: Covered(1, 4)}
    accounts, _ = settle(books(account, writer(), covered=covered), 2)
    assert lost(accounts) == {ASIDE: 4}


def test_a_checkpoint_of_an_earlier_run_covers_nothing_of_this_one() -> None:
    account = reader(absorbed={COUNTER: 7}, reach_of={COUNTER: (SINK,)})
    accounts, _ = settle(books(account, writer(), covered={COUNTER: Covered(0, 99)}), 2)
    assert lost(accounts) == {SINK: 7}


def test_losses_add_up_over_runs() -> None:
    first, _ = settle(books(reader(in_flight=3), writer()), 2)
    second, _ = settle(books(replace(first[READER], in_flight=2), first[WRITER]), 3)
    assert second[READER].lost == {SINK: 5, ASIDE: 5}
    assert second[READER].lost_rows == 5


def test_what_was_settled_is_not_settled_again() -> None:
    first, _ = settle(books(reader(in_flight=3), writer(taken={WIRE: 11})), 2)
    again, losses = settle(books(*first.values()), 3)
    assert losses == []
    assert lost(again) == lost(first)


def test_losses_at_once_count_the_largest_per_sink() -> None:
    losses = [Loss(READER, 3, "", (SINK, ASIDE)), Loss(READER, 8, "", (SINK,))]
    account = reader().losing(losses)
    assert account.lost == {SINK: 8, ASIDE: 3}
    assert account.lost_rows == 8
    assert reader().losing([]) == reader()


# --- the end of a run in order --------------------------------------------------------------------------------------------


def test_what_operators_hold_is_lost_by_the_next_run_and_not_by_the_end_of_this_one() -> None:
    account = reader(absorbed={COUNTER: 7}, reach_of={COUNTER: (SINK,)})
    closed, losses = close(books(account, writer()))
    assert losses == []
    assert closed[READER] == account
    opened, _ = settle(books(*closed.values()), 2)
    assert lost(opened) == {SINK: 7}


def test_a_run_that_is_cut_off_counts_steps_and_queues_when_it_ends() -> None:
    account = reader(in_flight=3, absorbed={COUNTER: 7}, reach_of={COUNTER: (SINK,)})
    closed, _ = close(books(account, writer(taken={WIRE: 18})))
    assert lost(closed) == {SINK: 5, ASIDE: 3}
    opened, _ = settle(books(*closed.values()), 2)
    assert lost(opened) == {SINK: 12, ASIDE: 3}, "the step is counted once"


# --- borders: out of a region ---------------------------------------------------------------------------------------------


def behind_region(taken: int) -> Account:
    return Account(WRITER, 1, 4, taken={BORDER: taken}, reach=(SINK,))


def test_rows_that_a_region_sent_before_its_epoch_are_lost_if_they_still_waited() -> None:
    accounts, _ = settle(books(behind_region(12), sent_by_regions={BORDER: 15}), 2)
    assert lost(accounts) == {SINK: 3}
    assert accounts[WRITER].taken == {BORDER: 15}


def test_rows_that_a_region_sent_after_its_epoch_come_again() -> None:
    accounts, _ = settle(books(behind_region(18), sent_by_regions={BORDER: 15}), 2)
    assert lost(accounts) == {}
    assert accounts[WRITER].taken == {BORDER: 15}, "the region goes on to number behind its epoch"


# --- borders: into a region -----------------------------------------------------------------------------------------------


def into_region(sent: int, held: int, *, settled: int = 0, in_flight: int = 0) -> Books:
    sender = Account(READER, 1, 5, sent={PORT: sent}, in_flight=in_flight, reach=(SINK,))
    return books(
        sender,
        taken_by_regions={PORT: TakenByRegion(held)},
        settled={PORT: settled},
        ports={PORT: (WRITER, (SINK,))},
    )


def test_rows_that_no_epoch_holds_are_lost_at_the_border() -> None:
    found = into_region(sent=20, held=12)
    assert {c: (loss.element, loss.rows, loss.sinks) for c, loss in at_borders(found).items()} == {
        PORT: (WRITER, 8, (SINK,))
    }
    accounts, losses = settle(found, 2)
    assert lost(accounts) == {}, "no account holds them"
    assert [loss.rows for loss in losses] == [8]


def test_what_an_earlier_settlement_counted_is_not_counted_again() -> None:
    assert settled_after(into_region(sent=20, held=12)) == {PORT: 20}
    assert at_borders(into_region(sent=20, held=12, settled=20)) == {}
    assert at_borders(into_region(sent=23, held=12, settled=20))[PORT].rows == 3


def test_an_epoch_may_hold_more_than_the_sender_saved() -> None:
    found = into_region(sent=20, held=24, in_flight=4)
    assert at_borders(found) == {}
    assert settled_after(found) == {PORT: 24}
    accounts, _ = settle(found, 2)
    assert accounts[READER].sent == {PORT: 24}


def test_a_connection_whose_sender_is_gone_keeps_what_was_settled() -> None:
    found = replace(into_region(sent=20, held=12, settled=20), accounts={})
    assert at_borders(found) == {}
    assert settled_after(found) == {PORT: 20}
