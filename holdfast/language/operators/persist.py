"""Streams that go through a log: `clicks.persist("clicks")`.

The compiler puts a sink and a source in the place of the verb (`compiler/persisted/`): what is behind it reads the log. Who makes
the two lies above this layer and is found when it is needed.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, cast

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.language.builder import Verbs
from holdfast.language.graph import Spec

if TYPE_CHECKING:
    from holdfast.language.connectors import Sink, Source
    from holdfast.language.stream import Stream

MAKER = "holdfast.runtime.persisted.making"


@dataclass(frozen=True, slots=True)
class PersistSpec(Spec):
    """Rows as they come, by way of a log. `path` None: in the store."""

    path: str | None = None
    keep_s: float | None = None
    keep_bytes: int | None = None
    only_outages: bool = False


class Maker(Protocol):
    """Makes both ends of a log. `logs`: where the store has logs; None: nobody says."""

    def __call__(self, name: str, spec: PersistSpec, logs: Path | None) -> tuple[Sink, Source]: ...


def ends_of_log(name: str, spec: PersistSpec, logs: Path | None) -> tuple[Sink, Source]:
    """The sink and the source that stand for a persisted stream."""
    make = cast(Maker, importlib.import_module(MAKER).ends_of_log)
    return make(name, spec, logs)


class PersistVerbs(Verbs):
    """A verb of `Stream`."""

    __slots__ = ()

    def persist(
        self,
        name: str,
        *,
        keep: Duration | None = None,
        keep_bytes: int | None = None,
        path: str | Path | None = None,
        when: Literal["always", "outage"] = "always",
    ) -> Stream:
        """Let the stream go through a log: what follows reads it from there, and fails, waits and restarts on its own.

        Example::

            orders = shop.source(hf.Files("orders", "json", schema="id long, customer string"), name="orders").consistent("in")
            kept = orders.persist("orders_log", keep="1 day")
            kept.aggregate("customer", n=hf.count(), name="n").sink(hf.FileSink("out"), name="out")

        While what follows is down, rows land in the log; when it returns it catches up. In a region, what follows is a second region with the
        same settings, unless it is told otherwise with `.consistent(…)` or `.autonomous()`; both are exactly-once, and so is the whole.
        Rows that all who follow have behind them are let go; `keep`, `keep_bytes` keep more. `path`: where the log is; else it is in the
        store, which must be a directory then. By its name the log is found again in later runs.

        `when="outage"`: rows go by memory as long as what follows reads them, and into the log while it does not; nothing is written else.
        What is before must be sources that can be read again and operators without state, outside of regions: what was in memory when
        a run ended is made again."""
        if not isinstance(name, str):
            raise TopologyError(
                "persist() needs a name: by it the log is found again.", cure='Write .persist("clicks").'
            )
        if keep_bytes is not None and (
            isinstance(keep_bytes, bool) or not isinstance(keep_bytes, int) or keep_bytes < 0
        ):
            raise TopologyError(
                f"keep_bytes must be a number of bytes, not {keep_bytes!r}.", cure="Give one from 0 on."
            )
        if path is not None and "://" in str(path):
            raise TopologyError(
                f"a log cannot be kept at {path}: what is appended to must be a file in a directory.",
                cure="Give a directory.",
            )
        if when not in ("always", "outage"):
            raise TopologyError(
                f'when must be "always" or "outage", not {when!r}.', cure="Give one of the two."
            )
        if when == "outage" and (keep is not None or keep_bytes is not None):
            raise TopologyError(
                "a stream that is persisted for outages only keeps nothing else.",
                cure='Leave keep= and keep_bytes= out, or when="outage".',
            )
        place = None if path is None else str(Path(path).absolute())
        kept = None if keep is None else seconds(keep, "keep")
        return self._then(PersistSpec(place, kept, keep_bytes, when == "outage"), name)
