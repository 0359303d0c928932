"""The import direction inside holdfast: every module leans only on what lies below it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "holdfast"

WORDS, PARTS, BUILDING, JOINING, RUNNING, FACES = range(6)

LAYER_NAMES = ("words", "parts", "building", "joining", "running", "faces")

LAYERS = {
    WORDS: {"errors", "ids", "clock", "durable", "durations", "failpoints"},
    PARTS: {"protocol", "policy", "state", "store"},
    BUILDING: {"language", "log"},
    JOINING: {"operators", "compiler", "checkpoint", "sources", "sinks"},
    RUNNING: {"runtime", "testing"},
    FACES: {"cli", "dashboard", "bench", "chaos", "demo", "__main__"},
}

LAYER_OF = {unit: layer for layer, units in LAYERS.items() for unit in units}

# Who may use whom within one layer; everyone else only looks down.
NEIGHBOURS = {
    **dict.fromkeys(LAYERS[WORDS], LAYERS[WORDS]),
    "compiler": {"operators"},
    "checkpoint": {"operators"},
    "testing": {"runtime"},
    "demo": {"dashboard"},
    "cli": LAYERS[FACES] - {"__main__"},
    "__main__": {"cli"},
}

# The third-party packages a layer may use; layers not named here are free.
LIBRARIES: dict[int, set[str]] = {WORDS: set(), PARTS: {"numpy", "pyarrow", "msgpack"}}

# Libraries that only the files beginning with a path may use, whatever their layer.
LIBRARY_HOMES = {
    "redis": "store/redis",
    "fsspec": "store/objects",
    "isal": "durable",
    "prometheus_client": "runtime/telling/metrics_page",
    "adbc_driver_postgresql": "sinks/database/postgres",
}

SPARK_HOMES = ("runtime/engines/spark", "sources", "sinks", "bench", "demo")


@dataclass(frozen=True)
class Import:
    """One imported module, where it is imported, and whether only for type checkers."""

    target: str
    line: int
    typing_only: bool


def unit_of(path: Path) -> str:
    """The part of the package a file (relative to the package) belongs to; '' for its top."""
    first = path.parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
    return name == "TYPE_CHECKING"


def absolute(node: ast.ImportFrom, path: Path) -> str:
    """The module an import statement means, with the dots of a relative one resolved."""
    if not node.level:
        return node.module or ""
    here = [PACKAGE, *path.parts[:-1]]
    base = here[: len(here) - (node.level - 1)]
    return ".".join([*base, *([node.module] if node.module else [])])


def named_in_call(node: ast.Call) -> str | None:
    """The module that an importlib.import_module("...") or __import__("...") names."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in {"import_module", "__import__"} and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return None


def imports_in(node: ast.AST, path: Path, typing_only: bool = False) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, typing_only) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = absolute(node, path)
        if module == PACKAGE:
            yield from (Import(f"{PACKAGE}.{alias.name}", node.lineno, typing_only) for alias in node.names)
        else:
            yield Import(module, node.lineno, typing_only)
    elif isinstance(node, ast.Call) and (target := named_in_call(node)):
        yield Import(target, node.lineno, typing_only)
    if isinstance(node, ast.If) and is_type_checking(node.test):
        for guarded in node.body:
            yield from imports_in(guarded, path, typing_only=True)
        for unguarded in node.orelse:
            yield from imports_in(unguarded, path, typing_only)
        return
    for child in ast.iter_child_nodes(node):
        yield from imports_in(child, path, typing_only)


def inner_rule_broken(path: Path, target: str) -> str | None:
    """The layer rule that importing a module of this package breaks, if any."""
    importer = unit_of(path)
    _, _, rest = target.partition(".")
    used = rest.split(".")[0]
    if used not in LAYER_OF:
        if importer == "" or LAYER_OF[importer] == FACES:
            return None
        return f"only faces may import from the top of {PACKAGE}; name the module that defines it"
    if importer == used:
        return None
    below = LAYER_OF[used]
    if importer == "":
        return f"the top of {PACKAGE} may not import a face ({used})" if below == FACES else None
    here = LAYER_OF[importer]
    if below < here or used in NEIGHBOURS.get(importer, set()):
        return None
    if below == here:
        return f"{importer} may not import {used}: both are {LAYER_NAMES[here]} (layer {here})"
    return (
        f"{importer} (layer {here}, {LAYER_NAMES[here]}) "
        f"may not import {used} (layer {below}, {LAYER_NAMES[below]}) above it"
    )


