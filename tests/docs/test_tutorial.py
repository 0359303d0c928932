"""docs/tutorial.md is carried out, command by command, in a shell; what it shows is what comes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import page_session
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
CLICKS = 40
NUMBERS = re.compile(r"\d+")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[page_session.Shell]:
    place = tmp_path / "here"
    place.mkdir()
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made = page_session.Shell(place, os.environ | {"PATH": commands, "COLUMNS": "100"})
    yield made
    made.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_of_the_tutorial_says_what_the_page_shows(
    shell: page_session.Shell, tmp_path: Path
) -> None:
    counted, clicks = [], []
    for step in page_session.session(PAGE.read_text("utf-8")):
        if isinstance(step, page_session.File):
            (tmp_path / "here" / step.name).write_text(step.text)
            continue
        output, code = shell.run(step.line)
        assert code == 0, f"$ {step.line}\n{output}\n{shell.errors()}"
        assert page_session.same(step.shown, output), (
            f"$ {step.line}\nshould say\n{step.shown}\nsays\n{output}"
        )
        if step.line == "cat out/paid/* | wc -l":
            counted.append(int(output))
        if step.line.startswith('echo "$(cat out/clicks'):
            clicks = [int(number) for number in re.findall(r"\d+", output)]
    assert 2 < counted[0] < 42, "it was killed before or behind its work, so nothing was shown"
    assert counted[1:] == [42]
    assert sum(clicks) in (CLICKS, CLICKS + 1), "a kill costs at most one step more than is missing"


def test_what_differs_from_run_to_run_is_not_compared() -> None:
    shown = " region   epoch   mode \n ──────────────────── \n books    2       async \n\nended (4.2 s)\n"
    other = " region   epoch    mode \n ──────────────────── \n books    1234     async \n\nended (14 ms)\n"
    assert page_session.same(shown, other)
    assert not page_session.same(shown, other.replace("async", "drain"))
    assert not page_session.same(shown, other + "more\n")
    assert page_session.same(shown + "…\n", other + "more\nand more\n")
    assert page_session.same("rows: … of 7\n", "rows: 3 of 7\n")
    assert not page_session.same("rows: … of 7\n", "rows: 3 of 8\n")
    assert not page_session.same("42\n", "43\n")


def test_the_session_of_a_page_is_its_files_and_commands_in_order() -> None:
    page = '```python title="a.py"\nx = 1\n```\n\n```console\n$ one\nout\n$ two\n```\n```\n$ not this\n```\n'
    assert page_session.session(page) == [
        page_session.File("a.py", "x = 1\n"),
        page_session.Command("one", "out\n"),
        page_session.Command("two", ""),
    ]
