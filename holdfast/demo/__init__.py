"""`holdfast demo`: an order and payment stream under real kills, judged per guarantee.

generate.py   seeded orders, payments and clicks as files      feeder.py     lets them arrive at a pace
topology.py   one topology, three guarantees                   driver.py     runs it in a process of its own
driver_process.py  a driver, its JVM and its log                 nemesis.py    whom to kill, and when
watch.py      what the store tells about the run               oracle.py     what must come out, without holdfast
verdict.py    what did come out, compared                      show.py       the live display and the tables
run.py        puts them together
"""
