"""What did come out, compared with what must."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from holdfast.demo.oracle import Account, Expected, Payment
from holdfast.demo.topology import Places


@dataclass(frozen=True, slots=True)
class Difference:
    """How an output differs from what was expected. `first` shows one differing record to people."""

    rows: int
    """Records in the output; of a changelog, keys."""
    missing: int = 0
    duplicated: int = 0
    different: int = 0
    first: str = ""

    @property
    def none(self) -> bool:
        return not (self.missing or self.duplicated or self.different)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One run against the oracle."""

    payments: Difference
    accounts: Difference
    notifications: Difference
    clicks: Difference

    @property
    def exactly_once(self) -> bool:
        return self.payments.none and self.accounts.none

    @property
    def at_least_once(self) -> bool:
        return not (self.notifications.missing or self.notifications.different)

    def best_effort(self, counted: int) -> bool:
        """Nothing invented or repeated, and nothing lost that was not counted."""
        return self.clicks.missing <= counted and not (self.clicks.duplicated or self.clicks.different)

    def as_dict(self) -> dict[str, Any]:
        return {"payments": asdict(self.payments), "accounts": asdict(self.accounts)}


def judge(places: Places, right: Expected) -> Verdict:
    """Read everything a run has made visible, and compare."""
    return Verdict(
        payments=compare(right.payments, _payments(places.payments)),
        accounts=compare_accounts(right.accounts, _accounts(places.accounts)),
        notifications=compare_ids(right.notifications, [id for _, id in notified(places.notifications)]),
        clicks=compare_ids(right.clicks, _column(places.clicks, "id")),
    )


def compare(right: Mapping[int, Payment], rows: Iterable[tuple[int, Payment]]) -> Difference:
    """Rows with an identity: each must be there once, with the right values."""
    found = list(rows)
    seen = Counter(id for id, _ in found)
    wrong = [(id, row) for id, row in found if right.get(id) != row]
    missing = [id for id in right if id not in seen]
    twice = [id for id, count in seen.items() if count > 1]
    story = [f"order {id} is {row}, should be {right.get(id)}" for id, row in wrong[:1]]
    story += [f"order {id} is missing" for id in missing[:1]]
    story += [f"order {id} appears {seen[id]} times" for id in twice[:1]]
    repeats = sum(seen[id] - 1 for id in twice)
    return Difference(len(found), len(missing), repeats, len(wrong), next(iter(story), ""))


def compare_accounts(right: Mapping[str, Account], rows: Iterable[tuple[str, Account]]) -> Difference:
    """A changelog: merged by key it must give the right accounts, and no change may appear twice."""
    found = list(rows)
    changes = Counter((name, account.events) for name, account in found)
    final: dict[str, Account] = {}
    for name, account in found:
        if name not in final or account.events > final[name].events:
            final[name] = account
    missing = [name for name in right if name not in final]
    wrong = [name for name in final if right.get(name) != final[name]]
    twice = [change for change, count in changes.items() if count > 1]
    story = [f"account {name} is {final[name]}, should be {right.get(name)}" for name in wrong[:1]]
    story += [f"account {name} is missing" for name in missing[:1]]
    story += [f"change {events} of account {name} appears more than once" for name, events in twice[:1]]
    repeats = sum(changes[change] - 1 for change in twice)
    return Difference(len(final), len(missing), repeats, len(wrong), next(iter(story), ""))


def compare_ids(right: frozenset[int], ids: Sequence[int]) -> Difference:
    """Only identities: what is not there, what is there more often, what should not be there."""
    seen = Counter(ids)
    missing = right - seen.keys()
    strange = seen.keys() - right
    repeats = sum(seen.values()) - len(seen)
    story = [f"{id} should not be there" for id in sorted(strange)[:1]] + [
        f"{id} is missing" for id in sorted(missing)[:1]
    ]
    return Difference(len(ids), len(missing), repeats, len(strange), next(iter(story), ""))


def notified(path: Path) -> Iterator[tuple[int, int]]:
    """(byte offset, order) of every whole line of the notification log; half a line is of no use to anybody."""
    offset = 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        try:
            yield offset, int(json.loads(line)["order"])
        except ValueError:
            pass
        offset += len(line)


def sent_again(path: Path, marks: Sequence[int]) -> list[int]:
    """How many notifications went out again between one mark (a length of the log) and the next."""
    counts = [0] * len(marks)
    seen: set[int] = set()
    for offset, order in notified(path):
        if order in seen:
            after = [index for index, mark in enumerate(marks) if offset >= mark]
            if after:
                counts[after[-1]] += 1
        seen.add(order)
    return counts


def _payments(directory: Path) -> Iterator[tuple[int, Payment]]:
    for path in sorted(directory.glob("*.parquet")):
        for row in pq.ParquetFile(path).read().to_pylist():
            moment = row["at"].astimezone(tz=UTC) if row["at"].tzinfo else row["at"].replace(tzinfo=UTC)
            yield row["order"], Payment(row["customer"], row["cents"], row["method"], moment)


def _accounts(directory: Path) -> Iterator[tuple[str, Account]]:
    for path in sorted(directory.glob("*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            yield row.pop("customer"), Account(**row)


def _column(directory: Path, name: str) -> list[int]:
    paths = sorted(directory.glob("*.parquet"))
    return [int(v) for path in paths for v in pq.ParquetFile(path).read([name])[name].to_pylist()]
