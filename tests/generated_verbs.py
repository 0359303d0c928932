"""Every verb of the language in every configuration that its signature allows (document 004, §7.1: the second set of tests).

Nothing is listed by hand but values: the verbs are the public methods of `Stream`, the windows come from the signatures of
`tumbling`, `sliding` and `session`, literals and flags take all their values. A verb, parameter or window that is added to the language is either generated from
then on or makes `generated` fail. What the compiler refuses is counted, not run.

Run as a child with: VERB NUMBERS DIRECTORY, numbers of configurations joined by commas.
"""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
import random
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, get_args

import pyarrow as pa

import holdfast as hf
from holdfast.errors import TopologyError
from holdfast.language.stream import Stream
from holdfast.testing import run_local

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = "at timestamp, k string, m long, a double, end boolean, n long"
ROWS = 120

SAID_OTHERWISE = {
    "consistent": "an annotation: the matrix has it in all modes",
    "autonomous": "an annotation",
    "isolate": "an annotation",
    "may_lose": "an annotation",
    "checkpoint": "an annotation",
    "replayable": "a start of a region, with tests of its own",
    "persist": "a log between two graphs: tests/log/test_persist*.py",
    "preserve": "a log behind sources that cannot replay: tests/log/test_preserved.py",
    "event_time": "all inputs have it here",
    "sink": "all outputs have it here",
    "barrier": "another name of zip",
    "where": "another name of filter",
    "group_by": "another form of aggregate",
}
SPARK = {"filter", "select", "with_columns", "rename", "drop", "split", "sql", "transform"}
"""Made of Spark's expressions: they run on Spark alone."""


class Sums(hf.Operator):
    """A row's number, and the sum so far."""

    total = hf.Value(int, default=0)
    leaves_out: ClassVar[bool] = False
    """Some rows have no sum."""
    raises: ClassVar[bool] = False
    """Some rows are none for it."""

    def process(self, row: Any, port: int) -> Any:
        return summed(self, row)


class KeySums(hf.KeyedOperator):
    total = hf.Value(int, default=0)
    leaves_out: ClassVar[bool] = False
    raises: ClassVar[bool] = False

    def process(self, row: Any, key: Any) -> Any:
        return summed(self, row)


def summed(self: Any, row: Any) -> dict[str, int]:
    if self.raises and row.n % 17 == 3:
        raise ValueError("every 17th")
    self.total += row.n
    return {"n": row.n} if self.leaves_out and row.n % 5 == 0 else {"n": row.n, "total": self.total}


def shaped(operator: Any, given: dict[str, Any]) -> Any:
    """One that does what it is allowed to."""
    flags = {"leaves_out": given["missing"] == "null", "raises": given["on_error"] == "stream"}
    return type(operator.__name__, (operator,), {**flags, "__module__": __name__})


def running(row: Any, state: Any) -> Any:
    state.total += row.n
    return {"n": row.n, "total": state.total}


async def called(row: dict[str, Any]) -> dict[str, Any] | None:
    return {"n": row["n"], "twice": 2 * row["n"]} if row["n"] % 4 else None


def doubled(table: pa.Table) -> pa.Table:
    return pa.table({"n": pa.concat_tables([table, table]).column("n")})


def near(pairs: pa.Table) -> Any:
    return pa.compute.less(pairs["n"], pa.scalar(60, pa.int64()))


TABLE = pa.table({"k": ["a", "b"], "label": ["first", "second"]})
MADE = "n long, total long"
AGGREGATES = {"c": hf.count(), "total": hf.sum("n"), "all": hf.collect("n"), "seen": hf.last("m")}

OTHER = object()
"""The second stream."""
LEFT_ALONE = {"name", "idle", "checkpoint", "refresh", "delay", "more", "timeout", "poison"}
"""Parameters of which only the default is taken: idle and refresh are the clock's matter, poison has tests of its own, the rest is no
semantics."""

