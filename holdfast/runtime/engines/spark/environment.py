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
    _use_recorded_java()


def _use_recorded_java() -> None:
    """Set-up records a Java it found outside of PATH beside the interpreter's environment."""
    recorded = Path(sys.prefix) / "holdfast-java-home"
    if "JAVA_HOME" not in os.environ and recorded.is_file():
        os.environ["JAVA_HOME"] = recorded.read_text().strip()
