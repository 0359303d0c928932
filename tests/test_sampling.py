"""What a run draws, and the table of what it broke."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chaos_page import passed_whole, with_rows
from chaos_table import FAULTS, Table, passed, read_cases
from long_tests import DRAWN_S, drawn_tests, merged
from sampling import SEED, Extent

HERE = Path(__file__).parent
CASES = [(name, action) for name in "abcdefgh" for action in ("kill", "raise", "stop")]


def drawn(seed: int, monkeypatch: pytest.MonkeyPatch, keep: int = 1) -> list[tuple[str, str]]:
    monkeypatch.setenv(SEED, str(seed))
    return Extent(False, "test").of(CASES, keep, per=lambda case: case[0])


def test_a_sample_has_some_cases_of_each_group_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        chosen = drawn(seed, monkeypatch, keep=2)
        assert [name for name, _ in chosen] == sorted(2 * "abcdefgh")
        assert chosen == [case for case in CASES if case in chosen]


def test_a_seed_draws_the_same_again_and_others_draw_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(7, monkeypatch) == drawn(7, monkeypatch)
    assert {case for seed in range(40) for case in drawn(seed, monkeypatch)} == set(CASES)
    assert Extent(True, "test").of(CASES) == CASES


@pytest.mark.parametrize("chaos", [False, True])
def test_a_case_that_is_not_drawn_is_a_chaos_test(chaos: bool) -> None:
    """Of a parametrised test with eleven failpoints and three modes."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "chaos" if chaos else "not chaos",
    ]
    done = subprocess.run(
        [*command, str(HERE / "runtime" / "damage" / "test_two_drivers.py"), "-k", "in_the_middle_of_a_write"],
        env={**os.environ, SEED: "3"}, cwd=HERE.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.findall(r"\[(.*)-(async|drain|token)\]", done.stdout)
    assert len({where for where, _ in found}) == 11
    assert len(found) == (33 if chaos else 11)


def test_long_tests_that_fit_are_drawn_from_every_file_and_each_comes_in_some_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {f"file{n % 9}.py::test_{n}": 5.0 + n for n in range(30)}
    ever: set[str] = set()
    for seed in range(100):
        monkeypatch.setenv(SEED, str(seed))
        drawn = drawn_tests(seconds)
        left = DRAWN_S - sum(seconds[name] for name in drawn)
        assert left >= 0
        assert all(left < seconds[name] for name in set(seconds) - drawn)
        assert len({name.partition("::")[0] for name in drawn}) == 9
        assert drawn == drawn_tests(seconds)
        ever |= drawn
    assert ever == set(seconds)


def test_what_was_measured_is_known_until_it_is_measured_again() -> None:
    known = {"a": 5.0, "b": 4.0, "gone quick": 9.0}
    assert merged(known, {"a": 7.04, "gone quick": 1.0, "new": 3.0}) == {"a": 7.0, "b": 4.0, "new": 3.0}


@pytest.mark.parametrize("chaos", [False, True])
def test_a_long_test_that_is_not_drawn_is_a_chaos_test(chaos: bool, tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_one(n): pass\n"
        "@pytest.mark.always\ndef test_two(): pass\ndef test_three(): pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n chaos\n always\n sampled\n")
    (tmp_path / "narrow.py").write_text(
        "import long_tests\nlong_tests.DRAWN_S = 3\n"
        "long_tests.read = lambda: {'test_long.py::test_one': 4, 'test_long.py::test_two': 4}\n"
    )
    plugins = [word for name in ("narrow", "sampling", "long_tests") for word in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-q", "--collect-only", "-m", "chaos" if chaos else "not chaos", "test_long.py"],
        env={**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{tmp_path}"}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.findall(r"::(test_\w+)", done.stdout)
    assert found == (["test_one", "test_one"] if chaos else ["test_two", "test_three"])


def report(node: str, when: Any, outcome: Any = "passed", **faults: int) -> pytest.TestReport:
    told = [(FAULTS, faults)] if when == "teardown" else []
    return pytest.TestReport(
        node, ("", 0, ""), {"chaos": 1}, outcome, None, when, [], 0.5, user_properties=told
    )


def test_the_table_has_a_row_per_test_and_names_the_cases_that_failed(tmp_path: Path) -> None:
    table = Table(tmp_path / "new" / "table.md")
    for case, outcome in (("first", "passed"), ("second", "failed")):
        node = f"tests/some/test_thing.py::test_it_holds[{case}]"
        table.pytest_runtest_logreport(report(node, "setup"))
        table.pytest_runtest_logreport(report(node, "call", outcome))
        table.pytest_runtest_logreport(report(node, "teardown", killed=2, stopped=0))
    table.pytest_runtest_logreport(report("tests/test_other.py::test_a", "setup", "skipped"))
    table.pytest_runtest_logreport(report("tests/test_other.py::test_a", "teardown"))
    summary, _, _, _, *rows = (tmp_path / "new" / "table.md").read_text().splitlines()
    assert "1 failed, 1 passed, 1 skipped, 4 faults counted" in summary
    assert rows == [
        "| some/thing | it holds | 4 × killed | 1 failed, 1 passed; failed: second | 3 |",
        "| other | a | – | 1 skipped | 1 |",
    ]


def test_a_run_goes_on_with_what_an_earlier_one_has_told(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    nodes = [f"tests/test_thing.py::test_it_holds[{case}]" for case in "abc"]
    for go_on, told in ((False, {"a": "passed", "b": "failed"}), (True, {"b": "passed", "c": "failed"})):
        table = Table(path, go_on)
        for case, outcome in told.items():
            node = nodes["abc".index(case)]
            table.pytest_runtest_logreport(report(node, "setup"))
            table.pytest_runtest_logreport(report(node, "call", outcome))
            table.pytest_runtest_logreport(report(node, "teardown", killed=1))
    assert passed(read_cases(path)) == nodes[:2]
    assert "1 failed, 2 passed, 3 faults counted" in path.read_text()


PAGE = """Words.

| where | what | faults that fired | result | seconds |
|---|---|---|---|---:|
| a/one | it holds | 2 × killed | 2 passed | 3 |
| a/two | it holds | – | 1 passed | 1 |
| a/three | it holds | – | 1 failed, 1 passed; failed: x | 1 |

| bench | figure |
|---|---|
| keyed | 1 |
"""


def test_a_page_knows_which_tests_have_passed_whole() -> None:
    nodes = [
        f"tests/a/test_{name}.py::test_it_holds[{case}]"
        for name in ("one", "two", "three", "four")
        for case in "xy"
    ]
    assert passed_whole(PAGE, nodes) == set(nodes[:2]), "two has a case more than its row, three has failed"


def test_rows_of_a_run_take_the_place_of_those_on_the_page() -> None:
    new = "| a/three | it holds | 1 × killed | 2 passed | 2 |"
    further = "| b/one | it is told | – | 1 passed | 2 |"
    page = with_rows(PAGE, f"{new}\n{further}\n")
    assert (
        page.replace(f"\n{new}", "").replace(f"\n{further}", "")
        == "\n".join(line for line in PAGE.splitlines() if "a/three" not in line) + "\n"
    )
    rows = [line for line in page.splitlines() if "it " in line]
    assert rows == sorted(rows)


def test_what_has_passed_is_left_out_when_a_run_goes_on(tmp_path: Path) -> None:
    table = Table(tmp_path / "table.md")
    here = "tests/test_sampling.py"
    for when in ("setup", "call", "teardown"):
        table.pytest_runtest_logreport(report(f"{here}::test_a_run_is_told[a]", when))
    path = tmp_path / "test_small.py"
    path.write_text("def test_one(): pass\ndef test_two(): pass\n")
    told = (
        (tmp_path / "table.json")
        .read_text()
        .replace(f"{here}::test_a_run_is_told[a]", "test_small.py::test_two")
    )
    (tmp_path / "table.json").write_text(told)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "chaos_table", "-q", "--collect-only", "--go-on", "--rootdir", tmp_path,
         "--chaos-table", tmp_path / "table.md", path],
        env={**os.environ, "PYTHONPATH": str(HERE)}, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "test_small.py::test_one" in done.stdout
    assert "test_small.py::test_two" not in done.stdout
