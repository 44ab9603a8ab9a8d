"""What the daemon does before workers are forked from it."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.runtime.spark.startup.daemon import AHEAD, run_in_daemon, warm
from penstock.runtime.spark.worker import tasks

#: The module with little to load, and a daemon that only tells what it is.
_LIGHT = """
import json, os, sys
import penstock.runtime.spark.startup.daemon as daemon
def told():
    given = {"group": os.getpgid(0), "argv": sys.argv, "folder": os.getcwd(), "mark": os.environ.get("MARK")}
    print(json.dumps(given), flush=True)
    sys.stdin.read()
daemon.warm = lambda: None
daemon._manage = told
daemon.main()
"""


def started(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _LIGHT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
    )


def ahead(place: Path) -> subprocess.Popen[str]:
    process = started("pyspark.worker", "--ahead", str(place))
    while not place.exists():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_what_spark_starts_gives_all_to_the_daemon_that_was_started_ahead(tmp_path: Path) -> None:
    place = tmp_path / "daemon"
    first = ahead(place)
    second = started("pyspark.worker", MARK="a", **{AHEAD: str(place)})
    assert second.stdout is not None
    told = json.loads(second.stdout.readline())
    assert (told["group"], told["mark"], told["argv"][1:]) == (first.pid, "a", ["pyspark.worker"])
    assert second.poll() is None
    # Spark closes the pipe that it gave to the process it started, and both end.
    second.communicate()
    assert (first.wait(), second.returncode) == (0, 0)


def test_a_daemon_that_nobody_wants_ends_with_the_driver(tmp_path: Path) -> None:
    first = ahead(tmp_path / "daemon")
    first.communicate()
    assert first.returncode == 0
    assert not (tmp_path / "daemon").exists()


def test_without_one_ahead_the_process_is_the_daemon(tmp_path: Path) -> None:
    assert not run_in_daemon(str(tmp_path / "daemon"))
    alone = started("pyspark.worker", **{AHEAD: str(tmp_path / "daemon")})
    said, _ = alone.communicate()
    assert json.loads(said)["argv"][1:] == ["pyspark.worker"]


def test_the_daemon_loads_what_workers_run() -> None:
    warm()
    assert {"penstock.runtime.spark.worker.ingest", "penstock.runtime.spark.worker.stage"} <= sys.modules.keys()


def test_what_a_worker_has_loaded_is_not_searched_after_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_NUMBERS", itertools.count(1))
    monkeypatch.setattr(tasks, "_LOADING", 1)
    monkeypatch.setattr(tasks, "_SEARCH_EVERY", 3)
    left_out = []
    try:
        for _ in range(4):
            tasks.settle()
            left_out.append(gc.get_freeze_count())
    finally:
        gc.unfreeze()
    loaded, kept, searched, again = left_out
    assert min(loaded, kept, again) > 0 == searched


def test_the_end_of_a_task_disturbs_no_round_that_another_thread_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_NUMBERS", itertools.count(tasks._LOADING + 2))
    ended = threading.Event()
    failed: list[SystemError] = []

    def work() -> None:
        while not ended.is_set():
            try:
                tuple(n for n in range(40))
            except SystemError as error:
                failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(200):
            tasks.settle()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
        gc.unfreeze()
    assert not failed


def test_what_has_been_added_since_is_excluded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # or the garbage of other tests, collected meanwhile, hides what is added
    monkeypatch.setattr(tasks, "_NUMBERS", itertools.count(tasks._LOADING + 2))
    monkeypatch.setattr(tasks, "_excluded", sys.getallocatedblocks())
    monkeypatch.setattr(tasks, "_MANY", 50_000)
    try:
        tasks.settle()
        before = gc.get_freeze_count()
        added = [[[n]] for n in range(50_000)]
        tasks.settle()
        assert gc.get_freeze_count() >= before + 2 * len(added)
    finally:
        gc.unfreeze()
