"""The region protocol as pure state machines: events in, commands out. No Spark, no clock, no I/O.

shape.py       which elements and links a region has
messages.py    every event and command, as frozen values
phases.py      legal moves as data, and the story of a machine when one is illegal
controller.py  one per region: establishes epochs, resets, parks
element.py     one per element: markers in, drain / pin / restore out
"""
