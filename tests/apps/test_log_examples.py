"""The examples with logs: their programs are killed as the demonstrations do it, here without Spark, and nothing is lost or doubled."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import DRIVER_KILLED, fired

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "lives"), [("two_programs", 2), ("socket_exactly_once", 1)])
def test_a_demonstration_finds_each_row_once(
    name: str, lives: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example(name).demonstrate(tmp_path / "here", 3000, 1500.0, 0.05, local=True, kills=1)
    fired(DRIVER_KILLED, lives)
    said = capsys.readouterr().out
    assert said.count("killed") == 2 * lives
    assert "rows lost: 0, doubled or wrong: 0; exactly once" in said


def test_a_demonstration_notices_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("two_programs")
    right = module.expected(300)
    monkeypatch.setattr(module, "expected", lambda rows: [*right[1:], right[1]])
    assert not module.demonstrate(tmp_path / "here", 300, 3000.0, 0.05, local=True, kills=0)
