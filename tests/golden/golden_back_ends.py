"""Golden stores of the other back ends, and an export: a job that was killed while its epochs lay in each of them.

back_ends/sqlite/store.db           and what SQLite keeps beside it
back_ends/redis/keys.json           what a server held, by key: a list, a hash, or text, base64
back_ends/objects/store/…           one file per object
back_ends/export/savepoint.tar      a savepoint of the one in SQLite
back_ends/KIND/output/…             what was visible when the job was killed
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import redis
from store.redis_server import RedisServer

from holdfast.checkpoint import own_records, savepoints
from holdfast.checkpoint.look.epochs import choose_epoch, open_reader, read_manifest
from holdfast.ids import RegionName

ROOT = Path(__file__).resolve().parent / "back_ends"
EXPORT = ROOT / "export" / "savepoint.tar"
REGION = RegionName("books")
SAVEPOINT = "before-upgrade"


def lacking(url: str) -> list[str]:
    """What a golden store must have and this one has not, in words."""
    store = open_reader(url)
    if len(store.epochs(REGION)) < 3:
        return ["three epochs"]
    manifest = read_manifest(store, REGION, choose_epoch(store, REGION))
    point = savepoints.read(store, REGION).get(SAVEPOINT)
    own = own_records.load(store, "tally")
    operators = manifest.operators()
    kept = any(batches for part in manifest.parts.values() for batches in part.kept.values())
    found = {
        "totals: several segments": sum(map(len, operators["totals"].segments)) > 2,
        "register: values": bool(operators["register"].values),
        "kept batches": kept,
        "a savepoint": point is not None and point.epoch < manifest.epoch,
        "tally: a checkpoint of its own": own is not None and own.covers > (0, 0),
        "events": bool(store.events()),
    }
    return [what for what, there in found.items() if not there]


# --- each back end: what is kept of it, and how it lives again; gives the URL -----------------------------------------


@contextmanager
def in_sqlite(root: Path) -> Iterator[str]:
    yield f"sqlite:{root / 'store.db'}"


@contextmanager
def in_objects(root: Path) -> Iterator[str]:
    yield f"objects+file://{root / 'store'}?lease=2"


@contextmanager
def in_redis(root: Path) -> Iterator[str]:
    """A server that holds what keys.json says; in the end keys.json says what it holds."""
    with RedisServer(root / "server") as server:
        client = redis.Redis(port=server.port)
        kept = root / "keys.json"
        if kept.exists():
            for key, (kind, value) in json.loads(kept.read_text()).items():
                fill(client, key, kind, value)
        yield server.url("golden")
        held = {str(key.decode()): held_by(client, key) for key in sorted(client.keys())}
        kept.write_text(
            "{" + ",\n".join(f"{json.dumps(key)}: {json.dumps(of)}" for key, of in held.items() if of) + "}\n"
        )
        client.close()


def held_by(client: Any, key: bytes) -> tuple[str, Any] | None:
    """None for what expires: signs of life."""
    if client.pttl(key) >= 0:
        return None
    match kind := client.type(key).decode():
        case "string":
            return kind, text(client.get(key))
        case "hash":
            return kind, {field.decode(): text(value) for field, value in sorted(client.hgetall(key).items())}
        case "list":
            return kind, [text(value) for value in client.lrange(key, 0, -1)]
    raise AssertionError(f"{key!r} is a {kind}: say here how it is kept")


def fill(client: Any, key: str, kind: str, value: Any) -> None:
    match kind:
        case "string":
            client.set(key, base64.b64decode(value))
        case "hash":
            client.hset(key, mapping={field: base64.b64decode(each) for field, each in value.items()})
        case "list":
            client.rpush(key, *(base64.b64decode(each) for each in value))


def text(value: bytes) -> str:
    return base64.b64encode(value).decode()


BACK_ENDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "sqlite": in_sqlite,
    "redis": in_redis,
    "objects": in_objects,
}
