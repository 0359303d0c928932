"""How many rows of a window are stored together. Pure: measured costs in, a size out.

The rows of a window lie in groups; a checkpoint stores the groups that are new. Small groups are many files, to store, to look into in every
step and to read at a restore; large ones are written again and again until they are full. With

    W  rows in the window     N  new rows between two checkpoints, in S steps     b  bytes of a row
    f  seconds that a group costs when it is stored, whatever its size            t  seconds that a byte costs

a group of g rows costs, from one checkpoint to the next,

    stored      (N / g + 1) · f  +  (N + min(g, W) / 2) · b · t      the last group is half full, and written whole
    looked at   S · G · LOOK_S                                      with G = W / g + log₂(g · S / N) groups
    restored    G · f · RESTORES

f and t are what checkpoints of this operator took, fitted by least squares. The size with the least cost is chosen among powers of two; the
one at work stays unless another one saves a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SIZES = tuple(1 << power for power in range(9, 19))
LOOK_S = 0.0002
"""What one more group costs a step: to map a file and to search it."""
RESTORES = 0.01
"""Restores per checkpoint."""
STAYS = 0.9
"""Another size must cost at most this share of the present one."""
LEAST_SAMPLES = 3
FILE_S, BYTE_S = 0.002, 4e-9
"""Before anything is measured, and where all checkpoints were alike."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one checkpoint stored, and how long it took."""

    files: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Load:
    """What an operator does from one checkpoint to the next."""

    window_rows: int
    new_rows: int
    steps: int
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Prices:
    file_s: float = FILE_S
    byte_s: float = BYTE_S


def fitted(samples: Sequence[Sample]) -> Prices:
    """Seconds per file and per byte, never below zero; what cannot be told from the samples is as it usually is."""
    ff = sum(s.files * s.files for s in samples)
    bb = sum(s.bytes * s.bytes for s in samples)
    fb = sum(s.files * s.bytes for s in samples)
    ft = sum(s.files * s.seconds for s in samples)
    bt = sum(s.bytes * s.seconds for s in samples)
    determinant = ff * bb - fb * fb
    if len(samples) < LEAST_SAMPLES or not ff or not bb:
        return Prices()
    if determinant > 1e-6 * ff * bb:
        file_s, byte_s = (ft * bb - bt * fb) / determinant, (bt * ff - ft * fb) / determinant
        if file_s >= 0 and byte_s >= 0:
            return Prices(file_s, byte_s)
        # One of them explains it all.
        return Prices(0.0, bt / bb) if file_s < 0 else Prices(ft / ff, 0.0)
    usual = sum(s.files * FILE_S + s.bytes * BYTE_S for s in samples)
    pace = sum(s.seconds for s in samples) / usual
    return Prices(FILE_S * pace, BYTE_S * pace)


def cost(load: Load, prices: Prices, rows: int) -> float:
    """Seconds from one checkpoint to the next."""
    new, steps = max(load.new_rows, 1), max(load.steps, 1)
    per_step = max(new / steps, 1.0)
    groups = load.window_rows / rows + max(math.log2(rows / per_step), 0.0) + 1
    rewritten = min(rows, load.window_rows) / 2
    stored = (new / rows + 1) * prices.file_s + (new + rewritten) * load.row_bytes * prices.byte_s
    return stored + steps * groups * LOOK_S + groups * prices.file_s * RESTORES


def costs(load: Load, prices: Prices) -> dict[int, float]:
    """Of each size that may be chosen."""
    return {rows: cost(load, prices, rows) for rows in SIZES}


def best(load: Load, prices: Prices, now: int) -> int:
    """The size with the least cost, or the present one if none is much better."""
    found = costs(load, prices)
    least = min(SIZES, key=lambda rows: (found[rows], rows))
    return least if found[least] <= STAYS * cost(load, prices, now) else now
