"""Running a plan: element loops, region controllers, recovery. Spark appears in `runtime/engines/spark` only.

batch.py            what travels between elements: handles of materialised rows
connection.py       bounded FIFO of batches and markers
engine.py           the job-runner seam: what a step asks of Spark, or of plain Arrow in `local.py`
executor/           what runs beside the data: the logic of each keyed operator, over Arrow tables
spark/              sessions, stateless operators, keyed stages, placement of state
operators.py        run-time side of sources, sinks and stateful operators: pin, upload, restore
rows.py             rows as Python operators see them
worker.py           one element's work: steps, pins, restores; evaluation.py is one step under way
loop.py             one thread per element in a region; loop_autonomous.py outside of regions
region.py           one thread per region: performs what the pure controller commands
epochs.py           a region's epochs in the store; verify.py looks before a restarted driver changes anything
failures.py         what a failure means: fatal, no space, one sentence for people
live.py             volatile directories, swept after a run's death
metrics.py reporter.py counting.py    what people see
job.py              a run: ownership, wiring, status, stop; api.py is what `topology.run` calls
"""
