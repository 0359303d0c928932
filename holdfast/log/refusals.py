"""What a writer of a log is told when it cannot go on. Each function makes an error; the caller raises it."""

from __future__ import annotations

from holdfast.errors import FencedError, NoSpaceError, StoreError


class NotSynced(Exception):
    """An fsync failed: it is not repeated, and nothing more is written to this file."""


def fenced(root: object) -> FencedError:
    return FencedError(
        f"the log {root} has a newer writer than this one.",
        cure="This one stops here; the newer one goes on behind what was acknowledged.",
    )


def no_space(root: object) -> NoSpaceError:
    return NoSpaceError(
        f"no space left while appending to the log {root}.",
        cure="Free some space and append again: nothing of this append, or of those behind it, was stored.",
    )


def broken(root: object, error: BaseException) -> StoreError:
    cause = error.__cause__ if isinstance(error, NotSynced) else error
    made = StoreError(
        f"appending to the log {root} failed, and nobody knows how far it came: {cause}.",
        cure="Check the disk, open the log again and append again under the same sequences: what was stored is found.",
    )
    made.__cause__ = error
    return made
