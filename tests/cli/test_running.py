"""`holdfast run` says what is wrong with the program or the store in one sentence, before Spark starts."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkContext

from holdfast import __version__
from holdfast.cli.load import load_topology
from holdfast.cli.main import run_command
from holdfast.cli.running import check_master, settings_of
from holdfast.errors import ConfigError, InputError, MismatchError, OwnedError, TopologyError
from holdfast.runtime.engines.spark import session
from holdfast.store.urls import open_store
from holdfast.testing import run_local

PROGRAM = """
import holdfast as hf

numbers = hf.Topology("{name}")
rows = numbers.source(hf.Rows([(1,), (2,)], "n long"), name="rows").consistent(name="r")
rows.sink(hf.MemorySink("cli-{name}"), name="out")
"""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "make_session", refuse)
    monkeypatch.setattr(session, "active_or_new", refuse)


def said_by(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.count("error:") == 1
    return said


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        ("x = (\n", "line 1: '(' was never closed.", TopologyError.exit_code),
        (
            "def f():\n    return 1 / 0\n\nf()\n",
            "line 2: ZeroDivisionError: division by",
            TopologyError.exit_code,
        ),
        ("import not_a_module\n", "line 1: ModuleNotFoundError: No module named", TopologyError.exit_code),
        ("raise SystemExit(3)\n", "line 1: the program ends itself (exit code 3).", TopologyError.exit_code),
        ("x = 1\n", "has 0 topologies; exactly one is needed.", ConfigError.exit_code),
    ],
    ids=["syntax", "raises", "import", "ends itself", "no topology"],
)
def test_a_program_that_cannot_be_loaded(
    text: str, said: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_program.py").write_text(text)
    store = tmp_path / "store"
    assert run_command(["run", str(tmp_path / "broken_program.py"), "--store", str(store)]) == code
    assert said in said_by(capsys)
    assert not store.exists()


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["run", str(tmp_path / "nothing.py")]) == ConfigError.exit_code
    assert "there is no file" in said_by(capsys)


WRONG = {
    "no input": (
        "hf.Files({here!r} + '/nowhere', 'json', schema='n long')",
        "n",
        "nowhere does not exist",
        InputError,
    ),
    "no column": ("hf.Rows([(1,)], 'n long')", "m", "'m'", TopologyError),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_topology_that_cannot_run(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, key, said, kind = WRONG[what]
    text = "import holdfast as hf\nwrong = hf.Topology('wrong')\n"
    text += f"rows = wrong.source({source.format(here=str(tmp_path))}, name='rows')\n"
    text += f"rows.aggregate({key!r}, c=hf.count(), name='c').sink(hf.MemorySink('wrong'), name='out')\n"
    (tmp_path / "wrong_program.py").write_text(text)
    assert run_command(["run", str(tmp_path / "wrong_program.py")]) == kind.exit_code
    assert said in said_by(capsys)


def test_a_wrong_store_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "numbers_url.py").write_text(PROGRAM.format(name="numbers"))
    assert (
        run_command(["run", str(tmp_path / "numbers_url.py"), "--store", "ftp://x/y"])
        == ConfigError.exit_code
    )
    assert "no kind of store called 'ftp'" in said_by(capsys)


def test_a_store_of_another_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("these", "others"):
        (tmp_path / f"{name}_program.py").write_text(PROGRAM.format(name=name))
    run_local(load_topology(str(tmp_path / "these_program.py")), store=str(tmp_path / "store"))
    command = ["run", str(tmp_path / "others_program.py"), "--store", str(tmp_path / "store")]
    assert run_command(command) == MismatchError.exit_code
    assert "belongs to another topology (these, this one is others)" in said_by(capsys)


def test_a_store_with_a_live_owner(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "owned_program.py").write_text(PROGRAM.format(name="owned"))
    store = open_store(str(tmp_path / "store"))
    store.open("owned")
    store.acquire()
    try:
        command = ["run", str(tmp_path / "owned_program.py"), "--store", str(tmp_path / "store")]
        assert run_command(command) == OwnedError.exit_code
        assert "--take-over" in said_by(capsys)
    finally:
        store.release()


def test_a_file_that_cannot_be_shipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shipping_program.py").write_text(PROGRAM.format(name="shipping"))
    command = ["run", str(tmp_path / "shipping_program.py"), "--py-files", str(tmp_path / "no.zip")]
    assert run_command(command) == ConfigError.exit_code
    assert "no.zip" in said_by(capsys)


def test_spark_starts_early_for_a_program_that_needs_it_to_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    text = "from pyspark.sql import functions as F\nassert STARTED or F.col('n') is not None\n"
    text = f"from pathlib import Path\nSTARTED = Path({str(tmp_path / 'started')!r}).exists()\n" + text
    (tmp_path / "columns_program.py").write_text(text + PROGRAM.format(name="columns"))
    found = load_topology(str(tmp_path / "columns_program.py"), (tmp_path / "started").touch)
    assert found.name == "columns"


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--version"]) == 0
    assert capsys.readouterr().out == f"holdfast {__version__}\n"


def test_what_is_wrong_is_told_without_waiting_for_pandas(tmp_path: Path) -> None:
    """Its import takes longer than everything else that is done until then."""
    (tmp_path / "wrong_program.py").write_text(
        "import holdfast as hf\nwrong = hf.Topology('wrong')\n"
        "wrong.source(hf.Files('nowhere', 'json', schema='n long'), name='rows').sink(hf.MemorySink('w'), name='out')\n"
    )
    text = (
        "import sys\nfrom holdfast.cli.main import run_command\nrun_command(['run', 'wrong_program.py'])\n"
        "print([name for name in ('pandas', 'polars') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "nowhere does not exist" in done.stderr
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--master", "loca[2]"], "--master loca[2] is none that Spark knows"),
        (["--conf", "spark.executor.memory"], "--conf spark.executor.memory is no setting"),
        (["--conf", "executor.memory=2g"], "settings that begin with spark."),
        (["--packages", "org.example"], "--packages org.example is no package"),
        (["--metrics", "nowhere"], "'nowhere' is no address for metrics"),
        (["--until", "tomorrow"], "--until tomorrow is not known"),
    ],
)
def test_a_wrong_option(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "options_program.py").write_text("raise AssertionError('the program was loaded')")
    assert run_command(["run", str(tmp_path / "options_program.py"), *options]) == ConfigError.exit_code
    assert said in said_by(capsys)


def test_a_port_for_metrics_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken_program.py").write_text(PROGRAM.format(name="taken"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ["run", str(tmp_path / "taken_program.py"), "--metrics", address]
        assert run_command(command) == ConfigError.exit_code
    assert f"metrics cannot be shown at {address}: Address already in use." in said_by(capsys)


def test_settings_and_packages_reach_spark() -> None:
    given = ["spark.jars.packages=a:b:1", "spark.x=y=z"]
    assert settings_of(given, ["c:d:2,e:f:3", "g:h:4"]) == {
        "spark.jars.packages": "a:b:1,c:d:2,e:f:3,g:h:4",
        "spark.x": "y=z",
    }


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2,4]",
        "local-cluster[1,1,1024]",
        "yarn",
        "spark://h:7077",
        "k8s://https://h",
    ],
)
def test_masters_that_spark_knows(master: str) -> None:
    check_master(master)


def test_the_program_finds_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "arguments_program.py"
    program.write_text("import sys\nraise ValueError(sys.argv)\n")
    before = list(sys.argv)
    command = ["run", str(program), "--until", "available", "--", "--rows", "5", "--store=x"]
    assert run_command(command) == TopologyError.exit_code
    assert f"line 2: ValueError: ['{program}', '--rows', '5', '--store=x']" in said_by(capsys)
    assert sys.argv == before


def test_a_program_that_refuses_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--rows', type=int)\nparser.parse_args()\n"
    (tmp_path / "parsing_program.py").write_text(text)
    command = ["run", str(tmp_path / "parsing_program.py"), "--", "--rows", "many"]
    assert run_command(command) == TopologyError.exit_code
    said = capsys.readouterr().err
    assert "invalid int value: 'many'" in said
    assert "line 4: the program ends itself (exit code 2)" in said


REFUSED = {
    "a wrong option": ["shop.py", "--stor", "x"],
    "a file that is not there": ["shops.py"],
    "a Python error": ["wrong.py"],
    "a store with a live owner": ["shop.py", "--store", "owned"],
    "no input directory": ["shop.py", "--store", "store"],
}
SLOW = ("pyspark", "pandas", "sqlite3", "http.server", "holdfast.runtime.job", "holdfast.operators.kinds")
"""What a run needs, and takes long to import. scripts/refusals.py measures how long refusals take."""


@pytest.mark.parametrize("what", REFUSED)
def test_who_is_refused_does_not_wait_for_what_only_a_run_needs(what: str, tmp_path: Path) -> None:
    text = "import holdfast as hf\nshop = hf.Topology('shop')\n"
    text += "rows = shop.source(hf.Files('orders', format='json', schema='id long'), name='orders')\n"
    text += "rows.filter('id > 0').sink(hf.FileSink('out'), name='out')\n"
    (tmp_path / "shop.py").write_text(text)
    (tmp_path / "wrong.py").write_text(text + "nothing_of_the_kind\n")
    store = open_store(str(tmp_path / "owned"))
    store.open("shop")
    store.acquire()
    try:
        asks = (
            "import sys\nfrom holdfast.cli.main import run_command\n"
            f"code = run_command(['run', *{REFUSED[what]!r}])\n"
            f"print(code, [name for name in {SLOW!r} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", asks], cwd=tmp_path, capture_output=True, text=True)
    finally:
        store.release()
    code, loaded = done.stdout.strip().split(" ", 1)
    assert int(code) in (2, 3, 4, OwnedError.exit_code), done.stderr
    assert loaded == "[]"
