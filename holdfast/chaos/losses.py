"""What best effort cost each sink: rows it should have, rows it has, rows that are missing, rows that were counted as lost.

Pure, but for `record`. Where the four numbers come from: `best_effort.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HEADER = (
    "| graph | sink | kills | golden | found | repeated | missing | counted | too many | one step per element |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n"
)


@dataclass(frozen=True, slots=True)
class SinkLosses:
    """One sink after a run that was killed some times and then came to its end."""

    graph: str
    sink: str
    kills: int
    golden: int
    """Rows that it has after a run without failures."""
    found: int
    """Different ones of them that it has."""
    repeated: int
    counted: int
    """Rows that the last status says it lacks, over all runs."""
    held: int
    """What one step per element held, added up over the kills."""
    may_repeat: bool = False

    @property
    def missing(self) -> int:
        return self.golden - self.found

    @property
    def broken(self) -> str | None:
        """The promise that does not hold."""
        if self.repeated and not self.may_repeat:
            return f"{self.repeated} rows came twice"
        if self.missing > self.counted:
            return f"{self.missing} rows are missing and {self.counted} were counted"
        if self.counted - self.missing > self.held:
            more = self.counted - self.missing
            return f"{more} rows were counted that are not missing; one step per element held {self.held}"
        return None

    def line(self) -> str:
        figures = (self.kills, self.golden, self.found, self.repeated, self.missing, self.counted)
        line = " | ".join(map(str, (*figures, self.counted - self.missing, self.held)))
        return f"| {self.graph} | {self.sink} | {line} |"


def markdown(losses: Iterable[SinkLosses]) -> str:
    """A table with one line per sink."""
    return HEADER + "".join(f"{each.line()}\n" for each in losses)


def record(path: Path, losses: Sequence[SinkLosses]) -> None:
    """Add lines to the table in a file, which is begun if it is not there. One write: several tests may add theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{each.line()}\n" for each in losses)
    with path.open("a", encoding="utf-8") as file:
        file.write(lines if file.tell() else HEADER + lines)
