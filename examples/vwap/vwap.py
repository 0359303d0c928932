"""Bargains: asks below what a ticker was just traded for, by its volume-weighted average price (VWAP).

    mkdir -p vwap/in && cp TradesAndQuotes.csv.gz vwap/in/
    holdfast run examples/vwap/vwap.py --store vwap/store --until available --close
    head vwap/out/*/*.csv

The VWAP is that of the trades of the last ten seconds, every second. Each quote meets the VWAP of its ticker that is at
most a second old; the index tells how much there is to win: ask size * exp(VWAP - ask price), 0 if nothing.

Windows are emitted when a later line of the feed shows that they are complete. Without `--close` the last ones stay open: there
may be more to come.
"""

from __future__ import annotations

import os

import holdfast as hf

HERE = os.environ.get("VWAP", "vwap")

COLUMNS = (
    "ticker string, day string, time string, gmt_offset int, type string, contributor string,"
    " price decimal(12,4), volume long, day_vwap decimal(12,4), buyer string, bid_price decimal(12,4), bid_size long,"
    " buyers long, seller string, ask_price decimal(12,4), ask_size long, sellers long, qualifiers string,"
    " sequence string, exchange_time string, block_trade string, floor_trade string, pe_ratio string, yield string,"
    " new_price string, new_volume string, new_sequence string, bid_implied string, ask_implied string,"
    " implied string"
)
INDEX = "if(vwap > ask_price, ask_size * exp(vwap - ask_price), 0D)"
SECONDS = {"timestampFormat": "yyyy-MM-dd HH:mm:ss"}
MILLISECONDS = {"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSS"}
AVERAGE = "round(cast(value as decimal(18,4)) / cast(volume as decimal(10,0)), 10)"
"""Spark would keep six digits of a wider division."""
AT = "to_timestamp(concat(day, ' ', time), 'dd-MMM-yyyy HH:mm:ss.SSS')"


def build(here: str, *, period: float = 2.0, rows_per_step: int = 10_000) -> hf.Topology:
    """The topology over `here`/in, writing to `here`/out."""
    made = hf.Topology("vwap")
    files = hf.Files(
        f"{here}/in",
        "csv",
        schema=COLUMNS,
        header=False,
        options={"comment": "#"},  # the line of column names begins so
        max_rows_per_step=rows_per_step,
    )
    feed = made.source(files, name="feed").consistent("market", period=period)
    feed = feed.with_columns(at=AT).event_time("at", delay=0)
    trades = feed.filter("type = 'Trade' and price is not null").select(
        "ticker", "at", "volume", "price * volume as value"
    )
    averages = trades.aggregate(
        "ticker",
        window=hf.sliding(10, 1),
        trades=hf.count(),
        volume=hf.sum("volume"),
        value=hf.sum("value"),
        name="last_ten_seconds",
    )
    averages.select("ticker", "window_end", "trades", "volume", f"{AVERAGE} as vwap").sink(
        hf.FileSink(f"{here}/out/vwap", "csv", options=SECONDS), name="vwap"
    )
    quotes = feed.filter("type = 'Quote' and ask_price is not null").select(
        "ticker", "at", "ask_price", "ask_size"
    )
    matched = quotes.asof_join(
        averages, by="ticker", on=("at", "window_end"), tolerance=1, how="inner", name="matched"
    )
    bargains = matched.select(
        "ticker", "at", "double(value) / volume as vwap", "double(ask_price) as ask_price", "ask_size"
    ).with_columns(index=INDEX)
    bargains.sink(hf.FileSink(f"{here}/out/bargains", "csv", options=MILLISECONDS), name="bargains")
    return made


topology = build(HERE)
