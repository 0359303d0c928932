"""Thousands of random schedules against the machines and accounts of best effort, alone and around a region."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
from many_schedules import WORKERS, in_processes

from holdfast.chaos.mixed.graph import MixedGraph, random_graph
from holdfast.chaos.mixed.simulator import MixedSimulator, simulate_mixed
from holdfast.chaos.outcome import MixedOutcome
from holdfast.chaos.shapes import LANES_MAX
from holdfast.protocol.autonomous import AUTONOMOUS_MOVES
from holdfast.protocol.controller import CONTROLLER_MOVES, ControllerPhase
from holdfast.protocol.phases import legal_moves

SCHEDULES = 20_000
CHUNK = 500


@pytest.mark.always
@pytest.mark.slow
@pytest.mark.timeout(1200)  # a busy machine may take long
@pytest.mark.fault("R08", "R03", "O09")
def test_no_schedule_breaks_an_invariant_and_every_legal_move_is_taken(tell: Callable[..., None]) -> None:
    began = time.perf_counter()
    chunks = [range(first, first + CHUNK) for first in range(0, SCHEDULES, CHUNK)]
    total = in_processes(simulate_mixed, MixedOutcome(), chunks)
    elapsed_s = time.perf_counter() - began
    tell(
        "mixed simulator",
        total.figures(),
        f"{elapsed_s:.1f} s, {SCHEDULES / elapsed_s:.0f} schedules/s with {WORKERS} workers",
        f"moves {len(total.moves)}/{len(legal_moves(AUTONOMOUS_MOVES))}",
    )
    assert total.schedules == SCHEDULES
    assert total.moves == legal_moves(AUTONOMOUS_MOVES)
    assert {there for _, there in total.controller_moves} == set(CONTROLLER_MOVES) - {ControllerPhase.NEW}
    assert SCHEDULES / 3 < total.with_region < SCHEDULES * 2 / 3
    assert total.kills > SCHEDULES / 2


def test_graphs_have_all_that_can_go_wrong() -> None:
    graphs = [random_graph(Random(seed)) for seed in range(300)]
    assert {sum(not e.in_region for e in graph.elements) for graph in graphs} == {1, 2, 3, 4, 5}
    elements = [element for graph in graphs for element in graph.elements]
    assert any(len(e.inputs) == 2 and not e.in_region for e in elements), "no join"
    assert any(len(e.outputs) == 2 and not e.in_region for e in elements), "no fan-out"
    assert any(len(e.operators) == 2 and len(e.kept) == 1 for e in elements)
    assert any(e.sinks and e.outputs for e in elements), "no sink in the middle"
    assert any(e.row_count and e.inputs for e in elements), "no source in the middle"
    assert any(graph.plain_sinks for graph in graphs)
    assert any(enters(graph) and leaves(graph) for graph in graphs)
    assert (
        max(element.rows.bit_length() // graph.width for graph in graphs for element in graph.elements)
        <= LANES_MAX
    )


def enters(graph: MixedGraph) -> bool:
    return any(e.in_region and not wire.is_link for e in graph.elements for wire in e.inputs)


def leaves(graph: MixedGraph) -> bool:
    return any(e.in_region and not wire.is_link for e in graph.elements for wire in e.outputs)


def test_a_schedule_without_faults_counts_nothing() -> None:
    for seed in range(200):
        simulator = MixedSimulator(seed)
        simulator.faults.left = 0
        outcome = simulator.run()
        assert (outcome.runs, outcome.lost) == (1, 0), f"seed {seed}"
        for element in simulator.graph.elements:
            for sink, _ in element.sinks:
                assert simulator.checkers.shown[sink] == element.rows, f"seed {seed}: {sink} is not complete"
