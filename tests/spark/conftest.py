"""Ways to run a stream on the shared Spark session, and tables of kills."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import DRIVER_KILLED, fired
from sampling import SEED

from holdfast.chaos.kills import HEADER, Kill, table
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
from holdfast.runtime.engines.spark import keyed
from holdfast.sinks import MemorySink


class OnSpark:
    """Runs a stream to its end on the shared session and gives what reached its sink."""

    def __init__(self, spark: Any, directory: Path) -> None:
        self.spark = spark
        self._directory = directory
        self._runs = 0

    def __call__(self, build: Callable[[Topology], Stream], **options: Any) -> Any:
        """The rows of one stream as a pyarrow.Table (None: not a single row)."""
        return self.several(lambda topology: [build(topology)], **options)[0]

    def several(self, build: Callable[[Topology], list[Stream]], **options: Any) -> list[Any]:
        self._runs += 1
        topology = Topology("test")
        names = []
        for number, stream in enumerate(build(topology)):
            names.append(f"{self._directory.name}-{self._runs}-{number}")
            stream.sink(MemorySink(names[-1]), name=f"out_{number}")
        self.status = topology.run(
            self.spark, store=f"file:{self._directory}/store-{self._runs}", until="available", **options
        )
        tables = [MemorySink.table(name) for name in names]
        for name in names:
            MemorySink.clear(name)
        return tables


@pytest.fixture(params=[False, True], ids=["short way", "shuffle"])
def shuffled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Rows come to keyed operators by the short way, or by a shuffle: of what Spark reads, or (drawn) of what tasks read."""
    if request.param:
        monkeypatch.setattr(keyed, "UNSHUFFLED_PARTITIONS", 0)
        if random.Random(f"{SEED}{request.node.nodeid}").random() < 0.5:
            monkeypatch.setattr(keyed, "DIVIDED_BYTES", 0)
            monkeypatch.setattr(keyed, "PARTS_PER_TASK", 0)
    return bool(request.param)


@pytest.fixture
def parts(tmp_path: Path) -> Callable[..., Path]:
    """parts(tables) writes each of them as a file of a new directory."""

    def write(tables: Iterable[pa.Table], **options: Any) -> Path:
        directory = tmp_path / "in"
        directory.mkdir()
        for number, each in enumerate(tables):
            pq.write_table(each, directory / f"part-{number}.parquet", **options)
        return directory

    return write


@pytest.fixture
def on_spark(spark: Any, tmp_path: Path) -> OnSpark:
    return OnSpark(spark, tmp_path)


@pytest.fixture
def note_kills(request: pytest.FixtureRequest, tell: Callable[..., None]) -> Callable[[list[Kill]], None]:
    """note_kills(kills) puts them into the tables of the run."""
    title = f"kills: {request.node.name}"
    tell(title, HEADER)

    def note(kills: list[Kill]) -> None:
        tell(title, *table(kills))
        for kill in kills:
            fired(DRIVER_KILLED if kill.kind == "failpoint" else f"{kill.kind} killed")

    return note
