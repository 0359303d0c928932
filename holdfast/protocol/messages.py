"""Every event and command of the region protocol. Frozen values; equality is by content.

Naming: `(epoch, attempt)` goes with every message. `attempt` counts the region's resets over its whole life and is
persisted, so anything that carries an older attempt is stale and is ignored.

    controller ──Prepare / BeginEpoch / BeginReset / Resume / GoOn──▶ element      (control messages; may be late or doubled)
    element    ──Marker along its links──▶ next elements                 (FIFO, in band with batches)
    element    ──Ready / Acked / UploadFailed / ElementFailed / ResetAcked / NewSince──▶ controller
    store rim  ──Published / PublishFailed / Committed / CommitFailed──▶ controller
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.ids import Attempt, ConnectionId, ElementName, Epoch
from holdfast.protocol.shape import MarkerKind


@dataclass(frozen=True, slots=True)
class Numbered:
    """What belongs to an epoch, and to the attempt in which it is established or restored."""

    epoch: Epoch
    attempt: Attempt


# --- control messages: commands of the controller, events of the elements -----------------------------------------


@dataclass(frozen=True, slots=True)
class BeginEpoch(Numbered):
    """Establish `epoch`. Style `drain`: to the start elements, sources pause until Resume.
    Style `cascade`: to the start elements, each element goes on when its own pin is durable.
    Style `token`: to every element at once, sources go on after the pin. A final epoch is always `drain` style."""

    style: MarkerKind
    elements: tuple[ElementName, ...]


@dataclass(frozen=True, slots=True)
class Prepare(Numbered):
    """An epoch is wanted. Go on until all operators of the element may be checkpointed, take nothing from then on, and
    answer Ready. To elements with operators that have such points, one after the other, the last in the graph first: so
    that each gets input until it is ready. BeginEpoch follows when all are."""

    elements: tuple[ElementName, ...]


@dataclass(frozen=True, slots=True)
class Resume(Numbered):
    """Drain style only: the epoch is published, sources go on."""

    elements: tuple[ElementName, ...]


@dataclass(frozen=True, slots=True)
class BeginReset(Numbered):
    """Restore `epoch` under the new `attempt`. Sent to the start elements; the others learn it by marker.
    `consecutive` counts resets without progress: the rim waits longer the higher it is, and sends PatienceOver when
    the user's time since the first of them is over."""

    consecutive: int
    elements: tuple[ElementName, ...]


@dataclass(frozen=True, slots=True)
class GoOn(Numbered):
    """Every element of the region has restored `epoch`; sources go on."""

    elements: tuple[ElementName, ...]


# --- in band, along a link ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Marker:
    """Control record in a connection. A `reset` marker clears the connection it is put into."""

    kind: MarkerKind
    epoch: Epoch
    attempt: Attempt


# --- events of the element machine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MarkerArrived:
    """A marker reached the head of a link: everything before it was processed (or, for `reset`, dropped)."""

    link: ConnectionId
    marker: Marker


@dataclass(frozen=True, slots=True)
class TokensWait(Numbered):
    """It has taken long enough: on these links the epoch's token lies in the queue, behind batches. If it is on all
    links that have not delivered it, the element pins now and captures those batches (style `token`)."""

    links: frozenset[ConnectionId]


@dataclass(frozen=True, slots=True)
class OperatorsReady(Numbered):
    """All operators of the element may be checkpointed as they are now."""


@dataclass(frozen=True, slots=True)
class Stirred:
    """Something changed that the element's next pin holds and the one before does not: a step, or whatever else an epoch has to
    store or show."""


@dataclass(frozen=True, slots=True)
class UploadFinished(Numbered):
    """The background upload of a pin is durable. `part` is the element's share of the manifest."""

    part: object = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class UploadBroke(Numbered):
    """The background upload of a pin failed; nothing of it remains."""

    no_space: bool
    reason: str = ""
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class Broke:
    """A step, drain, pin or restore of this element failed. Its volatile state is worthless until a reset."""

    reason: str = ""
    may_pass: bool = False
    own: str = ""


