"""What Spark reads from the environment. Imports nothing of it: commands that refuse do not wait for that."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def prepare_environment(master: str) -> None:
    """What Spark reads from the environment: the workers' Python, Java, the address."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java = recorded_java()
    if java is not None:
        os.environ.setdefault("JAVA_HOME", java)


def recorded_java() -> str | None:
    """Set-up records a Java it found outside of PATH beside the interpreter's environment."""
    recorded = Path(sys.prefix) / "holdfast-java-home"
    return recorded.read_text().strip() if recorded.is_file() else None
