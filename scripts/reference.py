"""Makes the reference of `make docs` out of docstrings: a page for each group of public names, as Markdown.

    python scripts/reference.py DIRECTORY

`GROUPS` says on which page a name is; every name of `holdfast.__all__` is on one, which a test sees to. Of a class its public
members are shown, but of a ready-made source, sink or error only what its base class does not have.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast as hf

GROUPS = {
    "topologies": ("Topologies and streams", "Topology Stream composite"),
    "aggregates": (
        "Aggregates and windows",
        "count sum min max avg variance stddev first last collect collect_set count_distinct quantile udaf"
        " tumbling sliding session latest ttl",
    ),
    "python": (
        "Python operators",
        "Operator KeyedOperator Context Value Map List Window Poison register_dataclass register_enum",
    ),
    "sources": (
        "Sources",
        "Files Rows Beacon TcpLines UdpLines HttpLines LogSource Preserved from_spark",
    ),
    "sinks": ("Sinks", "FileSink DatabaseSink LogSink MemorySink ConsoleSink ForeachBatch"),
    "runs": (
        "Runs",
        "Run RunStatus RegionStatus ElementStatus Progress Listener HoldfastError RegionParkedError",
    ),
    "checkpoints": ("Checkpoints", "incremental full groups eventual read_state"),
    "logs": ("Logs", "Log replay Replayed ReplayProgress register_log_format"),
    "connectors": ("Sources and sinks of your own", "Source Slice Stamp Lag Sink SinkContext StepId"),
}
BASES = (hf.Source, hf.Sink, hf.HoldfastError, Exception)
"""What classes derived from these inherit or override is said once, of the base."""


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.md"):
        old.unlink()
    for page, (title, names) in GROUPS.items():
        text = "\n\n".join([f"# {title}", *(entry(name) for name in names.split())])
        (directory / f"{page}.md").write_text(text + "\n", "utf-8")


def entry(name: str) -> str:
    """What is said of one public name: its signature, its docstring, and its members."""
    thing = getattr(hf, name)
    parts = [f"## `{name}`", signature(f"hf.{name}", thing), markdown(own_doc(thing))]
    if inspect.isclass(thing):
        parts += [member_entry(name, member, value) for member, value in members(thing)]
    return "\n\n".join(part for part in parts if part)


def member_entry(owner: str, member: str, value: Any) -> str:
    shown = signature(f"{owner}.{member}", value) if callable(value) else ""
    return "\n\n".join(part for part in [f"### `{owner}.{member}`", shown, markdown(own_doc(value))] if part)


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The documented public methods and properties, in the order of their names."""
    above = next((base for base in BASES if issubclass(cls, base) and cls is not base), None)
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        is_inherited = above is not None and hasattr(above, name)
        if not name.startswith("_") and not is_inherited and own_doc(value):
            yield name, value


def own_doc(thing: Any) -> str:
    """Its docstring; none for values, whose class has one, and for what a dataclass says of itself."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing) or isinstance(thing, property)):
        return ""
    doc = inspect.cleandoc(thing.__doc__ or "")
    return "" if inspect.isclass(thing) and doc.startswith(f"{thing.__name__}(") else doc


def signature(shown_as: str, thing: Any) -> str:
    """As it is called, an argument a line if it is long; nothing for what only holdfast makes."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    if any(name.startswith("_") for name in found.parameters):
        return ""
    arguments = list(declared(found))
    is_class = inspect.isclass(thing) or found.return_annotation is inspect.Signature.empty
    arrow = "" if is_class else f" -> {named(found.return_annotation)}"
    line = f"{shown_as}({', '.join(arguments)}){arrow}"
    if len(line) > 100:
        line = f"{shown_as}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){arrow}"
    return f"```py\n{line}\n```"


def declared(found: inspect.Signature) -> Iterator[str]:
    """The arguments with their types as they stand in the code, and a star before those that need their name."""
    starred = False
    for name, each in found.parameters.items():
        if name in ("self", "cls"):
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        typed = "" if each.annotation is each.empty else f": {named(each.annotation)}"
        default = "" if each.default is each.empty else f"{' = ' if typed else '='}{each.default!r}"
        yield f"{stars}{name}{typed}{default}"


def named(annotation: Any) -> str:
    return (
        annotation.strip("'")
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def markdown(doc: str) -> str:
    """A docstring as Markdown: what follows a line that ends with two colons is a block of code."""
    lines: list[str] = []
    for text, is_code in pieces(doc):
        lines.append(f"```{'py' if is_python(text) else ''}\n{text}\n```" if is_code else text)
    return "\n\n".join(lines)


def pieces(doc: str) -> Iterator[tuple[str, bool]]:
    """Its text and its blocks of code in order; whether it is code. A block lasts as long as lines are indented."""
    for is_code, lines in itertools.groupby(stretches(doc), key=lambda each: each[1]):
        text = textwrap.dedent("\n".join(line for line, _ in lines)).strip("\n")
        if text:
            yield text if is_code else re.sub(r"::$", ":", text), is_code


def stretches(doc: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it belongs to a block of code: indented, behind an empty line or two colons."""
    is_code = awaited = False
    for line in doc.splitlines():
        if line.strip():
            is_code = line.startswith("    ") and (is_code or awaited)
        awaited = not line.strip() or line.endswith("::")
        yield line, is_code


def is_python(text: str) -> bool:
    try:
        compile(text, "docstring", "exec")
    except SyntaxError:
        return False
    return True


def examples() -> dict[str, str]:
    """The Python code in docstrings of the public surface, by where it stands."""
    found = {}
    for name in hf.__all__:
        thing = getattr(hf, name)
        told = {name: own_doc(thing)}
        if inspect.isclass(thing):
            told |= {f"{name}.{member}": own_doc(value) for member, value in members(thing)}
        for place, doc in told.items():
            codes = [text for text, is_code in pieces(doc) if is_code and is_python(text)]
            found |= {f"{place} {number}": text for number, text in enumerate(codes)}
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
