"""What the daemon does before workers are forked from it."""

from __future__ import annotations

import gc
import itertools
import sys

import pytest

from penstock.runtime.spark import tasks
from penstock.runtime.spark.daemon import warm


def test_the_daemon_loads_what_workers_run() -> None:
    warm()
    assert {"penstock.runtime.spark.ingest", "penstock.runtime.spark.stage"} <= sys.modules.keys()


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
