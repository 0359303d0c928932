"""Segments of a directory store: one file each, linked into place, never overwritten.

`link_segment` needs no open store: a task on an executor calls it with the token its driver gave it. The private
directory of that token is the permission to write; a newer owner has removed it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from holdfast import durable
from holdfast.durable import checksum
from holdfast.errors import StoreError
from holdfast.failpoints import fp
from holdfast.store import refusals, sealed_file, segment_copy
from holdfast.store.base import LocalSegment, SegmentRef
from holdfast.store.files import lease
from holdfast.store.names import check_name

ENTRIES = "entries"
SUFFIX = ".seg"
_CHUNK = 1 << 20
_NO_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP})


def segment_path(root: Path, entry: str, key: str) -> Path:
    return root / ENTRIES / check_name("entry", entry) / (check_name("key", key) + SUFFIX)


def link_segment(root: str | Path, token: int, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
    """Store an immutable local file under a new key, durably. Storing the same bytes again is fine; other bytes
    under a key that exists are refused."""
    return link_segments(root, token, entry, [(key, local, crc)])[0]


def link_segments(
    root: str | Path, token: int, entry: str, segments: Sequence[LocalSegment]
) -> list[SegmentRef]:
    """Store several; their names are made durable together."""
    root = Path(root)
    private = lease.private_directory(root, token)
    try:
        refs = [_link(root, private, entry, *segment) for segment in segments]
        if refs:
            durable.settle_name(segment_path(root, entry, refs[-1].key))
    except StoreError as error:
        if not private.is_dir():
            raise refusals.fenced(root, token) from error
        raise
    if not private.is_dir():
        # The files stay: the new owner may meanwhile have stored the same bytes under their keys and rely on them.
        raise refusals.fenced(root, token)
    for _ in refs:
        fp("ckpt.op.put_done")
    return refs


def _link(root: Path, private: Path, entry: str, key: str, local: Path, crc: int) -> SegmentRef:
    """A file whose bytes are durable under its name, which is not yet."""
    target = segment_path(root, entry, key)
    staged = private / f"{secrets.token_hex(8)}{SUFFIX}"
    with durable.translate_os_errors(str(target)):
        fp("ckpt.op.put")
        try:
            copied = _bring(local, staged)
            ref = SegmentRef(entry, key, staged.lstat().st_size, crc)
            if copied and _measured(staged) != (crc, ref.size):
                raise refusals.wrong_checksum(local)
            durable.fsync_file(staged)
            _link_new(root, staged, target, ref)
            return ref
        finally:
            durable.remove_quietly(staged)


def fetch(target: Path, ref: SegmentRef, local: Path) -> None:
    """Bring a segment to `local`, verified. Linked where possible: it is immutable on both sides."""
    staged = segment_copy.staged_beside(local)
    try:
        with durable.translate_os_errors(str(local)):
            verify(target, ref)
            _bring(target, staged)
            os.replace(staged, local)
    finally:
        durable.remove_quietly(staged)


def verify(path: Path, ref: SegmentRef) -> None:
    """DamagedError unless the file has the bytes its reference tells. Never follows a link."""
    found = _measured(path)
    if found is None:
        raise sealed_file.damaged(path, "is missing, but an epoch refers to it")
    crc, size = found
    if size != ref.size:
        raise sealed_file.damaged(path, f"has {size} bytes instead of {ref.size}")
    if crc != ref.crc:
        raise sealed_file.damaged(path, f"has the checksum {crc:08x} instead of {ref.crc:08x}")


def _bring(source: Path, staged: Path) -> bool:
    """A regular file's bytes under a new private name. True: copied, because they could not be linked."""
    with segment_copy.opened(source) as file:
        try:
            os.link(source, staged, follow_symlinks=False)
            os.fchmod(file.fileno(), durable.FILE_MODE)
            return False
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        with open(staged, "xb") as out:
            os.fchmod(out.fileno(), durable.FILE_MODE)
            shutil.copyfileobj(file, out, _CHUNK)
        return True


def _link_new(root: Path, staged: Path, target: Path, ref: SegmentRef) -> None:
    """Give the staged file its real name, unless the name is taken by other bytes."""
    entry = target.parent
    if entry.is_symlink() or (entry.exists() and not entry.is_dir()):
        raise sealed_file.damaged(entry, "is not a directory")
    try:
        os.link(staged, target)
    except FileExistsError:
        if _measured(target) != (ref.crc, ref.size):
            raise refusals.other_bytes(target) from None
    except FileNotFoundError as error:
        if entry.is_dir():
            raise
        raise refusals.no_entry(root, ref.entry) from error


def _measured(path: Path) -> tuple[int, int] | None:
    """(checksum, size) of a regular file. None: there is no such file."""
    crc = size = 0
    with sealed_file.opened(path) as file:
        if file is None:
            return None
        while piece := file.read(_CHUNK):
            crc, size = checksum(piece, crc), size + len(piece)
    return crc, size
