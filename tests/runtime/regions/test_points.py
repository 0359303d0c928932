"""Operators that can be checkpointed at certain points only: epochs wait for them, by name, and are right."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import holdfast as hf
from holdfast.errors import RegionParkedError, TopologyError
from holdfast.testing import MemorySink, Rows, arm, disarm, run_local, submit_local

TEXTS = [f"text number {n} " * 20 for n in range(60)]


@pytest.fixture(autouse=True)
def no_failpoints() -> Any:
    yield
    disarm()


def chunks() -> list[tuple[bytes, bool]]:
    """Compressed streams in pieces of 9 bytes, one stream behind the other."""
    found = []
    for text in TEXTS:
        data = zlib.compress(text.encode())
        pieces = [data[at : at + 9] for at in range(0, len(data), 9)]
        found += [(piece, piece is pieces[-1]) for piece in pieces]
    return found


class Decompress:
    """The library holds state between the pieces of a stream, which nobody can store."""

    asked: ClassVar[int] = 0

    def __init__(self) -> None:
        self.streams = 0
        self._library: Any = None

    def open(self) -> None:
        self._library, self._text = None, b""

    def may_checkpoint(self) -> bool:
        Decompress.asked += 1
        return self._library is None

    def process(self, row: Any, port: int) -> Any:
        if self._library is None:
            self._library, self._text = zlib.decompressobj(), b""
        self._text += self._library.decompress(row.piece)
        time.sleep(0.002)
        if not row.last:
            return None
        self._library = None
        self.streams += 1
        return {"text": self._text.decode(), "n": self.streams}

    def checkpoint(self) -> int:
        assert self._library is None, "checkpointed in the middle of a stream"
        return self.streams

    def reset(self, state: int) -> None:
        self.streams = state


class Pairs(Decompress):
    """A second one behind it: it may be checkpointed after every second row."""

    def __init__(self) -> None:
        self.seen = 0

    def may_checkpoint(self) -> bool:
        return self.seen % 2 == 0

    def process(self, row: Any, port: int) -> Any:
        self.seen += 1
        return {"text": row.text, "n": row.n}

    def checkpoint(self) -> int:
        assert self.seen % 2 == 0
        return self.seen

    def reset(self, state: int) -> None:
        self.seen = state


def topology(shelf: str, rows: Any = None, two: bool = False, **settings: Any) -> hf.Topology:
    made = hf.Topology("points")
    source = made.source(Rows(rows or chunks(), "piece binary, last boolean", rows_per_step=4), name="pieces")
    texts = source.consistent("r", **settings).apply(Decompress, "text string, n long", name="texts")
    if two:
        texts = texts.apply(Pairs, "text string, n long", name="pairs")
    texts.sink(MemorySink(shelf), name="out")
    return made


def store(shelf: str) -> str:
    return "memory:" + re.sub(r"\W", "_", shelf)


def wait(condition: Callable[[], Any], what: str) -> None:
    patience = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < patience, f"waited 60 s for {what}"
        time.sleep(0.005)


GOLDEN = [{"text": text, "n": n} for n, text in enumerate(TEXTS, 1)]


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize(
    "failpoint",
    ["", "step.end=raise@60", "drain.all_acked=raise@2", "reset.op.loaded=raise@1;step.end=raise@90"],
)
def test_epochs_lie_between_streams_and_failures_cost_nothing(failpoint: str, two: bool, shelf: str) -> None:
    Decompress.asked = 0
    arm(failpoint)
    status = run_local(topology(shelf, two=two, period=0.02), store(shelf))
    assert MemorySink.rows(shelf) == GOLDEN
    assert status["regions"]["r"]["epochs_published"] >= 2
    assert Decompress.asked > 0


def test_the_epoch_waits_and_says_for_whom_and_goes_on_after_the_wait(shelf: str) -> None:
    half = chunks()[:-2]
    job = submit_local(topology(shelf, half, trigger="manual"), store(shelf))
    try:
        wait(lambda: job.status()["elements"]["texts"]["rows"] == len(half), "all pieces")
        job.trigger_epoch()
        wait(lambda: job.status()["regions"]["r"].get("waits_for") == ["texts"], "its name")
        wait(
            lambda: "texts may be checkpointed" in job.status()["elements"]["texts"]["waiting"],
            "the same there",
        )
        assert job.status()["regions"]["r"]["epoch"] == 0
    finally:
        job.close()


def test_an_operator_that_is_never_ready_parks_the_region_and_is_named(shelf: str) -> None:
    rows = chunks()[:-2]
    made = topology(shelf, rows, period=30, drain_timeout=0.3, max_consecutive_resets=1)
    with pytest.raises(RegionParkedError, match="texts"):
        run_local(made, store(shelf))


def test_stop_and_savepoint_come_at_a_point_and_the_next_run_goes_on(shelf: str) -> None:
    job = submit_local(topology(shelf, two=True, period=30), store(shelf))
    wait(lambda: job.status()["elements"]["texts"]["rows"] > 8, "some pieces")
    assert job.savepoint("mine", timeout=30)["r"] >= 1
    job.stop()
    assert len(MemorySink.rows(shelf)) <= len(TEXTS)
    run_local(topology(shelf, two=True, period=30), store(shelf))
    assert MemorySink.rows(shelf) == GOLDEN


class Blocks(hf.Operator):
    """A start with a thread: blocks of seven rows, and only whole ones are in an epoch."""

    replayable = True

    def __init__(self) -> None:
        self.n = 0

    def may_checkpoint(self) -> bool:
        return self.n % 7 == 0

    def checkpoint(self) -> int:
        assert self.n % 7 == 0
        return self.n

    def reset(self, state: int) -> None:
        self.n = state

    def reset_to_initial_state(self) -> None:
        self.n = 0

    def run(self, context: Any) -> None:
        while True:
            with context.permit():
                if self.n >= 7 * 60:
                    return
                context.submit({"n": self.n})
                self.n += 1
            time.sleep(0.0005)


@pytest.mark.parametrize("mode", ["async", "drain", "token"])
def test_a_start_with_points_goes_on_until_it_is_at_one(mode: Any, shelf: str) -> None:
    made = hf.Topology("blocks")
    rows = made.operator(Blocks, [], schema="n long", name="blocks").consistent("r", period=0.02, mode=mode)
    rows.sink(MemorySink(shelf), name="out")
    arm("step.end=raise@30")
    status = run_local(made, store(shelf))
    assert status["regions"]["r"]["epochs_published"] >= 2
    assert sorted(row["n"] for row in MemorySink.rows(shelf)) == list(range(7 * 60))


def test_what_cannot_wait_is_refused(shelf: str) -> None:
    for mode in ("drain", "token"):
        with pytest.raises(
            TopologyError, match=r"'texts' of region 'r' has may_checkpoint\(\) and inputs.* anywhere"
        ):
            run_local(topology(shelf, mode=mode), store(shelf))
    made = hf.Topology("points")
    source = made.source(Rows(chunks(), "piece binary, last boolean"), name="pieces").consistent("r")
    made.operator(Decompress, [source], [source], schema="text string, n long", name="texts")
    with pytest.raises(TopologyError, match="a control port"):
        run_local(made, store(shelf))
