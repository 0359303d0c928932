"""What changed between two epochs, against plain dicts made of the input rows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import looked_at
import pytest
from looked_at import BEGIN, Row, manifest, portion, put

from holdfast.checkpoint.look import epoch_difference as compare_module
from holdfast.checkpoint.look.epoch_difference import OperatorDiff, compare
from holdfast.checkpoint.look.epochs import open_reader
from holdfast.store.base import Store

State = dict[Any, Any]
SEED = 20260101


@pytest.fixture(scope="module", params=["file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two epochs: after a first portion of rows and after a second one."""
    root = tmp_path_factory.mktemp(f"diff-{request.param}")
    url = f"{request.param}:{root / 'store'}"
    put(root / "input", 0, FIRST)
    EPOCHS[request.param] = (looked_at.run(url, root / "input"),)
    put(root / "input", 1, SECOND)
    EPOCHS[request.param] += (looked_at.run(url, root / "input"),)
    return open_reader(url)


EPOCHS: dict[str, tuple[int, ...]] = {}
FIRST = portion(SEED, 120, users=25)
SECOND = portion(SEED + 1, 60, users=35, first=120)


def diff(store: Store, **options: Any) -> dict[str, OperatorDiff]:
    before, after = EPOCHS[store.url.partition(":")[0]]
    found = compare(store, manifest(store, before), manifest(store, after), **options)
    return {each.operator: each for each in found}


def counts(before: State, after: State) -> tuple[int, int, int]:
    """(added, changed, removed)."""
    changed = sum(before[key] != after[key] for key in before.keys() & after.keys())
    return len(after.keys() - before.keys()), changed, len(before.keys() - after.keys())


def found(each: OperatorDiff, part: str = "state") -> tuple[int, int, int]:
    return each.parts[part].added, each.parts[part].changed, each.parts[part].removed


def by_user(rows: list[Row]) -> State:
    state: State = {}
    for row in rows:
        state.setdefault(row["user"], []).append((row["n"], row["price"]))
    return state


def baskets(rows: list[Row]) -> State:
    state: State = {}
    for row in rows:
        if row["n"] % 4 == 0:
            state.pop(row["user"], None)
        else:
            state.setdefault(row["user"], []).append(row["n"])
    return state


def best(rows: list[Row]) -> State:
    numbered = [(-row["n"], row["at"], row["user"]) for row in rows]
    return {user: sorted(each for each in numbered if each[2] == user)[:2] for _, _, user in numbered}


def open_windows(rows: list[Row]) -> State:
    """Windows of 60 s every 20 s that had not ended 5 s before the last row."""
    mark = max(row["at"] for row in rows) - dt.timedelta(seconds=5)
    state: State = {}
    for row in rows:
        seconds = int((row["at"] - BEGIN).total_seconds())
        for start in range(-60, seconds + 1, 20):
            ends = BEGIN + dt.timedelta(seconds=start + 60)
            if start <= seconds < start + 60 and ends > mark:
                state[start, row["user"]] = state.get((start, row["user"]), 0) + row["n"]
    return state


@pytest.mark.parametrize("rows_at_once", [1 << 18, 7])
def test_rows_of_every_keyed_operator_are_compared_by_key(
    store: Store, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("seed", SEED)
    real = compare_module.ranges
    monkeypatch.setattr(compare_module, "ranges", lambda tables, rows: real(tables, min(rows, rows_at_once)))
    both = FIRST + SECOND
    changed = diff(store)
    models = {"totals": by_user, "baskets": baskets, "best": best, "sales": open_windows}
    for name, model in models.items():
        assert found(changed[name]) == counts(model(FIRST), model(both)), name
    assert found(changed["baskets"])[2] > 0, "the input must empty some basket"
    assert found(changed["first"]) == (len({r["n"] for r in both} - {r["n"] for r in FIRST}), 0, 0)


def test_waiting_rows_that_left_are_removed_and_new_ones_added(store: Store) -> None:
    def waiting(rows: list[Row]) -> set[dt.datetime]:
        mark = max(row["at"] for row in rows) - dt.timedelta(seconds=30)
        return {row["at"] for row in rows if row["at"] > mark}

    before, after = waiting(FIRST), waiting(FIRST + SECOND)
    assert found(diff(store)["sorted"], "waiting") == (len(after - before), 0, len(before - after))


def test_positions_of_sources_and_small_states_are_told_before_and_after(store: Store) -> None:
    changed = diff(store)
    old, new = changed["rows"].value or (None, None)
    assert old != new
    assert changed["rows"].parts == {}
    assert changed["register"].value is not None
    for rows, value in zip((FIRST, FIRST + SECOND), changed["counts"].value or (), strict=True):
        expected: dict[str, int] = {}
        for row in rows:
            expected[str(row["user"])] = expected.get(str(row["user"]), 0) + 1
        assert value["variables"] == {"users": expected}


def test_samples_show_rows_as_people_know_them(store: Store) -> None:
    shown = diff(store, operators=["totals"], rows=4)["totals"].parts["state"].samples
    assert [what for what, _ in shown[:4]] == ["changed from", "changed to"] * 2
    for (_, old), (_, new) in zip(shown[0:4:2], shown[1:4:2], strict=True):
        values = by_user(FIRST)[old["user"]]
        more = by_user(FIRST + SECOND)[old["user"]]
        assert (old["n"], old["total"], old["all"]) == (
            len(values), sum(n for n, _ in values), [n for n, _ in values],
        )  # fmt: skip
        assert (new["user"], new["n"], new["total"]) == (old["user"], len(more), sum(n for n, _ in more))
        assert new["mean"] == pytest.approx(sum(price for _, price in more) / len(more))


def test_an_epoch_does_not_differ_from_itself(store: Store) -> None:
    newest = manifest(store, EPOCHS[store.url.partition(":")[0]][1])
    assert not any(each.differs for each in compare(store, newest, newest))


def test_other_partitions_do_not_make_a_difference(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"
    put(tmp_path / "input", 0, FIRST)
    before = looked_at.run(url, tmp_path / "input", partitions=2)
    put(tmp_path / "input", 1, SECOND)
    after = looked_at.run(url, tmp_path / "input", partitions=3)
    place = open_reader(url)
    changed = {
        each.operator: each for each in compare(place, manifest(place, before), manifest(place, after))
    }
    assert found(changed["totals"]) == counts(by_user(FIRST), by_user(FIRST + SECOND))
    assert found(changed["sales"]) == counts(open_windows(FIRST), open_windows(FIRST + SECOND))
