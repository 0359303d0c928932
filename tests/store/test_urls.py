"""From what a user writes to a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.store.memory import MemoryStore
from holdfast.store.urls import open_store


@pytest.mark.parametrize(
    ("where", "url"),
    [
        ("/a/b", "file:/a/b"),
        (Path("/a/b c"), "file:/a/b c"),
        ("file:/a/b", "file:/a/b"),
        ("file:///a/b", "file:/a/b"),
        ("sqlite:/a/b.db", "sqlite:/a/b.db"),
        ("memory:name", "memory:name"),
        ("relative", f"file:{Path.cwd()}/relative"),
    ],
)
def test_paths_and_urls_name_a_store(where: str | Path, url: str) -> None:
    assert open_store(where).url == url


def test_a_store_stands_for_itself() -> None:
    store = MemoryStore()
    assert open_store(store) is store


@pytest.mark.parametrize(
    "where",
    ["", "file:", "sqlite:", "memory:", "memory:../x", "ftp://x/y", "file://host/x", "a\0b", "redis://x"],
)
@pytest.mark.fault("SR17")
def test_anything_else_is_refused_with_a_cure(where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(where)
    assert caught.value.cure


@pytest.mark.parametrize(
    "where", ["redis://user:hunter2@host/0", "postgres://u:hunter2@h/db", "file://u:hunter2@h/x"]
)
@pytest.mark.fault("SR12", "U08")
def test_secrets_in_urls_are_never_printed(where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(where)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
