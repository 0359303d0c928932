"""Rules of security that hold for the whole code: no shell, no unpickling of what is stored, sessions that open nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = Path(__file__).parents[1] / "holdfast"
UNPICKLES = {
    "runtime/engines/apart.py": "what a child process of this run answers by a pipe of its own",
    "testing/store_races.py": "its own bytes, to see that writers of segments travel",
    "testing/source_conformance.py": "its own bytes, to see that readers travel",
    "testing/sink_conformance.py": "its own bytes, to see that writers travel",
}
"""Where bytes are unpickled, and whose they are. Nowhere else."""


def calls() -> Iterator[tuple[str, ast.Call, str]]:
    for path in sorted(CODE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield path.relative_to(CODE).as_posix(), node, ast.unparse(node.func)


@pytest.mark.fault("SR09")
def test_nothing_reaches_a_shell_and_no_text_is_run() -> None:
    for file, call, name in calls():
        where = f"{file}:{call.lineno}"
        assert name not in ("eval", "exec", "os.system", "os.popen", "subprocess.getoutput"), where
        assert not any(keyword.arg == "shell" for keyword in call.keywords), where


@pytest.mark.fault("SR01", "SR15")
def test_stored_bytes_are_never_unpickled() -> None:
    names = ("pickle.loads", "pickle.load", "cloudpickle.loads", "marshal.loads", "dill.loads")
    found = {file for file, _, name in calls() if name in names}
    assert found == set(UNPICKLES)


@pytest.mark.fault("SR10")
def test_sessions_that_holdfast_makes_open_no_interface() -> None:
    from holdfast.runtime.engines.spark.session import LOCAL_SETTINGS, SETTINGS

    assert SETTINGS["spark.ui.enabled"] == "false"
    assert SETTINGS["spark.ui.killEnabled"] == "false"
    assert LOCAL_SETTINGS["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.fault("SR11")
def test_sockets_of_local_sessions_lie_in_a_private_directory() -> None:
    from holdfast.runtime.engines.spark.session import SOCKETS, _sockets

    place = Path(_sockets({}, is_local=True)[SOCKETS])
    assert place.stat().st_mode & 0o777 == 0o700
    assert _sockets({SOCKETS: "/mine"}, is_local=True) == {}
    assert SOCKETS not in _sockets({}, is_local=False)
