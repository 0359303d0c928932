"""`Stream`: what an operator makes, and the verbs that attach the next operator to it.

Verbs come in three kinds:

- operators (`filter`, `select`, `aggregate`, `sink`, …) add an operator and return the stream it makes;
- marks (`consistent`, `checkpoint`, `may_lose`) say something about the operator that *made* this stream, and return it;
- borders (`autonomous`, `isolate`) add nothing: they return a handle on the same rows, and whatever reads through
  that handle is autonomous, or begins a new element. Other readers of the stream are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.durations import Duration, seconds
from holdfast.errors import TopologyError
from holdfast.language import hints
from holdfast.language.annotations import (
    Trigger,
    loss_budget,
    region_settings,
)
from holdfast.language.builder import Builder
from holdfast.language.checkpoint_form import CheckpointForm, checked_form
from holdfast.language.connectors import Sink
from holdfast.language.graph import InputPort, SinkSpec, Spec, StreamRef
from holdfast.language.hints import no_such_name
from holdfast.language.hosted import OnError, Poison, PoisonThen, checked_on_error, checked_poison
from holdfast.language.operators import stateless as specs
from holdfast.language.operators.aggregate_verbs import AggregateVerbs
from holdfast.language.operators.async_calls import AsyncVerbs
from holdfast.language.operators.columns import key_names
from holdfast.language.operators.event_time import EventTimeVerbs
from holdfast.language.operators.hosted_python import HostedVerbs
from holdfast.language.operators.joins import JoinVerbs
from holdfast.language.operators.keyed_verbs import KeyedVerbs
from holdfast.language.operators.lookup import LookupVerbs
from holdfast.language.operators.persist import PersistVerbs
from holdfast.language.operators.preserve import PreserveVerbs
from holdfast.language.operators.rows import RowVerbs
from holdfast.language.schema import to_arrow
from holdfast.protocol.bounds.loss_budget import Then
from holdfast.protocol.shape import Mode

EXPRESSION_CURE = "Give SQL text such as 'amount > 10', or a Spark Column such as F.col('amount') > 10."


@dataclass(frozen=True, slots=True)
class Stream(
    EventTimeVerbs,
    AggregateVerbs,
    RowVerbs,
    JoinVerbs,
    LookupVerbs,
    KeyedVerbs,
    HostedVerbs,
    AsyncVerbs,
    PersistVerbs,
    PreserveVerbs,
):
    """An immutable handle on an output port. Streams are made by `Topology.source` and by other streams."""

    _builder: Builder = field(repr=False)
    ref: StreamRef
    _autonomous: bool = False
    _isolated: bool = False

    @property
    def malformed(self) -> Stream:
        """Rows that a source told malformed="stream" could not read: file, line, reason, text."""
        return replace(self, ref=self._builder.malformed_of(self.ref))

    @property
    def late(self) -> Stream:
        """Rows behind the watermark that an aggregate told late=True left out: the columns they came with."""
        return replace(self, ref=self._builder.late_of(self.ref))

    @property
    def errors(self) -> Stream:
        """Rows at which a Python operator or a sink told on_error="stream" failed: operator, row (as JSON), error, traceback, time."""
        return replace(self, ref=self._builder.errors_of(self.ref))

    # --- stateless operators ---

    def filter(self, condition: Any, *, name: str | None = None) -> Stream:
        """Keep the rows for which `condition` (a Spark Column or SQL text) is true."""
        return self._then(specs.FilterSpec(_expression(condition, "filter")), name)

    def where(self, condition: Any, *, name: str | None = None) -> Stream:
        """The same as `filter`."""
        return self.filter(condition, name=name)

    def select(self, *columns: Any, name: str | None = None) -> Stream:
        """Keep or compute columns: names, SQL text (`"a + b as c"`) or Spark Columns."""
        if not columns:
            raise TopologyError(
                "select() needs at least one column.", cure="Give names, SQL text or Columns."
            )
        return self._then(specs.SelectSpec(tuple(_expression(c, "select") for c in columns)), name)

    def with_columns(
        self, columns: Mapping[str, Any] | None = None, /, *, name: str | None = None, **more: Any
    ) -> Stream:
        """Add or replace columns: `with_columns(total="price * volume")`, or a mapping of name → expression."""
        chosen = {
            key: _expression(value, "with_columns") for key, value in {**(columns or {}), **more}.items()
        }
        if not chosen:
            raise TopologyError("with_columns() needs at least one column.", cure="Write name='expression'.")
        return self._then(specs.WithColumnsSpec(chosen), name)

    def drop(self, *columns: str, name: str | None = None) -> Stream:
        """All columns but these, which must be there."""
        cure = "Name the columns to leave out: drop('a', 'b')."
        return self._then(specs.DropSpec(key_names(columns, "drop()", cure)), name)

    def rename(
        self, columns: Mapping[str, str] | None = None, /, *, name: str | None = None, **more: str
    ) -> Stream:
        """Call columns by other names: `rename(old="new")`, or `rename({"old": "new"})`. They stay where they are."""
        chosen = {**(columns or {}), **more}
        cure = "Write rename(old='new')."
        key_names([*chosen, *chosen.values()], "rename()", cure)
        return self._then(specs.RenameSpec(chosen), name)

    def transform(self, fn: Callable[[Any], Any], *, name: str | None = None) -> Stream:
        """Apply `fn(DataFrame) -> DataFrame` to each step's rows. Stateless: it sees one step at a time."""
        return self._then(specs.TransformSpec(_function(fn, "transform")), name)

    def sql(self, query: str, *, name: str | None = None) -> Stream:
        """Run a query over the view `this` on each step's rows."""
        if not isinstance(query, str) or not query.strip():
            raise TopologyError(f"sql() takes a query, not {query!r}.", cure="Write 'select … from this'.")
        return self._then(specs.SqlSpec(query), name)

    def map_arrow(
        self,
        fn: Callable[[pa.Table], pa.Table],
        schema: Any,
        *,
        name: str | None = None,
        poison: PoisonThen | Poison | None = None,
    ) -> Stream:
        """Apply `fn(pyarrow.Table) -> pyarrow.Table` beside the data; `schema` is what it returns.

        With `poison="quarantine"` rows that end its worker process are in `.errors` of the stream (`hf.Poison`)."""
        columns = to_arrow(schema, "the schema of map_arrow")
        spec = specs.MapArrowSpec(_function(fn, "map_arrow"), columns, checked_poison(poison))
        return self._then(spec, name, outputs=1 + spec.letters)

    def union(self, *streams: Stream, name: str | None = None) -> Stream:
        """All rows of these streams. They must have the same columns, and be all consistent or all autonomous."""
        if not streams:
            raise TopologyError("union() needs another stream.", cure="Write a.union(b).")
        together = (self, *streams)
        made = self._builder.add(
            specs.UnionSpec(),
            [input_port(self._builder, together)],
            name=name,
            isolated=any_isolated(together),
        )
        return Stream(self._builder, StreamRef(made))

    def split(
        self,
        *conditions: Any,
        otherwise: bool = False,
        names: Sequence[str] | None = None,
        name: str | None = None,
    ) -> list[Stream]:
        """One stream per condition: a row leaves by the first that holds. With `otherwise`, the rest by one more.

        `names` label the streams in `explain()`."""
        if not conditions:
            raise TopologyError("split() needs at least one condition.", cure=EXPRESSION_CURE)
        ports = len(conditions) + otherwise
        if names is not None and len(names) != ports:
            raise TopologyError(
                f"split() makes {ports} streams and was given {len(names)} names.",
                cure="Give one name per stream.",
            )
        spec = specs.SplitSpec(
            tuple(_expression(c, "split") for c in conditions), otherwise, tuple(names or ())
        )
        made = self._then(spec, name, outputs=ports)
        return [replace(made, ref=StreamRef(made.ref.operator, port)) for port in range(ports)]

    # --- stateful operators: more of them in the classes above ---

    def replayable(self, *, keep: int = specs.KEPT_BYTES, name: str | None = None) -> Stream:
        """Rows as they come, from a stream that cannot be read again (`hf.TcpLines`, say): a region may begin here,
        `lines.replayable(name="kept").consistent(…)`. What has entered the region is in the store until an epoch has it, and comes
        again after a reset and in the next run. While the region is parked, what arrives is kept for it, in the store, up to `keep` bytes
        (1 GiB); then who sends waits if all its sources can be read again, else rows are thrown away and counted. 0 keeps nothing."""
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
            raise TopologyError(
                f"keep must be a number of bytes, not {keep!r}.",
                cure="Give a whole number from 0 on, such as keep=10 << 30; the default is 1 GiB.",
            )
        return self._then(specs.ReplayableSpec(keep), name)

    # --- the end ---

    def sink(self, sink: Sink, name: str | None = None, *, on_error: OnError = "fail") -> Written:
        """Write the rows to the outside world.

        With `on_error="stream"` rows that the sink cannot write are in `.errors` of what this returns, and the others are written."""
        if not isinstance(sink, Sink):
            raise TopologyError(
                f"{sink!r} is not a Sink.", cure="Pass an object whose class derives from Sink."
            )
        if user := self._builder.holds(sink):
            raise TopologyError(
                f"The {type(sink).__name__} is already used by {user!r}.",
                cure="Make one sink per place, or union the streams before.",
            )
        on_error = checked_on_error(on_error, False, type(sink).__name__)
        return Written(self._then(SinkSpec(sink, on_error), name, outputs=int(on_error == "stream")))

    # --- marks on the operator that made this stream ---

    def consistent(
        self,
        name: str | None = None,
        *,
        period: Duration | None = None,
        trigger: Trigger | None = None,
        mode: Mode = "async",
        drain_timeout: Duration = 180,
        reset_timeout: Duration = 180,
        max_consecutive_resets: int | None = None,
        retry_for: Duration = 600.0,
        keep: int = 3,
        keep_for: Duration | None = None,
        restore_within: Duration | None = None,
    ) -> Stream:
        """Start a region at the operator that made this stream; everything reachable belongs to it.

        Epochs are established every `period` (default 2 s), or as `trigger` says: "operator" (the source decides),
        "manual", or "aware" (once in each period, when the state is small). `mode`: who waits meanwhile: nobody ("async"), each element for its own part ("token"), the sources
        for the whole ("drain"). Regions that meet are one region and must have the same settings. `.autonomous()` ends it.
        The newest `keep` epochs stay in the store, those younger than `keep_for`, and those with a name (savepoints).
        `restore_within`: how long a restore may take; checkpoints are formed accordingly, and you are warned
        if the state is too large for it. After `max_consecutive_resets` resets (5) without progress the region is parked; if you leave the
        number out, a failure of your own code that comes again at the same rows parks it at once. A
        cause that may pass by itself, such as a database that is away, is waited for up to `retry_for`. An epoch that takes longer
        than `drain_timeout` is given up and the region goes back; if it only had to wait for steps, the next one has twice the time, up to
        eight times as much."""
        settings = region_settings(
            name=name,
            period=period,
            trigger=trigger,
            mode=mode,
            drain_timeout=drain_timeout,
            reset_timeout=reset_timeout,
            max_consecutive_resets=max_consecutive_resets,
            retry_for=retry_for,
            keep=keep,
            keep_for=keep_for,
            restore_within=restore_within,
        )
        self._builder.mark(self._builder.made_by(self.ref.operator), consistent=settings)
        return self

    def checkpoint(self, every: Duration | None = None, *, form: CheckpointForm | None = None) -> Stream:
        """How the state of the operator that made this stream is saved.

        `every`: outside of regions, so often, on its own. `form`: `hf.incremental(…)` (the default: what changed, as
        long as that pays and the bounds allow it), `hf.full()`, `hf.groups(…)` for window joins; or, outside of regions and without a store,
        `hf.eventual(…)` for windowed aggregates and window joins that go into a log."""
        if every is None and form is None:
            raise TopologyError("checkpoint() says nothing.", cure="Give every=… or form=hf.incremental(…).")
        if every is not None:
            self._builder.mark(
                self._builder.made_by(self.ref.operator), checkpoint_every_s=seconds(every, "every")
            )
        if form is not None:
            self._builder.mark(self._builder.made_by(self.ref.operator), checkpoint_form=checked_form(form))
        return self

    def may_lose(
        self,
        *,
        rows: int | None = None,
        share: float | None = None,
        seconds: Duration | None = None,
        then: Then = "warn",
    ) -> Stream:
        """Outside of regions: how much may be lost on the way from the sources to this stream, in all runs on a store.

        `rows`: so many. `share`: such a part of what was lost or came. `seconds`: so much time of the state of operators on the way, which
        went back to their own checkpoints. Each bound holds by itself. When one is exceeded that is told, and then: "warn" goes on;
        "park" delivers nothing more until somebody resumes; "consistent" makes a region of all that the sources of this stream
        reach, at once in `run`, else from the next run on."""
        budget = loss_budget(rows, share, seconds, then)
        self._builder.mark(self._builder.made_by(self.ref.operator), may_lose=budget)
        return self

    # --- borders before what follows ---

    def autonomous(self) -> Stream:
        """The region ends here for what reads this handle. An operator that a region reaches on another port stays
        in that region; this port of it is then autonomous."""
        return replace(self, _autonomous=True)

    def isolate(self) -> Stream:
        """What reads this handle begins a new element: its own loop, its own failure."""
        return replace(self, _isolated=True)

    def _then(self, spec: Spec, name: str | None, outputs: int = 1, beside: Sequence[Stream] = ()) -> Stream:
        return attach(spec, (self, *beside), name, outputs)

    if not TYPE_CHECKING:  # a type checker would take every name for one that is there

        def __getattr__(self, name: str) -> Any:
            raise no_such_name("A Stream", name, hints.STREAM, dir(Stream))


