"""A page as a session in a shell: its files are written, its commands carried out, its outputs compared.

On a page a block ` ```console ` has commands, lines that begin with `$ `, each followed by its output. A block
` ```python title="FILE" ` is a file that the reader writes. What differs from run to run is not compared (`masked`):

- clock times, durations and sizes with a unit, process ids, numbers of epochs and pieces, and directories;
- of the tables of `run` and `status` the columns in `VARYING`;
- how many spaces and lines stand together, since columns are as wide as what is in them;
- `…` on the page stands for anything within its line; alone in its line, for any number of lines.

Only what commands write to stdout is compared: logs go to stderr.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

BLOCK = re.compile(
    r'^```(?:console|python title="(?P<file>[^"]+)")\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)
VARYING = [
    "epoch",
    "age",
    "took",
    "slow",
    "restore",
    "rows",
    "rows/s",
    "steps",
    "step",
    "state",
    "bytes",
    "size",
    "since",
    "run",
    "time",
    "duration",
    "stored",
]
MASKS = [
    (re.compile(r"\b\d\d\d\d-\d\d-\d\d\b"), "DATE"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d[\d,.]* ?(?:s|ms|B|kB|MB|KiB|MiB|bytes)\b"), "AMOUNT"),
    (re.compile(r"\bepoch \d+"), "epoch N"),
    (re.compile(r"/\d+: \d+ pieces"), "/N: N pieces"),
    (re.compile(r"\bpid \d+ on \S+"), "pid N on HOST"),
    (re.compile(r"(?:file:)?/\S*/"), "PATH/"),
    (re.compile(r"[─━]+"), "─"),
    (re.compile(r"[ \t]+"), " "),
]


@dataclass(frozen=True)
class File:
    """A file that the page tells the reader to write."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command of the page, and the output that the page shows."""

    line: str
    shown: str


def session(page: str) -> list[File | Command]:
    """What the reader of a page does, in order."""
    found: list[File | Command] = []
    for block in BLOCK.finditer(page):
        if block["file"]:
            found.append(File(block["file"], block["text"]))
            continue
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            found.append(Command(line, shown))
    return found


class Shell:
    """One bash that carries out command after command, with jobs, as in a terminal."""

    def __init__(self, place: Path, environment: dict[str, str]) -> None:
        self._errors = (place.parent / "stderr").open("w+")
        self._bash = subprocess.Popen(
            ["bash", "--norc"], cwd=place, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        self.run("set -m")

    def run(self, line: str) -> tuple[str, int]:
        """Its output on stdout, and its exit code."""
        assert self._bash.stdin
        assert self._bash.stdout
        print(line, "\n", "echo; echo done $?", sep="", file=self._bash.stdin, flush=True)
        told = ""
        while not (end := re.search(r"\n?^done (\d+)\n\Z", told, re.MULTILINE)):
            more = self._bash.stdout.readline()
            assert more, f"the shell ended in {line!r}\n{told}\n{self.errors()}"
            told += more
        return told[: end.start()].removesuffix("\n"), int(end[1])

    def errors(self) -> str:
        """What was written to stderr so far."""
        self._errors.flush()
        return Path(self._errors.name).read_text("utf-8")

    def close(self) -> None:
        """End it with all jobs that it has left."""
        assert self._bash.stdin
        print("kill -9 $(jobs -p) 2>/dev/null; exit", file=self._bash.stdin, flush=True)
        self._bash.wait(30)
        self._errors.close()


def masked(text: str) -> list[str]:
    """The lines of an output, without what differs from run to run."""
    columns: list[tuple[str, int]] = []
    lines, raw = [], text.splitlines()
    for line, below in zip(raw, [*raw, ""][1:], strict=True):
        if re.fullmatch(r"\s*─[─\s]*", below):
            columns = [(found[0].strip(), found.start()) for found in re.finditer(r"\S+(?: \S+)*", line)]
        elif line.strip() in ("", "…"):
            columns = []
        elif columns and not re.fullmatch(r"\s*─[─\s]*", line):
            line = " ".join(cell for name, cell in cells(line, columns) if name not in VARYING)
        for mask, word in MASKS:
            line = mask.sub(word, line)
        if line.strip():
            lines.append(line.strip())
    return lines


def cells(line: str, columns: list[tuple[str, int]]) -> list[tuple[str, str]]:
    """What stands below each name of a table's columns."""
    ends = [start for _, start in columns[1:]] + [len(line)]
    return [(name, line[start:end].strip()) for (name, start), end in zip(columns, ends, strict=True)]


def same(shown: str, output: str) -> bool:
    """Whether an output is the one of the page."""
    parts = [
        r"(?:[^\n]*\n)*?" if line == "…" else r"[^\n]*?".join(map(re.escape, line.split("…"))) + "\n"
        for line in masked(shown)
    ]
    return bool(re.fullmatch("".join(parts), "".join(line + "\n" for line in masked(output))))
