"""The demonstration from beginning to end: generate, run golden, run under kills, compare."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.dashboard.server import Page
from holdfast.demo.driver_process import Driver
from holdfast.demo.feeder import Feeder
from holdfast.demo.generate import Volume, write_input
from holdfast.demo.nemesis import PATIENCE_S, Kill, Nemesis, plan_kills
from holdfast.demo.oracle import Expected, expected
from holdfast.demo.show import Display
from holdfast.demo.topology import Places
from holdfast.demo.verdict import Verdict, judge, sent_again
from holdfast.demo.watch import Watch
from holdfast.errors import HoldfastError
from holdfast.store.urls import open_store
from holdfast.testing import processes

TICKS_PER_S = 1.8
TICKS_MIN = 24


def run_demo(
    kills: int = 5, seconds: float = 45.0, seed: int | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Run it and return what happened; `golden_equal` says whether every promise was kept.

    Everything lies in a temporary directory, which is removed unless a promise was broken or something failed.
    """
    begun = time.monotonic()
    chosen = secrets.randbelow(1_000_000) if seed is None else seed
    display = Display(quiet)
    with _Workplace(display) as place:
        scene = _Scene(place, display, chosen, max(TICKS_MIN, round(seconds * TICKS_PER_S)), seconds)
        right = scene.prepare()
        golden = scene.golden_run(right)
        watch, nemesis = scene.killed_run(kills)
        killed = judge(scene.killed, right)
        result = _result(scene, right, golden, killed, watch, nemesis)
        place.keep = not result["golden_equal"]
    result["processes_left"] = len(place.left)
    result["seconds"] = round(time.monotonic() - begun, 1)
    display.result(result)
    return result


def _page(store: str) -> Page | None:
    """Where the killed run can be seen; None where no port is to be had."""
    try:
        return Page(store)
    except HoldfastError:
        return None


class _Scene:
    """One demonstration under way."""

    def __init__(self, place: _Workplace, display: Display, seed: int, ticks: int, seconds: float) -> None:
        root = place.root
        self.root, self.tag, self.display, self.seed = root, place.tag, display, seed
        self.volume = Volume(ticks=ticks)
        self.pause_s = seconds / ticks
        self.pool = root / "pool"
        self.golden = Places(self.pool, root / "golden")
        self.killed = Places(root / "input", root / "killed")
        self._drivers = 0

    def prepare(self) -> Expected:
        rows = write_input(self.pool, self.seed, self.volume)
        told = ", ".join(f"{count:,} {kind}" for kind, count in rows.items())
        self.display.say(f"A shop's morning (seed {self.seed}): {told}.")
        return expected(self.pool)

    def golden_run(self, right: Expected) -> Verdict:
        """The same topology over the same files, undisturbed."""
        self.display.say("Golden run: the topology over all files, undisturbed. Starting Spark …")
        explained = self.root / "explain.txt"
        driver = self._driver(self.golden, "--golden", str(explained))
        while driver.process.poll() is None:
            if explained.exists() and explained.stat().st_size:
                self.display.explain(explained.read_text())
                break
            time.sleep(0.1)
        code = driver.wait(PATIENCE_S)
        if code != 0:
            raise HoldfastError(
                f"the golden run ended with code {code}: {driver.last_words()}", cure=f"Look at {driver.log}."
            )
        return judge(self.golden, right)

    def killed_run(self, kills: int) -> tuple[Watch, Nemesis]:
        """Files arrive, processes die. Ends when everything has been processed."""
        plan = plan_kills(self.seed, kills, self.volume.ticks)
        self.display.say(f"Killed run: the same files arrive one by one, and {kills} times something dies.")
        watch, page = Watch(self.killed.store), _page(self.killed.store)
        if page is not None:
            self.display.say(f"Look at it while it runs: {page.url}")
        feeder = Feeder(self.pool, self.killed.input, self.volume.ticks, self.pause_s)
        shown: list[Kill] = []

        def turn() -> None:
            text = "killing" if len(shown) < kills else "finishing"
            self.display.progress(watch, feeder, shown, kills, text)

        nemesis = Nemesis(
            self.tag, watch, feeder, lambda: self._driver(self.killed), self.killed.notifications, turn
        )
        shown = nemesis.done
        try:
            nemesis.until(lambda: watch.starts > 0, "the first driver")
            feeder.start()
            nemesis.carry_out(plan)
            nemesis.until(lambda: _all_read(feeder, watch), "the end of the input")
            open_store(self.killed.store).post("stop", {})
            code = nemesis.driver.wait(PATIENCE_S)
        finally:
            if page is not None:
                page.close()
            feeder.stop()
            self.display.end_progress()
        if code != 0:
            raise HoldfastError(f"the last driver ended with code {code}: {nemesis.driver.last_words()}")
        watch.poll()
        return watch, nemesis

    def _driver(self, places: Places, *more: str) -> Driver:
        self._drivers += 1
        places.output.mkdir(exist_ok=True)
        arguments = [str(places.input), str(places.output), *more]
        return Driver(arguments, self.tag, self.root, f"driver-{self._drivers}")


