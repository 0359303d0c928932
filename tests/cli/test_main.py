"""The command line: errors in one sentence with distinct exit codes, and the README's program with its real output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.cli.load import load_topology
from holdfast.cli.main import run_command
from holdfast.errors import ConfigError, HoldfastError
from holdfast.testing import run_local

ROOT = Path(__file__).parents[2]

LOCAL = """
import holdfast as hf

numbers = hf.Topology("numbers")
rows = numbers.source(hf.Rows([(1,), (2,)], "n long"), name="rows").consistent(name="r")
rows.sink(hf.MemorySink("cli-numbers"), name="out")
"""


def subclasses(cls: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [cls, *(deeper for below in cls.__subclasses__() for deeper in subclasses(below))]


@pytest.mark.fault("O06")
def test_every_kind_of_error_in_the_tree_has_an_exit_code_of_its_own() -> None:
    declared = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, HoldfastError)
    ]
    codes = [cls.exit_code for cls in declared]
    assert len(codes) == len(set(codes))
    assert all(f"{cls.__name__}" in (errors.__doc__ or "") for cls in declared)


def test_errors_survive_the_way_between_processes() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(ConfigError("it is wrong.", cure="Mend it.")))
    assert (str(error), error.cure, type(error)) == ("it is wrong. Mend it.", "Mend it.", ConfigError)


def test_explain_needs_no_java_where_no_expression_is_sparks(tmp_path: Path) -> None:
    program = tmp_path / "simple.py"
    program.write_text(LOCAL)
    told = explained_without_java(program)
    assert told.returncode == 0, told.stderr
    assert "topology numbers: 2 operators" in told.stdout
    program.write_text(LOCAL.replace("rows.sink", 'rows.filter("n > 1").sink'))
    assert explained_without_java(program).returncode != 0, "or there was one, and the test shows nothing"


def explained_without_java(program: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from holdfast.cli.main import run; run()", "explain", str(program)],
        env={**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}, capture_output=True, text=True,
    )  # fmt: skip


def test_a_missing_file_is_one_sentence_and_a_next_step(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nothing\.py"):
        load_topology(str(tmp_path / "nothing.py"))


def test_a_file_without_a_topology_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "empty_program.py").write_text("x = 1\n")
    with pytest.raises(ConfigError, match="has 0 topologies") as caught:
        load_topology(str(tmp_path / "empty_program.py"))
    assert "hf" in caught.value.cure or "Topology" in caught.value.cure


def test_one_of_several_topologies_is_chosen_by_name(tmp_path: Path) -> None:
    text = 'import holdfast as hf\na = hf.Topology("first")\nb = hf.Topology("second")\n'
    (tmp_path / "two_programs.py").write_text(text)
    assert load_topology(f"{tmp_path / 'two_programs.py'}:b").name == "second"
    with pytest.raises(ConfigError, match="has 2 topologies") as caught:
        load_topology(str(tmp_path / "two_programs.py"))
    assert ":a, :b" in caught.value.cure


def test_status_of_a_finished_run_is_read_from_its_store(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "numbers_program.py").write_text(LOCAL)
    run_local(load_topology(str(tmp_path / "numbers_program.py")), store=str(tmp_path / "store"))
    assert run_command(["status", str(tmp_path / "store"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["alive"] is False
    assert found["summary"]["regions"]["r"]["phase"] == "stopped"
    assert any(event["kind"] == "epoch.published" for event in found["events"])


def test_status_for_people_is_a_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "numbers_again.py").write_text(LOCAL)
    run_local(load_topology(str(tmp_path / "numbers_again.py")), store=str(tmp_path / "store"))
    assert run_command(["status", str(tmp_path / "store")]) == 0
    shown = capsys.readouterr().out
    assert "no run is alive" in shown
    assert "epoch.published" in shown


def test_stop_without_a_live_run_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "numbers_stop.py").write_text(LOCAL)
    run_local(load_topology(str(tmp_path / "numbers_stop.py")), store=str(tmp_path / "store"))
    assert run_command(["stop", str(tmp_path / "store")]) == ConfigError.exit_code
    assert "no run is alive" in capsys.readouterr().err


def test_a_wrong_store_url_is_refused_without_a_stack(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["status", "ftp://somewhere/else"]) == ConfigError.exit_code
    shown = capsys.readouterr().err
    assert "error:" in shown
    assert "Traceback" not in shown


def test_an_unknown_benchmark_names_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", "nonsense"]) == ConfigError.exit_code
    assert "stateless" in capsys.readouterr().err


@pytest.mark.always
@pytest.mark.spark
@pytest.mark.slow
def test_the_program_of_the_readme_runs_and_prints_what_the_readme_shows(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```python\n(import holdfast.*?)```", readme, re.DOTALL)
    shown = re.search(r"\$ cat out/\*\n(.*?)\n\n", readme, re.DOTALL)
    assert program
    assert shown
    (tmp_path / "shop.py").write_text(program.group(1))
    (tmp_path / "orders").mkdir()
    rows = [(1, "ada", 1200), (2, "bob", 300), (3, "ada", 50)]
    lines = [json.dumps({"id": i, "customer": who, "cents": cents}) for i, who, cents in rows]
    (tmp_path / "orders" / "a.json").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-c", "from holdfast.cli.main import run; run()"]
    arguments = ["run", "shop.py", "--store", "store", "--until", "available", "--json"]
    done = subprocess.run(
        command + arguments,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["regions"]["shop"]["phase"] == "stopped"
    written = [
        line for file in sorted((tmp_path / "out").glob("*.json")) for line in file.read_text().splitlines()
    ]
    assert sorted(written) == sorted(shown.group(1).splitlines())
