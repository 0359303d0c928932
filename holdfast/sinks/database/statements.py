"""The statements of a sink, the same for all databases: standard SQL with ON CONFLICT. Pure.

stage:  table's columns, __hf_writer [, __hf_deletes] [, __hf_step, __hf_source, __hf_ordinal, __hf_row]
folded: table's columns [, __hf_deletes]; one row per key, the last one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.sinks.database.columns import DELETES, ORDER, WRITER

LEDGER = "holdfast_ledger"
LEDGER_COLUMNS = "topology text NOT NULL, sink text NOT NULL, target text NOT NULL, job text NOT NULL, region text NOT NULL, epoch bigint NOT NULL, token bigint NOT NULL, written text NOT NULL, PRIMARY KEY (topology, sink, target)"


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a constant."""
    return "'" + text.replace("'", "''") + "'"


def names(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))


def writers_clause(writers: Sequence[int]) -> str:
    """Which staged rows count: those of the attempts that won."""
    return f"{quoted(WRITER)} IN ({', '.join(map(str, writers))})"


@dataclass(frozen=True, slots=True)
class Move:
    """How staged rows get into a table. Names of tables are quoted, with their schema. `casts`: column → type of the table,
    where the database would not convert by itself."""

    target: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    has_deletes: bool = False
    casts: Mapping[str, str] = field(default_factory=dict)

    def fold(self, stage: str, folded: str, writers: Sequence[int]) -> str:
        """The last row of each key, as a table of its own."""
        kept = [*self.columns, *([DELETES] if self.has_deletes else [])]
        order = ", ".join(f"{quoted(name)} DESC" for name in ORDER)
        return (
            f"CREATE TABLE {folded} AS SELECT {names(kept)} FROM (SELECT {names(kept)}, row_number() OVER "
            f"(PARTITION BY {names(self.key)} ORDER BY {order}) AS __hf_back FROM {stage} "
            f"WHERE {writers_clause(writers)}) AS ranked WHERE __hf_back = 1"
        )

    def apply(self, staged: str, writers: Sequence[int] = ()) -> list[str]:
        """What moves the rows: of the writers from a stage, or all folded ones. Deletes come first, so that what they free
        can be taken."""
        if not self.key:
            return [self._insert(staged, writers_clause(writers))]
        upsert = f"{self._insert(staged, f'NOT {quoted(DELETES)}' if self.has_deletes else '1 = 1')} {self._conflict()}"
        return [self._delete(staged), upsert] if self.has_deletes else [upsert]

    def selected(self, columns: Sequence[str]) -> str:
        """Staged columns in the types of the table."""
        return ", ".join(self._cast(name) for name in columns)

    def _cast(self, name: str) -> str:
        kind = self.casts.get(name)
        return quoted(name) if kind is None else f"CAST({quoted(name)} AS {kind})"

    def _insert(self, staged: str, where: str) -> str:
        return (
            f"INSERT INTO {self.target} ({names(self.columns)}) SELECT {self.selected(self.columns)} "
            f"FROM {staged} WHERE {where}"
        )

    def _conflict(self) -> str:
        others = [name for name in self.columns if name not in self.key]
        if not others:
            return f"ON CONFLICT ({names(self.key)}) DO NOTHING"
        changes = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        return f"ON CONFLICT ({names(self.key)}) DO UPDATE SET {changes}"

    def _delete(self, staged: str) -> str:
        return (
            f"DELETE FROM {self.target} WHERE ({names(self.key)}) IN "
            f"(SELECT {self.selected(self.key)} FROM {staged} WHERE {quoted(DELETES)})"
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the ledger: the newest epoch of a job that a sink has shown in a table. Epoch 0: none yet."""

    topology: str
    sink: str
    target: str
    job: str
    region: str
    epoch: int
    token: int

    def where(self) -> str:
        pairs = (("topology", self.topology), ("sink", self.sink), ("target", self.target))
        return " AND ".join(f"{name} = {literal(value)}" for name, value in pairs)

    def read(self, ledger: str) -> str:
        return f"SELECT job, region, epoch, token FROM {ledger} WHERE {self.where()}"

    def write_new(self, ledger: str) -> str:
        """Insert the row, if there is none."""
        return f"{self._insert(ledger)} DO NOTHING"

    def write(self, ledger: str) -> str:
        """Insert or replace the row."""
        changed = ("job", "region", "epoch", "token", "written")
        return f"{self._insert(ledger)} DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in changed)}"

    def _insert(self, ledger: str) -> str:
        texts = (self.topology, self.sink, self.target, self.job, self.region)
        values = ", ".join([*map(literal, texts), str(self.epoch), str(self.token), "CURRENT_TIMESTAMP"])
        return (
            f"INSERT INTO {ledger} (topology, sink, target, job, region, epoch, token, written) VALUES ({values}) "
            "ON CONFLICT (topology, sink, target)"
        )
