"""What an epoch stores of a source's files: taken between two steps as it stands in memory, packed later, in the background.

Names of fully read files are packed in blocks of `BLOCK_FILES`, and what is known of them beside: a full block is compressed once and
hardly ever changes, so a record costs a few bytes per file read. Files listed but not fully read (the *open tail*) have size and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.sources.known_files.facts import Fact, pack, pack_facts

BLOCK_FILES = 1000


class FileEntry(NamedTuple):
    """A stretch of a file, from `begin` up to `size`, as it was when it was listed. `name` is relative to the root of the
    listing; `check` is known of files that may grow, and of others once they are about to be read."""

    name: str
    size: int
    mtime_ns: int
    begin: int = 0
    check: int = 0


@dataclass(frozen=True, slots=True)
class FileRecord:
    """The files before ordinal `consumed` are fully read. `names`, `facts`: of those behind the full blocks."""

    root: str
    consumed: int
    blocks: tuple[str, ...]
    fact_blocks: tuple[str, ...]
    names: tuple[str, ...]
    facts: tuple[Fact, ...]
    tail: tuple[FileEntry, ...]

    def plain(self) -> dict[str, Any]:
        """As it is stored. Any thread may call it."""
        return {
            "root": self.root,
            "consumed": self.consumed,
            "blocks": list(self.blocks),
            "loose": pack(self.names),
            "facts": [*self.fact_blocks, pack_facts(self.facts)],
            "open": pack([entry if entry.check else entry[:3] for entry in self.tail]),
        }
