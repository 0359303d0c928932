"""A standalone master of Spark's with workers of one core each, daemons of their own that can be killed one by one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyspark
from faults import fired

from holdfast.testing import processes

SPARK_CLASS = Path(pyspark.__path__[0]) / "bin" / "spark-class"
MASTER, WORKERS = "master", ("worker-0", "worker-1")
HOSTS = {MASTER: "127.0.0.1", "worker-0": "127.0.0.1", "worker-1": "127.0.0.2"}
"""The workers have addresses of their own: Spark speculates on another host only."""


class Cluster:
    """They and what they start carry one tag. `before`: what runs the command of a daemon, such as `nsenter`."""

    def __init__(
        self,
        here: Path,
        hosts: Mapping[str, str] = HOSTS,
        before: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.tag = processes.new_tag("standalone")
        self.hosts, self._before = hosts, before or {}
        self._here = here
        self.environment = {
            **os.environ,
            processes.TAG: self.tag,
            "SPARK_LOCAL_IP": hosts[MASTER],
            "SPARK_LOCAL_DIRS": str(here / "local"),
            "SPARK_DAEMON_MEMORY": "512m",
            # A master that comes back knows its workers and drivers again; without it executors that it does not know are ended.
            "SPARK_MASTER_OPTS": "-Dspark.worker.timeout=20 -Dspark.deploy.recoveryMode=FILESYSTEM "
            f"-Dspark.deploy.recoveryDirectory={here / 'recovery'}",
        }
        for name in ("local", "recovery"):
            (here / name).mkdir()
        self._ports = {name: free_port() for name in (MASTER, "ui", *WORKERS)}
        self.master = f"spark://{hosts[MASTER]}:{self._ports[MASTER]}"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in (MASTER, *WORKERS):
            self.start(name)

    def start(self, name: str) -> None:
        """Also once more, after it was killed."""
        host, port = self.hosts[name], str(self._ports[name])
        if name == MASTER:
            arguments = ["--host", host, "--port", port, "--webui-port", str(self._ports["ui"])]
        else:
            place = str(self._here / name)
            arguments = [
                "--host",
                host,
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                port,
                "--work-dir",
                place,
            ]
            arguments.append(self.master)
        kind = "master.Master" if name == MASTER else "worker.Worker"
        with self._log(name).open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [*self._before.get(name, ()), str(SPARK_CLASS), f"org.apache.spark.deploy.{kind}", *arguments],
                stdout=log, stderr=log, env={**self.environment, "SPARK_LOCAL_IP": host}, start_new_session=True,
            )  # fmt: skip
        if name == MASTER:
            await_true(
                lambda: b"Starting Spark master at" in self._log(name).read_bytes(), 60, "no master starts"
            )

    def _log(self, name: str) -> Path:
        return self._here / f"{name}.log"

    def kill(self, *names: str) -> None:
        """SIGKILL to daemons: `spark-class` has become the JVM."""
        for name in names:
            self._daemons[name].send_signal(signal.SIGKILL)
        for name in names:
            self._daemons[name].wait()
            fired(f"{name.partition('-')[0]} daemon killed")

    def driver(self, program: Path, here: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(program), self.master, str(here)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def kill_an_executor(self) -> None:
        executor = processes.of_kind(self.tag, "executor")[0]
        assert processes.send(executor.pid, self.tag)
        fired("executor killed")

    def end(self) -> None:
        left = processes.kill_all(self.tag)
        for daemon in self._daemons.values():
            daemon.wait()
        assert not left, "processes of the cluster are left"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_true(condition: Callable[[], bool], seconds: float, complaint: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.1)
