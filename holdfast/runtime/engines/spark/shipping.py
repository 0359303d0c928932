"""How a program's own code comes to the executors, as with `spark-submit`: what the program file itself defines travels by
value, with whatever is sent to tasks; modules and packages beside it are shipped as files, to be imported there. Other files of
packages go with them, for `importlib.resources`."""

from __future__ import annotations

import logging
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVES = (".zip", ".egg")
LARGEST_DATA = 16 << 20
"""Bytes of a package's file, not Python, that is shipped unasked."""

logger = logging.getLogger("holdfast.run")


def check_files(files: Sequence[str]) -> list[Path]:
    """The files of `--py-files`, separated by commas or given one by one. This process can import them from now on."""
    paths = _paths(files)
    for path in paths:
        if not path.is_file() or path.suffix not in (".py", *ARCHIVES):
            raise ConfigError(
                f"--py-files names {path}, which is no file that Python can import.",
                cure="Name .py, .zip or .egg files that exist.",
            )
        sys.path.insert(0, str(path.resolve() if path.suffix in ARCHIVES else path.resolve().parent))
    return paths


def check_data(files: Sequence[str]) -> list[Path]:
    """The files of `--files`. Tasks find each by its name, so no two may have the same."""
    paths = _paths(files)
    for number, path in enumerate(paths):
        if not path.is_file():
            raise ConfigError(f"--files names {path}, which is no file.", cure="Name files that exist.")
        if path.name in {other.name for other in paths[:number]}:
            raise ConfigError(
                f"--files names two files called {path.name}.", cure="Rename one: tasks find files by name."
            )
    return paths


def _paths(given: Sequence[str]) -> list[Path]:
    return [Path(name.strip()) for text in given for name in text.split(",") if name.strip()]


@contextmanager
def shipped(
    session: SparkSession, program: Path, files: Sequence[Path], data: Sequence[Path] = ()
) -> Iterator[None]:
    """Within it tasks know the program's code, and find the files `data` with `SparkFiles.get(name)`. The program is loaded
    already, under its file's name."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[program.stem])
    for file in files:
        session.sparkContext.addPyFile(str(file.resolve()))
    for file in data:
        session.sparkContext.addFile(str(file.resolve()))
    # Executors fetch the archive from here whenever one of them starts.
    with tempfile.TemporaryDirectory(prefix="holdfast-program-") as directory:
        session.sparkContext.addPyFile(str(_archive(program.resolve(), Path(directory))))
        yield


def _archive(program: Path, directory: Path) -> Path:
    made = directory / f"{program.stem}-modules.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for file in _modules_beside(program):
            archive.write(file, file.relative_to(program.parent).as_posix())
    return made


def _modules_beside(program: Path) -> Iterator[Path]:
    """The modules in the program's directory, itself included, and all that is in its packages."""
    yield from sorted(program.parent.glob("*.py"))
    for package in sorted(found.parent for found in program.parent.glob("*/__init__.py")):
        yield from (path for path in sorted(package.rglob("*")) if _is_shipped(path, package))


def _is_shipped(path: Path, package: Path) -> bool:
    inside = path.relative_to(package).parts
    if not path.is_file() or "__pycache__" in inside or any(part.startswith(".") for part in inside):
        return False
    if path.suffix == ".py" or path.stat().st_size <= LARGEST_DATA:
        return True
    logger.warning(
        "%s is not shipped to the executors: it is large. If tasks need it, name it in --files.", path
    )
    return False
