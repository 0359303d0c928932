"""A soak as a page of Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from holdfast.chaos.soak.verdict import Judged
from holdfast.chaos.soak.watch import Sample
from holdfast.testing.ordeal.strikes import Struck

LINES = 16
"""Of the table of samples."""


def page(
    seconds: float, seed: int, rate: int, struck: Sequence[Struck], lives: Sequence[str], samples: Sequence[Sample],
    judged: Sequence[Judged], failure: str, is_short: bool = False,
) -> str:  # fmt: skip
    kept = not failure and bool(judged) and all(each.is_kept for each in judged)
    verdict = "every promise was kept" if kept else "A PROMISE WAS BROKEN" if judged else "NOTHING WAS JUDGED"
    last = samples[-1] if samples else None
    head = [
        "# Soak",
        "",
        f"{seconds / 60:.1f} minutes, seed {seed}, {rate} rows per second and source, {len(lives)} lives, "
        f"epoch {last.epoch if last else 0} of the newest region, {len(struck)} faults: "
        f"**{verdict}**."
        + (" It was asked to end early." if is_short else "")
        + (f" {failure}" if failure else ""),
    ]
    return "\n".join(
        [
            *head,
            "",
            *_sinks(judged),
            "",
            *_faults(struck),
            "",
            *_lives(lives),
            "",
            *_samples(samples),
            "",
            *_growth(samples),
            "",
        ]
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + [
        "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) + " |"
        for row in rows
    ]


def _sinks(judged: Sequence[Judged]) -> list[str]:
    header = ("sink", "promise", "rows", "lost", "counted", "doubled", "wrong", "out of order", "kept")
    rows = [
        (
            e.sink,
            e.promise,
            e.rows,
            e.lost,
            e.counted,
            e.doubled,
            e.wrong,
            e.out_of_order,
            "yes" if e.is_kept else "NO",
        )
        for e in judged
    ]
    return _table(header, rows)


def _faults(struck: Sequence[Struck]) -> list[str]:
    kinds = Counter(each.fault for each in struck)
    middle = Counter(each.fault for each in struck if each.in_middle)
    effects = {kind: Counter(each.effect for each in struck if each.fault == kind) for kind in kinds}
    rows = [
        (kind, number, middle[kind], "; ".join(f"{n} × {what}" for what, n in effects[kind].most_common()))
        for kind, number in sorted(kinds.items())
    ]
    return _table(("fault", "made", "fired in the middle", "then"), rows)


def _lives(lives: Sequence[str]) -> list[str]:
    return _table(("lives that ended by", "how many"), list(Counter(lives).most_common()))


def _samples(samples: Sequence[Sample]) -> list[str]:
    names = [field.name for field in fields(Sample)]
    every = max(1, len(samples) // LINES)
    return _table(names, [[getattr(each, name) for name in names] for each in samples[::every]])


def _growth(samples: Sequence[Sample]) -> list[str]:
    """Of the last third over the first one, where the same is there to compare: lives that are older than half a minute."""
    old = [each for each in samples if each.life_s > 30] or list(samples)
    if len(old) < 6:
        return ["Too few samples to tell what grew."]
    third = len(old) // 3
    rows = []
    for name in ("driver_mb", "jvm_mb", "descriptors", "threads", "store_mb", "log_mb", "files"):
        first, last = ([getattr(each, name) for each in part] for part in (old[:third], old[-third:]))
        one, two = sum(first) / len(first), sum(last) / len(last)
        rows.append((name, f"{one:.1f}", f"{two:.1f}", f"{(two - one) / one:+.0%}" if one else "-"))
    return _table(("mean of lives older than 30 s", "first third", "last third", "growth"), rows)
