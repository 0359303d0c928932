"""Logs: durable, ordered, indexed streams of rows that many can read, from any place up to the live edge.

    log = Log("clicks")
    log.append([{"user": "ann", "page": 3}])
    for batch in log.reader(from_="beginning"): ...

A log has partitions, each with its own order. A partition is a row of segments: the last one, the *tail*, grows frame by
frame; the others are immutable, and small ones are merged into Parquet. One process at a time may write.

    format/       bytes: frames, tails, Parquet segments, names, index
    machines/     pure: the window of a writer, the way of a reader, what frames mean, what may go
    log.py        what users hold; appender.py and reader.py are its two halves, upkeep.py merges and trims
"""
