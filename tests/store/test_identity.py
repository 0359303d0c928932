"""Who makes a store first counts, also for a process that looked a moment earlier."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import DamagedError
from holdfast.store import sealed_file
from holdfast.store.files import identity


def test_a_store_that_another_process_makes_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    list_directory = sealed_file.list_directory
    made: list[identity.Identity] = []

    def slow(path: Path) -> list[str]:
        """Between the look for an identity and the look for data another process makes the whole store."""
        if not made:
            monkeypatch.setattr(sealed_file, "list_directory", list_directory)
            made.append(identity.open_or_create(root, "t"))
        return list_directory(path)

    monkeypatch.setattr(sealed_file, "list_directory", slow)
    assert identity.open_or_create(root, "t") == made[0]


def test_data_without_an_identity_is_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    identity.open_or_create(root, "t")
    (root / identity.FILE).unlink()
    with pytest.raises(DamagedError, match="holds a store's data"):
        identity.open_or_create(root, "t")
