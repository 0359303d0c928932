"""Stores that somebody made up: nothing in them is ever executed, whatever looks at it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.checkpoint.blobs import put_blobs
from holdfast.checkpoint.manifest import Manifest, encode
from holdfast.checkpoint.parts import ElementPart, KeptBatch, OperatorPart
from holdfast.cli.main import run_command
from holdfast.durable import checksum_file
from holdfast.errors import DamagedError
from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch, OwnerToken, RegionName
from holdfast.operators.fingerprint import Fingerprint
from holdfast.store.urls import open_store

REGION = RegionName("r")


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


def bomb_file(path: Path, bomb: bytes, kind: str) -> tuple[Path, int]:
    """Rows whose column asks Arrow to unpickle its type, as old versions of it did."""
    wish = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb}
    hashes = pa.field("__hf_hash", pa.int64(), nullable=False)
    schema = pa.schema([hashes, pa.field("k", pa.string(), metadata=wish)], metadata={"pandas": bomb})
    table = pa.table([pa.array([1, 2]), pa.array(["a", "b"])], schema=schema)
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_file(path, schema) as writer:
            writer.write_table(table)
    return path, checksum_file(path)[0]


@pytest.fixture
def trapped(tmp_path: Path) -> tuple[Path, Path]:
    """(a store whose every piece is a pickle or asks for one, with right checksums; what appears if one goes off)."""
    marker = tmp_path / "went-off"
    bomb = pickle.dumps(Bomb(marker))
    store = open_store(tmp_path / "store")
    identity = store.open("trap")
    token = store.acquire()
    for entry in ("src@r", "agg@r"):
        store.create_entry(entry)
    for epoch in (1, 2):
        refs = put_blobs(store, "src@r", {f"e{epoch}-src": bomb, f"e{epoch}-agg": bomb})
        local, crc = bomb_file(tmp_path / f"s{epoch}", bomb, "arrow")
        segment = store.put_segment("agg@r", f"agg-e{epoch}", local, crc)
        local, crc = bomb_file(tmp_path / f"b{epoch}", bomb, "parquet")
        batch = store.put_segment("agg@r", f"kept-e{epoch}.parquet", local, crc)
        operators = {
            "src": OperatorPart(refs[f"e{epoch}-src"]),
            "agg": OperatorPart(refs[f"e{epoch}-agg"], segments=((segment,),)),
        }
        kept = {ConnectionId("c"): (KeptBatch(2, (batch,)),)}
        part = ElementPart(ElementName("e"), Epoch(epoch), Attempt(0), operators, kept)
        manifest = Manifest(
            job=identity.job_id,
            topology="trap",
            region=REGION,
            epoch=Epoch(epoch),
            attempt=Attempt(0),
            token=OwnerToken(token),
            wall=0.0,
            fingerprint={
                "src": Fingerprint("source", {"class": "Rows"}),
                "agg": Fingerprint("aggregate", {"key": (("k", "string"),)}, {"aggregates": {}}),
            },
            parts={ElementName("e"): part},
            previous=Epoch(epoch - 1),
        )
        store.publish(REGION, Epoch(epoch), encode(manifest))
    store.save_record("schema.src", bomb)
    store.release()
    return tmp_path / "store", marker


def test_the_bomb_is_a_bomb(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "went-off")))
    assert (tmp_path / "went-off").is_dir()


@pytest.mark.fault("U07", "SR01", "SR02")
def test_no_command_executes_what_is_stored(
    trapped: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, marker = trapped
    files = [str(path) for path in sorted(store.rglob("*")) if path.is_file()]
    commands = [
        ["list", str(store)],
        ["show", str(store)],
        ["show", str(store), "--operator", "agg", "--rows", "5"],
        ["diff", str(store), "1", "2", "--rows", "5"],
        ["verify", str(store), "--all"],
        *(["show", file, "--rows", "5"] for file in files),
    ]
    codes = {tuple(command): run_command(["checkpoints", *command]) for command in commands}
    assert not marker.exists()
    assert codes["verify", str(store), "--all"] == 1
    assert codes["list", str(store)] == 0
    assert "not an encoded state" in capsys.readouterr().out


@pytest.mark.fault("SR01", "SR02")
def test_blobs_that_are_no_data_are_told_as_damaged(trapped: tuple[Path, Path]) -> None:
    from holdfast.checkpoint.look.epoch_difference import decoded
    from holdfast.checkpoint.look.epochs import open_reader, read_manifest, value_of

    store = open_reader(trapped[0])
    share = read_manifest(store, REGION, Epoch(2)).operators()["src"]
    with pytest.raises(DamagedError, match="not an encoded state"):
        value_of(store, share)
    assert "not an encoded state" in decoded(store, share)
    assert not trapped[1].exists()
