"""The job that wrote tests/golden/back_ends. The stores stay, so this file never changes its meaning.

Operators are those of golden_format_1, which never changes either. Rows are made here: a store that others take along must not
know where files of the first one lay.
"""

from __future__ import annotations

from pathlib import Path

from golden_files import Row, totals_of
from golden_format_1 import OUTPUTS as OUTPUTS
from golden_format_1 import Register, Tally, register_of, slowly, tally_of, totals_by_user, unchanged

import holdfast as hf

ORDERS = "id long, user string, amount long"
ROWS = [(n, f"u{n * 7 % 5}é", n * n % 97 - 20) for n in range(120)]


def topology(root: Path, resumed: bool = False) -> hf.Topology:
    """`resumed`: after the kill, when the source outside of the region has two rows more."""
    made = hf.Topology("golden")
    orders = made.source(hf.Rows(ROWS, ORDERS, rows_per_step=7), name="orders").consistent(
        "books", period=0.02
    )
    seen = "seen long, id long, total long, big string, recent string, names long"
    register = orders.isolate().apply(Register, seen, name="register")
    register.sink(hf.FileSink(str(root / "output" / "register"), "json"), name="register_out")
    paced = orders.map_arrow(slowly, ORDERS, name="slowly")
    positive = paced.isolate().map_arrow(unchanged, ORDERS, name="unchanged")
    totals = totals_of(positive.isolate())
    totals.sink(hf.FileSink(str(root / "output" / "totals"), "json"), name="totals_out")
    loose = made.source(hf.Rows([(n,) for n in range(12 if resumed else 10)], "n long"), name="loose")
    tally = loose.apply(Tally, "n long, seen long", name="tally").checkpoint(every=0.01)
    tally.sink(hf.FileSink(str(root / "output" / "tally"), "json"), name="tally_out")
    return made


def computed(behind: int = 0) -> dict[str, list[Row]]:
    """What the sinks must show in the end; of outputs that begin behind so many orders, what comes then."""
    rows = [{"id": id, "user": user, "amount": amount} for id, user, amount in ROWS]
    later = {row["user"] for row in rows[behind:]}
    return {
        "register": register_of(rows)[behind:],
        "totals": [row for row in totals_by_user(rows) if row["user"] in later],
        "tally": tally_of(),
    }
