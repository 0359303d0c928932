"""The list of benchmarks and how to run one by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.bench.stateless import bench_stateless
from holdfast.errors import ConfigError

BENCHES: dict[str, Callable[..., dict[str, Any]]] = {"stateless": bench_stateless}


def run_bench(name: str, *, pairs: int, seconds: float, quiet: bool) -> dict[str, Any]:
    """Run a benchmark; the result is plain data."""
    bench = BENCHES.get(name)
    if bench is None:
        raise ConfigError(f"there is no benchmark {name!r}.", cure=f"There are: {', '.join(BENCHES)}.")
    return bench(pairs=pairs, seconds=seconds, quiet=quiet)
