"""A store that is watched: its story so far, its owner and the plan of its run. Reads only; a live run is not disturbed."""

from __future__ import annotations

import json

from holdfast.dashboard.story import Plain, Story
from holdfast.errors import ConfigError, HoldfastError
from holdfast.runtime.telling.plan_record import PLAN
from holdfast.store.base import Store
from holdfast.store.urls import open_store

OVER = ("ended", "failed", "parked")
KILLED = "killed, or its machine went down"


class Watched:
    """Of one store. Called by one thread at a time."""

    def __init__(self, store: str | Store) -> None:
        self.store = open_store(store)
        self.story = Story()
        self.owner: Plain | None = None
        self.problem: str | None = None
        """Why the store could not be read last time."""

    def look(self, first: bool = False) -> list[Plain]:
        """Take in what is new; returns it, for pages that have seen all before. The `first` look refuses, with a ConfigError, a
        place where no store can ever be; whatever else is wrong may pass."""
        try:
            told = self.story.add(self.store.events(self.story.number))
            owner = self.store.owner()
        except HoldfastError as error:
            if first and isinstance(error, ConfigError):
                raise
            self.problem = str(error)
            return []
        self.problem = None
        self.owner = dict(owner) if owner else None
        return told

    @property
    def alive(self) -> bool:
        return bool(self.owner and self.owner.get("alive"))

    @property
    def state(self) -> str:
        """Of the run, in a word or two."""
        status = self.story.status
        if status is None:
            return "starting" if self.alive else "no run yet"
        said = str(status.get("state"))
        return said if self.alive or said in OVER else KILLED

    def plan(self) -> Plain | None:
        """Of the newest run; None if the store knows none."""
        try:
            raw = self.store.load_record(PLAN)
        except HoldfastError:
            return None
        return None if raw is None else dict(json.loads(raw))

    def standing(self) -> Plain:
        """Who runs, and how it is, as plain data."""
        owner = self.owner or {}
        return {
            "store": self.store.url,
            "alive": self.alive,
            "state": self.state,
            "owner": {name: owner.get(name) for name in ("token", "pid", "host")},
            "problem": self.problem,
        }
