"""docs/reliability-catalogue.md: every row of the catalogue with the tests that cover it. `python tests/catalogue/page.py`
writes it, `--check` says what is wrong: a row without a test, a marker with an id that there is not, a page that is old.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rows import BY_ID, SECTIONS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability-catalogue.md"
HEAD = """# The catalogue

Every fault that was thought of, every rule of security, the defects that are planted to test the tests, and the ways to
judge: each with its tests. This page is written from the markers in the tests (`@pytest.mark.fault("P04")`) and from
`tests/catalogue/rows.py` by `make catalogue`; `make check` fails if a row has neither a test nor a reason, or if the page is old.
`make test` runs a sample of the long lists, `make chaos` all of them ([reliability.md](reliability.md)). Names of tests are without
`tests/` and `test_`.
"""


@dataclass(frozen=True, slots=True)
class Marked:
    """A test, and the rows it says that it covers."""

    file: str
    test: str
    ids: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.file.removeprefix('tests/').removesuffix('.py').replace('test_', '')}: {self.test.removeprefix('test_').replace('_', ' ')}"


def marked() -> list[Marked]:
    """All markers in the tests, without running any of them."""
    found = [each for path in sorted((ROOT / "tests").rglob("*.py")) for each in _in_file(path)]
    return sorted(found, key=lambda each: each.name)


def _in_file(path: Path) -> Iterator[Marked]:
    text = path.read_text()
    if "mark.fault(" not in text:
        return
    file = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            ids = [_text(each, file) for call in node.decorator_list if _is_ours(call) for each in call.args]  # type: ignore[attr-defined]
            if ids:
                yield Marked(file, node.name, tuple(ids))


def _is_ours(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault"


def _text(node: ast.expr, file: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise ValueError(f"{file}:{node.lineno}: ids of the catalogue are written out")


def by_row(found: list[Marked]) -> Mapping[str, list[str]]:
    tests: dict[str, list[str]] = defaultdict(list)
    for each in found:
        for id in each.ids:
            tests[id].append(each.name)
    return tests


def wrong(found: list[Marked], rows: Mapping[str, Row] = BY_ID) -> list[str]:
    """What is wrong with markers and rows; one sentence each."""
    tests = by_row(found)
    said = [
        f"{each.file}: {each.test} names {id}, which is no row"
        for each in found
        for id in each.ids
        if id not in rows
    ]
    for id, row in rows.items():
        if row.absent and id in tests:
            said.append(f"{id} does not apply, and has a test")
        elif row.open and id in tests:
            said.append(f"{id} is called open, and has a test")
        elif not (row.absent or row.open or id in tests):
            said.append(f"{id} ({row.what}) has no test")
    return said


def written(found: list[Marked]) -> str:
    tests = by_row(found)
    lines = [HEAD, _counted(tests), ""]
    for title, rows in SECTIONS.items():
        lines += [f"## {title}", "", "| id | what | tests |", "|---|---|---|"]
        lines += [f"| {row.id} | {row.what} | {_shown(row, tests.get(row.id, []))} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _counted(tests: Mapping[str, list[str]]) -> str:
    rows = BY_ID.values()
    covered = sum(row.id in tests for row in rows)
    absent, missing = (sum(bool(getattr(row, kind)) for row in rows) for kind in ("absent", "open"))
    return f"{len(BY_ID)} rows: {covered} with tests, {absent} that do not apply, {missing} open."


def _shown(row: Row, tests: list[str]) -> str:
    if row.absent:
        return f"does not apply: {row.absent}"
    if row.open:
        return f"**open**: {row.open}"
    return "<br>".join(dict.fromkeys(tests))


def main() -> int:
    found = marked()
    said = wrong(found)
    if "--check" not in sys.argv:
        PAGE.write_text(written(found))
    elif not PAGE.exists() or PAGE.read_text() != written(found):
        said.append(f"{PAGE.relative_to(ROOT)} is old: make catalogue")
    print("\n".join(said) or "the catalogue is complete", file=sys.stderr if said else sys.stdout)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
