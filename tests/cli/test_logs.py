"""What the command line logs: lines for people, or JSON for machines, also of errors; a library installs nothing."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from holdfast.cli import logs
from holdfast.cli.main import run_command
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, TopologyError
from holdfast.runtime.telling.events import RowsLate
from holdfast.runtime.telling.run_log import RunLog

BROKEN = "def f():\n    raise ValueError('of no use')\n\nf()\n"


def test_lines_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.to_stderr(None, as_json=False, live=False):
        RunLog(ManualClock())(RowsLate("a", "tens", 2, 7))
        logging.getLogger("holdfast.run").debug("too much")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("WARNING operator 'tens': 2 late rows, 7 in all")


def test_one_json_object_per_line_with_the_event(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.to_stderr(None, as_json=True, live=False):
        RunLog(ManualClock())(RowsLate("a", "tens", 2, 7))
    (line,) = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["logger"], line["event"]) == ("warning", "holdfast.element", "rows.late")
    assert line["data"] == {"element": "a", "operator": "tens", "rows": 2, "total": 7}
    assert line["message"] == "operator 'tens': 2 late rows, 7 in all"


def test_beside_a_live_table_only_warnings_are_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with logs.to_stderr(None, as_json=False, live=True):
        logging.getLogger("holdfast.run").info("quiet")
        logging.getLogger("holdfast.run").warning("loud")
    assert [line.split()[-1] for line in capsys.readouterr().err.splitlines()] == ["loud"]


def test_an_error_is_a_json_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken_for_machines.py").write_text(BROKEN)
    command = ["run", str(tmp_path / "broken_for_machines.py"), "--log-json"]
    assert run_command(command) == TopologyError.exit_code
    (line,) = [json.loads(text) for text in capsys.readouterr().err.splitlines()]
    assert (line["level"], line["error"], line["exit_code"]) == (
        "error",
        "TopologyError",
        TopologyError.exit_code,
    )
    assert "line 2: ValueError: of no use" in line["message"]
    assert "Traceback" in line["traceback"]
    assert line["cure"]


def test_the_whole_traceback_is_there_for_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_for_people.py").write_text(BROKEN)
    command = ["run", str(tmp_path / "broken_for_people.py"), "--log-level", "debug"]
    assert run_command(command) == TopologyError.exit_code
    assert "in f\n    raise ValueError('of no use')" in capsys.readouterr().err


def test_an_unknown_level_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", "x.py", "--log-level", "loud"]) == ConfigError.exit_code
    assert "debug, info, warning, error" in capsys.readouterr().err


def test_nothing_is_installed_when_the_command_is_over() -> None:
    before = logging.getLogger("holdfast").level
    run_command(["run", "nothing.py", "--log-json"])
    ours = logging.getLogger("holdfast")
    assert (ours.handlers, ours.level, ours.propagate) == ([], before, True)


def test_an_interrupt_while_spark_is_asked_something_is_not_told_by_py4j(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = "import logging\ntry:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n"
    py4j = compile(text + "    logging.exception(said)\n", "py4j/java_gateway.py", "exec")
    with logs.to_stderr("info", False, False):
        exec(py4j, {"said": "KeyboardInterrupt while sending command."})
        exec(py4j, {"said": "something else"})
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    assert logging.getLogger().filters == []
