"""Running a plan: element loops, region controllers, recovery. Spark appears in `runtime/engines/spark` only.

Where to begin:

api.py        what `topology.run`, `submit` and `explain` do
job.py        one run: its life, its status, its end
wiring.py     the parts of a run, made and connected
element/      one element at work: loop, life, steps
runs/         operators with state at work
region/       one region at work: epochs, resets
links/        batches and connections
engines/      what moves rows
"""
