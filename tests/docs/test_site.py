"""The site of `make docs`: it builds without a warning, has every page and every public name, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf

ROOT = Path(__file__).resolve().parents[2]
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*stylesheet[^>]*\"(?:https?:)?//"
)


@pytest.fixture(scope="module")
def site() -> Path:
    """Built as everybody builds it; what `make docs` installs stays for the next time."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")
    }
    done = subprocess.run(
        ["make", "docs"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return ROOT / "build" / "site"


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages
    assert not [page for page in pages if not (site / page).exists()]
    first = (site / "index.html").read_text("utf-8")
    assert not [page for page in pages if f'href="{page.as_posix()}"' not in first], "not in the navigation"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert not [found for page in pages for found in FETCHED.findall(page.read_text("utf-8"))]


def test_every_public_name_has_its_place_in_the_reference(site: Path) -> None:
    headings = {
        name
        for page in (site / "reference").glob("*.html")
        for name in re.findall(r"<h2[^>]*><code>(\w+)</code>", page.read_text("utf-8"))
    }
    assert headings == set(hf.__all__)


def test_a_page_with_a_link_to_nowhere_is_refused(site: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Here\n\n[there](there.md#any)\n")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:")[0]
    settings = re.sub(r"^(hooks|docs_dir|site_dir):.*$", "", settings, flags=re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(settings)
    tool = [str(ROOT / ".venv-docs" / "bin" / "python"), "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(tool, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "there.md" in done.stderr, done.stderr


def test_the_lock_pins_and_hashes_what_the_site_needs() -> None:
    text = re.sub(r"\\\n", " ", (ROOT / "requirements-docs.txt").read_text("utf-8"))
    entries = [line for line in text.splitlines() if line.strip()]
    assert any(line.startswith("mkdocs-material==") for line in entries)
    assert all(re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line) for line in entries)


def test_the_reference_needs_nothing_but_the_package(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "reference.py", tmp_path], check=True, timeout=100)
    text = (tmp_path / "topologies.md").read_text("utf-8")
    assert "### `Stream.join`" in text
    assert "*,\n    within: Within | None = None" in text
