"""A sample of the suite against each version of Spark that holdfast takes: `make compat`, or `scripts/compat.py 4.1` for one of them.

Each version has an environment of its own, `.venv-compat/4.1`, with everything else as in requirements.txt; the newest is the one of
`.venv`. Ends with 1 if a test failed, or if one that must run did not.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
import venv
import xml.etree.ElementTree as xml
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-compat"
RESULTS = ROOT / "build" / "compat"
LOCK = ROOT / "requirements.txt"

OLDER = {
    "4.0": ("4.0.5", "a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6"),
    "4.1": ("4.1.4", "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"),
    "4.2": ("4.2.1", "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0"),
}
"""Minor version → (release, SHA-256 of its archive)."""
NEWEST = "4.3"

SAMPLE = {
    "stateless verbs, expressions": "tests/spark/test_spark_stateless.py",
    "aggregates": "tests/spark/test_spark_aggregates.py",
    "windows": "tests/spark/test_spark_windows.py",
    "joins": "tests/spark/test_spark_joins.py",
    "keyed Python": "tests/spark/test_spark_keyed_python.py",
    "errors of users": "tests/spark/test_spark_user_errors.py",
    "small steps": "tests/spark/test_spark_small_steps.py",
    "the short way": "tests/spark/test_spark_short_way.py",
    "lookups, calls": "tests/spark/test_spark_enrichment.py",
    "the end of the input": "tests/spark/test_spark_ends.py",
    "sources of files": "tests/sources/test_source_files_spark.py",
    "sinks": "tests/sinks/test_sinks_spark.py",
    "state as frames": "tests/spark/test_spark_read_state.py",
    "logs, format holdfast-log": "tests/spark/test_spark_logs.py",
    "shipping to executors": "tests/spark/test_spark_shipping.py",
    "kills": "tests/spark/test_spark_kills.py",
}
"""Feature → the tests of it that touch Spark."""


@dataclass(frozen=True)
class Outcome:
    """Of one file with one version."""

    passed: int
    failed: int
    skipped: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.failed and self.passed > 0

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return (
            f"{self.passed} passed{skipped}"
            if self.is_good
            else f"{self.failed} FAILED of {self.failed + self.passed}"
        )


def environment(minor: str) -> Path:
    """The interpreter of an environment with that version, which is made if it is not there."""
    if minor == NEWEST:
        return ROOT / ".venv" / "bin" / "python"
    release, digest = OLDER[minor]
    lock = re.sub(
        r"^pyspark==.*\n(?:    --hash=.*\n)+",
        f"pyspark=={release} --hash=sha256:{digest}\n",
        LOCK.read_text(),
        flags=re.M,
    )
    place = ENVIRONMENTS / minor
    python, stamp = place / "bin" / "python", place / ".stamp"
    wanted = hashlib.sha256((lock + str(ROOT)).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"compat: making an environment with Spark {release}", file=sys.stderr, flush=True)
    venv.create(place, clear=True, with_pip=True)
    (place / "requirements.txt").write_text(lock)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet"]
    subprocess.run([*pip, "--require-hashes", "-r", place / "requirements.txt"], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT], check=True)
    stamp.write_text(wanted)
    return python


def outcomes(minor: str, python: Path) -> dict[str, Outcome]:
    """By file. One process for all: they share a session, as in `make test`."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    report, said = RESULTS / f"{minor}.xml", RESULTS / f"{minor}.txt"
    report.unlink(missing_ok=True)
    around = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "HOLDFAST_SAMPLE": "1",
    }
    with said.open("w") as out:
        command = [
            python,
            "-m",
            "pytest",
            *SAMPLE.values(),
            "-q",
            f"--junit-xml={report}",
            "-p",
            "no:cacheprovider",
        ]
        subprocess.run(command, cwd=ROOT, env=around, stdout=out, stderr=subprocess.STDOUT, check=False)
    if not report.is_file():
        raise SystemExit(f"compat: the tests with Spark {minor} did not end: see {said}")
    cases = list(xml.parse(report).getroot().iter("testcase"))
    return {file: outcome([case for case in cases if is_of(case, file)]) for file in SAMPLE.values()}


def is_of(case: xml.Element, file: str) -> bool:
    module = file.removesuffix(".py").replace("/", ".")
    return f"{case.get('classname')}.".startswith(f"{module}.") or (case.get("name") == module)


def outcome(cases: list[xml.Element]) -> Outcome:
    bad = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(
        len(cases) - bad - skipped, bad, skipped, sum(float(case.get("time", 0)) for case in cases)
    )


def main(wanted: list[str]) -> int:
    versions = wanted or [*OLDER, NEWEST]
    found, took = {}, {}
    for minor in versions:
        python = environment(minor)
        began = time.monotonic()
        found[minor] = outcomes(minor, python)
        took[minor] = time.monotonic() - began
        print(f"compat: Spark {minor} in {took[minor]:.0f} s", file=sys.stderr, flush=True)
    lines = [["", *(OLDER[minor][0] if minor in OLDER else f"{minor} (.venv)" for minor in versions)]]
    lines += [[feature, *(str(found[minor][file]) for minor in versions)] for feature, file in SAMPLE.items()]
    lines += [["seconds", *(f"{took[minor]:.0f}" for minor in versions)]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    return int(not all(each.is_good for of in found.values() for each in of.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
