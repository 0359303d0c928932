"""Failpoints that a test armed are disarmed behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast as hf
from holdfast.testing import disarm


@pytest.fixture
def shelf(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a MemorySink's shelf, emptied behind the test."""
    disarm()
    yield request.node.name
    disarm()
    hf.MemorySink.clear(request.node.name)
