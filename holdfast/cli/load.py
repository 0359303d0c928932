"""Finding a topology in a user's file."""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from holdfast.cli.program import program_of
from holdfast.errors import ConfigError, HoldfastError, TopologyError
from holdfast.language.topology import Topology

logger = logging.getLogger("holdfast.run")

StartSpark = Callable[[], object]


def load_topology(target: str, start_spark: StartSpark | None = None) -> Topology:
    """The topology in `FILE.py` or `FILE.py:NAME`. `start_spark` is called if the program turns out to need a session
    while it is loaded, as Column expressions do; the program is then loaded from its beginning."""
    path, name = program_of(target)
    module = _load(path, start_spark)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Topology)}
    if name is not None:
        if name not in found:
            raise ConfigError(f"{path} has no topology named {name!r}.", cure=_offer(found))
        return found[name]
    if len(found) != 1:
        raise ConfigError(f"{path} has {len(found)} topologies; exactly one is needed.", cure=_offer(found))
    return next(iter(found.values()))


def _load(path: Path, start_spark: StartSpark | None) -> ModuleType:
    directory = str(path.resolve().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return _execute(path)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        if start_spark is None or not _is_from_spark(error):
            raise _broken(path, error) from error
    start_spark()
    try:
        return _execute(path)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:
        raise _broken(path, error) from error


def _execute(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.", cure="Give the path of a file that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _is_from_spark(error: BaseException) -> bool:
    """True if PySpark itself raised it: without a session it can do nothing but complain, each time in another way."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "pyspark" in Path(frames[-1].filename).parts


def _broken(path: Path, error: BaseException) -> TopologyError:
    """The program cannot be loaded: where, and why, in one sentence."""
    logger.debug("%s cannot be loaded", path, exc_info=error)
    cure = "Mend the program; --log-level debug shows the whole traceback."
    if isinstance(error, SyntaxError):
        return TopologyError(f"{error.filename}, line {error.lineno}: {error.msg}.", cure="Mend the program.")
    if isinstance(error, SystemExit):
        what = f"the program ends itself (exit code {error.code})"
        cure = 'Put what is not the topology below `if __name__ == "__main__":`.'
    else:
        said = str(error).strip().splitlines()
        what = f"{type(error).__name__}{': ' + said[0] if said else ''}"
    here = path.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if here in Path(frame.filename).resolve().parents]
    where = f"{mine[-1].filename}, line {mine[-1].lineno}" if mine else str(path)
    return TopologyError(f"{where}: {what.rstrip('.')}.", cure=cure)


def _offer(found: dict[str, Topology]) -> str:
    if not found:
        return 'Make one at module level: topology = holdfast.Topology("name").'
    return "Name one: " + ", ".join(f":{name}" for name in found) + "."
