"""What `make docs` adds to the pages of docs/ while mkdocs builds the site.

- README.md is the first page, the pages of the reference come from build/reference (scripts/reference.py makes them).
- Decisions and formats are listed in the navigation by themselves, each with a first page that lists them.
- A link to a file of the repository that is no page (an example, a test) becomes its name, since a site has no such file.

mkdocs calls the functions by their names; each gets what it may change and gives it back.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REFERENCE = ROOT / "build" / "reference"
LISTED = {"decisions": "Decisions", "formats": "Formats"}
LINK = re.compile(r"\[([^\]\[]*)\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the navigation stands for its pages."""
    config.nav = [filled(item) for item in config.nav or []]
    return config


def filled(item: Any) -> Any:
    if isinstance(item, str):
        return item
    ((title, what),) = item.items()
    if isinstance(what, list):
        return {title: [filled(each) for each in what]}
    if what in LISTED:
        return {title: [f"{what}/index.md", *(f"{what}/{path.name}" for path in pages_of(what))]}
    return item


def pages_of(folder: str) -> list[Path]:
    return sorted((DOCS / folder).glob("*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are not in docs/."""
    made = {"index.md": first_page()}
    made |= {f"{folder}/index.md": list_of(folder, title) for folder, title in LISTED.items()}
    made |= {f"reference/{path.name}": path.read_text("utf-8") for path in sorted(REFERENCE.glob("*.md"))}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def first_page() -> str:
    """README.md, with links as from within docs/."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"\]\(docs/(decisions|formats)\)", r"](\1/index.md)", text)
    return re.sub(r"\]\(docs/", "](", re.sub(r"\]\((examples|tests)\b", r"](../\1", text))


def list_of(folder: str, title: str) -> str:
    lines = [f"- [{heading(path)}]({path.name})" for path in pages_of(folder)]
    return "\n".join([f"# {title}", "", *lines, ""])


def heading(path: Path) -> str:
    return path.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to what is no page become text."""
    here = (DOCS / page.file.src_uri).parent

    def without(found: re.Match[str]) -> str:
        label, target = found.groups()
        path = target.split("#")[0]
        if "://" in target or not path or (here / path).resolve().is_relative_to(DOCS):
            return found[0]
        return label if label.startswith("`") else f"{label} (`{(here / path).resolve().relative_to(ROOT)}`)"

    return LINK.sub(without, markdown)
