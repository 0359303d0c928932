"""Breaking things on purpose.

shapes.py     random regions and the lanes rows take through them
store.py      the simulated outside world: manifests, record, sinks' visible output
world.py      elements, links and the commands of the real protocol machines, performed in memory
checkers.py   the invariants, judged apart from what they judge
faults.py     which faults a schedule has, and when they strike
outcome.py    figures of a schedule, or the seed of its failure
simulator.py  picks what happens next by seed; `python -m holdfast.chaos.simulator --seed N` tells one run

mixed.py      the same for elements outside of regions, alone or around a region: what a kill costs is counted
mixed_*.py    its graphs, elements, connections, region, books, store, faults and checkers
"""