def _all_read(feeder: Feeder, watch: Watch) -> bool:
    return feeder.ended_at is not None and watch.settled_since(feeder.ended_at)


def _result(
    scene: _Scene, right: Expected, golden: Verdict, killed: Verdict, watch: Watch, nemesis: Nemesis
) -> dict[str, Any]:
    counted = watch.lost_rows
    replayed = sent_again(scene.killed.notifications, [kill.log_bytes for kill in nemesis.done])
    kept = {
        "exactly_once": killed.exactly_once and golden.exactly_once,
        "at_least_once": killed.at_least_once,
        "best_effort": killed.best_effort(counted),
    }
    return {
        "golden_equal": all(kept.values()),
        "kills": len(nemesis.done),
        "exactly_once": killed.as_dict(),
        "at_least_once": {
            "missing": killed.notifications.missing,
            "duplicates": killed.notifications.duplicated,
            "strange": killed.notifications.different,
            "rows": killed.notifications.rows,
        },
        "best_effort": {
            "lost": killed.clicks.missing,
            "counted": counted,
            "duplicates": killed.clicks.duplicated,
            "strange": killed.clicks.different,
            "rows": killed.clicks.rows,
        },
        "resets": len(watch.resets) + watch.restores,
        "restarts": watch.restores,
        "epochs": watch.epochs,
        "kill_log": [_kill(kill, rows) for kill, rows in zip(nemesis.done, replayed, strict=True)],
        "kills_unfelt": nemesis.unfelt,
        "kept": kept,
        "golden": {**golden.as_dict(), "notifications": asdict(golden.notifications), "clicks": asdict(golden.clicks)},
        "expected": {
            "payments": len(right.payments), "accounts": len(right.accounts),
            "notifications": len(right.notifications), "clicks": len(right.clicks),
        },
        "seed": scene.seed,
    }  # fmt: skip


def _kill(kill: Kill, rows_replayed: int) -> dict[str, Any]:
    """`rows_replayed`: payments that had gone out to the notification log and went out again after this kill."""
    return {
        "kind": kill.kind,
        "epoch": kill.epoch,
        "ticks": kill.ticks,
        "effect": kill.effect,
        "rows_replayed": rows_replayed,
        "recovered_s": kill.recovered_s,
    }


class _Workplace:
    """A directory and a tag for one run. Whatever happens, no process with the tag is left behind; the directory is
    removed unless something is wrong."""

    def __init__(self, display: Display) -> None:
        self.tag = processes.new_tag("demo")
        self.root = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        self.keep = False
        self.left: list[processes.Process] = []
        self._display = display
        self._before: Any = None

    def __enter__(self) -> _Workplace:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, _leave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._display.end_progress()
        self.left = processes.kill_all(self.tag)
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
        failed = kind is not None and issubclass(kind, Exception)
        if self.keep or failed:
            self._display.complain(f"Everything is kept for a look in {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)


def _leave(number: int, frame: object) -> None:
    """SIGTERM: clean up as after Ctrl-C."""
    raise KeyboardInterrupt
