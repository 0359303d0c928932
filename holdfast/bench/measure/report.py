"""What a benchmark says in the end: plain data for machines, a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from holdfast.bench.measure.alternate import Round, Stretch
from holdfast.bench.measure.cpu import per_million_rows
from holdfast.bench.measure.ratios import Ratio, quantile
from holdfast.errors import HoldfastError


def figure(name: str, ratio: Ratio) -> dict[str, Any]:
    """A ratio under its name, with its interval beside it."""
    return {name: round(ratio.median, 4), f"{name}_interval": ratio.as_dict()}


def by_side(rounds: Sequence[Round]) -> dict[str, list[Stretch]]:
    """All stretches of each side."""
    names = dict.fromkeys(name for done in rounds for name in done)
    return {name: [done[name] for done in rounds if name in done] for name in names}


def side_figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """What every side did, over all rounds."""
    sides = by_side(rounds)
    return {
        "rows_per_s": {
            n: round(sum(s.rows for s in d) / sum(s.seconds for s in d)) for n, d in sides.items()
        },
        "steps_per_stretch": {name: done[0].steps for name, done in sides.items()},
        "seconds": {name: [round(s.seconds, 2) for s in done] for name, done in sides.items()},
        "cpu_s_per_million_rows": {name: cpu_of(done) for name, done in sides.items()},
    }


def cpu_of(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Seconds of CPU per million rows, by kind of process."""
    return per_million_rows([s.cpu_s for s in stretches], stretches[0].rows)


def latency_figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """Quantiles of all steps of every side that reports them."""
    return {
        name: milliseconds([s for stretch in done for s in stretch.latencies_s])
        for name, done in by_side(rounds).items()
        if done[0].latencies_s
    }


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    return {f"p{round(100 * q)}": round(1000 * quantile(seconds, q), 1) for q in (0.5, 0.9, 0.99)}


def durability(stretches: Sequence[Stretch]) -> dict[str, int]:
    """Epochs and bytes of a side that runs in a region; without any the figures would mean nothing."""
    epochs = sum(stretch.epochs for stretch in stretches)
    written = sum(stretch.bytes_written for stretch in stretches)
    if not epochs or not written:
        raise HoldfastError("the region published no epoch: the figures would mean nothing.")
    return {"epochs_published": epochs, "store_bytes_written": written}


def show(console: Console, title: str, ratios: Mapping[str, Ratio], rounds: Sequence[Round]) -> None:
    """The ratios, then the sides."""
    figures = Table("figure", "median", "interval", "pairs", title=title, title_justify="left")
    for name, ratio in ratios.items():
        verdict = "" if ratio.conclusive else " (inconclusive: the machine is too noisy)"
        figures.add_row(
            name, f"{ratio.median:.3f}", f"± {ratio.half_width:.3f}{verdict}", str(len(ratio.pairs))
        )
    console.print(figures)
    sides = Table("side", "rows/s", "steps", "p50", "p99", "CPU s per million rows")
    latencies = latency_figures(rounds)
    for name, done in by_side(rounds).items():
        rate = sum(s.rows for s in done) / sum(s.seconds for s in done)
        times = [f"{latencies[name][q]:.0f} ms" if name in latencies else "—" for q in ("p50", "p99")]
        cpu = f"{cpu_of(done)['all']:.2f}"
        sides.add_row(name, f"{rate:,.0f}", str(sum(s.steps for s in done)), *times, cpu)
    console.print(sides)