def outer_rule_broken(path: Path, found: Import) -> str | None:
    """The rule on third-party packages that an import breaks, if any."""
    library = found.target.split(".")[0]
    if library in sys.stdlib_module_names:
        return None
    if library == "pyspark":
        if found.typing_only or any(path.is_relative_to(home) for home in SPARK_HOMES):
            return None
        homes = ", ".join(SPARK_HOMES)
        return f"pyspark may only be imported in {homes}, or under `if TYPE_CHECKING:`"
    if library in LIBRARY_HOMES:
        home = LIBRARY_HOMES[library]
        return None if path.as_posix().startswith(home) else f"only {home}*.py may use {library}"
    layer = LAYER_OF.get(unit_of(path))
    if layer not in LIBRARIES or library in LIBRARIES[layer]:
        return None
    allowed = ", ".join(sorted(LIBRARIES[layer])) or "nothing but the standard library"
    return f"{LAYER_NAMES[layer]} (layer {layer}) may use {allowed}, not {library}"


def broken_rules(path: Path, source: str) -> list[str]:
    """Every broken rule in a file, as 'file:line: import of X: rule'."""
    if unit_of(path) not in {"", *LAYER_OF}:
        return [f"{PACKAGE}/{path}:1: {unit_of(path)} has no place in the layers; give it one in this test"]
    broken = []
    for found in imports_in(ast.parse(source), path):
        if found.target.split(".")[0] == PACKAGE:
            rule = inner_rule_broken(path, found.target)
        else:
            rule = outer_rule_broken(path, found)
        if rule:
            broken.append(f"{PACKAGE}/{path}:{found.line}: import of {found.target}: {rule}")
    return broken


def test_imports_only_point_downwards() -> None:
    files = sorted((ROOT / PACKAGE).rglob("*.py"))
    assert files, f"found no modules under {PACKAGE}/"
    broken = [
        rule
        for file in files
        for rule in broken_rules(file.relative_to(ROOT / PACKAGE), file.read_text(encoding="utf-8"))
    ]
    assert not broken, "imports that break the layering:\n  " + "\n  ".join(broken)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("errors.py", "from holdfast.ids import new_id"),
        ("state/table.py", "import numpy\nfrom holdfast.errors import HoldfastError"),
        ("state/table.py", "from .codec import pack\nfrom . import codec\nfrom ..errors import X"),
        ("language/graph.py", "from holdfast.state import Table"),
        ("compiler/plan.py", "from holdfast import language"),
        ("runtime/engines/spark/engine.py", "from pyspark.sql import SparkSession"),
        ("store/api.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark"),
        ("testing/harness.py", "from holdfast.runtime import run"),
        ("cli/main.py", "def demo():\n    from holdfast.demo import run"),
        ("__init__.py", "from holdfast.runtime import run\nfrom holdfast.language import stream"),
        ("bench/run.py", "from holdfast import stream"),
        ("store/redis/link.py", "import redis"),
    ],
)
def test_looking_down_is_allowed(path: str, source: str) -> None:
    assert broken_rules(Path(path), source) == []


@pytest.mark.parametrize(
    ("path", "source", "line", "rule"),
    [
        ("errors.py", "import numpy", 1, "may use nothing but the standard library, not numpy"),
        ("policy.py", "import os\nimport pandas", 2, "may use msgpack, numpy, pyarrow, not pandas"),
        ("ids.py", "from holdfast.state import Table", 1, "ids (layer 0, words) may not import state"),
        ("state/table.py", "from holdfast import store", 1, "state may not import store: both are parts"),
        ("state/table.py", "from ..runtime import run", 1, "state (layer 1, parts) may not import runtime"),
        ("state/table.py", "from holdfast import stream", 1, "only faces may import from the top"),
        ("state/table.py", "import holdfast", 1, "only faces may import from the top"),
        (
            "log.py",
            "def f():\n    import pyspark.sql",
            2,
            "pyspark may only be imported in runtime/engines/spark",
        ),
        ("log.py", "if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark", 4, "pyspark may only be"),
        ("runtime/driver.py", "import pyspark", 1, "pyspark may only be imported in runtime/engines/spark"),
        ("runtime/driver.py", "from holdfast.testing import x", 1, "runtime may not import testing"),
        ("runtime/driver.py", "import_module('holdfast.cli')", 1, "may not import cli (layer 5, faces)"),
        ("store/files/file_store.py", "import redis", 1, "only store/redis*.py may use redis"),
        ("demo/run.py", "from holdfast.bench import x", 1, "demo may not import bench: both are faces"),
        ("__init__.py", "from .cli import main", 1, "the top of holdfast may not import a face (cli)"),
        ("gadgets.py", "", 1, "gadgets has no place in the layers"),
    ],
)
def test_looking_up_or_sideways_is_caught(path: str, source: str, line: int, rule: str) -> None:
    broken = broken_rules(Path(path), source)
    assert len(broken) == 1
    assert broken[0].startswith(f"holdfast/{path}:{line}: ")
    assert rule in broken[0]
