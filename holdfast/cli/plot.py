"""`holdfast plot STORE --state-size`: how large the state of a region was, and where its epochs came, from the event log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.options import Region, StoreUrl
from holdfast.errors import ConfigError


def plot(
    store: StoreUrl,
    state_size: Annotated[
        bool, typer.Option("--state-size", help="The size of state over time, and where epochs came.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The picture: PNG, SVG or PDF.")] = Path("state-size.png"),
    region: Region = None,
) -> None:
    """Draw what a store's event log tells."""
    from holdfast.cli.state_picture import draw, lives_of
    from holdfast.runtime.telling.events import StateSizes
    from holdfast.runtime.telling.stored_events import decode
    from holdfast.store.urls import open_store

    if not state_size:
        raise ConfigError("there is nothing to draw.", cure="Give --state-size.")
    place = open_store(store)
    events = [decode(event.kind, event.data) for event in place.events()]
    chosen = _chosen({event.region for event in events if isinstance(event, StateSizes)}, region, place.url)
    lives = lives_of(events, chosen)
    draw(lives, chosen, out)
    points = sum(len(curve) for life in lives for curve in life.curves.values())
    epochs = sum(len(life.epochs) for life in lives)
    print(f"{out}: region {chosen}, {points} turning points, {epochs} epochs")


def _chosen(told: set[str], wanted: str | None, url: str) -> str:
    found = sorted(told)
    if not found:
        raise ConfigError(
            f"no event in {url} tells the size of state.",
            cure='Regions with trigger="aware" write them, at the end of each period.',
        )
    if wanted is None and len(found) > 1:
        raise ConfigError(f"several regions tell sizes: {', '.join(found)}.", cure="Choose one by --region.")
    if wanted is not None and wanted not in found:
        raise ConfigError(f"region {wanted!r} tells no sizes.", cure=f"Choose one of {', '.join(found)}.")
    return wanted or found[0]
