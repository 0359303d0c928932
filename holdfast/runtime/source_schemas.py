"""Columns of sources, as a store remembers them: the first run decides."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.checkpoint.stored_names import record_name
from holdfast.language.connectors import Source
from holdfast.language.graph import Graph, SourceSpec
from holdfast.store.base import Store


def use_stored_schemas(graph: Graph, store: Store | None, bounded: bool) -> None:
    """Sources hear which columns they had. `bounded`: only what exists now is wanted of them."""
    for name, source in _sources(graph):
        source.bound() if bounded else source.unbound()
        raw = None if store is None else store.load_record(record_name("schema", name))
        if raw is not None:
            source.use_schema(pa.ipc.read_schema(pa.py_buffer(raw)))


def store_schemas(graph: Graph, store: Store | None) -> None:
    if store is None:
        return
    for name, source in _sources(graph):
        schema = source.schema().serialize().to_pybytes()
        if store.load_record(record_name("schema", name)) != schema:
            store.save_record(record_name("schema", name), schema)


def _sources(graph: Graph) -> Iterator[tuple[str, Source]]:
    for op in graph.operators.values():
        if isinstance(op.spec, SourceSpec):
            yield op.name, op.spec.source
