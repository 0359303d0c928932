"""What can go wrong, by id: faults, rules of security, planted defects, and ways to judge. The ids are what tests name in
`@pytest.mark.fault("P04")`; `page.py` writes docs/reliability-catalogue.md from both.

A row that has no meaning here says why (`absent`). One that has, and that no test covers yet, says what is missing (`open`):
it may have no test, and whoever writes one takes the word away.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    what: str
    absent: str = ""
    open: str = ""


LMDB = "there is no LMDB: the embedded store is SQLite"

FAULTS: dict[str, tuple[Row, ...]] = {
    "Processes": (
        Row("P01", "a Python worker is killed while it works on rows"),
        Row("P02", "an idle Python worker is killed between steps"),
        Row("P03", "the daemon that forks the workers is killed"),
        Row("P04", "the user's code exits, or crashes the interpreter"),
        Row("P05", "the user's code never returns"),
        Row("P06", "a worker is stopped, replaced, and goes on"),
        Row("P07", "an executor is killed"),
        Row("P08", "the state of a worker is larger than the memory it may have (one that is killed for its memory dies as in P01)"),
        Row("P09", "the driver's Python is killed, its JVM may live on"),
        Row("P10", "the driver's JVM is killed"),
        Row("P11", "everything is killed at once"),
        Row("P12", "SIGTERM or Ctrl-C, at each failpoint"),
        Row("P13", "master and worker daemons of a standalone cluster are killed"),
        Row("P14", "a fork with what its parent had open"),
    ),
    "Bursts, and failures while recovering": (
        Row("B01", "many workers are killed in a short time"),
        Row("B02", "all executors are killed at once"),
        Row("B03", "executor, driver and Redis server are killed together"),
        Row("B04", "a kill at each step of a reset, and again in the next one"),
        Row("B05", "a reset that can never succeed"),
        Row("B06", "a kill while a region parks or is resumed"),
        Row("B07", "of two regions one fails for ever"),
        Row("B08", "a reset replays into another region through a log"),
        Row("B09", "a crash loop: many failures for each epoch, two hundred times"),
    ),
    "Writing": (
        Row("S01", "power is cut at any durable step of checkpoint, log or sink"),
        Row("S02", "fsync fails"),
        Row("S03", "fsync lies: what it acknowledged is gone after a power cut"),
        Row("S04", "rename fails, fails after it was done, or does nothing"),
        Row("S05", "a name is taken already"),
        Row("S06", "death between a rename and the sync of its directory"),
        Row("S07", "writes are cut short or interrupted"),
        Row("S08", "the disk is full, and has space again later"),
        Row("S09", "the disk of temporary files alone is full"),
        Row("S10", "no inodes, no quota, no descriptors"),
        Row("S11", "the volume becomes read-only in the middle of a run"),
        Row("S12", "the disk is slow, or stalls"),
        Row("S13", "a write of an earlier attempt arrives late"),
        Row("S14", "one of several asynchronous writes fails and the others go on"),
        Row("S15", "clean-up races with readers, restores and slow uploads"),
        Row("S16", "death in the middle of a clean-up or a trim"),
        Row("S17", "clean-up that trusts an old listing"),
        Row("S18", "strange and long names of files and directories"),
        Row("S19", "death at a roll of a log; empty and missing segments"),
    ),
    "Bytes at rest": (
        Row("C01", "any byte of any stored file is harmed"),
        Row("C02", "the newest checkpoint is damaged and sinks have shown it"),
        Row("C03", "the newest checkpoint is damaged and no sink has shown it"),
        Row("C04", "all checkpoints are damaged and the log is whole", absent="the published epoch is the truth; only eventual checkpoints are made from a log"),
        Row("C05", "the torn end of a log, and harm in its middle"),
        Row("C06", "a valid file of another job, region or epoch"),
        Row("C07", "an older copy of the store is put back"),
        Row("C08", "the identity is missing beside data"),
        Row("C09", "an epoch between others is missing"),
        Row("C10", "pages of the embedded database are harmed"),
        Row("C11", "bytes flip between memory and disk"),
        Row("C12", "checksums that only some files have", absent="every format has always had checksums; none can be switched off"),
    ),
    "Stores": (
        Row("K01", "the embedded store is full in the middle of a write"),
        Row("K02", "two processes enlarge the embedded store"),
        Row("K03", "the embedded store's writer is killed inside a transaction"),
        Row("K04", "readers of the embedded store die or sleep", absent=LMDB + ", whose readers hold nothing that outlives them"),
        Row("K05", "the disk under the embedded store is full"),
        Row("K06", "the lock is deleted, or the place cannot be written"),
        Row("K07", "the Redis server is killed at any moment"),
        Row("K08", "the Redis server comes back empty or older"),
        Row("K09", "the Redis log of commands ends inside a transaction"),
        Row("K10", "the Redis server has no memory left, or may evict"),
        Row("K11", "the Redis server does not make durable what it is told"),
        Row("K12", "the answer of a store is lost after it did what was asked"),
        Row("K13", "a Redis server is replaced by one that lacks the last writes"),
        Row("K14", "the store cannot be reached for a while"),
        Row("K15", "a wrong password or certificate"),
    ),
    "Owners, networks, clocks": (
        Row("D01", "two drivers start on one store at the same moment"),
        Row("D02", "a driver sleeps, is replaced, and wakes"),
        Row("D03", "the lease is deleted, or the clock jumps past its end"),
        Row("D04", "the process id of a dead owner belongs to somebody else"),
        Row("D05", "another program, or an edited one, on the same store"),
        Row("D06", "the store was changed and the output kept, or the other way round"),
        Row("N01", "workers cannot reach the store for a while"),
        Row("N02", "driver and executor cannot reach each other, and then can"),
        Row("N03", "late, doubled and reordered messages of the protocol"),
        Row("N04", "nodes are cut off one by one and come back in any order"),
        Row("N05", "the answer to a commit is lost, and the retry meets the next epoch"),
        Row("T01", "the wall clock jumps"),
        Row("T02", "clocks of processes differ"),
        Row("T03", "a restart days later"),
        Row("T04", "all timers are due at once"),
    ),
    "Input and operators": (
        Row("I01", "rows that are doubled, late, out of order or from the future"),
        Row("I02", "malformed input of every kind"),
        Row("I03", "a row that always fails its operator"),
        Row("I04", "a row that always ends its process"),
        Row("I05", "operators that are not deterministic"),
        Row("I06", "another seed of Python's hashes"),
        Row("I07", "another number of partitions after a restart"),
        Row("I08", "input that shrank, changed or vanished"),
        Row("I09", "a source that repeats its position, or goes back"),
        Row("I10", "a slow consumer behind a fast source"),
        Row("I11", "nearly all rows have one key"),
        Row("I12", "large state"),
        Row("I13", "operators that change rows or state after they gave them away"),
        Row("I14", "shuffle and repartition while executors die"),
        Row("I15", "epochs without rows, silent sources, and restarts there"),
    ),
    "Regions and sinks": (
        Row("R01", "an operator never lets an epoch complete"),
        Row("R02", "an operator emits after it acknowledged"),
        Row("R03", "epochs, resets and stops that meet"),
        Row("R04", "an operator's state is missing in a manifest"),
        Row("R05", "a manifest that holds parts of another epoch"),
        Row("R06", "state is restored and the source cannot seek"),
        Row("R07", "state is restored twice"),
        Row("R08", "best effort beside a region"),
        Row("R09", "kills where rows may be lost, counted against what was declared"),
        Row("R10", "a log of changes that leaves out a kind of change"),
        Row("R11", "state that is changed while it is iterated"),
        Row("X01", "a kill at each step of a sink's commit"),
        Row("X02", "a commit was done, and the record of it is lost"),
        Row("X03", "a sink's transaction expires before the commit is tried again", absent="prepared output is files, or rows of a staging table: neither expires"),
        Row("X04", "nobody knows whether a commit happened"),
        Row("X05", "a sink is away for a long time, again and again"),
        Row("X06", "a sink's ledger is lost or emptied"),
        Row("X07", "a user's sink reads a batch twice, or a part of it"),
        Row("X08", "readers look at the output while it is committed"),
        Row("X09", "of two sinks of an epoch the second fails"),
        Row("X10", "two attempts of a task write the same partition"),
    ),
    "Upgrades and strangers": (
        Row("U01", "stored checkpoints of every format that was ever written"),
        Row("U02", "a format that is newer than the program"),
        Row("U03", "death in the middle of an upgrade"),
        Row("U04", "state of another shape than the program's"),
        Row("U05", "other versions of Python and Spark, other locales and time zones"),
        Row("U06", "operators renamed, inserted, removed or exchanged"),
        Row("U07", "a hostile checkpoint"),
        Row("U08", "secrets in URLs, options, errors and state"),
    ),
}  # fmt: skip

RULES: tuple[Row, ...] = (
    Row("SR01", "what is stored is data; nothing of it is ever unpickled or run"),
    Row("SR02", "no unsafe way of reading follows a safe one that failed"),
    Row("SR03", "pickled state needs a keyed checksum", absent="state is never pickled, and there is no way to ask for it"),
    Row("SR04", "stored bytes are foreign: limits on length, depth and number come before they are believed"),
    Row("SR05", "the embedded database is never opened with what it brings along: schema compared, files private"),
    Row("SR06", "a Redis server is reached in private or with a password, under names of its own, with few commands"),
    Row("SR07", "names never lead out of a directory, links are not followed, archives are not unpacked by a library"),
    Row("SR08", "the page listens on the loopback interface, reads only, and asks for a token and its own name"),
    Row("SR09", "no upload of code, and no text of a user reaches a shell"),
    Row("SR10", "sessions that holdfast makes open no user interface and no kill links"),
    Row("SR11", "sockets are in private directories or need a secret"),
    Row("SR12", "secrets are in no message, log, event, manifest or picture of a URL"),
    Row("SR13", "what is stored is private whatever the umask, and deleted when it is said to be"),
    Row("SR14", "bounds on what bad input can cost: rows, letters, logs, time"),
    Row("SR15", "positions of sources are data of bounded size and are never evaluated"),
    Row("SR16", "dependencies are pinned with hashes, and nothing is fetched by an import"),
    Row("SR17", "what is unknown is refused: settings, formats, options, keys"),
    Row("SR18", "temporary files have names that nobody can foresee, in directories of their own"),
    Row("SR19", "texts from outside are neither markup nor commands: terminal, log, page"),
    Row("SR20", "who did what is recorded, and force has a name of its own"),
)  # fmt: skip

DEFECTS: tuple[Row, ...] = (
    Row("PD01", "a file is not synced"),
    Row("PD02", "a directory is not synced"),
    Row("PD03", "the manifest is published before what it refers to"),
    Row("PD04", "a sink is told to be done before it has committed"),
    Row("PD05", "what a sink remembers is dropped at a restart"),
    Row("PD06", "names of files without the attempt"),
    Row("PD07", "clean-up believes its memory"),
    Row("PD08", "an error of fsync is caught and ignored"),
    Row("PD09", "an older epoch is taken in silence"),
    Row("PD10", "partitions by Python's own hash"),
    Row("PD11", "state is restored and the source is not set back"),
    Row("PD12", "a reset leaves an operator out"),
    Row("PD13", "a log is trimmed before the epoch that lets it go is published"),
)  # fmt: skip

ORACLES: tuple[Row, ...] = (
    Row("O01", "rows of sinks equal those of a run without failures"),
    Row("O02", "numbered rows: none lost, none doubled, none out of order"),
    Row("O03", "results computed anew from the input by other code"),
    Row("O04", "the state of an epoch equals that of the same epoch without failures"),
    Row("O05", "whatever was acknowledged is there after recovery"),
    Row("O06", "a refusal names file and reason and changes nothing"),
    Row("O07", "it goes on within bounded time and leaves nothing behind"),
    Row("O08", "tolerated damage is told"),
    Row("O09", "losses stay within what is counted or declared"),
    Row("O10", "one owner at a time; what others write is refused"),
    Row("O11", "memory, disk and time are bounded"),
)  # fmt: skip

SECTIONS: dict[str, tuple[Row, ...]] = {
    **FAULTS,
    "Rules of security": RULES,
    "Planted defects": DEFECTS,
    "Ways to judge": ORACLES,
}
BY_ID: dict[str, Row] = {row.id: row for rows in SECTIONS.values() for row in rows}
