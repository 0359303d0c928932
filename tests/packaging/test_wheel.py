"""The wheel: what it asks for, and that it alone runs the program of the README."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.store.urls import open_store

ROOT = Path(__file__).parents[2]


def build_wheel(into: Path) -> Path:
    options = ["--no-deps", "--no-build-isolation", "--no-input", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "-w", into, ROOT], check=True, timeout=200
    )
    (wheel,) = into.glob("holdfast-*.whl")
    return wheel


def test_plots_and_redis_are_extras_that_nobody_has_to_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=\[]", each)[0] for each in project["dependencies"]}
    assert not needed & {"redis", "matplotlib", "adbc-driver-postgresql"}
    assert project["optional-dependencies"]["plots"] == ["matplotlib"]
    assert project["optional-dependencies"]["redis"] == ["redis"]


def test_a_store_whose_client_is_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "redis" or "store.redis" in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError) as refused:
        open_store("redis://127.0.0.1:1/0?name=job")
    assert refused.value.cure == "pip install 'holdfast[redis]'"


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_fresh_environment_with_only_the_wheel_runs_the_program_of_the_readme(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path / "wheels")
    with zipfile.ZipFile(wheel) as packed:
        assert any(name.endswith("licenses/LICENSE") for name in packed.namelist())
    venv.create(tmp_path / "fresh", with_pip=True)
    commands = tmp_path / "fresh" / "bin"
    subprocess.run([commands / "pip", "install", "--quiet", "--no-input", wheel], check=True, timeout=900)
    absent = "import importlib.util as i; print([n for n in ('redis', 'matplotlib') if i.find_spec(n)])"
    assert subprocess.check_output([commands / "python", "-c", absent], text=True).strip() == "[]"

    program = re.search(r"```python\n(import holdfast.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert program is not None
    (tmp_path / "shop.py").write_text(program[1])
    (tmp_path / "orders").mkdir()
    orders = [("ada", 1000), ("bob", 300), ("ada", 250)]
    rows = [{"id": number, "customer": who, "cents": cents} for number, (who, cents) in enumerate(orders)]
    (tmp_path / "orders" / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    without = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    around = {name: value for name, value in os.environ.items() if name not in without}
    command = [commands / "holdfast", "run", "shop.py", "--store", "store", "--until", "available"]
    subprocess.run(command, cwd=tmp_path, env=around, check=True, timeout=200)
    lines = [line for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    found = {row["customer"]: (row["orders"], row["spent"]) for row in map(json.loads, lines)}
    assert found == {"ada": (2, 1250), "bob": (1, 300)}
