"""`holdfast bench bulk` and `holdfast bench text`: tens of millions of rows, beside Structured Streaming as its users run it.

    holdfast    sum, count and max by key, in a consistent region with 2 s epochs, exactly-once Parquet files
    spark_N     Structured Streaming, default state store, N files a trigger, `foreachBatch` appends Parquet files

    flink       Flink's SQL, hashmap state, checkpoints every 2 s (text only, where `make flink` has put it)

*bulk* reads Parquet, *plain* and with *expressions* before the aggregate; *text* reads CSV with a header, and JSON lines. *whole*: a process
from its start to its exit, the session included. *warm*: a process works on other rows first, a third as many; then it counts.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Any

from rich.console import Console

from holdfast.bench.measure.scratch import scratch
from holdfast.bench.whole import duel, flink
from holdfast.bench.whole.duel import OUR_FILES, TRIGGERS, Ground, Launch, Part
from holdfast.bench.whole.rows import Size, WholeInputs, size_of
from holdfast.bench.whole.sides import CONDITION, OURS, PERIOD_S, QUERY, THEIRS, VALUE, their_settings
from holdfast.errors import ConfigError

KEYS = {"10k": 10_000, "1m": 1_000_000}

BULK = tuple(
    Part(subject, "parquet", subject == "expressions", warm, count, name)
    for (name, count), subject, warm in product(KEYS.items(), ("expressions", "plain"), (False, True))
)
TEXT = tuple(
    Part(f"text.{format}", format, False, warm, count, name)  # type: ignore[arg-type]
    for format, (name, count), warm in product(("csv", "json"), KEYS.items(), (False, True))
)
"""Both so that parts with the same input follow each other."""
PARTS = {"bulk": BULK, "text": TEXT}


def bench_many_rows(
    name: str,
    *,
    pairs: int = 5,
    quiet: bool = False,
    only: Sequence[str] | None = None,
    scale: float = 1.0,
    triggers: Sequence[int] = TRIGGERS,
    launch: Launch = duel.launch,
    **_: object,
) -> dict[str, Any]:
    """Run the benchmark of this name; the result is plain data."""
    chosen, size = parts_of(PARTS[name], only), size_of(scale)
    console = Console(stderr=True, quiet=quiet)
    with_flink = name == "text" and flink.is_there()
    if name == "text" and not with_flink:
        console.print(
            "Flink is left out: it is not there. `make flink` puts it into an environment of its own."
        )
    found: dict[str, dict[str, Any]] = {}
    for (format, keys), parts in groupby(chosen, lambda part: (part.format, part.keys)):
        with scratch() as root:
            console.print(f"writing {format} files, {keys:,} keys")
            ground = _ground(root, format, keys, size, triggers, launch, with_flink)
            found |= {part.name: duel.measure(part, ground, pairs, console) for part in parts}
    ratios = {key: value for told in found.values() for key, value in told.items() if "_ratio_vs_" in key}
    return {
        "bench": name,
        **ratios,
        "parts": found,
        "outputs_equal": True,
        "configuration": configuration(size, scale, triggers)
        | ({"flink": {"query": flink.QUERY, **flink.SETTINGS}} if with_flink else {}),
    }


def _ground(
    root: Path,
    format: Any,
    keys: int,
    size: Size,
    triggers: Sequence[int],
    launch: Launch,
    with_flink: bool,
) -> Ground:
    inputs = WholeInputs(root / "rows", format, keys, size)
    others = WholeInputs(root / "others", format, keys, size, seed=1)
    return Ground(inputs, others, size, triggers, launch, with_flink)


def parts_of(parts: Sequence[Part], only: Sequence[str] | None) -> list[Part]:
    """Those that have all the words of one of the names: `plain`, `warm.1m`, `expressions.whole.10k`."""
    if only is None:
        return list(parts)
    wanted = [set(name.split(".")) for name in only]
    for name, words in zip(only, wanted, strict=True):
        if not any(words <= words_of(part) for part in parts):
            there = ", ".join(part.name for part in parts)
            raise ConfigError(
                f"there is no part {name!r}.", cure=f"There are: {there}, and what these have in common."
            )
    return [part for part in parts if any(words <= words_of(part) for words in wanted)]


def words_of(part: Part) -> set[str]:
    return set(part.name.split("."))


def configuration(size: Size, scale: float, triggers: Sequence[int]) -> dict[str, Any]:
    """What a reader must know to judge the figures."""
    return {
        "rows": size.rows,
        "files": size.files,
        "warm_up_files": size.warm_up_files,
        "scale": scale,
        "keys": KEYS,
        "expressions": {"filter": CONDITION, "value": VALUE},
        "period_s": PERIOD_S,
        "files_per_step": {OURS: OUR_FILES, THEIRS: list(triggers)},
        "master": "local[*]",
        "cores": os.cpu_count(),
        "theirs": {"query": QUERY, **their_settings()},
        "whole": "rows / (start of the process → its exit)",
        "warm": "rows / (the run is submitted → it has ended), behind the warm-up in the same process",
    }
