"""Names of the pairs in which variables are stored: `e<epoch>-a<attempt>-<operator>~<kind>`. See docs/formats/incremental.md."""

from __future__ import annotations

import re

from holdfast.checkpoint.blobs import BlobRef, unusable
from holdfast.ids import Epoch

NON, INCR, INDEX = "non", "incr", "index"

PAIR_KEY = re.compile(r"e(\d+)-.*~(non|incr|index)")


def kind_of(ref: BlobRef) -> tuple[Epoch, str]:
    """(epoch, kind) of a pair, by its key."""
    found = PAIR_KEY.fullmatch(ref.key)
    if found is None:
        raise unusable(f"{ref.entry}/{ref.key} is listed as a pair of variables, but has no such name.")
    return Epoch(int(found[1])), found[2]
