"""What a Python operator may know about where it is: `self.context` of `hf.Operator`, and the argument of `check` and `run`.

The compiler makes one for `check(context)`, which may refuse the place; the runtime's knows the epoch, and gives permits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from holdfast.protocol.shape import Mode


class Context:
    """The place of one operator. Its plain facts never change; `epoch` does, while the topology runs."""

    def __init__(
        self,
        operator: str,
        region: str | None = None,
        mode: Mode | None = None,
        trigger: str | None = None,
        is_start: bool = False,
    ) -> None:
        self.operator = operator
        """Its name."""
        self.region = region
        """The name of its region; None: it is outside of regions, and what it does is best effort."""
        self.mode = mode
        """How the region establishes epochs: "async", "token" or "drain"; None outside of regions."""
        self.trigger = trigger
        """When it does: "periodic", "operator" or "manual"; None outside of regions."""
        self.is_start = is_start
        """True if the region begins at this operator."""

    @property
    def in_region(self) -> bool:
        return self.region is not None

    @property
    def epoch(self) -> int:
        """The epoch whose state the operator had last: pinned, or gone back to. 0: none yet."""
        return 0

    def __repr__(self) -> str:
        where = f"region {self.region!r}, epoch {self.epoch}" if self.in_region else "outside of regions"
        return f"<Context of {self.operator!r}: {where}>"

    # --- while the topology runs ---

    @property
    def thread(self) -> int:
        """Which of the operator's threads asks: 0, 1, …"""
        raise self._not_running("thread")

    @property
    def stopping(self) -> bool:
        """True if the run is about to end: threads return."""
        raise self._not_running("stopping")

    def permit(self, *, shared: bool = False) -> AbstractContextManager[None]:
        """What a thread holds while it changes state and submits the rows that belong to the change. While one is held no
        epoch is established and nothing is reset; one is given when neither is under way. One thread has it at a time, and
        none while `process` works; with `shared` several have it at once and protect what they share themselves."""
        raise self._not_running("permit()")

    def submit(self, rows: Any, port: int | str = 0) -> None:
        """Send rows out, as `Operator.submit` does. From a thread of the operator: under a permit only."""
        raise self._not_running("submit()")

    def make_consistent(self) -> None:
        """Ask for an epoch at this point: behind the permit that is held, before the next one. For starts of regions with
        trigger="operator"."""
        raise self._not_running("make_consistent()")

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than the run lasts. True if it is about to end."""
        raise self._not_running("wait()")

    def _not_running(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"context.{what} of operator {self.operator!r} works only while the topology runs."
        )
