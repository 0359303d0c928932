"""Child of test_spark_matrix_kills: a session on a cluster, in which it runs one cell of the matrix after another.

matrix_cluster_program.py MASTER; a line of its input is a JSON list [TOPOLOGY, MODE, DEATH, DIRECTORY], a line of its output what became
of it. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import matrix_deaths
import matrix_program as program

from holdfast.runtime.engines.spark.session import make_session

TESTS = Path(__file__).parents[1]
ANSWER = "answer "


def main(master: str) -> None:
    paths = os.pathsep.join(map(str, (TESTS.parent, TESTS, TESTS / "spark")))
    settings = {
        "spark.driver.memory": "1g",
        "spark.executorEnv.PYTHONPATH": paths,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    session = make_session("matrix", master, settings)
    session.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        topology, mode, death, here = json.loads(line)
        watch = matrix_deaths.deadly(death, Path(here))
        try:
            made = program.build(topology, mode, here, watch)
            made.run(session, store=f"file:{here}/store", until="available")
            told = "ended well"
        except Exception as error:
            told = repr(error)
        print(ANSWER + told.replace("\n", " "), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
