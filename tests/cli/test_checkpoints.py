"""`holdfast checkpoints`: epochs listed, shown, verified and compared; files printed; wrong wishes refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.cli.main import run_command
from holdfast.errors import ConfigError, DamagedError, MismatchError, StoreError
from holdfast.sinks import FileSink, MemorySink
from holdfast.testing import run_local

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over numbers of a few users, in a store of files and one in SQLite; the second adds a file."""
    root = tmp_path_factory.mktemp("shop")
    for number in range(2):
        (root / "in").mkdir(exist_ok=True)
        rows = [{"k": f"k{n % (3 + 2 * number)}", "n": n} for n in range(20)]
        (root / "in" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for name, url in (("files", f"file:{root / 'store'}"), ("db", f"sqlite:{root / 'store.db'}")):
            made = hf.Topology("shop")
            source = hf.Files(str(root / "in"), "json", "k string, n long")
            stream = made.source(source, name="rows").consistent("books", period=3600)
            totals = stream.aggregate("k", n=hf.count(), total=hf.sum("n"), name="totals")
            totals.sink(FileSink(str(root / f"out-{name}"), "json"), name="out")
            run_local(made, url)
    return root


@pytest.fixture(params=["store", "sqlite:store.db"])
def store(shop: Path, request: pytest.FixtureRequest) -> str:
    scheme, _, name = request.param.rpartition(":")
    return f"{scheme}:{shop / name}" if scheme else str(shop / name)


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run_command(["checkpoints", *arguments]) == code
    return capsys.readouterr().out


def data(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    return json.loads(told(capsys, *arguments, "--json", code=code))


def refused(capsys: pytest.CaptureFixture[str], error: type[Exception], *arguments: str) -> str:
    assert run_command(["checkpoints", *arguments]) == error.exit_code  # type: ignore[attr-defined]
    shown = capsys.readouterr().err
    assert "Traceback" not in shown
    assert len(shown.splitlines()) == 2, shown
    return shown


# --- list and show ----------------------------------------------------------------------------------------------------


def test_epochs_are_listed_with_what_they_added(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "list", store)
    assert [each["newest"] for each in found] == [False] * (len(found) - 1) + [True]
    assert all(each["region"] == "books" and each["operators"] == 3 for each in found)
    first = next(each for each in found if each["previous"] == 0)
    assert first["added_bytes"] == first["bytes"] > 0
    assert all(each["added_bytes"] <= each["bytes"] for each in found if each is not first)
    assert "newest" in told(capsys, "list", store)


def test_an_epoch_is_shown_with_positions_and_chains(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = data(capsys, "show", store, "--operator", "totals", "--rows", "100")
    totals = found["operators"][0]
    assert totals["operator"] == "totals"
    assert totals["fingerprint"]["kind"] == "aggregate"
    assert totals["fingerprint"]["frame"] == {"key": [["k", "string"]], "groups": 128}
    chains = totals["partitions"]
    assert sum(segment["rows"] for chain in chains for segment in chain) >= 5
    rows = {row["k"]: (row["n"], row["total"]) for row in found["rows"]["state"]}
    numbers = [(f"k{n % 3}", n) for n in range(20)] + [(f"k{n % 5}", n) for n in range(20)]
    assert rows == {
        key: (sum(k == key for k, _ in numbers), sum(n for k, n in numbers if k == key))
        for key in {k for k, _ in numbers}
    }
    every = data(capsys, "show", store)
    values = {each["operator"]: each["value"] for each in every["operators"]}
    assert values["rows"]["position"]
    shown = told(capsys, "show", store)
    assert "aggregate groups=128 key=(k string) aggregates=(n count int64, total n sum int64)" in shown
    assert "position" in shown


def test_the_manifest_is_printed_as_stored(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    raw = json.loads(told(capsys, "show", store, "--raw"))
    assert raw["region"] == "books"
    assert set(raw["fingerprint"]) == {"rows", "totals", "out"}


# --- verify and diff --------------------------------------------------------------------------------------------------


def test_a_good_store_verifies(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "verify", store, "--all")["problems"] == []
    assert "all as written" in told(capsys, "verify", store)


def test_damage_is_told_by_file_and_gives_exit_code_1(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shop / "store", tmp_path / "store")
    victims = sorted((tmp_path / "store" / "entries").rglob("*.seg"))
    for victim in victims:
        victim.write_bytes(victim.read_bytes()[:-1])
    shown = told(capsys, "verify", str(tmp_path / "store"), "--all", code=1)
    assert all(str(victim) in shown for victim in victims)
    found = data(capsys, "verify", str(tmp_path / "store"), code=1)
    assert {problem["name"] for problem in found["problems"]} <= {str(victim) for victim in victims}


def test_what_changed_is_counted_and_shown(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    epochs = [str(each["epoch"]) for each in data(capsys, "list", store)]
    first, last = epochs[0], epochs[-1]
    found = {each["operator"]: each for each in data(capsys, "diff", store, first, last)["operators"]}
    counted = found["totals"]["parts"]["state"]
    assert (counted["added"], counted["changed"], counted["removed"]) == (2, 3, 0)
    before, after = found["rows"]["value"]
    assert before["position"] != after["position"]
    shown = told(capsys, "diff", store, first, last, "--operator", "totals", "--rows", "9")
    assert shown.count("changed from") == shown.count("changed to") == 3
    assert "added" in shown


# --- files ------------------------------------------------------------------------------------------------------------


def test_every_kind_of_file_is_printed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = GOLDEN / "store"
    kept = list(store.rglob("*.parquet.seg"))
    assert kept, "the golden store has kept batches"
    shown = {
        "identity": store / "identity",
        "manifest": next(store.glob("epochs/*/*.manifest")),
        "record": next(store.glob("records/*.rec")),
        "pack": next(store.glob("entries/*/*.pack")),
        "segment": next(p for p in store.glob("entries/*/*.seg") if p not in kept),
        "batch (parquet)": kept[0],
        "event log": next((shop / "store").glob("events/*.jsonl")),
        "ledger": next((shop / "out-files").glob(".holdfast/*/ledger.json")),
    }
    for kind, path in shown.items():
        assert data(capsys, "show", str(path))["format"] == kind
        assert str(path) in told(capsys, "show", str(path), "--rows", "3").replace("\n", "")
    segment = data(capsys, "show", str(shown["segment"]), "--rows", "1")
    with pa.memory_map(str(shown["segment"])) as source:
        expected = pa.ipc.open_file(source).read_all()
    assert segment["rows"] == json.loads(json.dumps(expected.slice(0, 1).to_pylist(), default=str))
    pack = data(capsys, "show", str(shown["pack"]))
    assert all(not row["deleted"] for row in pack["rows"])


def test_a_checkpoint_outside_of_regions_is_printed_whoever_wrote_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = hf.Topology("loose")
    rows = made.source(hf.Rows([(n % 3,) for n in range(30)], "k long"), name="rows")
    counts = rows.aggregate("k", count=hf.count(), name="tally").checkpoint(every=0.001)
    counts.sink(MemorySink("loose"), name="out")
    run_local(made, str(tmp_path / "store"))
    MemorySink.clear("loose")
    for store in (GOLDEN / "store", tmp_path / "store"):
        shown = data(capsys, "show", str(store / "records" / "state.tally.rec"))["facts"]["content"]
        assert shown["operator"] == "tally"
        assert shown["checkpoint"]["number"] >= 2
        assert shown["checkpoint"]["part"].keys() & {"blob", "segments"}


def test_an_encoded_value_in_a_file_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.state.values import codec

    (tmp_path / "value").write_bytes(codec.encode({"a": (1, 2), "b": {3}}))
    assert "1, 2" in told(capsys, "show", str(tmp_path / "value"))


def test_a_database_is_a_store_with_or_without_its_scheme(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert data(capsys, "show", str(shop / "store.db"))["topology"] == "shop"


def test_a_damaged_file_and_a_strange_one_are_refused(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = next((shop / "store").glob("epochs/*/*.manifest")).read_bytes()
    (tmp_path / "bad").write_bytes(good[:-2] + b"??")
    assert "checksum" in refused(capsys, DamagedError, "show", str(tmp_path / "bad"))
    (tmp_path / "letter").write_text("Dear reader\n")
    assert "not a file that holdfast writes" in refused(capsys, ConfigError, "show", str(tmp_path / "letter"))


# --- wrong wishes -----------------------------------------------------------------------------------------------------


def test_wrong_names_are_refused_with_those_there_are(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "out, rows, totals" in refused(capsys, ConfigError, "show", store, "--operator", "total")
    assert "Epochs are" in refused(capsys, ConfigError, "show", store, "777")
    assert "Epochs are" in refused(capsys, ConfigError, "diff", store, "1", "no-such-savepoint")
    assert "Regions are books" in refused(capsys, ConfigError, "verify", store, "--region", "cellar")


def test_a_store_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, StoreError, "list", str(tmp_path / "nothing"))
    refused(capsys, ConfigError, "list", "ftp://somewhere/else")


def test_a_newer_format_and_files_of_another_job_are_refused(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shop / "store", tmp_path / "newer")
    identity = tmp_path / "newer" / "identity"
    identity.write_bytes(identity.read_bytes().replace(b"holdfast identity 1 ", b"holdfast identity 2 "))
    assert "format 2" in refused(capsys, MismatchError, "list", str(tmp_path / "newer"))
    shutil.copytree(shop / "store", tmp_path / "mixed")
    (tmp_path / "mixed" / "identity").write_bytes((GOLDEN / "store" / "identity").read_bytes())
    shown = told(capsys, "verify", str(tmp_path / "mixed"), code=1)
    assert "belongs to job" in shown


def test_a_savepoint_is_shown_and_understood_by_name(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.checkpoint.savepoints import Savepoints
    from holdfast.ids import RegionName
    from holdfast.store.urls import open_store

    shutil.copytree(shop / "store", tmp_path / "store")
    place = open_store(tmp_path / "store")
    place.acquire()
    epoch = place.epochs(RegionName("books"))[0]
    Savepoints(place, RegionName("books")).add("monday", epoch, 0.0)
    place.release()
    found = data(capsys, "list", str(tmp_path / "store"))
    assert found[0]["savepoint"] == "monday"
    assert data(capsys, "show", str(tmp_path / "store"), "monday")["epoch"] == epoch


def test_variables_in_a_pack_and_an_exported_epoch_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Counts(hf.Operator):
        seen = hf.Map(str, int)

        def process(self, row: Any, port: int) -> Any:
            self.seen[row.k] = row.n
            return (row.n,)

    made = hf.Topology("variables")
    rows = made.source(hf.Rows([("a", 1), ("b", 2)], "k string, n long"), name="rows").consistent("r")
    rows.apply(Counts, "n long", name="counts").sink(MemorySink("variables"), name="out")
    run_local(made, str(tmp_path / "store"))
    MemorySink.clear("variables")
    packs = [data(capsys, "show", str(path)) for path in (tmp_path / "store").rglob("*.pack")]
    values = {row["key"].partition("~")[2]: row["value"] for pack in packs for row in pack["rows"]}
    assert [entry["form"] for entry in values["index"]] == ["base"]
    assert values["non"]["variables"].keys() == {"seen"}
    assert (
        run_command(["checkpoints", "export", str(tmp_path / "store"), "1", str(tmp_path / "epoch.tar")]) == 0
    )
    capsys.readouterr()
    found = data(capsys, "show", str(tmp_path / "epoch.tar"))
    assert found["format"] == "archive"
    assert found["facts"]["files"] == len(found["rows"]) > 0