@dataclass(frozen=True, slots=True)
class Written:
    """What `sink` returns: the rows have left the graph, but for those that the sink refused."""

    _sink: Stream

    @property
    def name(self) -> str:
        """Of the sink."""
        return self._sink.ref.operator

    @property
    def errors(self) -> Stream:
        """Rows that a sink told on_error="stream" could not write: operator, row (as JSON), error, traceback, time."""
        return self._sink.errors

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            ends = dict.fromkeys(
                dir(Stream), "A sink ends its stream: use the stream that you wrote to it once more."
            )
            raise no_such_name("What a sink returns", name, ends, ["errors", "name"])


def attach(spec: Spec, streams: Sequence[Stream], name: str | None = None, outputs: int = 1) -> Stream:
    """Add an operator that reads these streams, each at a port of its own: what verbs are made of."""
    builder = streams[0]._builder
    ports = [input_port(builder, (stream,)) for stream in streams]
    made = builder.add(spec, ports, name=name, outputs=outputs, isolated=any_isolated(streams))
    return Stream(builder, StreamRef(made))


def input_port(builder: Builder, streams: Iterable[Stream], control: bool = False) -> InputPort:
    """The port at which these streams meet."""
    streams = tuple(streams)
    for stream in streams:
        if not isinstance(stream, Stream):
            raise TopologyError(f"{stream!r} is not a Stream.", cure="Pass streams of this topology.")
        if stream._builder is not builder:
            raise TopologyError(
                f"The stream {str(stream.ref)!r} belongs to topology {stream._builder.topology!r}, not to {builder.topology!r}.",
                cure="Join streams of one topology only.",
            )
    refs = tuple(stream.ref for stream in streams)
    return InputPort(refs, control, frozenset(stream.ref for stream in streams if stream._autonomous))


def any_isolated(streams: Iterable[Stream]) -> bool:
    return any(stream._isolated for stream in streams)


def _expression(value: Any, verb: str) -> Any:
    text = isinstance(value, str) and bool(value.strip())
    column = not isinstance(value, str | bool | int | float | list | tuple | dict | None) and not callable(
        value
    )
    if not (text or column):
        raise TopologyError(f"{verb}() cannot use {value!r}.", cure=EXPRESSION_CURE)
    return value


def _function(fn: Any, verb: str) -> Callable[[Any], Any]:
    if not callable(fn):
        raise TopologyError(f"{verb}() takes a function, not {fn!r}.", cure=f"Write {verb}(lambda rows: …).")
    return fn  # type: ignore[no-any-return]
