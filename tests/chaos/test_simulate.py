"""`holdfast simulate`: figures for machines, and failing schedules that are made short."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from holdfast.chaos import simulate, tapes
from holdfast.chaos.simulator import Simulator
from holdfast.chaos.world import World
from holdfast.cli.main import run_command
from holdfast.protocol.element import ElementMachine


class PinsAtTheFirstMarker(ElementMachine):
    def _has_data_markers(self) -> bool:
        return bool(self._delivered) or super()._has_data_markers()


class Defective(World):
    machine_class = PinsAtTheFirstMarker


def play(rng: Random) -> None:
    Simulator(0, mode="async", rng=rng, world_class=Defective).run()


def test_a_failing_schedule_becomes_much_shorter_and_fails_in_the_same_way() -> None:
    failures = (tapes.played(play, (), seed) for seed in range(300))
    failure = next(found for found in failures if found is not None and len(found.tape) > 400)
    short = tapes.shrunk(play, failure, tries=600)
    assert short.kind == failure.kind
    assert len(short.tape) < len(failure.tape) / 2
    again = tapes.played(play, short.tape)
    assert again == short


@pytest.mark.parametrize("mode", simulate.MODES)
def test_the_command_counts_schedules_for_machines(
    mode: simulate.SimulatedMode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["simulate", "--mode", mode, "--seeds", "30", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schedules"], told["violations"]) == (30, 0)
    assert told["events"] > 1000


def test_a_violation_is_shrunk_kept_and_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(World, "machine_class", PinsAtTheFirstMarker)
    kept = tmp_path / "tape.json"
    arguments = ["simulate", "--mode", "async", "--seeds", "60", "--keep", str(kept), "--json", "-"]
    assert run_command(arguments) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["violations"] > 0
    assert told["schedules"] == 60
    assert run_command(["simulate", "--tape", str(kept)]) == 1
    story = capsys.readouterr()
    assert f"FAILED {told['failed'][0]['shortest']['reason']}" in story.err
    assert "BeginEpoch" in story.out


def test_a_mode_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "--mode", "aware"]) == 3
    assert "there is no mode 'aware'" in capsys.readouterr().err
