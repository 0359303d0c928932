"""The form of an output directory: `<output>/.holdfast/output.json` says what all of its files have in common.

Whoever writes there first writes it. Other sinks of another form are refused, and as soon as a file is
visible also the same sink: no reader could make one table of both.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast.durable import write_file
from holdfast.errors import DamagedError, MismatchError
from holdfast.sinks.merge import data_files

NAME = "output.json"
_OURS = re.compile(r"part-.+-[pwc]\d{4,}\.(csv|json|parquet)(\..*)?")


@dataclass(frozen=True, slots=True)
class Form:
    """What files of one directory have in common. `joinable`: their bytes may be put one behind the other."""

    format: str
    header: bool
    partition_by: tuple[str, ...] = ()
    joinable: bool = True
    sink: str = field(default="", compare=False)
    """Who wrote it down."""

    def __str__(self) -> str:
        by = f" partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        bare = " without a header" if self.format == "csv" and not self.header else ""
        return f"{self.format} files{bare}{by}"

    @classmethod
    def read(cls, hidden: Path) -> Form | None:
        """The form that was written down; None: nobody did."""
        path = hidden / NAME
        try:
            found = json.loads(path.read_bytes())
            return cls(**{**found, "partition_by": tuple(found["partition_by"])})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise DamagedError(
                f"{path} is damaged.", cure="Restore it from a copy, or write into another directory."
            ) from error

    def write(self, hidden: Path, temporary: Path) -> None:
        write_file(
            hidden / NAME, json.dumps(asdict(self), sort_keys=True).encode() + b"\n", temporary=temporary
        )

    def refuse_other(self, output: Path, hidden: Path) -> bool:
        """MismatchError if the output shows files of another form; True if this one is written down already."""
        found = Form.read(hidden)
        if found == self:
            return True
        shown = next((m for path in data_files(output) if (m := _OURS.fullmatch(path.name))), None)
        if shown is not None or (found is not None and found.sink != self.sink):
            known = found or _by_name(shown)
            if replace(known, joinable=self.joinable) != self:
                raise MismatchError(
                    f"{output} holds {known}, and this sink writes {self}.",
                    cure="Write into another directory.",
                )
        return False


def _by_name(shown: re.Match[str] | None) -> Form:
    """The form of an output that nobody wrote it down for, as far as the name of a file tells."""
    assert shown is not None
    return Form(shown[1], header=shown[1] == "csv")