CHOICES: dict[str, list[Any]] = {
    "by": ["k", ["k", "m"]],
    "other": [OTHER],
    "streams": [(OTHER,)],
    "ttl": [None, hf.ttl(5, on="at")],
    "aggregates": [AGGREGATES, {"c": hf.count(), "total": hf.sum("n")}],
    "within": [None, 4, (1, 6)],
    "keep": [None, hf.latest(5), hf.latest(rows=3), hf.latest(rows=2, per_key=True)],
    "other_keep": [None, hf.latest(rows=4)],
    "on": [None],
    "tolerance": [None, 3],
    "suffix": ["_right"],
    "where": [None, near],
    "fn": [doubled],
    "schema": ["n long"],
    "n": [1, 3],
    "top_n.order": ["-n", ["m", "-n"]],
    "table": [TABLE],
    "concurrency": [1, 8],
    "retries": [0],
    "schemas": [()],
    "join.window": [None],
    "join.other_window": [None],
    "join.on": [None, "at"],
    "asof_join.on": [None, "at"],
    "sort.on": [None, "at"],
    "sort.by": [(), "k"],
    "zip.by": [None, "k"],
    "lookup.by": ["k"],
    "apply.operator": [Sums],
    "apply.schema": [MADE],
    "keyed.operator": [KeySums],
    "keyed.schema": [MADE],
    "keyed.on": [None, "at"],
    "map_state.fn": [running],
    "map_state.schema": [MADE],
    "map_state.variables": [{"total": hf.Value(int, default=0)}],
    "map_state.on": [None, "at"],
    "async_map.fn": [called],
    "async_map.schema": ["n long, twice long"],
    "condition": ["n % 3 > 0"],
    "conditions": [("n % 3 = 0", "n > 50")],
    "names": [None],
    "select.columns": [("n", "k AS key")],
    "drop.columns": [("at", "end")],
    "with_columns.columns": [{"twice": "n * 2"}],
    "rename.columns": [{"n": "number"}],
    "query": ["SELECT n, upper(k) AS k FROM this WHERE n > 10"],
    "transform.fn": [lambda frame: frame.selectExpr("n + 1 AS n")],
}
WINDOW_VALUES = {
    "size": 8,
    "slide": 4,
    "gap": 2,
    "rows": 4,
    "every": 2,
    "delta": 9,
    "of": "a",
    "until": "end",
}
WINDOW_MORE = {"lateness": 2}
WINDOW_LEFT_ALONE = {"on", "delay", "idle"}


def inputs() -> list[tuple[Any, ...]]:
    chance = random.Random(11)
    found = []
    far = 0.0
    for n in range(ROWS):
        far += chance.choice([0, 0.5, 1, 2])
        at = BEGIN + dt.timedelta(seconds=n / 3 - chance.choice([0, 0, 1, 4]))
        found.append((at, chance.choice("abc"), chance.randrange(2), far, chance.random() < 0.15, n))
    return found


# --- generating -------------------------------------------------------------------------------------------------------


def verbs() -> list[str]:
    """Public methods of streams that make streams."""
    methods = {name for name, _ in inspect.getmembers(Stream, inspect.isfunction) if not name.startswith("_")}
    assert SAID_OTHERWISE.keys() <= methods, "a method that is gone"
    return sorted(methods - SAID_OTHERWISE.keys())


@cache
def windows() -> tuple[Any, ...]:
    """Windows of every kind: each way of calling their makers, plain and with what may be added."""
    found = []
    for maker in (hf.tumbling, hf.sliding, hf.session):
        for form in typing.get_overloads(maker) or [maker]:
            parameters = inspect.signature(form).parameters
            unknown = parameters.keys() - WINDOW_VALUES.keys() - WINDOW_MORE.keys() - WINDOW_LEFT_ALONE
            assert not unknown, f"no values known for {unknown} of {maker.__name__}()"
            plain = {name: WINDOW_VALUES[name] for name in parameters if name in WINDOW_VALUES}
            more = {name: WINDOW_MORE[name] for name in parameters if name in WINDOW_MORE}
            found += [maker(**plain), *([maker(**plain, **more)] if more else [])]
    return tuple(found)


