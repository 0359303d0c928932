"""The house rules of the repository: documented, small, and free of the machine it was written on."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

LONGEST_FILE = 400
LONGEST_FUNCTION = 80

MACHINE_PATH = re.compile(r"(?<![\w.])/(work|farm|root)/")
REGISTRY_HOST = re.compile(
    r"\bpypi\.(org|python\.org)|\bpythonhosted\.org|\b[\w-]+\.debian\.(org|net)\b|\b[\w-]+\.ubuntu\.com\b",
    re.IGNORECASE,
)

# What a directory listing must leave out when git cannot say what belongs to the repository.
NOT_OURS = {
    ".git",
    ".venv",
    ".venv-compat",
    "__pycache__",
    "build",
    "dist",
    "tmp",
    "spark-warehouse",
    "metastore_db",
}


def modules() -> list[Path]:
    found = sorted((ROOT / "holdfast").rglob("*.py"))
    assert found, "found no modules under holdfast/"
    return found


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def report(rule: str, broken: list[str]) -> str:
    return f"{rule}:\n  " + "\n  ".join(broken)


def repository_files() -> Iterator[Path]:
    """The files git tracks or would track; without git, all that are not evidently made."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
        paths = [ROOT / line for line in listing.split("\0") if line]
    except (OSError, subprocess.CalledProcessError):
        paths = [path for path in ROOT.rglob("*") if not made(path.relative_to(ROOT))]
    yield from sorted(path for path in set(paths) if path.is_file() and not path.is_symlink())


def made(path: Path) -> bool:
    return any(part in NOT_OURS or part.endswith(("_cache", ".egg-info")) for part in path.parts)


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name(path)}:{number}: {found.group(0)}"
        for path in repository_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if (found := pattern.search(line))
    ]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        f"{name(path)}:1" for path in modules() if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert not silent, report("every module needs a docstring", silent)


def test_no_file_is_too_long_to_read() -> None:
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in modules()}
    long = [f"{name(path)}: {length} lines" for path, length in lengths.items() if length > LONGEST_FILE]
    assert not long, report(f"a file may have at most {LONGEST_FILE} lines", long)


def test_no_function_is_too_long_to_follow() -> None:
    long = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    long.append(f"{name(path)}:{node.lineno}: {node.name} has {length} lines")
    assert not long, report(f"a function may have at most {LONGEST_FUNCTION} lines", long)


def test_no_file_names_a_path_of_some_machine() -> None:
    found = lines_matching(MACHINE_PATH)
    assert not found, report("these lines name a path that exists on one machine only", found)


def test_no_file_names_a_package_registry() -> None:
    found = lines_matching(REGISTRY_HOST)
    assert not found, report("these lines name the host of a package registry", found)


def test_the_search_for_machine_paths_and_registries_finds_them() -> None:
    for top in ("work", "farm", "root"):
        assert MACHINE_PATH.search(f"cd /{top}/x")
        assert not MACHINE_PATH.search(f"cd home/{top}/x")
    for host in (("pypi", "org"), ("files.pythonhosted", "org"), ("deb.debian", "org")):
        assert REGISTRY_HOST.search("https://" + ".".join(host) + "/x")


@pytest.mark.fault("SR16")
def test_the_lock_pins_and_hashes_every_requirement() -> None:
    entries = re.sub(r"\\\n", " ", (ROOT / "requirements.txt").read_text("utf-8")).splitlines()
    entries = [line for line in entries if line.strip() and not line.startswith("#")]
    loose = [line for line in entries if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)]
    assert entries, "requirements.txt is empty"
    assert not loose, report("requirements.txt has lines that pin or hash nothing", loose)


@pytest.mark.parametrize("script", ["scripts/setup.sh", ".ci/run"])
def test_scripts_can_be_run_and_stop_at_the_first_failure(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111, f"{script} is not executable"
    assert "set -euo pipefail" in path.read_text("utf-8"), f"{script} goes on after a failure"
