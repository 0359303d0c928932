"""A shop's accounts, exactly once: what every customer has ordered and paid so far.

    python examples/orders/make_orders.py shop/in            # some input
    holdfast run examples/orders/orders.py --store shop/store --until available
    holdfast explain examples/orders/orders.py

Kill it at any moment and start it again: the files in shop/out/accounts are the same as without the kill.
"""

import os

from holdfast.language.operators.aggregates import count, max, sum
from holdfast.language.topology import Topology
from holdfast.sinks.files import FileSink
from holdfast.sources.files import Files

HERE = os.environ.get("SHOP", "shop")

topology = Topology("orders")

orders = topology.source(
    Files(
        f"{HERE}/in/orders",
        "json",
        schema="id long, customer string, item string, quantity int, price_cents long, at timestamp",
        max_rows_per_step=5_000,
    ),
    name="orders",
).consistent("shop", period=2)

accounts = (
    orders.filter("quantity > 0")
    .select("lower(trim(customer)) as customer", "quantity * price_cents as cents")
    .aggregate("customer", orders=count(), cents=sum("cents"), largest=max("cents"), name="accounts")
)
accounts.sink(FileSink(f"{HERE}/out/accounts", "json"), name="accounts_out")
