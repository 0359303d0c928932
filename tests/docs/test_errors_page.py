"""docs/errors.md has every class of the tree of errors, below its base and with its exit code, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from holdfast import errors
from holdfast.errors import HoldfastError

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| `(\w+)`(?: \(`([\w.]+)`\))? \| (\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
CLASS = re.compile(r"^ *class (\w+)\(([^)]*)\):", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs" / "errors.md").read_text("utf-8"))
RUNNING = (ROOT / "docs" / "running.md").read_text("utf-8")


def classes() -> set[tuple[str, str]]:
    """Every class in the code whose bases lead to HoldfastError, with its module."""
    there: set[tuple[str, str, frozenset[str]]] = set()
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        home = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name, above in CLASS.findall(path.read_text("utf-8")):
            there.add((name, home, frozenset(re.findall(r"\w+", above))))
    found = {("HoldfastError", "holdfast.errors")}
    while (
        more := {(name, home) for name, home, above in there if above & {each for each, _ in found}} - found
    ):
        found |= more
    return found


def test_there_is_a_row_for_every_class_and_none_for_others() -> None:
    shown = {(name, module or "holdfast.errors") for name, module, *_ in ROWS}
    assert shown == classes()
    assert len(ROWS) == len(shown)


def test_exit_codes_are_those_of_the_classes() -> None:
    for name, module, code, *_ in ROWS:
        cls = getattr(importlib.import_module(module or "holdfast.errors"), name)
        assert issubclass(cls, HoldfastError)
        assert cls.exit_code == int(code), name


def test_a_class_stands_below_the_one_it_is_derived_from() -> None:
    order = [name for name, *_ in ROWS]
    for name, module, *_ in ROWS[1:]:
        cls = getattr(importlib.import_module(module or "holdfast.errors"), name)
        assert order.index(cls.__base__.__name__) < order.index(name)


def test_running_a_program_tells_every_exit_code() -> None:
    table = RUNNING[RUNNING.index("| exit code |") :].split("\n\n")[0]
    told: set[int] = set()
    for cell in re.findall(r"^\| ([\d, –]+) \|", table, re.MULTILINE):
        for part in cell.split(","):
            first, _, last = part.partition("–")
            told |= set(range(int(first), int(last or first) + 1))
    codes = {
        value.exit_code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, HoldfastError)
    }
    assert codes <= told
    assert {0, 130} <= told
