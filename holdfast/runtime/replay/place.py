"""The directory of a replay: each sink's rows in a folder of its own, and beside them what is needed to go on after a death.

<sink>/              the rows that the sink was given
.replay/asked        what is replayed, and how; the same command goes on, another one is refused
.replay/store/       epochs, as long as the replay is under way
.replay/whole        it came to its end
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import durable
from holdfast.errors import ConfigError
from holdfast.failpoints import fp
from holdfast.store import sealed_file
from holdfast.store.files import lease

OWN = ".replay"
ASKED, STORE, WHOLE = "asked", "store", "whole"


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides which rows come out."""

    topology: str
    source: str
    log: str
    """Its id."""
    partition: int
    start: int
    end: int
    speed: float | None
    rows_per_step: int
    format: str
    close: bool


class ReplayPlace:
    """`into` of a replay. One process at a time: its store has an owner."""

    def __init__(self, into: Path) -> None:
        self.into = into
        self._own = into / OWN

    @property
    def store(self) -> str:
        return f"file:{self._own / STORE}"

    @property
    def is_whole(self) -> bool:
        return (self._own / WHOLE).exists()

    def begun(self) -> Asked | None:
        """What was begun here. None: nothing; ConfigError: something else is here."""
        data = sealed_file.read_whole(self._own / ASKED)
        if data is not None:
            return Asked(**json.loads(data))
        if any(name != OWN for name in sealed_file.list_directory(self.into)):
            raise ConfigError(
                f"{self.into} is not empty, and what is there is no replay.",
                cure="Give a directory of its own.",
            )
        return None

    def begin(self, asked: Asked) -> None:
        """From here on the same can be gone on with."""
        durable.make_directory(self._own)
        durable.write_file(self._own / ASKED, json.dumps(asdict(asked), indent=1).encode())
        fp("replay.begun")

    def end(self) -> None:
        """All rows are there for good: what was needed to go on can go."""
        fp("replay.done")
        if not self.is_whole:
            durable.write_file(self._own / WHOLE, b"")
        fp("replay.whole")
        lease.remove_tree(self._own / STORE)


def refuse_another(into: Path, begun: Asked, asked: Asked) -> None:
    """ConfigError names the first thing that is not as it was when the replay began."""
    for name, before in asdict(begun).items():
        if (now := getattr(asked, name)) != before:
            raise ConfigError(
                f"{into} has a replay with {name}={before!r}, not {now!r}.",
                cure="Give another directory, or the same arguments to go on.",
            )
