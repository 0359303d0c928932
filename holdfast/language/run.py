"""A run as its owner sees it: the handle that `submit` returns, and what it tells.

Statuses are frozen values. Each can also be read as a mapping, as `holdfast status --json` prints it:
`status.regions["shop"].epoch` is `status["regions"]["shop"]["epoch"]`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from holdfast.durations import Duration
from holdfast.language import hints
from holdfast.language.progress import Progress, progress_of

Until = Literal["available"]
RunState = Literal["running", "stopping", "parked", "failed", "ended"]

T = TypeVar("T", bound="Told")


class RunOptions(TypedDict, total=False):
    """What `run` and `submit` can be told besides."""

    close: bool
    """At the end of the input event time comes to its end: windows close, timers are called."""
    take_over: bool
    """Replace a live owner of the store."""
    partitions: int | None
    """Of keyed state; None: as many as the session has cores."""
    on_start: Callable[[Any], None]
    """Called by `run` with the handle."""
    listeners: Sequence[Any]
    """Objects of classes that derive from `hf.Listener`."""
    metrics: str | None
    """HOST:PORT where Prometheus finds the run's metrics; on this machine only unless the host says otherwise."""
    subscribers: Sequence[Any]
    """Functions that hear of every event of the run."""
    engine: Any
    clock: Any
    rest_s: float


@dataclass(frozen=True, eq=False)
class Told(Mapping[str, Any]):
    """A value that is also the mapping from the names of its fields to plain data. `more`: what has no field."""

    more: Mapping[str, Any] = field(default_factory=dict, kw_only=True, repr=False)

    @classmethod
    def of(cls: type[T], data: Mapping[str, Any], **typed: Any) -> T:
        """From plain data; `typed`: fields that hold more than that."""
        names = {each.name for each in fields(cls)} - {"more"}
        known = {name: value for name, value in data.items() if name in names}
        rest = {name: value for name, value in data.items() if name not in names}
        return cls(**{**known, **typed}, more=rest)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "more"}
        return {name: _plain(value) for name, value in {**values, **self.more}.items()}

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.as_dict())

    def __len__(self) -> int:
        return len(self.as_dict())


def _plain(value: Any) -> Any:
    if isinstance(value, Told):
        return value.as_dict()
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


@dataclass(frozen=True, eq=False)
class RegionStatus(Told):
    """What a region does now."""

    phase: str
    epoch: int
    epochs_published: int
    """In this run."""
    epochs_slow: int
    """Epochs that took longer than the period."""
    age_s: float | None
    """Of the newest epoch."""
    resets: int
    rows_replayed: int
    bytes_written: int
    last_epoch_ms: float | None
    reason: str
    """Of the last failure."""
    longest_pause_ms: float
    restore_next_s: float
    """How long a restore would take now, as predicted."""
    idle_since: float | None
    """Nothing is new since the newest epoch, and since then (seconds since 1970): the next comes when something is. None: something is."""


@dataclass(frozen=True, eq=False)
class ElementStatus(Told):
    """What an element did in this run."""

    steps: int
    rows: int
    bytes: int
    rows_per_s: float
    last_step_ms: float
    failures: int
    lost_rows: int
    sink_rows: Mapping[str, int]
    counts: Mapping[str, Mapping[str, int]]
    """By operator: late rows, and what else it counted."""
    waiting: str
    """For what."""
    sources: Mapping[str, Mapping[str, Any]]
    """By source, rows and rows_per_s that it gave, and what waits in it: lag_rows, lag_bytes, lag_s; None: not known."""
    state: Mapping[str, Mapping[str, Any]]
    """By operator with state: bytes, rows (each once; of more than some thousands to within a few in a hundred), watermark (seconds since 1970)."""


@dataclass(frozen=True, eq=False)
class RunStatus(Told):
    """What a run does now."""

    topology: str
    state: RunState
    uptime_s: float
    regions: Mapping[str, RegionStatus]
    elements: Mapping[str, ElementStatus]
    lost_rows: Mapping[str, int]
    """By sink, in all runs."""
    id: str
    """Of the store's job; "none" without a store."""
    run: int
    """Grows with each run on the store."""
    at: float
    """When this was asked, in seconds since 1970."""

    @property
    def progress(self) -> Progress:
        """The same in short, and in the shape that Spark's users know."""
        return progress_of(self.as_dict())


class Run(ABC):
    """A run of a topology, as `submit` returns it. Every method may be called from any thread."""

    @abstractmethod
    def status(self) -> RunStatus:
        """What the run does now."""

    @property
    def progress(self) -> Progress:
        """How far it has come."""
        return self.status().progress

    @abstractmethod
    def stop(self, timeout: Duration | None = None) -> None:
        """Establish a final epoch in every region, then end. Waits; after `timeout`, or the regions' drain
        timeout, it ends anyway: the last published epoch stays the truth."""

    @abstractmethod
    def await_termination(self, timeout: Duration | None = None) -> bool:
        """Wait for the end. True if it ended; raises what made it fail. A parked region does not end the run: it is told
        when all else has come to its end."""

    @abstractmethod
    def resume(self) -> None:
        """Go on with parked regions."""

    @abstractmethod
    def trigger_epoch(self) -> None:
        """Ask every region for an epoch now (trigger="manual", or just to have one)."""

    @abstractmethod
    def savepoint(
        self, name: str, region: str | None = None, timeout: Duration | None = None
    ) -> dict[str, int]:
        """Establish an epoch of every region, or of one, now, and name it: it is kept until its name is deleted.
        Returns the epochs by region; StoreError if it cannot be told within `timeout`."""

    def ui(self, port: int | None = None, host: str = "127.0.0.1", allow_commands: bool = False) -> Any:
        """Show the run as a page in the browser; `.url` of what is returned is where, `.close()` ends it. The run must have a store."""
        raise NotImplementedError(f"{type(self).__name__} has no page.")

    @abstractmethod
    def close(self) -> None:
        """End at once, without a final epoch."""

    if not TYPE_CHECKING:  # a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> Any:
            raise hints.no_such_name("A Run", name, hints.RUN, dir(Run))

    def __repr__(self) -> str:
        status = self.status()
        regions = [f"region {name!r} at epoch {region.epoch}" for name, region in status.regions.items()]
        return (
            f"<Run of {status.topology!r}: {', '.join([status.state, f'{status.uptime_s:g} s', *regions])}>"
        )
