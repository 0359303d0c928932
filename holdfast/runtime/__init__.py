"""Running a plan: element loops, region controllers, recovery. Spark appears in `runtime/spark` only.

batch.py       what travels between elements: handles of materialised rows
connection.py  bounded FIFO of batches and markers
engine.py      the job-runner seam: what a step asks of Spark, or of plain Arrow in `local.py`
operators.py   run-time side of sources, sinks and stateful operators: pin, upload, restore
worker.py      one element's step: operators evaluated in order
loop.py        one thread per element in a region; loop_autonomous.py outside of regions
controller.py  one thread per region: performs what the pure controller commands
job.py         a run: ownership, wiring, status, stop
"""
