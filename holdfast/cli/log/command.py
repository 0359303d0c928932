"""`holdfast logs`: list, show, tail, verify, compact, trim, consumers; `query` and `replay` have files of their own. What is printed is in
`tables.py`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.log.places import facts_of, place_of
from holdfast.cli.log.places import opened as opened_log
from holdfast.cli.log.query import query
from holdfast.cli.log.replay import replay
from holdfast.cli.options import Json, print_json

if TYPE_CHECKING:
    from holdfast.log.look.verify import Progress
    from holdfast.log.place import LogFacts

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Look into persistent streams, and keep them.",
)
app.command()(query)
app.command()(replay)

Where = Annotated[Path, typer.Argument(help="Directory of a log.", metavar="LOG")]
Place = Annotated[
    str | None,
    typer.Option("--from", help="beginning, now, a position, or a time such as 2024-05-01T12:00 (UTC)."),
]
Partition = Annotated[int | None, typer.Option(help="Only this partition.", min=0)]
Force = Annotated[bool, typer.Option("--force", help="Although consumers need the rows; they are told.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Replace a writer that lives; it is refused from then on.")
]


@app.command("list")
def list_logs(
    directory: Annotated[Path, typer.Argument(help="Where to look, with all below.", metavar="DIR")] = Path(
        "."
    ),
    as_json: Json = False,
) -> None:
    """List the logs in a directory and below: rows, bytes, age, who writes, who holds."""
    from holdfast.cli.log.tables import show_list
    from holdfast.log.look.verify import describe

    found = [describe(facts_of(path.parent)) for path in sorted(directory.rglob("identity")) if _is_log(path)]
    print_json(found) if as_json else show_list(directory, found)


@app.command()
def show(log: Where, as_json: Json = False) -> None:
    """Show a log: schema, partitions, segments, writers, consumers; or print a tail or Parquet segment, frame by frame."""
    from holdfast.cli.log.tables import show_file, show_log
    from holdfast.log.look.printer import print_segment
    from holdfast.log.look.verify import describe, segments_of

    if log.is_file():
        printed = print_segment(log, facts_of(log.parent.parent))
        print_json(printed) if as_json else show_file(printed)
        return
    facts = facts_of(log)
    found = {**describe(facts), "segments": [asdict(each) for each in segments_of(facts)]}
    print_json(found) if as_json else show_log(found)


@app.command()
def tail(
    log: Where,
    from_: Place = None,
    rows: Annotated[int, typer.Option(help="How many rows; without --from the last ones.", min=1)] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until interrupted.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also rows of epochs that are not sealed.")
    ] = False,
    partition: Partition = None,
    as_json: Json = False,
) -> None:
    """Print rows with partition, position and time, one line each. With --json one object per line."""
    from holdfast.cli.log.tables import show_rows

    opened = opened_log(log)
    chosen = list(range(opened.partitions)) if partition is None else [partition]
    if from_ is None:
        bounds = {p: opened.bounds(p, committed=not everything) for p in chosen}
        start: Any = {p: max(at.low, at.end - rows) for p, at in bounds.items()}
    else:
        start = place_of(from_)
    reader = opened.reader(start, committed=not everything, partitions=chosen)
    left = rows if from_ is not None and not follow else None
    while left is None or left > 0:
        batch = reader.next(0.2 if follow else 0.0)
        if batch is None:
            if not follow:
                return
            continue
        shown = batch if left is None else batch.cut(batch.position, batch.position + left)
        show_rows(shown, as_json)
        left = None if left is None else left - shown.rows.num_rows


@app.command()
def verify(log: Where, as_json: Json = False) -> None:
    """Read every row of a log and compare checksums. Exit code 1 if anything is damaged or missing."""
    from holdfast.cli.log.tables import show_verified
    from holdfast.log.look.verify import segments_of
    from holdfast.log.look.verify import verify as look

    facts = facts_of(log)
    with _progress(facts, enabled=not as_json and sys.stderr.isatty(), sizes=segments_of) as progress:
        found = look(facts, progress)
    print_json(asdict(found)) if as_json else show_verified(log, found)
    if found.problems:
        raise typer.Exit(1)


@app.command()
def compact(
    log: Where,
    to: Annotated[int, typer.Option(help="How large segments should become, MB.", min=1)] = 256,
    take_over: TakeOver = False,
    as_json: Json = False,
) -> None:
    """Merge closed segments into large Parquet ones, and make missing indexes. A log that is being written does it by itself."""
    with opened_log(log, take_over) as opened:
        done = opened.compact(to << 20)
        made = opened.rebuild_index()
    if as_json:
        print_json({**asdict(done), "indexes": made})
    elif done.before:
        print(
            f"{done.before} segments became {done.after}, {done.bytes_before:,} bytes became {done.bytes_after:,}"
        )
    else:
        print("nothing to merge")


@app.command()
def trim(
    log: Where,
    before: Annotated[
        str, typer.Argument(help="A position, or a time such as 2024-05-01T12:00 (UTC).", metavar="BEFORE")
    ],
    partition: Partition = None,
    force: Force = False,
    take_over: TakeOver = False,
    as_json: Json = False,
) -> None:
    """Let go all rows before a position or a time, unless somebody needs them."""
    place = place_of(before)
    with opened_log(log, take_over) as opened:
        if isinstance(place, int):
            chosen = range(opened.partitions) if partition is None else [partition]
            place = dict.fromkeys(chosen, place)
        done = opened.trim(place, force=force)
    print_json(done) if as_json else print(
        "\n".join(f"partition {p} begins at {at}" for p, at in done.items())
    )


@app.command()
def consumers(
    log: Where,
    forget: Annotated[
        str | None, typer.Option(help="Remove this consumer: it holds nothing any more.")
    ] = None,
    unpin: Annotated[str | None, typer.Option(help="Remove this pin.")] = None,
    as_json: Json = False,
) -> None:
    """List who needs which rows of a log; or remove one of them."""
    from holdfast.cli.log.tables import show_consumers

    opened = opened_log(log)
    if forget is not None:
        opened.forget_consumer(forget)
    if unpin is not None:
        opened.unpin(unpin)
    ends = {p: opened.bounds(p).end for p in range(opened.partitions)}
    found = [
        {"kind": kind, **asdict(each), "behind": sum(ends[p] - at for p, at in each.positions.items())}
        for kind, several in (("consumer", opened.consumers()), ("pin", opened.pins()))
        for each in several
    ]
    print_json(found) if as_json else show_consumers(log, found, time.time())


# --- what is meant ----------------------------------------------------------------------------------------------------


def _is_log(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(14) == b"holdfast log 1"


@contextmanager
def _progress(facts: LogFacts, enabled: bool, sizes: Any) -> Iterator[Progress]:
    if not enabled:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True)) as bar:
        task = bar.add_task("reading", total=sum(each.bytes for each in sizes(facts)))
        yield lambda done: bar.advance(task, done)
