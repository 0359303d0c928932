"""Fingerprints that earlier versions wrote as text are read as what the same operators have today."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.checkpoint.old_fingerprints import old_fingerprint
from holdfast.operators.fingerprint import Fingerprint, changes, misfit
from tests.checkpoint import every_kind
from tests.language.fakes import compiled

TEXTS = json.loads((Path(__file__).parent / "old_fingerprints.json").read_text())


@pytest.fixture(scope="module")
def now() -> dict[str, Fingerprint]:
    return {str(name): found for name, found in compiled(every_kind.topology()).fingerprint.items()}


def test_there_is_a_text_of_every_operator(now: dict[str, Fingerprint]) -> None:
    assert TEXTS.keys() == now.keys()


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_an_operator_is_its_fingerprint(name: str, now: dict[str, Fingerprint]) -> None:
    assert old_fingerprint(TEXTS[name]) == now[name]
    assert misfit(old_fingerprint(TEXTS[name]), now[name]) is None
    assert changes(old_fingerprint(TEXTS[name]), now[name]) == ([], [])


@pytest.mark.parametrize("name", TEXTS)
def test_a_fingerprint_comes_back_from_json(name: str, now: dict[str, Fingerprint]) -> None:
    text = json.dumps(now[name].to_json(), sort_keys=True)
    back = Fingerprint.from_json(json.loads(text))
    assert back == now[name]
    assert str(back) == str(now[name])
    assert [list(these) for these in back.entries.values()] == [
        list(these) for these in now[name].entries.values()
    ], "the order of entries is kept"


def test_no_two_operators_have_one_fingerprint_but_had_two_texts(now: dict[str, Fingerprint]) -> None:
    for name, text in TEXTS.items():
        same = {other for other in TEXTS if now[other] == now[name]}
        assert same == {other for other in TEXTS if TEXTS[other] == text}


@pytest.mark.parametrize("text", ["", "aggregate", "aggregate by=(", "window size=x", "join", "top n=", "nonsense at all", "sort on"])  # fmt: skip
def test_what_is_not_understood_fits_nothing(text: str, now: dict[str, Fingerprint]) -> None:
    found = old_fingerprint(text)
    assert all(misfit(found, other) for other in now.values())
