"""Rows to the partition whose number they carry: said to Spark since 4.1, reached by a detour before."""

from __future__ import annotations

from functools import cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

HAS_NUMBERS = hasattr(DataFrame, "repartitionById")
_MASK = 0xFFFFFFFF
_SEED = 42
"""Of every hash that Spark partitions by."""


def by_number(frame: DataFrame, partitions: int, column: str) -> DataFrame:
    """Rows whose `column` is p in partition p, of so many."""
    if HAS_NUMBERS:
        return frame.repartitionById(partitions, F.col(column))
    # Spark hashes what it is given: here it is given, for p, a number that its hash sends to p.
    table = F.array(*map(F.lit, numbers_for(partitions)))
    return frame.repartition(partitions, table[F.col(column)])


@cache
def numbers_for(partitions: int) -> tuple[int, ...]:
    """At place p the smallest number whose hash Spark takes to partition p, of so many."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(hash_of(number) % partitions, number)
        number += 1
    return tuple(found[place] for place in range(partitions))


def hash_of(number: int) -> int:
    """Spark's `hash` of an INT that is not negative: Murmur3, 32 bits, signed."""
    k = _turned(number * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_turned(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4  # 4: the bytes of an INT
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _turned(bits: int, by: int) -> int:
    return (bits << by | bits >> 32 - by) & _MASK
