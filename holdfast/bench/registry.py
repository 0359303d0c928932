"""The list of benchmarks and how to run one by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.bench.checkpoints.all import PARTS, bench_checkpoint
from holdfast.bench.logs.all import bench_log
from holdfast.bench.losses.partial import bench_partial
from holdfast.bench.meteor.bench import LOCAL, bench_meteor
from holdfast.bench.regions.bench import bench_regions
from holdfast.bench.subjects.cec import bench_cec
from holdfast.bench.subjects.database import bench_database
from holdfast.bench.subjects.join import bench_join
from holdfast.bench.subjects.keyed import WORKLOADS, bench_keyed
from holdfast.bench.subjects.state_growth import bench_state_growth
from holdfast.bench.subjects.stateless import bench_stateless
from holdfast.bench.subjects.stream_join import bench_stream_join
from holdfast.bench.subjects.window import bench_window
from holdfast.bench.waiting.latency import bench_latency
from holdfast.bench.whole.cold import bench_cold
from holdfast.bench.whole.many_rows import PARTS as MANY_ROWS
from holdfast.bench.whole.many_rows import bench_many_rows
from holdfast.errors import ConfigError

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {
    "stateless": bench_stateless,
    **{name: partial(bench_keyed, work) for name, work in WORKLOADS.items()},
    "state-growth": bench_state_growth,
    "window": bench_window,
    "join": bench_join,
    "stream-join": bench_stream_join,
    "database": bench_database,
    "log": bench_log,
    "cec": bench_cec,
    "regions": bench_regions,
    "meteor": bench_meteor,
    "meteor-local": partial(bench_meteor, LOCAL),
    "checkpoint": bench_checkpoint,
    "partial": bench_partial,
    "latency": bench_latency,
    **{name: partial(bench_many_rows, name) for name in MANY_ROWS},
    "cold": bench_cold,
    **PARTS,
}


CHOOSE = {
    "regions": ("periods", "only"),
    "log": ("only", "scale"),
    "meteor": ("only", "quick"),
    "meteor-local": ("only", "quick"),
    "latency": ("only",),
    "bulk": ("only", "scale"),
    "text": ("only", "scale"),
    "cold": ("only",),
}
"""Those of which something can be chosen, and what."""
USUAL, OWN = (5, 10.0), {"meteor": (2, 6.0), "meteor-local": (2, 6.0)}
"""Pairs, and seconds of a stretch, if nobody says."""


def run_bench(
    name: str,
    *,
    quiet: bool,
    pairs: int | None = None,
    seconds: float | None = None,
    periods: Sequence[float] | None = None,
    only: Sequence[str] | None = None,
    scale: float | None = None,
    quick: bool | None = None,
) -> dict[str, Any]:
    """Run a benchmark; the result is plain data. `pairs`, `seconds`: None: as many, and as long, as it has by itself."""
    bench = BENCHES.get(name)
    if bench is None:
        raise ConfigError(f"there is no benchmark {name!r}.", cure=f"There are: {', '.join(BENCHES)}.")
    given = {"periods": periods, "only": only, "scale": scale, "quick": quick}
    chosen = {key: value for key, value in given.items() if value is not None}
    foreign = next((key for key in chosen if key not in CHOOSE.get(name, ())), None)
    if foreign is not None:
        raise ConfigError(f"benchmark {name!r} takes no --{foreign}.", cure="Leave it out.")
    usual_pairs, usual_s = OWN.get(name, USUAL)
    return bench(pairs=pairs or usual_pairs, seconds=seconds or usual_s, quiet=quiet, **chosen)


def numbers(text: str | None) -> list[float] | None:
    """Numbers with commas between them, as the command line has them."""
    try:
        return None if text is None else [float(each) for each in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{text!r} are no numbers.", cure="Write them as 2,4,8.") from error
