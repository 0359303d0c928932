"""Messages and time of the protocol grow with the region as a line, whatever the mode, also after a burst."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.chaos.growth.scale import grown
from holdfast.cli.main import run_command
from holdfast.protocol.shape import TOGETHER, Mode


@pytest.mark.parametrize("mode", TOGETHER)
def test_messages_and_time_grow_no_faster_than_the_region(mode: Mode) -> None:
    small, large = grown(200, mode), grown(2000, mode)
    for field in ("epoch_messages", "recovery_messages"):
        assert getattr(large, field) / getattr(small, field) == pytest.approx(10, rel=0.15)
    for field in ("epoch_time", "recovery_time"):
        assert getattr(large, field) / getattr(small, field) <= 10
    assert small.recovery_messages > small.elements


def test_one_hop_tokens_take_the_same_time_however_deep_the_region() -> None:
    assert grown(2000, "async").epoch_time <= grown(50, "async").epoch_time + 2


def test_the_command_tells_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "scale.png"
    assert run_command(["simulate", "--sizes", "10,50", "--plot", str(picture), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["mode"], each["elements"]) for each in told][:2] == [("drain", 10), ("drain", 50)]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run_command(["simulate", "--sizes", "10,x"]) == 3
    assert "'10,x' are no sizes" in capsys.readouterr().err
