"""A life of `holdfast chaos`: `python -m holdfast.cli.ordeal.child SETTING`.

An ordinary run of the user's program, but for its sinks, which are redirected, and the taps on its sources. It ends at once when its parent
is gone, which holds the other end of its stdin.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.cli import logs
from holdfast.cli.load import load_topology
from holdfast.cli.program import program_of
from holdfast.cli.running import LazySession, called_with
from holdfast.errors import ConfigError
from holdfast.language.graph import Graph
from holdfast.operators.kinds import only_spark_knows
from holdfast.runtime.engines.engine import Engine
from holdfast.runtime.engines.local import LocalEngine
from holdfast.testing.ordeal.life import Life, live


@dataclass(frozen=True, slots=True)
class Setting:
    """What a life needs besides: plain data."""

    file: str
    arguments: Sequence[str]
    directory: str
    """Where the user called the command: relative paths of the program mean that."""
    is_local: bool
    master: str
    settings: Mapping[str, str]

    def with_life(self, life: Life) -> str:
        return json.dumps({"life": asdict(life), "setting": asdict(self)})


def main(text: str) -> int:
    told = json.loads(text)
    life, setting = Life(**told["life"]), Setting(**told["setting"])
    os.chdir(setting.directory)
    with ExitStack() as stack:
        stack.enter_context(logs.to_stderr("info", False, False))
        program = _Program(setting, stack)
        return live(life, sys.stdin.fileno(), program.graph, program.engine)


class _Program:
    """The user's program, loaded once, and what runs it."""

    def __init__(self, setting: Setting, stack: ExitStack) -> None:
        self._setting, self._stack = setting, stack
        self._path = program_of(setting.file)[0]
        self._session: Any = None
        if not setting.is_local:
            self._session = LazySession("holdfast chaos", setting.master, setting.settings)
            stack.callback(self._session.stop)

    def graph(self) -> Graph:
        start = None if self._session is None else self._session.start
        with called_with(self._path, self._setting.arguments):
            return load_topology(self._setting.file, start).graph()

    def engine(self, graph: Graph) -> Engine:
        if self._session is None:
            _refuse_expressions(graph)
            return LocalEngine(2)
        from holdfast.runtime.engines.spark.engine import SparkEngine
        from holdfast.runtime.engines.spark.shipping import shipped

        session = self._session.start()
        _tell_failed_tasks(session)
        self._stack.enter_context(shipped(session, self._path, ()))
        return SparkEngine(session, owned=False)


def _refuse_expressions(graph: Graph) -> None:
    names = [name for name, op in graph.operators.items() if only_spark_knows(op)]
    if names:
        raise ConfigError(f"{names[0]!r} is made of Spark expressions.", cure="Leave --local out.")


def _tell_failed_tasks(session: Any) -> None:
    """Our sessions keep quiet about tasks that are tried again; here it shows that a kill was felt."""
    log4j = session._jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.executor.Executor", log4j.Level.ERROR)
    log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.TaskSchedulerImpl", log4j.Level.ERROR)


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)
