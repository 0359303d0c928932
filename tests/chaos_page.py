"""The table of `make chaos` on a page: what has run whole, in how many pieces and on whichever machine.

    python tests/chaos_page.py build/chaos.md docs/reliability.md      # the page's table with the rows of this run

A row of the page whose cases have all passed lets `make chaos GO_ON=1` leave its test out, also where nothing of an earlier run is left.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROW = re.compile(r"^\| (\S+) \| (.+) \| (.*) \| (.*) \| (\d+) \|$")
"""where, what, faults, result, seconds"""
ALL_PASSED = re.compile(r"(\d+) passed")

Place = tuple[str, str]
"""Where a test is, and what it is called, as its row says."""


def place_of(node: str) -> Place:
    """Of a test, or of one of its cases."""
    path, _, name = node.partition("[")[0].partition("::")
    where = path.removeprefix("tests/").removesuffix(".py").replace("test_", "")
    return where, name.removeprefix("test_").replace("_", " ")


def rows_in(text: str) -> dict[Place, str]:
    """The rows of a page's table of chaos, as they stand there."""
    found = (ROW.match(line) for line in text.splitlines())
    return {(row[1], row[2]): row[0] for row in found if row is not None and "/" in row[1]}


def passed_whole(text: str, nodes: Iterable[str]) -> set[str]:
    """Cases whose row says that at least as many as there are now have passed, and nothing else."""
    nodes = list(nodes)
    there = Counter(map(place_of, nodes))
    results = {place: row.split(" | ")[-2] for place, row in rows_in(text).items()}
    counts = {place: found for place, result in results.items() if (found := ALL_PASSED.fullmatch(result))}
    whole = {place for place, count in there.items() if place in counts and int(counts[place][1]) >= count}
    return {node for node in nodes if place_of(node) in whole}


def with_rows(page: str, table: str) -> str:
    """The page, with the table's rows in the place of its own and beside them, in order."""
    rows = sorted((rows_in(page) | rows_in(table)).items())
    lines, done = [], False
    for line in page.splitlines():
        row = ROW.match(line)
        if row is None or "/" not in row[1]:
            lines.append(line)
        elif not done:
            lines += [text for _, text in rows]
            done = True
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    table, page = map(Path, sys.argv[1:])
    page.write_text(with_rows(page.read_text("utf-8"), table.read_text("utf-8")), "utf-8")
