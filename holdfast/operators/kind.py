"""What a kind of operator is: one object that answers whatever the compiler, the runtime and the tools ask about it.

A kind has no state; one object serves all operators of its kind, and is found from the class of their spec (`kinds.py`).
It derives from `KeyedKind`, or from `StatelessKind` (`stateless.py`); the runtime plays the other roles itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import pyarrow as pa

from holdfast.errors import TopologyError
from holdfast.ids import OperatorName
from holdfast.language.graph import Annotations, InputPort, Spec
from holdfast.language.operators.values import Ttl
from holdfast.operators.fingerprint import Fingerprint
from holdfast.operators.shared.logic import KeyedLogic
from holdfast.operators.shared.timed import TimedPort
from holdfast.operators.stored.rows import StoredRows

Role = Literal["source", "sink", "stateless", "keyed", "hosted"]
"""What the runtime does with an operator. State is kept by keyed ones (with the executors) and hosted ones (in the
driver)."""

Schemas = Sequence[pa.Schema]
S = TypeVar("S", bound=Spec)
S_co = TypeVar("S_co", bound=Spec, covariant=True)


class OperatorOf(Protocol[S_co]):
    """An operator whose spec is of one class: `language.graph.Operator`."""

    @property
    def name(self) -> OperatorName: ...
    @property
    def kind(self) -> str: ...
    @property
    def spec(self) -> S_co: ...
    @property
    def inputs(self) -> tuple[InputPort, ...]: ...
    @property
    def outputs(self) -> int: ...
    @property
    def annotations(self) -> Annotations: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """How many data ports an operator has; and what to say if it has others, or a control port."""

    least: int = 1
    most: int | None = 1
    wrong: str = "has several ports or a control port"
    cure: str = "Only Python operators (topology.operator) can; union the streams before."
    control: bool = False


@dataclass(frozen=True, slots=True)
class Ordering:
    """Why an operator needs the positions of its input rows. Cures where positions were lost on the way, and where rows
    come from several places; None: rows of several sources need no order among them."""

    why: str
    several: str | None
    lost: str = (
        "Keep positions: use only filter, select, with_columns, drop, rename, split and union before it."
    )


@dataclass(frozen=True, slots=True)
class Timing:
    """The event time of a stream: its column, the delay of each origin of the rows, and after how long of processing time
    nobody waits for one of them. No column: rows do not have the declared one any more. `direct`: every row that moved time on is in the stream, with its time."""

    column: str | None
    delays_us: Mapping[OperatorName, int]
    idle_us: int | None = None
    direct: bool = False
    tells: bool = True
    """A row tells that time has come to its own time minus the delay; False: only what travels beside the rows does."""
    offset_us: int = 0
    """A row's time is this much after the column's: the last moment of a window is just before its end."""


@dataclass(frozen=True, slots=True)
class Planned(Generic[S]):
    """What the compiler found out about an operator: all that its task logic is made from."""

    op: OperatorOf[S]
    inputs: tuple[pa.Schema, ...]
    """Columns at each port, without positions."""
    output: pa.Schema
    stamped: bool
    """Its (first) output carries positions."""
    number: int | None
    """With which it stamps rows of its own, if it makes positions."""
    origins: tuple[Mapping[int, OperatorName], ...]
    """Who stamped the rows of each port, by number."""
    aside: frozenset[int] = frozenset()
    """Ports whose rows do not move event time on: it travels beside them."""
    stamped_ports: frozenset[int] = frozenset()
    """Its outputs that carry positions."""
    offsets_us: Mapping[int, int] = field(default_factory=dict)
    """Ports at which event time is not quite what the column says."""

    @property
    def stamp(self) -> int | None:
        """The number with which it stamps its own output, if somebody orders by it."""
        return self.number if self.stamped else None

    def timed_port(
        self,
        port: int,
        by: tuple[str, ...],
        on: str,
        delays: Sequence[tuple[str, int]],
        idle_us: int | None = None,
    ) -> TimedPort:
        """An input port with event time, and the delay of each source that stamped its rows."""
        given = dict(delays)
        delays_us = {n: given.get(name, given.get("", 0)) for n, name in self.origins[port].items()}
        origins: dict[int, str] = dict(self.origins[port])
        schema = self.inputs[port]
        offset, aside = self.offsets_us.get(port, 0), port in self.aside or on not in schema.names
        return TimedPort(by, on, origins, delays_us, idle_us, aside, schema, offset)

    def lifetime(self, ttl: Ttl) -> Ttl:
        """A lifetime, and whether its time travels beside the rows."""
        return replace(ttl, aside=0 in self.aside)


class Kind(ABC, Generic[S]):
    """One kind of operator. What is asked comes with the operator it is asked about."""

    spec: ClassVar[type[Spec]]
    role: ClassVar[Role]
    ports: ClassVar[Ports] = Ports()
    makes_positions: ClassVar[bool] = False
    keeps_positions: ClassVar[bool] = False
    needs_positions: ClassVar[Ordering | None] = None

    @property
    def name(self) -> str:
        return self.spec.kind_name()

    def begins(self, op: OperatorOf[S]) -> bool:
        """Whether rows begin at the operator: it reads no stream."""
        return self.role == "source"

    @property
    def stateful(self) -> bool:
        return self.role in ("keyed", "hosted")

    # --- is it well formed, and what comes out ---

    def check(self, op: OperatorOf[S]) -> None:
        """Refuse, with a TopologyError, what has no meaning whatever the columns are."""

    @abstractmethod
    def schemas(self, op: OperatorOf[S], inputs: Schemas) -> list[pa.Schema]:
        """Columns of each output port, without positions; refuses columns that are not there or do not fit."""

    # --- positions of rows ---

    def stamps(self, op: OperatorOf[S]) -> bool:
        """Whether positions of its output rows begin here."""
        return self.makes_positions

    def orders(self, op: OperatorOf[S]) -> bool:
        """Whether positions that begin here are the order in which rows come out."""
        return True

    def carries(self, op: OperatorOf[S]) -> bool:
        """Whether its output rows have the positions of input rows, of the first port."""
        return self.keeps_positions

    def ordering(self, op: OperatorOf[S]) -> Ordering | None:
        """Why it needs to know the positions of its input rows, if it does."""
        return self.needs_positions

    def takes_positions(self, op: OperatorOf[S]) -> bool:
        """Whether it makes use of positions where its input has any, and does without where not."""
        return False

    # --- event time ---

    def timings(self, op: OperatorOf[S], given: Sequence[Timing | None]) -> list[Timing | None]:
        """The event time of each output, from that of each input port."""
        return [self.timing(op, given)] * op.outputs

    def timing(self, op: OperatorOf[S], given: Sequence[Timing | None]) -> Timing | None:
        """The event time of its output. Where positions stay, so does what is known about time: some rows may be missing."""
        if self.stamps(op) or not self.carries(op) or given[0] is None:
            return None
        return given[0] if self.leaves_time(op, given[0]) else replace(given[0], direct=False)

    def untimed(self, op: OperatorOf[S]) -> str:
        """Why the event time of its input does not go on behind it, after its name; "": nothing special."""
        return ""

    def leaves_time(self, op: OperatorOf[S], given: Timing) -> bool:
        """Whether all rows come out, with the column of the event time as it was."""
        return False

    # --- for people, and from run to run ---

    def what(self, op: OperatorOf[S]) -> str:
        """An operator in one phrase, for `explain()`."""
        return "-"

    def fingerprint(self, op: OperatorOf[S], inputs: Schemas, outputs: Schemas) -> Fingerprint | None:
        """What must not change and what may between two runs on one store. None: nothing is stored of it."""
        return None


class KeyedKind(Kind[S]):
    """Operators whose state lies with the executors, by key."""

    role = "keyed"
    stored: ClassVar[type[StoredRows]] = StoredRows
    """How its rows are read where there is no topology."""

    @abstractmethod
    def logic(self, planned: Planned[S]) -> KeyedLogic:
        """What its tasks run."""

    @abstractmethod
    def fingerprint(self, op: OperatorOf[S], inputs: Schemas, outputs: Schemas) -> Fingerprint: ...

    def keeps_groups(self, op: OperatorOf[S]) -> bool:
        """Whether it keeps windows of rows as they come, which may be stored group by group."""
        return False


KINDS: dict[type[Spec], Kind[Any]] = {}
"""Those that registered. `kinds.py` sees to it that all that come with holdfast have."""

K = TypeVar("K", bound=type[Kind[Any]])


def register(kind: K) -> K:
    """Put before a class: from now on operators with its class of spec are of this kind."""
    KINDS[kind.spec] = kind()
    return kind


def refuse(op: OperatorOf[Spec], why: str, cure: str) -> TopologyError:
    """What is wrong with an operator: `why` goes on after its name and kind."""
    return TopologyError(f"Operator {op.name!r} ({op.kind}) {why}.", cure=cure)
