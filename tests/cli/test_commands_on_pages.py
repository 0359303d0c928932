"""The commands on the pages work as they stand there: those of blocks are carried out, those within sentences are known."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app
from holdfast.testing import run_local

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IN_A_BLOCK = re.compile(r"^\$ holdfast ([^\n]+)$", re.MULTILINE)
ANYWHERE = re.compile(r"(?:^\$ |`)holdfast ([a-z][^`\n]*)", re.MULTILINE)
ELSEWHERE = ("run shop.py", "explain shop.py", "chaos shop.py")
"""They start and end processes of their own: test_main.py and tests/ordeal carry them out in another process."""
TEXTS = {
    page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in PAGES if page.name != "roadmap.md"
}
CARRIED_OUT = sorted(
    {
        (page, line)
        for page, text in TEXTS.items()
        if page != "docs/tutorial.md"  # tests/docs carries it out, command by command
        for line in IN_A_BLOCK.findall(text)
        if not line.startswith(ELSEWHERE)
    }
)
KNOWN = sorted({(page, line) for page, text in TEXTS.items() for line in ANYWHERE.findall(text)})
ORDERS = [(n, f"customer {n % 3}", 10 * n) for n in range(1, 40)]


def shop(orders: list[tuple[int, str, int]]) -> hf.Topology:
    """What the pages speak of: aggregates 'spent' and 'totals', and a sink 'ledger'."""
    topology = hf.Topology("shop")
    rows = topology.source(hf.Rows(orders, "id long, customer string, cents long"), name="orders")
    rows = rows.consistent(name="books", period=60)
    rows.sink(hf.MemorySink("commands ledger"), name="ledger")
    for name in ("spent", "totals"):
        made = rows.aggregate("customer", spent=hf.sum("cents"), name=name)
        made.sink(hf.MemorySink(f"commands {name}"), name=f"{name}_out")
    return topology


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program and its store with two epochs, the second one a savepoint."""
    place = tmp_path_factory.mktemp("made")
    for orders in (ORDERS[:20], ORDERS):
        run_local(shop(orders), f"file:{place}/store")
    said = CliRunner().invoke(app, ["savepoint", f"{place}/store", "before-upgrade"])
    assert said.exit_code == 0, said.output
    readme = re.findall(r"^```python\n(.*?)^```", TEXTS["README.md"], re.DOTALL | re.MULTILINE)[0]
    (place / "shop.py").write_text(readme)
    exported = ["checkpoints", "export", f"{place}/store", "before-upgrade", f"{place}/before-upgrade.tar"]
    assert CliRunner().invoke(app, exported).exit_code == 0
    with hf.Log(place / "views") as views:
        views.append([{"user": "ann", "page": 3}] * 5)
    yield place
    for name in ("ledger", "spent", "totals"):
        hf.MemorySink.clear(f"commands {name}")


@pytest.mark.parametrize(("page", "line"), CARRIED_OUT, ids=lambda text: text)
def test_a_command_of_a_block_does_what_it_is_there_for(
    page: str, line: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "here"
    shutil.copytree(made, place)
    monkeypatch.chdir(place)
    words = shlex.split(line)
    if words[0] == "savepoint" and words[-1] == "before-upgrade" and "--delete" not in words:
        assert CliRunner().invoke(app, [*words[:2], "--delete", words[-1]]).exit_code == 0
    if "export" in words:
        (place / words[-1]).unlink()
    said = CliRunner().invoke(app, words, input="y\n")
    assert said.exit_code == 0, f"{page}: holdfast {line}\n{said.output}"
    assert said.output.strip() or words[-2] == "--delete"


def test_there_are_commands_on_the_pages() -> None:
    assert len(CARRIED_OUT) >= 10
    assert len(KNOWN) >= 30


@pytest.mark.parametrize(("page", "line"), KNOWN, ids=lambda text: text)
def test_a_command_of_a_sentence_is_one_that_there_is(page: str, line: str) -> None:
    command: Any = typer.main.get_command(app)
    words = line.replace("[", " ").replace("]", " ").split()
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        command = command.get_command(click.Context(command), name)
        assert command is not None, f"{page}: holdfast {line}: there is no command {name!r}"
        if words and words[0] == "|":  # several of them: list | show | …
            return
    options = {text for parameter in command.params for text in parameter.opts + parameter.secondary_opts}
    unknown = [word for word in words if word.startswith("--") and word not in options]
    assert not unknown, f"{page}: holdfast {line}: {unknown} is not an option of it"
