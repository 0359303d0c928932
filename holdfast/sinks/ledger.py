"""The sink's ledger: which epoch of which job was last made visible. One small checksummed JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.durable import checksum, write_file
from holdfast.errors import DamagedError, FencedError, MismatchError
from holdfast.language.connectors import SinkContext

NAME = "ledger.json"
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Ledger:
    """The last commit. Absence of the file: nothing was committed yet, or only the commit's last step is missing."""

    job: str
    sink: str
    epoch: int
    token: int
    format: int = FORMAT
    closing: Any = None
    """What the end of a run shows beside the epoch: files that waited for more rows, as `prepare` tells files."""
    closed: bool = False
    """It has shown them: nothing of this epoch waits any more."""

    def encode(self) -> bytes:
        fields = {name: value for name, value in asdict(self).items() if value not in (None, False)}
        fields["format"] = FORMAT if self.closing or self.closed else 1  # earlier versions read what they can
        body = json.dumps(fields, sort_keys=True)
        return json.dumps({"crc": checksum(body.encode()), "ledger": fields}, sort_keys=True).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> Ledger | None:
        """The ledger at `path`, None if there is none. DamagedError if it is not what was written."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            found = json.loads(data)
            body = json.dumps(found["ledger"], sort_keys=True)
            if found["crc"] != checksum(body.encode()):
                raise ValueError("checksum")
            if found["ledger"]["format"] > FORMAT:
                raise MismatchError(
                    f"{path} has a newer format.", cure="Use the holdfast that wrote it, or a newer one."
                )
            return cls(**found["ledger"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DamagedError(
                f"the ledger {path} is damaged.",
                cure="Nothing was changed. Restore the file from a copy, or write into another directory.",
            ) from error

    def write(self, path: Path, temporary: Path) -> None:
        write_file(path, self.encode(), temporary=temporary)


def check_writer(found: Ledger | None, context: SinkContext, path: Path) -> None:
    """Refuse an output that another job wrote or that a newer owner has."""
    refuse_foreign(found, context, path)
    if found is not None and found.token > context.token:
        raise FencedError(
            f"{path} was written by a newer owner.", cure="Stop this run; the newer one goes on."
        )


def refuse_foreign(found: Ledger | None, context: SinkContext, path: Path) -> None:
    """MismatchError if another job wrote this output: the one that this job was forked from, for example."""
    if found is not None and found.job != context.job_id:
        raise MismatchError(
            f"{path} says that this output was written by another job ({found.job}, not {context.job_id}).",
            cure="Write into another directory, or use the store this output was made with.",
        )
