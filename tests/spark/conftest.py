"""Ways to run a stream on the shared Spark session, and tables of kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import DRIVER_KILLED, fired

from holdfast.chaos.kills import HEADER, Kill, table
from holdfast.language.stream import Stream
from holdfast.language.topology import Topology
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


@pytest.fixture
def on_spark(spark: Any, tmp_path: Path) -> OnSpark:
    return OnSpark(spark, tmp_path)


@pytest.fixture
def note_kills(request: pytest.FixtureRequest, tell: Callable[..., None]) -> Callable[[list[Kill]], None]:
    """note_kills(kills) puts them into the table at the end of the test run."""
    title = f"kills: {request.node.name}"
    tell(title, HEADER)

    def note(kills: list[Kill]) -> None:
        tell(title, *table(kills))
        for kill in kills:
            fired(DRIVER_KILLED if kill.kind == "failpoint" else f"{kill.kind} killed")

    return note
