"""docs/house.md tells the tree of folders and the allowed imports, and no folder holds too much."""

from __future__ import annotations

import ast
from pathlib import Path

import test_layers as layers

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "house.md"
MOST_MODULES = 16


def folders() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "holdfast").rglob("__init__.py"))


def tree() -> str:
    """The folders with one line each: the first line of what their packages say of themselves."""
    lines = ["```"]
    for folder in folders():
        depth = len(folder.relative_to(ROOT).parts) - 1
        name = "  " * depth + folder.name + "/"
        told = (ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or "").splitlines()[
            0
        ]
        lines.append(f"{name:<24}{told}")
    return "\n".join([*lines, "```"])


def allowed_imports() -> str:
    """The layers, from the lowest up."""
    lines = ["| layer | packages | may import |", "|---|---|---|"]
    for number, units in sorted(layers.LAYERS.items()):
        there = {name for name in units if (ROOT / "holdfast" / name).exists() or is_module(name)}
        beside = sorted(
            f"`{user}` → `{used}`"
            for user in there
            for used in layers.NEIGHBOURS.get(user, set()) & there
            if number and user != used
        )
        below = "the standard library" if not number else f"layers below {number}"
        named = ", ".join(f"`{name}`" for name in sorted(there))
        lines.append(f"| {number} {layers.LAYER_NAMES[number]} | {named} | {'; '.join([below, *beside])} |")
    return "\n".join(lines)


def is_module(name: str) -> bool:
    return (ROOT / "holdfast" / f"{name}.py").exists()


def test_the_page_shows_the_folders_as_they_are() -> None:
    assert tree() in PAGE.read_text("utf-8"), f"docs/house.md should hold\n{tree()}"


def test_the_page_shows_the_allowed_imports() -> None:
    assert allowed_imports() in PAGE.read_text("utf-8"), f"docs/house.md should hold\n{allowed_imports()}"


def test_no_folder_holds_more_than_can_be_looked_over() -> None:
    counts = {
        folder: len([p for p in folder.glob("*.py") if p.name != "__init__.py"]) for folder in folders()
    }
    crowded = [f"{folder.relative_to(ROOT)}: {n}" for folder, n in counts.items() if n > MOST_MODULES]
    assert not crowded, f"folders with more than {MOST_MODULES} modules: {crowded}"
