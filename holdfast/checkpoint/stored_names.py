"""What things are called in a store: entries, keys, records. In one place, so that no two things get one name.

Operators and regions are called what `holdfast.ids.is_safe_name` allows: letters, digits, `_`, `-`, `.`. What separates
their names here is none of these, so that every name can be read in one way only.

    entry     <operator>@<region>                     of an operator, and of the element it begins
              <operator>@~autonomous                  of an operator outside of regions
              <element>@~entered                      what entered a region there and no epoch covers (docs/formats/entered.md)
    key       e<epoch>-a<attempt>+<operator>          its state in a region; +<operator>~<kind>: of its variables
              e<number>-t<wall>+<operator>            the same outside of regions
              e<epoch>-a<attempt>=<file>              a batch on its way
              <segment>                               as state/keyed/segment.py names them: no `+`, `=`, `~`
    record    controller.<region>   savepoints.<region>   restore-speed.<region>
              schema.<source>   state.<operator outside of regions>
              books   account.<element outside of regions>   (before: positions.<element>)   budgets   persisted
              journal.<element of a region in mode independent>

Earlier versions wrote `-` for `+` and `=`, and `<operator>@autonomous` for operators outside of regions. Both are read:
references hold whole names.
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast.checkpoint.blobs import BlobRef, unusable
from holdfast.ids import Epoch, RegionName, is_safe_name
from holdfast.store.base import Store

OUTSIDE = "~autonomous"
"""What stands for the region outside of regions. No region can be called so."""
_ENTERED = "~entered"
_OUTSIDE_BEFORE = RegionName("autonomous")


# --- entries ---
def entry_of(region: RegionName | None, operator: str) -> str:
    """The entry of an operator's state; None: outside of regions."""
    return f"{operator}@{OUTSIDE if region is None else region}"


def entered_entry(element: str) -> str:
    """Where batches lie that entered a region at an element."""
    return f"{element}@{_ENTERED}"


def entered_elements(store: Store) -> list[str]:
    """Elements, of this program and of earlier ones, that have such an entry."""
    parts = [entry.partition("@") for entry in store.entries()]
    return [element for element, _, place in parts if place == _ENTERED]


def entered_key(run: int, number: int) -> str:
    """One write of such batches. With `=<file>` behind it: a file of one of them."""
    return f"r{run:010d}-n{number:010d}"


def own_entries(operator: str) -> tuple[str, str]:
    """Where the state of an operator outside of regions may lie: the entry of now, and that of earlier versions."""
    return entry_of(None, operator), entry_of(_OUTSIDE_BEFORE, operator)


def region_of(entry: str) -> RegionName | None:
    """The region whose state an entry holds. None: of an operator outside of regions, or nothing of ours."""
    region = entry.partition("@")[2]
    return RegionName(region) if is_safe_name(region) else None


def entries_of(store: Store, region: RegionName) -> list[str]:
    """The entries that belong to a region."""
    found = [entry for entry in store.entries() if region_of(entry) == region]
    if region != _OUTSIDE_BEFORE:
        return found
    return [entry for entry in found if not _is_own(store, entry.partition("@")[0])]


def _is_own(store: Store, operator: str) -> bool:
    """Whether an operator has checkpoints of its own. Those of earlier versions look like the state of a region."""
    return store.load_record(record_name("state", operator)) not in (None, b"null")


# --- keys ---
def state_key(epoch: Epoch, attempt: int, operator: str) -> str:
    """An operator's state in a region. With `~<kind>` behind it: a pair of its variables."""
    return f"e{epoch}-a{attempt}+{operator}"


def own_key(number: int, wall: float, operator: str) -> str:
    """The same outside of regions."""
    return f"e{number}-t{wall:.6f}+{operator}"


def batch_key(epoch: Epoch, attempt: int, file: str) -> str:
    """A file of a batch that is on its way."""
    return f"e{epoch}-a{attempt}={file}"


# --- records ---
RecordOf = Literal[
    "controller", "savepoints", "restore-speed", "schema", "account", "positions", "state", "journal"
]
"""Of regions: how far the controller is, savepoints, what restores taught. Of sources: the schema. Of elements outside of
regions: the account and where sources are; earlier versions wrote positions instead. Of operators outside of regions: the
checkpoint; `null`: it has none."""
OWN_PREFIX = "state."
BOOKS = "books"
"""The accounts of all elements outside of regions, as of the beginning or the end of a run."""


BUDGETS = "budgets"
"""Loss budgets: what people accepted, and which streams became consistent because of one, as JSON."""
PROGRAM = "program"
"""What the operators of the last run's program were told, for people (`compiler/description.py`), as JSON."""


def record_name(of: RecordOf, name: str) -> str:
    return f"{of}.{name}"


# --- pairs of variables: `e<epoch>-a<attempt>-<operator>~<kind>`, see docs/formats/incremental.md -------------------------

NON, INCR, INDEX = "non", "incr", "index"

PAIR_KEY = re.compile(r"e(\d+)-.*~(non|incr|index)")


def kind_of(ref: BlobRef) -> tuple[Epoch, str]:
    """(epoch, kind) of a pair, by its key."""
    found = PAIR_KEY.fullmatch(ref.key)
    if found is None:
        raise unusable(f"{ref.entry}/{ref.key} is listed as a pair of variables, but has no such name.")
    return Epoch(int(found[1])), found[2]
