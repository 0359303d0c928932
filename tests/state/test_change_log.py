"""What steps changed since a checkpoint, against a plain dict, while merges go on: never less, never more, and joined once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import event, given
from hypothesis import strategies as st
from keyed_steps import apply_batch, contents
from sampling import examples
from test_compaction import BOUNDS

from holdfast.operators.shared.changes import stored_changes
from holdfast.state.aggregates.aggregation import Aggregation
from holdfast.state.keyed.change_log import ChangeLog
from holdfast.state.keyed.layout import age_of, aged, is_change
from holdfast.state.keyed.merge_plan import Bounds
from holdfast.state.keyed.segment import Segment, Segments, write_segment
from holdfast.store.base import SegmentRef

PLAN = Aggregation.plan(("k",), (("n", "count", None),), pa.schema({"k": pa.int64()}))
STEPS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=25), min_size=6, max_size=60)
EVENTS = st.lists(st.sampled_from(["", "", "", "", "pin", "pin", "stored", "lost"]), min_size=60, max_size=60)


class Logged:
    """A partition, its log, and the keys that steps changed since what is stored, in dicts."""

    def __init__(self, directory: Path, bounds: Bounds, ages: bool = False) -> None:
        self.directory, self.bounds, self.ages = directory, bounds, ages
        self.version: Segments = ()
        self.log = ChangeLog()
        self.totals: dict[int, int] = {}
        self.changed: dict[int, int] = {}
        self.pinned: list[tuple[Segments, dict[int, int], dict[int, int]]] = []
        """Pins under way: segments, what they should hold, what was changed since each."""
        self.number = self.pins = 0

    def step(self, keys: list[int]) -> None:
        self.number += 1
        batch = pa.table({"k": pa.array(keys, pa.int64())})
        before = self.version
        prefix = aged(f"s{self.number}", self.pins) if self.ages else f"s{self.number}"
        self.version, _ = apply_batch(before, batch, PLAN, self.directory, prefix, bounds=self.bounds)
        self.log.step(before, self.version)
        for key in keys:
            self.totals[key] = self.totals.get(key, 0) + 1
        for changed in (self.changed, *(since for _, _, since in self.pinned)):
            changed.update((key, self.totals[key]) for key in keys)

    def pin(self) -> None:
        self.pins += 1
        self.pinned.append((self.log.pin(), dict(self.changed), {}))

    def stored(self) -> None:
        """The oldest pin is."""
        if self.pinned:
            segments, held, self.changed = self.pinned.pop(0)
            assert self.uploaded(segments) == held
            self.log.stored(segments)

    def lost(self) -> None:
        """An upload failed: the next checkpoint is a base, whose log begins with its pin."""
        self.log, self.changed = ChangeLog(), {}
        self.pinned.clear()

    def uploaded(self, segments: Segments) -> dict[int, int]:
        """What a delta of them holds."""
        if not segments:
            return {}
        found: list[Segment] = []

        def put(segment: Segment) -> SegmentRef:
            table = pa.ipc.open_file(segment.path).read_all()
            found.append(write_segment(self.directory, f"up{self.number}-{len(found)}", table))
            return SegmentRef("entry", segment.name, segment.bytes, segment.crc)

        refs = stored_changes(PLAN, segments, self.directory, put)
        assert len({ref.key for ref in refs}) == len(refs)
        assert all(Path(segment.path).exists() for segment in segments)
        rows = [row for segment in found for row in pa.ipc.open_file(segment.path).read_all().to_pylist()]
        assert len({row["k"] for row in rows}) == len(rows), "each key once"
        return values(rows)


def values(rows: list[dict[str, int]]) -> dict[int, int]:
    return {row["k"]: row["__hf_n.count"] for row in rows}


@examples(150)
@given(steps=STEPS, bounds=BOUNDS, events=EVENTS, ages=st.booleans())
def test_the_log_holds_what_was_changed_since_the_checkpoint_and_nothing_else(
    steps: list[list[int]], bounds: Bounds, events: list[str], ages: bool
) -> None:
    with TemporaryDirectory() as directory:
        logged = Logged(Path(directory), bounds, ages)
        for keys, what in zip(steps, events, strict=False):
            logged.step(keys)
            if what:
                getattr(logged, what)()
            held = contents(tuple(logged.log.segments), PLAN) if logged.log.segments else None
            assert values(held.to_pylist() if held else []) == logged.changed
            if any(not is_change(segment) for segment in logged.log.segments):
                event("a merge took the place of its inputs")


def test_what_merges_have_joined_is_not_joined_again(tmp_path: Path) -> None:
    logged = Logged(tmp_path, Bounds(fan_in=4, least_rows=4096))
    logged.step(list(range(3000)))
    logged.pin()
    logged.stored()
    for _ in range(64):
        logged.step(list(range(100)))
    assert sum(segment.rows for segment in logged.log.segments) <= 1200, "of 6,400 rows that steps changed"
    logged.pin()
    logged.stored()
    assert not logged.log.segments


def test_merges_that_reach_back_behind_the_checkpoint_are_of_no_use(tmp_path: Path) -> None:
    logged = Logged(tmp_path, Bounds(fan_in=4, least_rows=4096, base_runs=100))
    for _ in range(2):
        logged.step(list(range(10)))
    logged.pin()
    for _ in range(2):
        logged.step(list(range(10, 20)))
    assert all(map(is_change, logged.log.segments))
    logged.stored()
    for _ in range(4):
        logged.step(list(range(10, 20)))
    assert values(contents(tuple(logged.log.segments), PLAN).to_pylist()) == dict.fromkeys(range(10, 20), 6)


def test_merges_stop_at_the_checkpoint_where_names_tell_of_it(tmp_path: Path) -> None:
    logged = Logged(tmp_path, Bounds(fan_in=4, least_rows=4096), ages=True)
    logged.step(list(range(3000)))
    for _ in range(5):
        logged.pin()
        logged.stored()
        for _ in range(18):  # never a multiple of the fan-in: without ages merges would reach across
            logged.step(list(range(100)))
        rows = [segment.rows for segment in logged.log.segments]
        assert sum(rows) <= 900, f"of 1,800 rows that steps changed: {rows}"
    assert {age_of(segment.name) for segment in logged.log.segments} == {logged.pins}
    assert values(contents(logged.version, PLAN).to_pylist()) == logged.totals
