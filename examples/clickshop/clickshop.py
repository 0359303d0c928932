"""A shop's clicks and orders, which come out of order and sometimes twice: visits, revenue, and the clicks before an order.

    python examples/clickshop/make_input.py clickshop
    holdfast run examples/clickshop/clickshop.py --store clickshop/store --until available --close
    head clickshop/out/*/*.json

Event time is said once per source; `dedup` drops what comes twice, and whatever is behind it goes on by the same time.
"""

from __future__ import annotations

import os

import holdfast as hf

HERE = os.environ.get("CLICKSHOP", "clickshop")

CLICK = "id string, user string, page string, at timestamp"
ORDER = "id string, user string, cents long, at timestamp"


def build(here: str, *, period: float = 2.0, rows_per_step: int = 5_000) -> hf.Topology:
    """The topology over `here`/clicks and `here`/orders, writing to `here`/out."""
    shop = hf.Topology("clickshop")

    def read(name: str, schema: str) -> hf.Stream:
        files = hf.Files(f"{here}/{name}", format="json", schema=schema, max_rows_per_step=rows_per_step)
        rows = shop.source(files, name=name).event_time("at", delay="1 minute")
        rows = rows.consistent(name="shop", period=period)
        return rows.dedup("id", ttl=hf.ttl("10 minutes", on="at"), name=f"{name}_once")

    clicks, orders = read("clicks", CLICK), read("orders", ORDER)
    visits = clicks.group_by("user").agg(
        clicks=hf.count(), pages=hf.count_distinct("page"), window=hf.session("5 minutes"), name="visits"
    )
    revenue = orders.group_by().agg(
        orders=hf.count(), cents=hf.sum("cents"), window=hf.tumbling("10 minutes"), name="revenue"
    )
    led_to = orders.join(clicks, "user", within=("2 minutes", 0), how="left", name="led_to")
    led_to = led_to.select("id", "user", "cents", "page", "at_right as clicked")
    for name, rows in {"visits": visits, "revenue": revenue, "led_to": led_to}.items():
        rows.sink(hf.FileSink(f"{here}/out/{name}", format="json"), name=f"{name}_out")
    return shop


topology = build(HERE)
