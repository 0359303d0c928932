"""How Python operators are declared, and what is checked then."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import TopologyError
from holdfast.language.hosted import Operator, maker


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.seen = [start]

    def process(self, row: dict[str, Any], port: int) -> None:
        self.seen.append(port)


class Batches(Operator):
    def process_batch(self, table: pa.Table, port: int) -> None:
        self.submit(table)


def test_a_class_is_made_anew_each_time() -> None:
    make, label = maker(Counter)
    assert (make is Counter, label) == (True, "Counter")


def test_an_instance_is_copied_when_it_is_declared() -> None:
    mine = Counter(7)
    make, label = maker(mine)
    mine.seen.append(99)
    one, two = make(), make()
    one.seen.append(1)
    assert (label, two.seen) == ("Counter", [7])
    assert make().seen == [7]


def test_a_function_without_arguments_makes_instances() -> None:
    make, label = maker(partial(Counter, 3))
    assert (make().seen, label) == ([3], "Counter")


def test_the_base_class_submits_through_the_runtime() -> None:
    sent: list[tuple[Any, int]] = []
    operator = maker(Batches)[0]()
    with pytest.raises(RuntimeError, match="only while the topology runs"):
        operator.submit({"a": 1})
    operator._submit = lambda rows, port: sent.append((rows, port))
    operator.submit({"a": 1}, port=1)
    assert sent == [({"a": 1}, 1)]
    assert operator.open() is operator.drain() is operator.close() is None
    assert not hasattr(operator, "checkpoint"), "the attributes are the state unless the user says otherwise"


class Nothing(Operator):
    pass


class Half(Counter):
    def checkpoint(self) -> int:
        return 1


class Needy(Counter):
    def __init__(self, path: str) -> None:
        super().__init__()


class Locked(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Nothing, "Nothing has neither process(row, port) nor process_batch(table, port)"),
        (Nothing(), "is not a Python operator"),
        (lambda: 3, "int has neither process"),
        (Half, "Half defines only one of checkpoint() and reset(state)"),
        (Needy, "'Needy' cannot be called without arguments"),
        (lambda path: Counter(), "cannot be called without arguments"),
        (Locked(), "The Locked cannot be copied"),
        (42, "42 is not a Python operator"),
    ],
)
def test_mistakes_are_explained(operator: Any, message: str) -> None:
    with pytest.raises(TopologyError) as caught:
        maker(operator)
    assert message in caught.value.message
    assert caught.value.cure
