"""Who makes a store first counts, also for a process that looked a moment earlier."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import DamagedError
from holdfast.store import identity_record, sealed_file
from holdfast.store.base import Identity
from holdfast.store.files.file_store import FileStore


def test_a_store_that_another_process_makes_meanwhile_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    list_directory = sealed_file.list_directory
    made: list[Identity] = []

    def slow(path: Path) -> list[str]:
        """Between the look for an identity and the look for data another process makes the whole store."""
        if not made:
            monkeypatch.setattr(sealed_file, "list_directory", list_directory)
            made.append(FileStore(root).open("t"))
        return list_directory(path)

    monkeypatch.setattr(sealed_file, "list_directory", slow)
    assert FileStore(root).open("t") == made[0]


@pytest.mark.fault("C08")
def test_data_without_an_identity_is_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    FileStore(root).open("t")
    (root / identity_record.NAME).unlink()
    with pytest.raises(DamagedError, match="holds a store's data"):
        FileStore(root).open("t")
