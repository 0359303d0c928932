"""The subscriber that tells `logging` about a run: loggers `holdfast.run`, `holdfast.region`, `holdfast.element`.

WARNING is what costs rows or time, ERROR what waits for a person. Errors that end a run are raised to whoever waits for it,
so they are INFO here. Of published epochs a region tells at most one in ten seconds at INFO, the others at DEBUG; late and
malformed rows of an operator likewise at WARNING. Each record carries its event as `record.event`. No handler is installed:
that is the application's business.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from logging import DEBUG, ERROR, INFO, WARNING

from holdfast.clock import Clock, Every
from holdfast.runtime.telling import events as e
from holdfast.runtime.telling.beginning_events import ProgramChanged

SELDOM_S = 10.0

FOLLOWS = {
    "warn": "The run goes on",
    "park": "It is parked and waits for a person: `holdfast resume`, or run again with a larger budget",
    "consistent": "It becomes consistent with the next run of the graph",
}
"""What follows if more is lost than may be."""

Line = tuple[int, str, tuple[object, ...]]
"""Level, text, and what goes into it."""


class RunLog:
    """Writes a line for each event that has one."""

    def __init__(self, clock: Clock) -> None:
        self._due: defaultdict[tuple[str, str], Every] = defaultdict(lambda: Every(clock, SELDOM_S))

    def __call__(self, event: e.RunEvent) -> None:
        line = line_of(event)
        if line is not None:
            level, text, about = line
            if isinstance(event, e.EpochPublished):
                level = INFO if self._due[event.kind, event.region].due() else DEBUG
            elif isinstance(event, e.RowsLeftOut):
                level = level if self._due[event.kind, event.operator].due() else DEBUG
            logger = logging.getLogger(f"holdfast.{logger_of(event)}")
            logger.log(level, text, *about, extra={"event": event})


def logger_of(event: e.RunEvent) -> str:
    if getattr(event, "region", None) is not None:
        return "region"
    return "element" if hasattr(event, "element") or hasattr(event, "operator") else "run"


def line_of(event: e.RunEvent) -> Line | None:
    """What is said about an event; None: nothing."""
    match event:
        case e.RunStarted():
            return INFO, *_start(event)
        case e.TopologyChanged():
            drops = event.gone or any(what.get("gone") for what in event.changed.values())
            about = (event.region, event.epoch, "; ".join(event.sentences()))
            return WARNING if drops else INFO, "region %r has changed since epoch %s: %s", about
        case ProgramChanged(changes):
            return INFO, "the program has changed since the run before:\n  %s", ("\n  ".join(changes),)
        case e.RunRefused(error, message):
            return INFO, "the run is refused, %s: %s", (error, message)
        case e.RunFailed(error, message):
            return INFO, "the run ends because of %s: %s", (error, message)
        case e.RunEnded():
            left_out = f"; rows left out: {', '.join(event.left_out)}" if event.left_out else ""
            figures = (event.topology, event.state, event.uptime_s, event.rows or 0, event.epochs or 0)
            text = "topology %r: %s after %s s; %s rows, %s epochs, %s resets%s"
            return WARNING if left_out else INFO, text, (*figures, event.resets or 0, left_out)
        case e.MailArrived(command):
            return INFO, "somebody asks the run: %s", (command,)
        case e.RowsLost():
            sinks = ", ".join(event.sinks or ()) or "no sink"
            return (
                WARNING,
                "element %r lost %s rows for %s: %s",
                (event.element, event.rows, sinks, event.reason),
            )
        case e.RowsRepeated():
            text = (
                "element %r may get up to %s rows that it had before the driver died; they may be twice in %s"
            )
            return WARNING, text, (event.element, event.rows, ", ".join(event.sinks or ()) or "no sink")
        case e.RowsLate():
            return WARNING, "operator %r: %s late rows, %s in all", (event.operator, event.rows, event.total)
        case e.RowsTimeless():
            text = "operator %r: %s rows without an event time, %s in all"
            return WARNING, text, (event.operator, event.rows, event.total)
        case e.RowsMalformed():
            text = "source %r leaves out %s malformed rows, %s in all"
            return WARNING, text, (event.operator, event.rows, event.total)
        case e.RowsLeftOut():
            text = "operator %r leaves out %s rows, %s in all"
            return WARNING, text, (event.operator, event.rows, event.total)
        case e.AttributesFilled(operator, attributes):
            text = "operator %r: the stored state has no %s; it begins as in a fresh instance"
            return WARNING, text, (operator, ", ".join(map(repr, attributes)))
        case e.RowsStale():
            return WARNING, "operator %r drops %s old rows: %s", (event.operator, event.rows, event.reason)
        case _:
            return _line_of_region(event) or _line_of_element(event)


def _start(event: e.RunStarted) -> tuple[str, tuple[object, ...]]:
    store = "" if event.store is None else f" on {event.store}"
    regions = f"; regions: {', '.join(event.regions)}" if event.regions else ""
    sources = "".join(f"; source {name!r} from {place}" for name, place in event.sources.items())
    return "topology %r starts%s%s%s", (event.topology, store, regions, sources)


def _line_of_region(event: e.RunEvent) -> Line | None:
    match event:
        case e.EpochPublished():
            last = "" if event.last is None else f"; element {event.last!r} was last"
            text = "region %r published epoch %s in %.0f ms, %s bytes%s"
            return DEBUG, text, (event.region, event.epoch, event.ms, event.bytes, last)
        case e.EpochVisible(region, epoch, _, visible_ms):
            return DEBUG, "region %r shows epoch %s, %.0f ms after it began", (region, epoch, visible_ms)
        case e.EpochDecided(region, reason, _, size, state, s_max):
            text = "region %r wants an epoch, %s: %s bytes, %s in all, threshold %s"
            return DEBUG, text, (region, reason, size, state, "—" if s_max is None else s_max)
        case e.TimingProfiled(region, _, s_max, s_min, average, dynamic):
            text = "region %r is on the alert below %s bytes (least %s, average %s); dynamic: %s"
            return INFO, text, (region, s_max, s_min, average, ", ".join(dynamic) or "no element")
        case e.StateSizes(region, curves):
            points = sum(map(len, curves.values()))
            return DEBUG, "sizes of %s elements of region %r: %s points", (len(curves), region, points)
        case e.EpochOverdue(region, epoch, seconds, held_up_by):
            text = "region %r has been establishing epoch %s for %s s; it is held up by %s"
            return WARNING, text, (region, epoch, seconds, held_up_by or "nobody who could be named")
        case e.EpochAborted(region, epoch, reason):
            return WARNING, "region %r gives epoch %s up: %s", (region, epoch, reason)
        case e.EpochWithdrawn(region, epoch, to, reason):
            text = "epoch %s of region %r is damaged (%s); nothing of it was visible yet, so it is withdrawn and the run "
            return WARNING, text + "goes on from epoch %s.", (epoch, region, reason, to)
        case e.ResetBegun(region, epoch, attempt, 0):
            return INFO, "region %r begins with epoch %s (attempt %s)", (region, epoch, attempt)
        case e.ResetBegun(region, epoch, attempt, consecutive, reason):
            text = "region %r goes back to epoch %s (attempt %s, %s without progress): %s"
            return WARNING, text, (region, epoch, attempt, consecutive, reason)
        case e.Restored(region, epoch, _, measured, _, bound):
            if bound is not None and measured is not None and measured > bound:
                text = "restoring region %r took %.2f s, more than the %.2f s allowed."
                return WARNING, text, (region, measured, bound)
            return INFO, "region %r has its state of epoch %s, after %s s", (region, epoch, measured)
        case e.RestoreBoundExceeded(region, operators, bound_s, predicted_s):
            text = "region %r cannot be restored within %s s: the state of %s alone takes longer (%.2f s in all)."
            return WARNING, text, (region, bound_s, ", ".join(map(repr, operators)), predicted_s or 0.0)
        case e.RegionPaused(region, reason):
            return WARNING, "region %r waits for space: %s", (region, reason)
        case e.RegionHasSpace(region):
            return INFO, "region %r waits for space no longer", (region,)
        case e.RegionParked(region, reason):
            text = "region %r is parked and waits for a person: %s. Mend that, then `holdfast resume` or run again"
            return ERROR, text, (region, reason.rstrip("."))
        case e.RegionStopped(region, epoch):
            return INFO, "region %r ends with epoch %s", (region, epoch)
        case e.SavepointNamed(region, name, epoch):
            return INFO, "epoch %s of region %r is savepoint %r", (epoch, region, name)
        case e.SavepointFailed(name, _, reason):
            return WARNING, "savepoint %r was not made: %s", (name, reason)
        case e.SavepointDeleted(region, name, epoch):
            return INFO, "savepoint %r of region %r (epoch %s) is deleted", (name, region, epoch)
    return None


def _line_of_element(event: e.RunEvent) -> Line | None:
    match event:
        case e.ElementFailed(element, reason, region):
            # In a region the line of the reset says it.
            return WARNING if region is None else DEBUG, "element %r failed: %s", (element, reason)
        case e.ElementPaused(element, reason):
            return WARNING, "element %r waits for space: %s", (element, reason)
        case e.ElementGaveUp(element, reason, keeps_input):
            then = "nothing is lost" if keeps_input else "its input is thrown away"
            return ERROR, "element %r gives up, %s: %s", (element, then, reason)
        case e.ElementParked(element, reason):
            return ERROR, "element %r is parked and waits for a person: %s", (element, reason)
        case e.ElementResumed(element):
            return INFO, "element %r goes on", (element,)
        case e.BudgetExceeded(operator, then, reasons):
            text = "more is lost for the stream of operator %r than may be: %s. %s"
            return (
                ERROR if then == "park" else WARNING,
                text,
                (operator, "; ".join(reasons), FOLLOWS.get(then, then)),
            )
        case e.BudgetResumed(operator):
            return INFO, "the stream of operator %r flows again, its loss budget is whole", (operator,)
        case e.OperatorCheckpointed(operator, number):
            return DEBUG, "operator %r stored its checkpoint %s", (operator, number)
        case e.WindowsRestored(operator, windows, read, rows):
            text = "operator %r has %s open windows again, from %s bytes of records and %s rows replayed"
            return INFO, text, (operator, windows, read, rows)
        case e.GroupSizeChosen(operator, rows):
            return INFO, "operator %r keeps its window in groups of %s rows from now on", (operator, rows)
        case e.OperatorCheckpointFailed(operator, reason):
            return WARNING, "operator %r could not store its checkpoint: %s", (operator, reason)
        case e.OperatorDamaged(operator, reason):
            return WARNING, "operator %r begins anew, its checkpoint is damaged: %s", (operator, reason)
    return None
