"""Cells of the matrix in which the store cannot be reached: a real Redis server, killed once an epoch is there, for seconds, for minutes,
and for longer than the run waits.

The clock of those who wait for the server is simulated: it moves when they sleep, and stands still while the server starts. So minutes
cost nothing, and nothing depends on the pace of the machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import matrix_program as program
import pytest
from faults import fired

from holdfast.errors import StoreError
from holdfast.runtime.telling.events import EpochPublished, RunEvent
from holdfast.store.redis import connection
from holdfast.testing import run_local
from tests.store import redis_server
from tests.store.redis_server import RedisServer

WAITED_FOR = {"for seconds": (5.0, ""), "for minutes": (240.0, "&patience=600")}
"""How long the server is away → seconds, options of the store."""
CELLS = [
    (topology, mode, away)
    for topology in program.TOPOLOGIES
    for mode in program.MODES
    if program.allows(topology, mode)
    for away in WAITED_FOR
]
GIVEN_UP = [
    (topology, mode)
    for topology in program.TOPOLOGIES
    for mode in program.MODES
    if topology != "replayable" and mode != "independent"
]
"""The end of a run may cost the others rows, which are counted."""


class Away:
    """A server that is killed when the first epoch is published, and the clock of those who wait for it.

    It comes back when they have waited for `seconds`.
    """

    def __init__(self, server: RedisServer, seconds: float) -> None:
        self.waits = 0
        self.killed = 0
        self._server = server
        self._seconds = seconds
        self._now = 0.0
        self._back_at: float | None = None
        self._lock = threading.Lock()

    def hear(self, event: RunEvent) -> None:
        """A subscriber of the run: the region's thread itself stands still while the server dies."""
        with self._lock:
            if isinstance(event, EpochPublished) and not self.killed:
                self.killed += 1
                self._server.kill()
                self._back_at = self._now + self._seconds

    def monotonic(self) -> float:
        with self._lock:
            return self._now

    def sleep(self, seconds: float) -> None:
        time.sleep(0.001)
        with self._lock:
            self.waits += 1
            self._now += seconds
            if self._back_at is not None and self._now >= self._back_at:
                self._back_at = None
                self._server.start()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    if redis_server.program() is None:
        pytest.skip(redis_server.MISSING)
    with RedisServer(tmp_path / "server") as made:
        yield made


Leaves = Callable[[float], Away]


@pytest.fixture
def leaves(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Leaves:
    def make(seconds: float) -> Away:
        away = Away(server, seconds)
        monkeypatch.setattr(connection, "time", away)
        return away

    return make


@pytest.mark.sampled(keep=1, per=("away",))
@pytest.mark.parametrize(("topology", "mode", "away"), CELLS)
@pytest.mark.fault("K14", "N01")
def test_a_store_that_is_away_for_a_while_is_waited_for(
    topology: str, mode: str, away: str, tmp_path: Path, server: RedisServer, leaves: Leaves
) -> None:
    seconds, options = WAITED_FOR[away]
    gone = leaves(seconds)
    run_local(
        program.build(topology, mode, str(tmp_path)), server.url("job", options), subscribers=[gone.hear]
    )
    assert (gone.killed, gone.waits > 0) == (1, True), "nobody missed the store"
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired(f"store away {away}")


@pytest.mark.sampled
@pytest.mark.parametrize(("topology", "mode"), GIVEN_UP)
@pytest.mark.fault("K14", "O05")
def test_a_run_whose_store_stays_away_ends_and_the_next_one_goes_on(
    topology: str, mode: str, tmp_path: Path, server: RedisServer, leaves: Leaves
) -> None:
    gone = leaves(float("inf"))
    with pytest.raises(StoreError, match="cannot be reached"):
        run_local(program.build(topology, mode, str(tmp_path)), server.url("job"), subscribers=[gone.hear])
    assert (gone.killed, gone.waits > 0) == (1, True), "nobody missed the store"
    server.start()
    # It could not tell the server that it ended, and its process lives.
    run_local(program.build(topology, mode, str(tmp_path)), server.url("job"), take_over=True)
    assert program.found(topology, tmp_path) == program.golden(topology)
    fired("store away for longer than the run waits")
