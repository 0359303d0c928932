"""What both ends of a stream that is persisted for outages share: the switch, under one lock, and what the log tells of earlier runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError, MismatchError, StateError
from holdfast.language.operators.persist import PersistSpec
from holdfast.log.log import Log
from holdfast.runtime.persisted.connectors import SharedLog
from holdfast.runtime.persisted.outage.resuming import Mark, Place, Seats, Snapshot, resumed
from holdfast.runtime.persisted.outage.switch import Switch
from holdfast.runtime.persisted.stream_notes import StreamNote
from holdfast.state.values import codec

MARKED = b"holdfast marked 1\n"
"""Begins a note of where sources are, with rows that follow some which went by memory."""
HELD_BYTES = 16 << 20
"""So much is held in memory; more goes to the log."""


class OutageLog(SharedLog):
    """Used by the threads of both ends, and by the region that reads: each takes `lock` for what it does."""

    def __init__(self, name: str, spec: PersistSpec, logs: Path | None) -> None:
        super().__init__(name, spec, logs)
        self.lock = threading.RLock()
        self.known: Any | None = None
        """The snapshot with which who reads begins this run."""
        self.is_known = False
        """Before that nothing is begun: whether snapshots fit is all that is asked."""
        self.run = 0
        self.writer = ""
        self._switch: Switch[pa.Table] | None = None

    def begin(self, run: int, writer: str) -> None:
        self.run, self.writer, self._switch, self.is_known = run, writer, None, False

    def begin_with(self, known: Any | None) -> None:
        self.known, self.is_known = known, True

    def check(self, state: Any | None) -> None:
        """InputError if a snapshot is of another log."""
        there = self.log is not None and self.log.exists
        wanted = None if state is None else state["log"]
        if wanted is not None and (not there or self.log is None or self.log.facts.id != wanted):
            raise InputError(
                f"{self.path} is not the log that was read before.",
                cure="Give the path of that log, or begin with another store.",
            )

    @property
    def switch(self) -> Switch[pa.Table]:
        """Made when an end first needs it, and the log is this run's then: nobody else appends."""
        with self.lock:
            if self._switch is None:
                self._switch = self._made()
            return self._switch

    def _made(self) -> Switch[pa.Table]:
        known = None if self.known is None else snapshot_of(self.known)
        log = self.log
        if log is None or not log.exists:
            begun = resumed(known, 0, 0, None, ())
            return Switch(self.run, begun, 0, HELD_BYTES)
        log.owner()
        bounds = log.bounds()
        low = bounds.low if known is None else known.place.log
        newest, marks = told_by(log, self.writer, low)
        begun = resumed(known, bounds.low, bounds.end, newest, marks)
        if begun.sources is None and bounds.end:
            raise MismatchError(
                f"the log {log.path} has rows, but nothing that tells where the sources were behind them.",
                cure="Let the stream go through another log, or begin with a new store and a new log.",
            )
        return Switch(self.run, begun, bounds.end, HELD_BYTES)

    def told(self) -> dict[str, Any]:
        """For people: which way rows go now, how many are in memory, and how often the log was needed in this run."""
        switch = self._switch
        if switch is None:
            return {}
        return {"now_by": switch.mode.value, "in_memory": switch.rows_held, "outages": switch.times_on}

    def place_of(self, state: Any | None) -> Place:
        """Where a snapshot is now."""
        if state is not None and state.get("run") == self.run:
            return snapshot_of(state).place
        if state is not None and state != self.known:
            raise StateError(
                f"the stream {self.name!r} is asked for a snapshot with which this run did not begin.",
                cure="Start the run again.",
            )
        return Place(self.switch.begun.at)


def told_by(log: Log, writer: str, low: int) -> tuple[Seats | None, list[Mark]]:
    """Where the sources were behind the last row, and the marks from position `low` on. Reads notes up to there only."""
    newest: Seats | None = None
    marks: list[Mark] = []
    waiting: dict[str, Any] | None = None
    for number, note in enumerate(log.notes(writer)):
        if number == 0 and note.sequence != log.last_sequence(writer):
            break
        plain = StreamNote.of(note)
        if plain is not None:
            found: dict[str, Any] = {"sources": plain.sources}
        elif note.payload.startswith(MARKED):
            found = codec.decode(note.payload.removeprefix(MARKED))
        else:
            break
        newest = found["sources"] if newest is None else newest
        if waiting is not None:
            marks.append(_mark(waiting, found["sources"]))
            waiting = None
        if note.position + note.rows <= low:
            break
        if "run" in found and note.position >= low:
            waiting = {**found, "position": note.position}
    if waiting is not None:
        marks.append(_mark(waiting, None))
    return newest, marks[::-1]


def _mark(found: dict[str, Any], before: Seats | None) -> Mark:
    return Mark(found["position"], found["run"], found["base"], found["gap"], before)


def snapshot_of(state: Any) -> Snapshot:
    """Of what a source wrote, also one that was persisted all the time."""
    skip = state.get("skip")
    return Snapshot(
        Place(state["next"] or 0, state.get("passed", 0)),
        state.get("run", 0),
        state.get("sources"),
        None if skip is None else (skip[0], skip[1]),
        state.get("number", state["next"] or 0),
    )
