"""`.preserve(path)`: a source that cannot replay gives its rows to a log first, so that a region may begin at it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.durations import Duration
from holdfast.language.builder import Builder, Verbs
from holdfast.language.graph import StreamRef

if TYPE_CHECKING:
    from holdfast.language.stream import Stream

PRESERVED = "holdfast.sources.logs.preserved"
"""Sources lie above this layer: imported when somebody says `preserve`."""


class PreserveVerbs(Verbs):
    """What can be said of a source that cannot replay."""

    __slots__ = ()
    if TYPE_CHECKING:
        _builder: Builder
        ref: StreamRef

    def preserve(self, path: str | Path, *, keep: Duration | None = None) -> Stream:
        """Rows of the source that made this stream are durable in a log at `path` before a step gets them: a region may begin here,
        `topology.source(hf.TcpLines(9999), name="lines").preserve("logs/lines").consistent(…)`, and whoever likes reads the log.
        `keep`: how long rows stay (default: for ever). A source that can be read again needs no log, and is refused."""
        preserved: Any = importlib.import_module(PRESERVED).Preserved
        made = self._builder.made_by(self.ref.operator)
        self._builder.change_source(made, lambda source: preserved(source, path, keep=keep))
        return self  # type: ignore[return-value]
