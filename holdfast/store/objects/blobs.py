"""Values in an object store: several in one blob, each found by a reference in the table of contents.

    blobs/<token>-<random>    values, one after the other; a reference gives first byte, size and checksum of one

The checksum of a value covers job, kind, names and bytes, so that another value in its place does not match.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from holdfast.errors import StoreError
from holdfast.store import sealed_file
from holdfast.store.names import named_crc
from holdfast.store.objects.bucket import Bucket
from holdfast.store.objects.contents_log import Ref


def upload(
    bucket: Bucket, job: str, token: int, values: Sequence[tuple[bytes, tuple[object, ...]]]
) -> list[Ref]:
    """Store values, each with its kind and names, in one new blob; where each of them is."""
    name = f"{token:010d}-{secrets.token_hex(12)}"
    start = 0
    refs: list[Ref] = []
    for value, names in values:
        refs.append((f"blobs/{name}", start, len(value), named_crc(job, *names, value=value)))
        start += len(value)
    if values and not bucket.create(f"blobs/{name}", b"".join(value for value, _ in values)):
        raise StoreError(f"{bucket.url}/blobs/{name} was written by somebody else.")
    return refs


def read(bucket: Bucket, ref: Ref) -> bytes | None:
    """The bytes of a reference, not verified. None: its blob is not there."""
    name, start, size, _ = ref
    if size == 0:
        return b"" if bucket.exists(name) else None
    return bucket.read(name, start, start + size)


def verified(bucket: Bucket, job: str, ref: Ref, data: bytes | None, *names: object) -> bytes:
    """The bytes, if they are what was written under these names. DamagedError otherwise."""
    if data is not None and len(data) == ref[2] and named_crc(job, *names, value=data) == ref[3]:
        return data
    how = "is missing" if data is None else "does not match its checksum"
    raise sealed_file.damaged(f"{bucket.url}/{ref[0]}", f"holds {' '.join(map(str, names))}, which {how}")
