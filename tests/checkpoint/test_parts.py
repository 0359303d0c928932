"""Parts as stored data: what is written is read again, whatever else is there is refused by its place, no piece is missed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import manifest as manifests
from holdfast.checkpoint import own_records, typed_json
from holdfast.checkpoint.adaptive import Cost, History
from holdfast.checkpoint.blobs import BlobRef
from holdfast.checkpoint.manifest import Manifest, Origin
from holdfast.checkpoint.missed_rows_estimate import Pace
from holdfast.checkpoint.own_records import OwnCheckpoint, OwnRecord
from holdfast.checkpoint.parts import Chained, ElementPart, Groups, KeptBatch, OperatorPart, Whole, places
from holdfast.durable import checksum
from holdfast.errors import DamagedError, MismatchError
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, OwnerToken, RegionName
from holdfast.operators.fingerprint import Fingerprint
from holdfast.store.base import SegmentRef
from holdfast.store.memory import MemoryStore

names = st.text("abc.-~", min_size=1, max_size=8)
small = st.integers(0, 1 << 40)
crcs = st.integers(0, (1 << 32) - 1)
seconds = st.floats(0, 1e9)
blobs = st.builds(BlobRef, names, names, st.integers(9, 1 << 40), crcs, st.integers(1, 9))
segments = st.builds(SegmentRef, names, names, small, crcs)
costs = st.builds(Cost, small, seconds, small)
histories = st.builds(History, small, small, small, st.none() | costs, st.none() | costs, costs)
forms = st.one_of(
    st.none(),
    st.just(Whole()),
    st.builds(Groups, st.dictionaries(names, small)),
    st.builds(Chained, st.sampled_from(["base", "delta"]), histories, seconds),
)
operators = st.builds(
    OperatorPart,
    st.none() | blobs,
    st.lists(blobs, max_size=3).map(tuple),
    st.lists(st.lists(segments, max_size=3).map(tuple), max_size=3).map(tuple),
    forms,
)
kept = st.dictionaries(
    names.map(ConnectionId),
    st.lists(
        st.builds(KeptBatch, st.just(50), st.lists(segments).map(tuple), st.integers(0, 50)), max_size=2
    ).map(tuple),
    max_size=2,
)
borders = st.dictionaries(names.map(ConnectionId), st.dictionaries(names, small, min_size=1), max_size=2)


def element(
    name: str, held: dict[str, OperatorPart], batches: Any, captured: Any, counters: Any
) -> ElementPart:
    return ElementPart(ElementName(name), Epoch(7), Attempt(0), held, batches, captured, counters)


elements = st.builds(
    element, st.just("e"), st.dictionaries(names, operators, max_size=3), kept, kept, borders
)


def manifest_of(*parts: ElementPart, **more: Any) -> Manifest:
    return Manifest(
        job="j",
        topology="t",
        region=RegionName("r"),
        epoch=Epoch(7),
        attempt=Attempt(0),
        token=OwnerToken(1),
        wall=1.5,
        fingerprint={"op": Fingerprint("hosted")},
        parts={part.element: part for part in parts},
        previous=Epoch(3),
        **more,
    )


@given(elements)
def test_what_is_written_is_read_again(part: ElementPart) -> None:
    made = manifest_of(part, origin=Origin("fork", Epoch(7), "s", "j", ("a",), ("b",)), numbers={"op": 0})
    assert manifests.decode(manifests.encode(made), "it") == made


def refs_in(value: Any) -> Iterator[BlobRef | SegmentRef]:
    """Every reference anywhere in a value, found without the walk."""
    if isinstance(value, BlobRef | SegmentRef):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from refs_in(getattr(value, each.name))
    elif isinstance(value, dict | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from refs_in(each)


@given(elements)
def test_the_walk_misses_no_reference(part: ElementPart) -> None:
    made = manifest_of(part)
    assert sorted(map(repr, (piece.ref for piece in made.pieces()))) == sorted(map(repr, refs_in(made)))
    wanted = {
        (ref.entry, key)
        for ref in refs_in(made)
        for key in (ref.keys if isinstance(ref, BlobRef) else [ref.key])
    }
    assert places(made.pieces()) == manifests.references(made) == wanted


@given(operators, st.none() | st.builds(Pace, seconds, st.just((1, 2)), st.just((0.5, 0.0)), seconds))
def test_the_same_part_is_written_and_read_outside_of_regions(part: OperatorPart, pace: Pace | None) -> None:
    made = OwnRecord("op", OwnCheckpoint(3, part, pace))
    assert own_records.decode(own_records.encode(made), "op", "it") == made


# --- strictness -------------------------------------------------------------------------------------------------------

BLOB = BlobRef("e@r", "e7-a0-op", 20, 5, 2)
SEGMENT = SegmentRef("op@r", "op-p0", 30, 6)
WHOLE = ElementPart(
    ElementName("e"),
    Epoch(7),
    Attempt(0),
    {
        "op": OperatorPart(
            BLOB, (BLOB,), ((SEGMENT,), ()), Chained("delta", History(base=Cost(1, 0.1)), 0.2), Epoch(5)
        ),
        "groups": OperatorPart(form=Groups({"op-p0": 4})),
    },
    {ConnectionId("c"): (KeptBatch(4, (SEGMENT,)),)},
    {ConnectionId("d"): (KeptBatch(4, (SEGMENT,), 3),)},
    {ConnectionId("b"): {"sent": 3}},
)
OP = "parts.e.operators.op"

STORED = {
    "element": "e",
    "epoch": 7,
    "attempt": 0,
    "operators": {
        "op": {
            "blob": {"entry": "e@r", "key": "e7-a0-op", "size": 20, "crc": 5, "chunks": 2},
            "pairs": [{"entry": "e@r", "key": "e7-a0-op", "size": 20, "crc": 5, "chunks": 2}],
            "segments": [[["op@r", "op-p0", 30, 6]], []],
            "form": {
                "kind": "delta",
                "history": {
                    "number": 1,
                    "deltas": 0,
                    "bases": 0,
                    "base": {"bytes": 1, "seconds": 0.1, "overhead": 0},
                    "chain": {"bytes": 0, "seconds": 0.0, "overhead": 0},
                },
                "predicted_s": 0.2,
            },
            "epoch": 5,
        },
        "groups": {"form": {"kind": "groups", "rows": {"op-p0": 4}}},
    },
    "kept": {"c": [{"rows": 4, "files": [["op@r", "op-p0", 30, 6]], "skip": 0}]},
    "captured": {"d": [{"rows": 4, "files": [["op@r", "op-p0", 30, 6]], "skip": 3}]},
    "borders": {"b": {"sent": 3}},
}


def test_stored_names_do_not_change() -> None:
    """Whoever renames a field of a part must raise the version and read the old name as well."""
    made = manifest_of(WHOLE, origin=Origin("fork", Epoch(7), "s", "j", ("a",), ("b",)), numbers={"op": 1})
    header, _, body = manifests.encode(made).partition(b"\n")
    assert header.startswith(b"holdfast-manifest 3 crc32=")
    assert json.loads(body) == {
        "job": "j", "topology": "t", "region": "r", "epoch": 7, "attempt": 0, "token": 1, "wall": 1.5, "previous": 3,
        "fingerprint": {"op": {"kind": "hosted", "frame": {}, "entries": {}}}, "numbers": {"op": 1}, "parts": {"e": STORED},
        "origin": {"kind": "fork", "epoch": 7, "store": "s", "job": "j", "dropped": ["a"], "reset": ["b"]},
    }  # fmt: skip
    own = OwnRecord(
        "op", OwnCheckpoint(2, OperatorPart(form=Whole()), Pace(7.5, (3,), (2.5,), 1.0), (4, 9), 70)
    )
    header, _, body = own_records.encode(own).partition(b"\n")
    assert header.startswith(b"holdfast-checkpoint 2 crc32=")
    pace = {"at_s": 7.5, "had": [3], "rows": [2.5], "seconds": 1.0}
    stored = {"number": 2, "part": {"form": {"kind": "full"}}, "pace": pace, "covers": [4, 9], "rows": 70}
    assert json.loads(body) == {"operator": "op", "checkpoint": stored}


WRONG: list[tuple[str, Any]] = [
    ("epoch", "7"), ("epoch", True),  ("wall", "now"), ("fingerprint", []), ("job", None),
    ("parts", []), ("parts.e", 1), ("parts.e.epoch", 7.0), ("parts.e.attempt", -1), ("parts.e.operators", []),
    (f"{OP}.blob.size", -1), (f"{OP}.blob.crc", -1), (f"{OP}.blob.chunks", -1),
    (f"{OP}.blob.key", 3), (f"{OP}.pairs.0.entry", None), (f"{OP}.segments.0.0", ["op@r", "k", -1, 6]), (f"{OP}.segments.0.0", ["op@r", "k", 1, "6"]),
    (f"{OP}.segments.0.0", ["op@r", "k", 1]), (f"{OP}.segments.0.0", ["op@r", "k", True, 6]), (f"{OP}.segments.0.0", "op-p0"), (f"{OP}.segments.1", {}), (f"{OP}.form.kind", "both"),
    (f"{OP}.form.history", 5), (f"{OP}.form.history.base.bytes", "1"), (f"{OP}.form.history.chain.seconds", "x"),
    (f"{OP}.form.predicted_s", "x"), ("parts.e.operators.groups.form.rows.op-p0", -1),
    ("parts.e.kept.c.0.rows", 0.5), ("parts.e.kept.c.0.files", None), ("parts.e.captured.d.0.skip", "1"),
    ("parts.e.borders.b.sent", -1), ("origin.kind", 3), ("origin.reset", "op"), ("numbers.op", "1"),
]  # fmt: skip


def changed(body: dict[str, Any], path: str, value: Any) -> bytes:
    *way, last = path.split(".")
    where: Any = body
    for name in way:
        where = where[int(name) if isinstance(where, list) else name]
    where[int(last) if isinstance(where, list) else last] = value
    return sealed(json.dumps(body).encode())


def sealed(body: bytes, version: int = manifests.VERSION) -> bytes:
    """Any bytes behind the header that a manifest of them has."""
    return f"{manifests.MAGIC} {version} crc32={checksum(body):08x}\n".encode() + body


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_a_wrong_value_is_refused_by_its_place(path: str, value: Any) -> None:
    made = manifest_of(WHOLE, origin=Origin("reset-operator", Epoch(5), reset=("x",)), numbers={"op": 1})
    body = json.loads(manifests.encode(made).partition(b"\n")[2])
    told = path if value is not None else path.rpartition(".")[0] or "it has no"
    with pytest.raises(DamagedError) as raised:
        manifests.decode(changed(body, path, value), "the manifest")
    assert raised.value.message.startswith("the manifest is damaged: ")
    assert told in raised.value.message


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("epoch", 0, "before 0 cannot be 3"),
        ("previous", 7, "before 7 cannot be 7"),
        (f"{OP}.blob.chunks", 0, f"{OP}.blob has 20 bytes in 0 chunks"),
        (f"{OP}.blob.chunks", 21, f"{OP}.blob has 20 bytes in 21 chunks"),
        (f"{OP}.epoch", 0, "operator 'op' is of epoch 0"),
        (f"{OP}.epoch", 7, "operator 'op' is of epoch 7"),
        ("parts.e.captured.d.0.skip", 5, "parts.e.captured.d.0 skips 5 of 4 rows"),
    ],
)
def test_values_that_contradict_each_other_are_refused(path: str, value: Any, words: str) -> None:
    made = manifest_of(WHOLE, origin=Origin("reset-operator", Epoch(5)))
    body = json.loads(manifests.encode(made).partition(b"\n")[2])
    with pytest.raises(DamagedError, match=re.escape(words)):
        manifests.decode(changed(body, path, value), "it")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda data: data[:-1], DamagedError),
        (lambda data: data.replace(b"manifest 3", b"manifest 4"), MismatchError),
        (lambda data: data.replace(b"manifest 3", b"manifest 0"), DamagedError),
        (lambda data: data.replace(b"manifest 3", b"manifest x"), DamagedError),
        (lambda data: data.replace(b"manifest 3", b"manifest " + b"9" * 5000), DamagedError),
        (lambda data: data.partition(b"\n")[2], DamagedError),
        (lambda data: b"", DamagedError),
    ],
)
def test_bytes_that_are_no_manifest_are_refused(
    spoil: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    with pytest.raises(error):
        manifests.decode(spoil(manifests.encode(manifest_of(WHOLE_OF_A_RUN))), "it")


WHOLE_OF_A_RUN = replace(WHOLE, operators={"op": OperatorPart(BLOB)})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b"[" * 100_000, "JSON"),
        (b"\xff", "JSON"),
        (b"3", "not an object"),
    ],
)
def test_json_that_two_readers_might_read_differently_is_refused(body: bytes, words: str) -> None:
    with pytest.raises(DamagedError, match=words):
        manifests.decode(sealed(body), "it")
    with pytest.raises(DamagedError, match=r"it is inf"):
        typed_json.parse(float, b"1e999", 1, "it")


@pytest.mark.parametrize("value", [-1, math.inf, math.nan, True, b"", {1}])
def test_what_could_not_be_read_again_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"is .*, which cannot be|is not to be stored"):
        typed_json.encode("x", 1, {"value": (value,)})


class Colour:
    """A class with a form of its own."""

    def __init__(self, red: int) -> None:
        self.red = red

    def to_json(self) -> list[int]:
        return [self.red]

    @staticmethod
    def from_json(value: Any) -> Colour:
        return Colour(value[0])


@dataclass(frozen=True)
class Painted:
    colours: Mapping[str, Colour]


def test_a_class_may_have_a_form_of_its_own() -> None:
    data = typed_json.encode("x", 1, Painted({"a": Colour(3)}))
    assert b'{"a":[3]}' in data
    assert typed_json.decode(Painted, data, "x", 1, "it").colours["a"].red == 3
    with pytest.raises(DamagedError, match=r"colours\.a is no Colour"):
        typed_json.parse(Painted, b'{"colours": {"a": []}}', 1, "it")


def test_parts_that_do_not_fit_are_not_published_either() -> None:
    other = replace(WHOLE_OF_A_RUN, epoch=Epoch(6))
    with pytest.raises(ValueError, match="epoch 6"):
        manifests.encode(manifest_of(other))


# --- what older versions wrote ------------------------------------------------------------------------------------------

V2_FORM = (
    '{"deltas":1,"history":{"base":{"bytes":1138,"overhead":1106,"seconds":0.5},"bases":0,"chain":{"bytes":11,'
    '"overhead":0,"seconds":0.25},"delta":null,"deltas":1,"number":2},"kind":"delta","predicted_s":0.117}'
)
V2_BLOB = '{"chunks":1,"crc":5,"entry":"e@r","key":"%s","size":28}'
V2_PARTS = (
    '{"e":{"attempt":2,"epoch":3,"kept":{"c":[{"files":[["e@r","k.parquet",9,8]],"rows":7}]},"operators":{'
    f'"full":{{"blob":{V2_BLOB % "e2-a2-full"},"form":{{"deltas":0,"kind":"full"}},"segments":[]}},'
    f'"keyed":{{"blob":null,"form":{V2_FORM},"segments":[[["keyed@r","p0",1,2]],[]]}},'
    f'"many":{{"blob":null,"form":{V2_FORM},"pairs":[{V2_BLOB % "e2-a2-many~non"}],"segments":[]}},'
    '"rows":{"blob":null,"form":{"kind":"groups","rows":{"p0":4}},"segments":[[]]},'
    f'"out":{{"blob":{V2_BLOB % "e2-a2-out"},"epoch":2,"segments":[]}}}}}}}}'
)
V2 = (
    '{\n"attempt": 2,\n"epoch": 3,\n"fingerprint": {"full":"hosted"},\n"job": "j",\n"numbers": {"full":1},\n'
    f'"origin": {{"epoch":2,"kind":"reset-operator","reset":["gone"]}},\n"parts": {V2_PARTS},\n'
    '"previous": 2,\n"region": "r",\n"token": 2,\n"topology": "t",\n"wall": 5.5\n}'
).encode()


def test_a_manifest_of_version_2_means_the_same() -> None:
    found = manifests.decode(sealed(V2, 2), "it")
    history = History(2, 1, 0, Cost(1138, 0.5, 1106), None, Cost(11, 0.25))
    form = Chained("delta", history, 0.117)
    operators = {
        "full": OperatorPart(BlobRef("e@r", "e2-a2-full", 28, 5), form=Whole()),
        "keyed": OperatorPart(segments=((SegmentRef("keyed@r", "p0", 1, 2),), ()), form=form),
        "many": OperatorPart(pairs=(BlobRef("e@r", "e2-a2-many~non", 28, 5),), form=form),
        "rows": OperatorPart(segments=((),), form=Groups({"p0": 4})),
        "out": OperatorPart(BlobRef("e@r", "e2-a2-out", 28, 5), epoch=Epoch(2)),
    }
    kept = {ConnectionId("c"): (KeptBatch(7, (SegmentRef("e@r", "k.parquet", 9, 8),)),)}
    part = ElementPart(ElementName("e"), Epoch(3), Attempt(2), operators, kept)
    assert found.parts == {"e": part}
    assert found.origin == Origin("reset-operator", Epoch(2), reset=("gone",))
    assert manifests.decode(manifests.encode(found), "it") == found


def test_a_manifest_of_version_1_says_nothing_of_forms() -> None:
    path = Path(__file__).parents[1] / "golden/format-1/store/epochs/books/000000000004.manifest"
    found = manifests.decode(path.read_bytes().partition(b"\n")[2], str(path))
    assert {part.element for part in found.parts.values()} == {"orders", "register", "totals", "unchanged"}
    assert {part.form for part in found.operators().values()} == {None}
    assert [len(partition) for partition in found.operators()["totals"].segments] == [2, 2]
    assert sum(piece.kind == "kept batch" for piece in found.pieces()) == 1


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"null", None),
        (
            b'{"number": 2, "blob": {"entry": "e", "key": "c2", "size": 28, "crc": 26, "chunks": 1}, "segments": []}',
            OwnCheckpoint(2, OperatorPart(BlobRef("e", "c2", 28, 26))),
        ),
        (
            b'{"number": 2, "blob": null, "segments": [[["e", "p0", 4, 5]]], "form": {"kind": "groups", "rows": {"p0": 1}}, '
            b'"pairs": [], "pace": {"at": 7.5, "had": [3], "rows": [2.5], "seconds": 1.0}}',
            OwnCheckpoint(
                2,
                OperatorPart(segments=((SegmentRef("e", "p0", 4, 5),),), form=Groups({"p0": 1})),
                Pace(7.5, (3,), (2.5,), 1.0),
            ),
        ),
    ],
    ids=["reset", "first", "newest"],
)
def test_records_without_a_header_are_still_read(data: bytes, wanted: OwnCheckpoint | None) -> None:
    assert own_records.decode(data, "op", "it") == OwnRecord("op", wanted)


# --- records ------------------------------------------------------------------------------------------------------------


def test_the_record_of_another_operator_is_refused_and_a_forgotten_one_is_none() -> None:
    store = MemoryStore("records")
    store.open("t")
    store.acquire()
    assert own_records.load(store, "op") is None
    made = OwnCheckpoint(1, OperatorPart(BLOB))
    own_records.save(store, "op", made)
    assert own_records.load(store, "op") == made
    store.save_record("state.other", store.load_record("state.op") or b"")
    with pytest.raises(DamagedError, match="'op' instead of 'other'"):
        own_records.load(store, "other")
    own_records.save(store, "op", None)
    assert own_records.load(store, "op") is None
    store.close()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b'{"number": 1, "blob": 3}', b'{"number": 1, "pace": 7}', b"null,", b"[]"]
)
def test_a_record_that_holds_no_checkpoint_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedError, match="state"):
        own_records.decode(data, "op", "the record 'state.op'")
