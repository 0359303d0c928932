"""holdfast: stream graphs on Spark in which you say, per subgraph, what a failure may cost."""

from __future__ import annotations

from holdfast.language.topology import set_runner
from holdfast.runtime.api import SparkRunner

set_runner(SparkRunner())
