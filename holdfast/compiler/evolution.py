"""How an operator may change while its stored state is kept: what it computes or declares may come and go by name.

An aggregate that is new begins with no rows, one that is gone is dropped; the same for variables of Python operators. So
do columns of whole rows that are kept: rows from before have null in new ones. Keys, windows and the type of what stays
must not change.
"""

from __future__ import annotations

_LISTS = (" agg=(", " state=(", " rows=(")
"""Parts of a fingerprint whose entries, `name:…`, may come and go."""


def misfit(then: str, now: str) -> str | None:
    """Why the state of an operator with fingerprint `then` cannot be taken over by one with `now`; None: it can."""
    if then == now:
        return None
    frame_then, entries_then = _parted(then)
    frame_now, entries_now = _parted(now)
    if frame_then != frame_now:
        return f"it was {then}, now it is {now}"
    for name in entries_then.keys() & entries_now.keys():
        if entries_then[name] != entries_now[name]:
            return f"{name!r} was {entries_then[name]}, now it is {entries_now[name]}"
    return None


def changes(then: str, now: str) -> tuple[list[str], list[str]]:
    """(what is new, what is gone), by name."""
    before, after = _parted(then)[1], _parted(now)[1]
    return sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())


def _parted(fingerprint: str) -> tuple[str, dict[str, str]]:
    """(the fingerprint without its lists, the entries of all lists by name)."""
    entries: dict[str, str] = {}
    for begin in _LISTS:
        if begin not in fingerprint:
            continue
        start = fingerprint.index(begin) + len(begin)
        number = 1
        while True:
            end = _closing(fingerprint, start)
            for entry in _entries(fingerprint[start:end]):
                name, _, rest = entry.partition(":")
                entries[name if number == 1 else f"{name} of input {number}"] = rest
            fingerprint = fingerprint[:start] + fingerprint[end:]
            if not fingerprint.startswith(") (", start):
                break
            start, number = start + len(") ("), number + 1
    return fingerprint, entries


def _closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed."""
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] in "([") - (text[place] in ")]")
        if not depth:
            return place
    return len(text)


def _entries(text: str) -> list[str]:
    """The parts between commas that stand outside of all parentheses."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([<{") - (letter in ")]>}")
        if letter == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in (*parts, text[start:]) if part]
