"""An output that is gone or empty although epochs were shown in it: how much that was, and what is said about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.ids import Epoch

GONE_CURE = (
    "Put it back (is its disk mounted?). To write all rows again, run with a new store; to go on without them, with a fork "
    "of this one: `holdfast checkpoints fork`."
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What an output has shown up to an epoch, as the store knows it."""

    epoch: int
    files: int
    """About so many: what waited and was shown at the end of a run is counted before it became few files."""
    is_known: bool = True
    """The output itself knows what it has shown."""

    @staticmethod
    def of(epoch: Epoch, prepared: Any, committed: Epoch | None, closed: bool) -> Shown:
        """From what an epoch stored (an earlier version stored no sum), and what the output says that it shows. `closed`:
        what waited as well."""
        own, waiting = prepared.get("files", ()), prepared.get("waiting", ())
        files = int(prepared.get("shown", len(own)))
        if committed is not None and committed < epoch:
            files -= len(own)  # still to be shown
        elif committed is None or closed:
            files += len(waiting)
        return Shown(int(epoch), files, committed is not None)

    def gone(self, directory: Path) -> str:
        return f"the output {directory}, into which {self._what()}, is gone or was emptied as a whole."

    def emptied(self, directory: Path) -> str:
        return (
            f"{self._what()} into {directory}, and none is there any more. The run goes on behind them. If they "
            "should be there, put them back, or run with a new store and another directory to write all rows again."
        )

    def _what(self) -> str:
        files = "1 file was" if self.files == 1 else f"{self.files} files were"
        return f"{files} written up to epoch {self.epoch}"
