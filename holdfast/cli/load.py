"""Finding a topology in a user's file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.language.topology import Topology


def load_topology(target: str) -> Topology:
    """The topology in `FILE.py` or `FILE.py:NAME`. A session must exist: Column expressions need one."""
    path_text, name = _split(target)
    path = Path(path_text)
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path_text}.", cure="Give the path of a Python file with a topology."
        )
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Topology)}
    if name is not None:
        if name not in found:
            raise ConfigError(f"{path_text} has no topology named {name!r}.", cure=_offer(found))
        return found[name]
    if len(found) != 1:
        raise ConfigError(
            f"{path_text} has {len(found)} topologies; exactly one is needed.", cure=_offer(found)
        )
    return next(iter(found.values()))


def _split(target: str) -> tuple[str, str | None]:
    head, colon, tail = target.rpartition(":")
    return (head, tail) if colon and tail.isidentifier() else (target, None)


def _offer(found: dict[str, Topology]) -> str:
    if not found:
        return 'Make one at module level: topology = holdfast.Topology("name").'
    return "Name one: " + ", ".join(f":{name}" for name in found) + "."
