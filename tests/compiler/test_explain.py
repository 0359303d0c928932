"""Plans print well; the printed plan is the test."""

from __future__ import annotations

from textwrap import dedent

import pytest

import holdfast.language.operators.aggregates as agg
from holdfast.compiler.explain import explain_mermaid, explain_text, guarantees
from holdfast.language.topology import Topology
from holdfast.sinks import ForeachBatch
from tests.language.fakes import WORDS, EpochSink, FakeSink, FakeSource, Python, compiled


def payments() -> Topology:
    t = Topology("payments")
    orders = t.source(FakeSource(), "orders").consistent("pay", period=2)
    big, small = orders.split("amount > 100", otherwise=True, names=["big", "small"], name="size")
    big.aggregate("word", n=agg.count(), name="totals").sink(EpochSink(), name="files")
    small.apply(Python, WORDS, name="mail").sink(FakeSink(), name="console")
    orders.autonomous().sink(EpochSink(), name="feed")
    return t


def test_text_shows_regions_elements_and_guarantees() -> None:
    expected = """\
        topology payments: 7 operators, 3 elements, 1 region

        region pay: mode async, every 2 s
          starts   orders
          members  orders, size, totals, files, mail, console

        elements
          element  region  operators                    reads from
          orders   pay     orders, size, totals, files  -
          mail     pay     mail, console                size.1
          feed     -       feed                         orders

        operators
          operator  kind       what                              order
          orders    source     FakeSource                        positions
          size      split      into big, small: amount > 100     positions
          totals    aggregate  by word: n=count(), emit changes  -
          files     sink       EpochSink                         -
          mail      hosted     Python                            -
          console   sink       FakeSink                          -
          feed      sink       EpochSink                         -

        sinks
          sink     guarantee      visible                  reason
          files    exactly-once   after each epoch, ≈ 2 s  in region pay; files appear when their epoch is published
          console  at-least-once  at once                  in region pay; it cannot take a written row back
          feed     best effort    at once                  autonomous: region pay ends before it; rows of it may come again after a reset, those lost are counted
        """
    assert explain_text(compiled(payments())) == dedent(expected)


def test_mermaid_shows_regions_elements_and_control_ports() -> None:
    t = Topology("loop")
    back = t.feedback(WORDS)
    a = t.source(FakeSource(), "a").consistent("r")
    p = t.operator(Python, inputs=[a], control=[back.stream], schema=WORDS, name="p")
    back.complete(p)
    p.sink(EpochSink(), name="x")
    p.autonomous().sink(FakeSink(), name="y")
    assert explain_mermaid(compiled(t)) == dedent(
        """\
        flowchart LR
          subgraph r0["region r"]
            subgraph e0["element a"]
              o0["a<br/>source"]
            end
            subgraph e1["element p"]
              o1["p<br/>hosted"]
              o2["x<br/>sink<br/>exactly-once"]
            end
          end
          subgraph e2["element y"]
            o3["y<br/>sink<br/>best effort"]
          end
          o0 ==> o1
          o1 -. control .-> o1
          o1 --> o2
          o1 ==> o3
        """
    )


@pytest.mark.parametrize(
    ("options", "visible"),
    [
        ({"period": 0.5}, "after each epoch, ≈ 0.5 s"),
        ({"trigger": "operator"}, "after each epoch, when the source asks for one"),
        ({"trigger": "manual"}, "after each epoch, on demand"),
    ],
)
def test_exactly_once_rows_wait_for_their_epoch(options: dict[str, object], visible: str) -> None:
    t = Topology("t")
    t.source(FakeSource(), "a").consistent(**options).sink(EpochSink(), name="x")  # type: ignore[arg-type]
    assert [each.visible for each in guarantees(compiled(t))] == [visible]


def test_a_sink_no_region_reaches_is_best_effort() -> None:
    t = Topology("t")
    t.source(FakeSource()).sink(EpochSink())
    only = guarantees(compiled(t))[0]
    assert (only.guarantee, only.reason, only.visible) == (
        "best effort",
        "autonomous: no region reaches it; rows come at most once, those lost are counted",
        "at once",
    )


def test_a_topology_without_sinks_can_be_explained() -> None:
    t = Topology("t")
    t.source(FakeSource(), "a")
    assert "sinks" not in explain_text(compiled(t))


def test_a_promise_names_the_ports_that_are_best_effort() -> None:
    t = Topology("mixed")
    exact = t.source(FakeSource(), "exact").consistent("r")
    loose = t.source(FakeSource(), "loose")
    both = t.operator(Python, inputs=[exact, loose.autonomous()], schema=WORDS, name="both")
    both.sink(EpochSink(), name="out")
    (only,) = guarantees(compiled(t))
    assert only.guarantee == "exactly-once"
    assert only.reason.endswith("; but rows that enter by port 1 of both are best effort")


def test_a_function_that_is_called_per_epoch_shows_rows_with_their_epoch() -> None:
    t = Topology("calls")
    rows = t.source(FakeSource(), name="rows").consistent("r", period=3)
    rows.sink(ForeachBatch(print, per="epoch", staging="staging"), name="epochs")
    rows.sink(ForeachBatch(print), name="steps")
    told = {each.sink: (each.guarantee, each.visible) for each in guarantees(compiled(t))}
    assert told == {
        "epochs": ("at-least-once", "after each epoch, ≈ 3 s"),
        "steps": ("at-least-once", "at once"),
    }
