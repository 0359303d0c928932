"""Spark sessions: those that holdfast makes for users who do not bring their own, and what a run sets in one of theirs."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.errors import ConfigError
from holdfast.runtime.engines.spark.class_archive import archive_here
from holdfast.runtime.engines.spark.environment import prepare_environment
from holdfast.runtime.engines.spark.workers import MADE_WITH
from holdfast.runtime.live_directory import LiveDirectoryLock

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

FILE_TIMES, MICROSECONDS = "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"

SETTINGS: Mapping[str, str] = {
    # A step is small: what matters is the cost of starting one.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    FILE_TIMES: MICROSECONDS,
    "spark.sql.session.timeZone": "UTC",
    # A keyed partition belongs on the executor that has its live segments: wait for it rather than go elsewhere and
    # reset the region. An executor that is gone is not waited for.
    "spark.locality.wait": "60s",
    # Otherwise the place of shuffle outputs competes with the place of the segments.
    "spark.shuffle.reduceLocality.enabled": "false",
    # Our steps choose their own partition counts; statistics from one step say nothing about the next.
    "spark.sql.adaptive.enabled": "false",
    # Nobody looks at this UI unless asked to; with it every job costs a little more, and a port is open.
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    # Nobody else calls the driver. On a cluster executors do: Spark finds an address that they can reach.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

SOCKETS = "spark.python.unix.domain.socket.dir"
SOCKET_PATH_MAX = 103
"""Bytes of a Unix socket's path that every system takes (Linux: 107)."""


_CLASSES_OF_A_JOB = {
    "PythonUtils": ("getBroadcastThreshold",),
    "SimplePythonFunction": (),
    "PythonRDD": ("collectAndServe",),
}
"""Classes of Spark, and those of their members that are static."""


def make_session(
    app: str, master: str = "local[*]", settings: Mapping[str, str] | None = None, classes: str | None = None
) -> SparkSession:
    """A session with settings that suit many small steps. `local[*]` becomes `local[cores,4]`: tasks are retried. `classes`: options
    of Java about its class archive; None: the archive that is there is used."""
    prepare_environment(master)
    cores = os.cpu_count() or 2
    builder = SparkSession.builder.appName(app).master(
        f"local[{cores},4]" if master == "local[*]" else master
    )
    given = dict(settings or {})
    quiet = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    java = given.pop("spark.driver.extraJavaOptions", "")
    archive = archive_here(java) if classes is None else None
    if archive is not None:
        classes = archive.options
    merged = {
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.extraJavaOptions": " ".join(each for each in (quiet, classes, java) if each),
        **SETTINGS,
        **(LOCAL_SETTINGS if master.startswith("local") else {}),
        **_sockets(given, is_local=master.startswith("local")),
        MADE_WITH: sys.executable,
        **given,
    }
    for key, value in merged.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark could not be started: {str(error).splitlines()[0] if str(error) else error!r}.",
            cure="Check that Java 17 or newer is installed and JAVA_HOME or PATH points to it.",
        ) from error
    return session


def _sockets(settings: Mapping[str, str], is_local: bool) -> dict[str, str]:
    """Where driver and workers share a machine, sockets lie in a directory that nobody else may enter; elsewhere in the
    JVM's temporary directory. If that is too deep for the kernel, slower TCP sockets, with their secret, must do."""
    if SOCKETS in settings:
        return {}
    place = _private_directory() if is_local else _java_temporary(settings)
    longest = os.path.join(place, f".{'0' * 36}.sock")
    if len(os.fsencode(longest)) > SOCKET_PATH_MAX:
        return {"spark.python.unix.domain.socket.enabled": "false"}
    return {SOCKETS: place} if is_local else {}


def _java_temporary(settings: Mapping[str, str]) -> str:
    given = re.search(r"-Djava\.io\.tmpdir=(\S+)", settings.get("spark.driver.extraJavaOptions", ""))
    return given[1] if given else "/tmp"


@cache
def _private_directory() -> str:
    """One per process (0700), removed at its end; that of a killed process by a later run."""
    made = LiveDirectoryLock()
    atexit.register(made.release)
    return str(made.path)


def is_active() -> bool:
    """Whether there is a session already."""
    return SparkSession.getActiveSession() is not None


def active_or_new(
    app: str, master: str = "local[*]", settings: Mapping[str, str] | None = None, classes: str | None = None
) -> tuple[SparkSession, bool]:
    """The active session, or a new one; True if it is ours to stop."""
    active = SparkSession.getActiveSession()
    return (active, False) if active is not None else (make_session(app, master, settings, classes), True)


def java_of(session: SparkSession) -> subprocess.Popen[bytes] | None:
    """The process of Java that PySpark started for it; None: another one started it."""
    found = getattr(session.sparkContext._gateway, "proc", None)
    return found if isinstance(found, subprocess.Popen) else None


def remember_classes(session: SparkSession) -> None:
    """Py4J asks the JVM what a name means each time it is used, and PySpark uses these for every job: some 5 % of a small one."""
    jvm: Any = session.sparkContext._jvm
    for name, members in _CLASSES_OF_A_JOB.items():
        found = getattr(jvm, name)
        for member in members:
            setattr(found, member, getattr(found, member))
        setattr(jvm, name, found)


_parents: list[Any] = []
"""Connections of the parent. Were one let go, it would be shut down for the parent too."""


def take_own_connections(session: SparkSession) -> None:
    """For tests that kill a driver in a forked process, which works with the JVM of its parent: call it there, before anything else
    is asked of the session. What the parent has in the JVM stays there, whatever the child lets go of."""
    client: Any = session.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    _parents.append((client.deque, *client.deque))
    client.deque = deque()
    if hasattr(client, "thread_connection"):
        _parents.append(client.thread_connection)
        client.thread_connection = threading.local()
    client.garbage_collect_object = lambda *_, **__: None


# --- times in files ---


@dataclass(slots=True)
class _Held:
    """A session with another form of times, and how many runs hold it."""

    before: str
    runs: int = 0


_held: dict[int, _Held] = {}
"""By `id` of a session that runs hold, so that it lives."""
_lock = threading.Lock()


class TimesAsMicroseconds:
    """Times in Parquet files that Spark writes are microseconds, like those that tasks and the driver write. Spark takes their form from
    the session, not from who writes, and its default is INT96. So a run sets it from its beginning to its end; the last one of a
    session puts back what was there. Any thread; `release` may be called twice."""

    def __init__(self, session: SparkSession) -> None:
        self._session: SparkSession | None = session
        with _lock:
            held = _held.setdefault(id(session), _Held(str(session.conf.get(FILE_TIMES))))
            held.runs += 1
            session.conf.set(FILE_TIMES, MICROSECONDS)

    def release(self) -> None:
        with _lock:
            session, self._session = self._session, None
            if session is None:
                return
            held = _held[id(session)]
            held.runs -= 1
            if not held.runs:
                del _held[id(session)]
                session.conf.set(FILE_TIMES, held.before)
