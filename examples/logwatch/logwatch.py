"""Who tries to break in? Failed logins per remote host in a system log, and logins that follow an attack.

    mkdir -p logwatch/in && cp messages.gz logwatch/in/
    holdfast run examples/logwatch/logwatch.py --store logwatch/store --until available
    head logwatch/out/realtime/*.csv

Three alarms look at every remote host: 5 failures within a minute, 50 within ten minutes, 300 within an hour. The
windows are over rows, not over time: every 5 (50, 300) failures of a host are one window. A break-in is a login of a
user within a minute after the first alarm told of that user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import holdfast as hf

HERE = os.environ.get("LOGWATCH", "logwatch")
YEAR = os.environ.get("LOGWATCH_YEAR", "2011")
"""The log does not tell the year."""

TIME = f"to_timestamp(concat('{YEAR} ', regexp_replace(substring(text, 1, 15), ' +', ' ')), 'yyyy MMM d HH:mm:ss')"
HOST = r"regexp_extract(text, r'rhost=(\S+)', 1)"
USER = r"regexp_extract(text, r'\buser=(\S+)', 1)"
OPENED = r"regexp_extract(text, r'session opened for user (\S+)', 1)"
BREAKIN = "time timestamp, rhost string, user string, success_line long, suspect_line long"


@dataclass(frozen=True)
class Alarm:
    """`failures` of one host in a row that lie less than `seconds` apart."""

    name: str
    failures: int
    seconds: int


ALARMS = (Alarm("realtime", 5, 60), Alarm("mediumterm", 50, 600), Alarm("longterm", 300, 3600))


class BreakIns(hf.Operator):
    """Logins within a minute after a suspect with the same user. Suspects and logins come in the order of the log."""

    within = timedelta(seconds=60)

    def __init__(self) -> None:
        self.suspects: list[tuple[datetime, str, str, int]] = []

    def process(self, row: Any, port: int) -> Iterator[tuple[datetime, str, str, int, int]]:
        self.suspects = [suspect for suspect in self.suspects if row.at - suspect[0] <= self.within]
        if row.host is not None:
            self.suspects.append((row.at, row.host, row.user, row.line))
            return
        for _, host, user, line in self.suspects:
            if user == row.user:
                yield row.at, host, user, row.line, line


def alarm(failures: hf.Stream, rule: Alarm) -> hf.Stream:
    """Hosts whose last failures came too fast. The user is the last in the alphabet, empty if none was named."""
    windows = failures.aggregate(
        "rhost",
        window=hf.tumbling(rows=rule.failures),
        at_line=hf.last("line"),
        user=hf.max("user"),
        attempts=hf.count(),
        first=hf.first("at"),
        last=hf.last("at"),
        name=f"windows_{rule.name}",
    )
    return windows.select(
        "at_line", "rhost", "user", "attempts", "first", "last",
        "unix_timestamp(last) - unix_timestamp(first) as diff_seconds",
    ).filter(f"diff_seconds < {rule.seconds}")  # fmt: skip


def build(here: str, *, period: float = 2.0, lines_per_step: int = 20_000) -> hf.Topology:
    """The topology over `here`/in, writing to `here`/out."""
    made = hf.Topology("logwatch")
    log = made.source(hf.Files(f"{here}/in", "text", max_rows_per_step=lines_per_step), name="log")
    log.consistent("watch", period=period)
    # Lines are numbered by counting them: one row per line, with the count so far.
    lines = log.with_columns(log="'messages'").aggregate(
        "log", "each", line=hf.count(), text=hf.last("value"), name="numbered"
    )
    sshd = lines.filter("text like '% sshd(pam_unix)[%'").with_columns(at=TIME)
    failures = sshd.filter("text like '%authentication failure%'").select(
        "line", "at", f"{HOST} as rhost", f"{USER} as user"
    )
    alarms = {rule.name: alarm(failures, rule) for rule in ALARMS}
    for name, suspects in alarms.items():
        suspects.sink(csv(f"{here}/out/{name}"), name=name)
    suspects = alarms["realtime"].select("last as at", "rhost as host", "user", "at_line as line")
    logins = sshd.filter("text like '%session opened for user %'").select(
        "at", "cast(null as string) as host", f"{OPENED} as user", "line"
    )
    # Both keep the positions of their lines, so that the operator gets them in the order of the log.
    breakins = suspects.union(logins).apply(BreakIns, BREAKIN, name="breakins")
    breakins.sink(csv(f"{here}/out/breakins"), name="breakins_out")
    return made


def csv(directory: str) -> hf.FileSink:
    return hf.FileSink(directory, "csv", options={"timestampFormat": "yyyy-MM-dd HH:mm:ss"})


topology = build(HERE)
