"""What reaches a terminal. Names, reasons and rows come from outside: none of them is markup, and none of them moves the
cursor, sets a title or turns the direction of a line. Characters that could are shown as what they are: `\\x1b`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""All control characters but tab and newline, marks of direction, and halves of characters, which no terminal can be sent."""
WIDE = 220


def plain(text: object) -> str:
    """A text without anything that a terminal would obey."""
    return _COMMANDS.sub(_shown, str(text))


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class PlainConsole(Console):
    """Texts are shown as they are, colours come from styles only."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not _COMMANDS.search(segment.text):
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def console(*, stderr: bool = False, **options: Any) -> Console:
    return PlainConsole(stderr=stderr, **options)


def wide_console() -> Console:
    """Wide where nobody looks at a terminal: names of files must not be cut."""
    made = console(highlight=False)
    return made if made.is_terminal else console(highlight=False, width=WIDE)


def say(text: str) -> None:
    """A line on standard output."""
    print(plain(text))


def labelled(label: str, style: str, text: str) -> Text:
    return Text.assemble((label, style), " ", plain(text))