def options(verb: str, parameter: inspect.Parameter) -> list[Any]:
    """All values that a parameter takes here."""
    if parameter.name in LEFT_ALONE:
        return []
    for known in (f"{verb}.{parameter.name}", parameter.name):
        if known in CHOICES:
            return CHOICES[known]
    if parameter.name == "window":
        return [None, *windows()]
    annotation = str(parameter.annotation)
    if annotation == "bool":
        return [parameter.default, not parameter.default]
    module = sys.modules[inspect.getmodule(getattr(Stream, verb)).__name__]  # type: ignore[union-attr]
    literal = get_args(getattr(module, annotation, None)) or get_args(eval(annotation, vars(typing)))
    assert literal, f"no values known for {parameter.name}: {annotation} of {verb}()"
    return list(literal)


@dataclass(frozen=True)
class Configuration:
    """One way of calling a verb."""

    verb: str
    arguments: tuple[tuple[str, Any], ...]

    def call(self, stream: hf.Stream, other: hf.Stream, name: str) -> list[hf.Stream]:
        """The streams it makes."""
        given = {k: v for k, v in self.arguments if v is not None}
        given = {k: other if v is OTHER else v for k, v in given.items()}
        if "operator" in given:
            given["operator"] = shaped(given["operator"], given)
        positional: list[Any] = []
        for key in ("streams", "conditions", "columns"):
            if isinstance(given.get(key), tuple):
                positional += [other if one is OTHER else one for one in given.pop(key)]
        if self.verb in ("with_columns", "rename"):
            positional.append(given.pop("columns"))
        made: Any = getattr(stream, self.verb)(*positional, **given, name=name)
        found = list(made) if isinstance(made, list) else [made]
        if given.get("on_error") == "stream":
            found.append(made.errors)
        if given.get("late"):
            found.append(made.late)
        return found

    def __str__(self) -> str:
        said = ", ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in self.arguments if v is not None)
        return f"{self.verb}({said})"


@cache
def configurations(verb: str) -> tuple[Configuration, ...]:
    """Every combination of the values of its parameters, whether the compiler takes it or not."""
    parameters = [p for p in inspect.signature(getattr(Stream, verb)).parameters.values() if p.name != "self"]
    named = {p.name: found for p in parameters if (found := options(verb, p))}
    return tuple(
        Configuration(verb, tuple(zip(named, values, strict=True)))
        for values in itertools.product(*named.values())
    )


@cache
def accepted(verb: str) -> tuple[int, ...]:
    """Numbers of the configurations that the compiler takes."""
    return tuple(
        number for number, one in enumerate(configurations(verb)) if _refusal(lambda one=one: topology([one], "none")) is None
    )  # fmt: skip


def refused(verb: str) -> Iterator[tuple[Configuration, TopologyError]]:
    """The others, and why."""
    taken = set(accepted(verb))
    for number, one in enumerate(configurations(verb)):
        if number not in taken:
            refusal = _refusal(lambda one=one: topology([one], "none"))
            assert refusal is not None
            yield one, refusal


def _refusal(build: Callable[[], hf.Topology]) -> TopologyError | None:
    try:
        build().explain()
    except TopologyError as refusal:
        return refusal
    return None


# --- running ----------------------------------------------------------------------------------------------------------


def topology(chosen: list[Configuration], here: str) -> hf.Topology:
    """All of them beside each other, over the same rows."""
    made = hf.Topology("generated")
    source = made.source(hf.Rows(inputs(), SCHEMA, rows_per_step=6), name="rows")
    stream = source.consistent("r", period=0.03, max_consecutive_resets=30).event_time("at", delay=3)
    other = stream.dedup(["k", "m", "n"], name="other")
    for number, one in enumerate(chosen):
        for place, out in enumerate(one.call(stream, other, f"op{number}")):
            out.sink(hf.FileSink(f"{here}/op{number}-{place}", "parquet"), name=f"op{number}_{place}_out")
    return made


def chosen_of(verb: str, numbers: str) -> list[Configuration]:
    every = configurations(verb)
    return [every[int(number)] for number in numbers.split(",")]


def main(verb: str, numbers: str, here: str) -> None:
    run_local(topology(chosen_of(verb, numbers), here), store=f"file:{here}/store")


if __name__ == "__main__":
    main(*sys.argv[1:])