# --- commands of the element machine --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunDrain:
    """Run the operators' `drain`: they may still submit."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Forward:
    """Put the marker into every output link. For `reset`: clear each output link first."""

    marker: Marker


@dataclass(frozen=True, slots=True)
class Pin(Numbered):
    """Record the current version of every operator, source position and prepared sink output for `epoch`, with the
    batches emitted since this element's own outgoing token, and those that wait ahead of the token on the links
    `captured` (style `token`)."""

    captured: frozenset[ConnectionId] = frozenset()


@dataclass(frozen=True, slots=True)
class Upload(Numbered):
    """Make the pin durable in the background; answer UploadFinished or UploadBroke."""


@dataclass(frozen=True, slots=True)
class KeepOutputs:
    """From here until the pin, batches this element emits belong to `epoch` too (style `token`)."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Restore(Numbered):
    """Drop volatile state and pending uploads; load `epoch` (0: initial state), seek sources, roll sinks to it."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Send `event` to the region's controller."""

    event: ControllerEvent


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    """What the controller must remember across its own crash. Written before the commands that follow it."""

    published: Epoch
    next_epoch: Epoch
    attempt: Attempt
    consecutive_resets: int
    parked: bool = False


# --- events of the controller ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The run owns the store. `published` is the newest epoch found there, `record` the controller's own record. `outdated`: an
    epoch is wanted although nothing may be new: the program is another one by now, say."""

    published: Epoch
    record: ControllerRecord | None
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class EpochDue:
    """The trigger fired (period, operator, manual). `final`: nothing follows; stop when it is committed.
    A final wish that is not `sticky` is forgotten by a reset: input that was read to its end must be read again.
    `drained`: whatever the region's mode, nothing may be in flight at the epoch.
    `if_new`: only if there is something new since the newest epoch; if not, as soon as there is."""

    final: bool = False
    sticky: bool = True
    drained: bool = False
    if_new: bool = False


@dataclass(frozen=True, slots=True)
class NewSince(Numbered):
    """There is something that the next epoch stores or shows and `epoch` does not: an element stirred behind its pin of `epoch`."""


@dataclass(frozen=True, slots=True)
class Acked:
    """An element's pin is durable."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt
    part: object = field(compare=False, default=None)


@dataclass(frozen=True, slots=True)
class Ready:
    """An element's operators may be checkpointed, and it takes nothing until its pin."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class UploadFailed:
    element: ElementName
    epoch: Epoch
    attempt: Attempt
    no_space: bool
    reason: str = ""
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class ElementFailed:
    """An element broke during `attempt`. `may_pass`: the cause may go away by itself. `reached`: how many rows the
    region had read since it was reset; reaching further than ever is progress. `own`: not "" if the user's code failed, and
    then the same for the same failure at the same rows."""

    element: ElementName
    attempt: Attempt
    reason: str = ""
    may_pass: bool = False
    reached: int = 0
    own: str = ""


@dataclass(frozen=True, slots=True)
class ResetAcked:
    """An element restored `epoch` under `attempt`."""

    element: ElementName
    epoch: Epoch
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Published:
    """The manifest is durable and visible: the epoch exists whatever happens next."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The manifest is certainly not there (looked up, not assumed)."""

    epoch: Epoch
    no_space: bool
    reason: str = ""
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """Every sink made the epoch visible."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """A sink could not make the epoch visible; the next reset rolls it forward."""

    epoch: Epoch
    reason: str = ""
    may_pass: bool = False


@dataclass(frozen=True, slots=True)
class DrainTimedOut(Numbered):
    """The epoch was not established in time. `held_up_by`: by whom, for people."""

    held_up_by: str = field(compare=False, default="")


@dataclass(frozen=True, slots=True)
class ResetTimedOut(Numbered):
    """The reset was not answered by all in time."""


@dataclass(frozen=True, slots=True)
class PatienceOver:
    """Resets without progress have gone on for as long as the user allows."""


@dataclass(frozen=True, slots=True)
class SpaceReturned:
    """The store accepts writes again."""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """A person resumes a parked region."""


ControllerEvent = (
    Start | EpochDue | NewSince | Ready | Acked | UploadFailed | ElementFailed | ResetAcked | Published | PublishFailed | Committed
    | CommitFailed | DrainTimedOut | ResetTimedOut | PatienceOver | SpaceReturned | ResumeRequested
)  # fmt: skip

ToElements = Prepare | BeginEpoch | BeginReset | Resume | GoOn
"""What the controller sends to elements."""

ElementEvent = (
    ToElements | OperatorsReady | MarkerArrived | TokensWait | Stirred | UploadFinished | UploadBroke | Broke
)
ElementCommand = RunDrain | Forward | Pin | Upload | KeepOutputs | Restore | Tell
