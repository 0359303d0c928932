"""The programs in `examples/` and the data they read, for benchmarks that measure them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from holdfast.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


def example(name: str) -> ModuleType:
    """The module `examples/NAME.py`, loaded anew: its topology is built by the benchmark."""
    path = ROOT / "examples" / f"{name}.py"
    if not path.is_file():
        raise ConfigError(f"there is no {path}.", cure="Run this benchmark in a checkout of the repository.")
    module_name = "example_" + name.replace("/", "_")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(name: str) -> Path:
    """A directory of the data that examples read."""
    shared = Path(os.environ.get("HOLDFAST_SHARED", ROOT.parent / "shared"))
    path = shared / "data" / name
    if not path.is_dir():
        raise ConfigError(f"there is no {path}.", cure="Let HOLDFAST_SHARED name the directory with data/.")
    return path
