"""The two ends of a persisted stream, made for the compiler."""

from __future__ import annotations

from pathlib import Path

from holdfast.language.connectors import Sink, Source
from holdfast.language.operators.persist import PersistSpec
from holdfast.runtime.persisted.connectors import PersistedSource, PersistSink, SharedLog
from holdfast.runtime.persisted.outage.connectors import ends_for_outages


def ends_of_log(name: str, spec: PersistSpec, logs: Path | None) -> tuple[Sink, Source]:
    """Both ends of the log of a persisted stream."""
    if spec.only_outages:
        return ends_for_outages(name, spec, logs)
    shared = SharedLog(name, spec, logs)
    return PersistSink(shared), PersistedSource(shared)
