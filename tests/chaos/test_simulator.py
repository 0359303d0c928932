"""Thousands of random schedules against the real protocol machines.

A hundred thousand per mode in `make chaos`; of these `make test` takes some thousands, other ones in every run."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest
from faults import fired
from many_schedules import WORKERS, in_processes
from sampling import Extent

from holdfast.chaos.outcome import Outcome, SimulationFailed, added_up
from holdfast.chaos.shapes import LANES_MAX, NAMED, random_scene
from holdfast.chaos.simulator import Simulator
from holdfast.chaos.store import SimStore
from holdfast.protocol.controller import CONTROLLER_MOVES
from holdfast.protocol.element_phases import ELEMENT_MOVES
from holdfast.protocol.phases import legal_moves
from holdfast.protocol.shape import TOGETHER, Mode

SCHEDULES = 100_000
"""Per mode."""
CHUNK = 500
CHUNKS_SAMPLED = 10

Chunk = tuple[Mode, range]


def simulated(chunk: Chunk) -> Outcome:
    mode, seeds = chunk
    return added_up(Outcome(), (Simulator(seed, mode=mode).run() for seed in seeds))


@pytest.mark.always
@pytest.mark.slow
@pytest.mark.timeout(1200)  # a busy machine may take long
@pytest.mark.fault("N03", "N04", "R03", "O10")
def test_no_schedule_breaks_an_invariant_and_every_legal_move_is_taken(
    tell: Callable[..., None], extent: Extent
) -> None:
    chunks = [
        (mode, range(first, first + CHUNK)) for mode in TOGETHER for first in range(0, SCHEDULES, CHUNK)
    ]
    chunks = extent.of(chunks, keep=CHUNKS_SAMPLED, per=lambda chunk: chunk[0])
    began = time.perf_counter()
    total = in_processes(simulated, Outcome(), chunks)
    fired("simulated fault", total.faults)
    elapsed_s = time.perf_counter() - began
    element_legal, element_taken = legal_moves(ELEMENT_MOVES), total.element_moves
    controller_legal, controller_taken = legal_moves(CONTROLLER_MOVES), total.controller_moves
    tell(
        "simulator",
        total.figures(),
        f"{elapsed_s:.1f} s, {total.schedules / elapsed_s:.0f} schedules/s with {WORKERS} workers",
        f"element moves {len(element_taken)}/{len(element_legal)}, "
        f"controller moves {len(controller_taken)}/{len(controller_legal)}",
    )
    assert total.schedules == CHUNK * len(chunks)
    assert element_taken == element_legal
    assert controller_taken == controller_legal


def test_epochs_asked_for_by_name_do_not_count_as_epochs_that_come_for_ever() -> None:
    """In this lull each period is over just before somebody asks for an epoch: seven in a row, and nothing wrong."""
    assert Simulator(81661, mode="token").run().rests


def test_a_failure_says_how_to_see_it_again_in_the_mode_that_was_chosen() -> None:
    class NeverPublishes(SimStore):
        def publish(self, *_: object) -> bool:
            return False

    with pytest.raises(SimulationFailed) as failed:
        Simulator(7, mode="token", store_class=NeverPublishes).run()
    assert "python -m holdfast.chaos.simulator --mode token --seed 7" in str(failed.value)


def test_every_schedule_has_enough_to_break() -> None:
    for seed in range(200):
        simulator = Simulator(seed)
        outcome = simulator.run()
        assert len(simulator.scene.region.elements) >= 3
        assert len(simulator.scene.rows) >= 2
        assert outcome.epochs_begun >= 5


def test_shapes_include_cycles_diamonds_and_fused_sources() -> None:
    scenes = [random_scene(Random(seed)) for seed in range(300)]
    assert any(link.control and link.source == link.target for s in scenes for link in s.region.links)
    assert any(name in s.rows and s.region.data_inputs(name) for s in scenes for name in s.region.elements)
    assert any(lane.control for s in scenes for lanes in s.lanes.values() for lane in lanes)
    assert any(
        len({lane.source for lane in lanes}) < len(lanes) for s in scenes for lanes in s.lanes.values()
    ), "no diamond"
    assert max(len(lanes) for s in scenes for lanes in s.lanes.values()) <= LANES_MAX
    assert "figure 3" in NAMED
