"""Decoders take no harm from foreign bytes: a short run of the fuzzer, and what it found before. `make fuzz` runs it for long."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.engine import Finding, fuzz, replay
from fuzz.targets import TARGETS, Target
from holdfast.errors import HoldfastError

CORPUS = Path(__file__).with_name("corpus")
INPUTS = 150


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.fault("U07", "SR01", "SR04", "SR14")
def test_a_decoder_returns_or_raises_an_error_of_ours(name: str, tell: Callable[..., None]) -> None:
    seed = int(os.environ["HOLDFAST_SAMPLE"])
    tried, findings = fuzz(name, seed, count=INPUTS)
    assert findings == [], f"python tests/fuzz/run.py --seed {seed} {name}"
    tell("fuzzed", f"{name}: {tried} inputs")


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
@pytest.mark.fault("U07", "SR04")
def test_what_was_found_once_is_not_found_again(path: Path) -> None:
    name = path.name.rpartition("-")[0]
    assert replay(name, [path.read_bytes()]) == []


def test_every_target_has_seeds_that_it_takes(tmp_path: Path) -> None:
    for name, target in TARGETS.items():
        good = 0
        for data in target.seeds():
            try:
                target.decode(data, tmp_path)
                good += 1
            except HoldfastError:
                continue
        assert good, name


def crash(data: bytes, here: Path) -> object:
    os.abort()


def hang(data: bytes, here: Path) -> object:
    while True:
        pass


def swallow(data: bytes, here: Path) -> object:
    return bytes(1 << 30)


def stumble(data: bytes, here: Path) -> object:
    return {}[data]


@pytest.mark.parametrize(
    ("decode", "what"),
    [(crash, "ended the process (-6)"), (hang, "hung"), (swallow, "MemoryError"), (stumble, "KeyError")],
)
def test_the_fuzzer_notices(
    decode: Callable[..., object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.engine.LIMIT_S", 0.3)
    monkeypatch.setitem(TARGETS, "bad", Target(decode, lambda: [b"seed"]))
    (found,) = fuzz("bad", 1, count=1)[1]
    assert isinstance(found, Finding)
    assert what in found.what
