"""Why a region fails, as its controller hears of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast.ids import ElementName
from holdfast.protocol import messages
from holdfast.runtime.element.region_life import RegionLife
from holdfast.runtime.failures import Cause


def cause_after(
    event: messages.ControllerEvent, before: Cause, lives: Mapping[ElementName, RegionLife]
) -> Cause:
    """What is to be told as the reason from now on."""
    match event:
        case messages.ElementFailed(element=element, reason=reason):
            return Cause(f"{element}: {reason}", element, lives[element].error)
        case messages.UploadFailed(element=element, reason=reason):
            return Cause(f"{element}: {reason}", element)
        case messages.PublishFailed(reason=reason) | messages.CommitFailed(reason=reason):
            return Cause(reason)
        case messages.DrainTimedOut(epoch=epoch, held_up_by=held_up_by):
            return replace(before, reason=f"epoch {epoch} timed out; {held_up_by}", error=None)
        case messages.ResetTimedOut():
            return replace(before, error=None)
        case _:
            return before
