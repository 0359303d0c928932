"""The program in docs/databases.md prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "databases.md"
RUN = 'shop.run(store="shop-store", until="available")'


def test_the_program_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    program, _, printed = found[1].rpartition("# ")
    assert RUN in program
    monkeypatch.chdir(tmp_path)
    # Without Spark: the same run, without waiting for a session.
    local = "from holdfast.testing import run_local; run_local(shop, store='file:shop-store')"
    exec(compile(program.replace(RUN, local), str(PAGE), "exec"), {})
    assert capsys.readouterr().out == printed
