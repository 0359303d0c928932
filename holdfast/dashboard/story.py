"""What the events of a store tell, folded into one bounded picture: the newest status, epochs, moments, curves. Pure.

It does not matter whether the run that told them is alive, has ended or was killed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.runtime.telling import events as e
from holdfast.runtime.telling.run_log import line_of
from holdfast.runtime.telling.stored_events import decode
from holdfast.store.base import Event

EPOCHS_KEPT = 100
RESTORES_KEPT = 20
MOMENTS_KEPT = 300
POINTS_KEPT = 600

Plain = dict[str, Any]

QUIET = (e.EpochPublished, e.EpochVisible, e.EpochDecided, e.StateSizes, e.OperatorCheckpointed)
"""Happen all the time: they are no moments."""
BAD = (e.RegionParked, e.RunFailed, e.RunRefused, e.ElementGaveUp, e.ElementParked, e.EpochWithdrawn)
COSTLY = (
    e.ResetBegun, e.RowsLost, e.RowsLeftOut, e.RowsStale, e.RowsRepeated, e.EpochAborted, e.EpochOverdue, e.RegionPaused,
    e.ElementFailed, e.ElementPaused, e.BudgetExceeded, e.OperatorCheckpointFailed, e.OperatorDamaged,
)  # fmt: skip


class Story:
    """Of one store. Used by one thread at a time; `add` events in their order."""

    def __init__(self) -> None:
        self.number = -1
        """Of the newest event."""
        self.status: Plain | None = None
        self.epochs: dict[str, deque[Plain]] = {}
        """By region, the newest at the end."""
        self.restores: dict[str, deque[Plain]] = {}
        """By region: how long each took, and as how long it was foreseen. The newest at the end."""
        self._because: dict[str, str] = {}
        """By region, why it went back last."""
        self.moments: deque[Plain] = deque(maxlen=MOMENTS_KEPT)
        """What people want to know about, the newest at the end."""
        self.points: deque[Plain] = deque(maxlen=POINTS_KEPT)
        """Rows per second, rows that wait and bytes of state, each second."""

    def add(self, events: Iterable[Event]) -> list[Plain]:
        """Returns what a page that has seen all before needs to hear, as plain data."""
        told = []
        for event in events:
            self.number = max(self.number, event.number)
            change = self._take(event)
            if change is not None:
                told.append({**change, "number": event.number})
        return told

    def as_dict(self) -> Plain:
        """All of it, for a page that has seen nothing."""
        return {
            "number": self.number,
            "status": self.status,
            "epochs": {region: list(epochs) for region, epochs in self.epochs.items()},
            "restores": {region: list(restores) for region, restores in self.restores.items()},
            "moments": list(self.moments),
            "points": list(self.points),
        }

    def _take(self, event: Event) -> Plain | None:
        known = decode(event.kind, event.data)
        match known:
            case e.Summary(status):
                return self._summary(event.wall, dict(status))
            case e.EpochPublished():
                return self._published(event.wall, known)
            case e.EpochVisible():
                return self._visible(known)
        if isinstance(known, QUIET) or not isinstance(known, e.RunEvent):
            return None
        if isinstance(known, e.RunStarted):
            self.points.clear()  # curves are those of one run
        if isinstance(known, e.ResetBegun):
            self._because[known.region] = known.reason or "the run begins, or somebody resumed it"
        if isinstance(known, e.RunEnded) and self.status is not None:
            self.status["state"] = known.state
        moment = moment_of(event.wall, known)
        if moment is None:
            return None
        self.moments.append(moment)
        restore = {"restore": self._restored(event.wall, known)} if isinstance(known, e.Restored) else {}
        return {"moment": moment, **restore}

    def _restored(self, wall: float, event: e.Restored) -> Plain:
        restore = {
            "region": event.region, "epoch": event.epoch, "wall": wall, "s": event.restore_s,
            "predicted_s": event.restore_predicted_s, "within_s": event.restore_within_s,
            "because": self._because.pop(event.region, ""),
        }  # fmt: skip
        self.restores.setdefault(event.region, deque(maxlen=RESTORES_KEPT)).append(restore)
        return restore

    def _summary(self, wall: float, status: Plain) -> Plain:
        self.status = {**status, "wall": wall}
        point = point_of(wall, status)
        self.points.append(point)
        return {"status": self.status, "point": point}

    def _published(self, wall: float, event: e.EpochPublished) -> Plain:
        epoch = {
            "region": event.region, "epoch": event.epoch, "wall": wall, "ms": event.ms, "bytes": event.bytes,
            "whole_bytes": event.whole_bytes, "bases": event.bases, "deltas": event.deltas, "last": event.last,
            "attempt": event.attempt,
        }  # fmt: skip
        self.epochs.setdefault(event.region, deque(maxlen=EPOCHS_KEPT)).append(epoch)
        region = None if self.status is None else self.status.get("regions", {}).get(event.region)
        if region is not None and self.status is not None and region["epoch"] < event.epoch:
            newer = {**self.status["regions"], event.region: {**region, "epoch": event.epoch}}
            self.status = {
                **self.status,
                "regions": newer,
            }  # the last summary of a run that is killed comes before
        return {"epoch": epoch}

    def _visible(self, event: e.EpochVisible) -> Plain | None:
        for epoch in reversed(self.epochs.get(event.region, ())):
            if epoch["epoch"] == event.epoch:
                elements = {name: dict(of) for name, of in event.elements.items()}
                epoch |= {
                    "published_ms": event.published_ms,
                    "visible_ms": event.visible_ms,
                    "elements": elements,
                }
                return {"epoch": epoch}
        return None


def moment_of(wall: float, event: e.RunEvent) -> Plain | None:
    """An event in words; None: nothing is said of it."""
    line = line_of(event)
    if line is None:
        return None
    _, text, about = line
    level = "bad" if isinstance(event, BAD) else "costs" if isinstance(event, COSTLY) else "plain"
    if isinstance(event, e.ResetBegun) and not event.consecutive:
        level = "plain"
    region = getattr(event, "region", None)
    return {"wall": wall, "kind": event.kind, "level": level, "region": region, "text": text % about}


def point_of(wall: float, status: Mapping[str, Any]) -> Plain:
    """What curves show of a status."""
    elements = status.get("elements", {}).values()
    lags = [lag.get("lag_rows") for element in elements for lag in element.get("sources", {}).values()]
    return {
        "wall": wall,
        "rows_per_s": sum(
            of.get("rows_per_s", 0) for element in elements for of in element.get("sources", {}).values()
        ),
        "lag_rows": sum(lag for lag in lags if lag is not None),
        "state_bytes": sum(of["bytes"] for element in elements for of in element.get("state", {}).values()),
    }
