"""What a server on Spark tells of its batches, with a run that is not there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.control.engine import EngineListener
from penstock.engines import spark
from penstock.engines.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.runtime.monitoring.progress import RunProgress


@dataclass
class FakeRun:
    """A run whose batches are delivered by a call. before: batches of an earlier process; asked: how often its sums
    were computed.
    """

    active: bool = True
    before: int = 0
    delivered: int = 0
    asked: int = 0
    unread: dict[str, int] = field(default_factory=dict)
    error: PenstockError | None = None
    epoch: Any = field(default_factory=lambda: SimpleNamespace(number=7))

    @property
    def rounds(self) -> Any:
        return SimpleNamespace(unread=lambda: self.unread)

    def deliver(self) -> None:
        self.delivered += 1

    def stop(self) -> None:
        self.active = False

    @property
    def batches(self) -> int:
        return self.before + self.delivered

    def sums(self) -> RunProgress:
        self.asked += 1
        return RunProgress(batches=self.batches, rows_in=10 * self.batches)


@dataclass
class Served:
    """An engine that serves a run. events: those of its batches."""

    engine: SparkEngine
    run: FakeRun
    events: list[Mapping[str, object]] = field(default_factory=list)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Served]:
    monkeypatch.setattr(spark, "_LOOK", 0.002)
    made = Served(SparkEngine(tmp_path, lambda: pytest.fail("Spark is not needed")), FakeRun())
    run: Any = made.run
    made.engine.run = run
    listener = EngineListener()
    listener.delivered = made.events.append  # type: ignore[method-assign]
    made.engine.listen(listener)
    made.engine.serve()
    yield made
    made.engine.close()


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_each_batch_is_an_event_and_nothing_is_asked_between_them(served: Served) -> None:
    made, run, events = served.engine, served.run, served.events
    for number in (1, 2):
        run.deliver()
        until(lambda number=number: made.health().batch == number and len(events) == number)  # type: ignore[misc]
        asked = run.asked
        time.sleep(0.05)
        assert run.asked == asked <= number + 1
    assert [(event["number"], event["version"], event["rows_in"]) for event in events] == [(1, 7, 10), (2, 7, 20)]


def test_batches_of_an_earlier_process_are_counted(served: Served) -> None:
    made, run = served.engine, served.run
    run.before = 5
    run.deliver()
    until(lambda: made.health().batch == 6)


def test_time_passes_without_a_batch_only_while_input_waits(served: Served) -> None:
    made, run = served.engine, served.run
    run.deliver()
    until(lambda: made.health().batch == 1)
    run.unread = {"s": 1}
    time.sleep(0.1)
    until(lambda: (made.health().seconds or 0.0) >= 0.1)
    run.unread = {}
    until(lambda: (made.health().seconds or 0.0) < 0.1)


def test_the_error_that_ends_the_run_is_logged_once_with_its_cause(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    made, run = served.engine, served.run
    run.error = PenstockError("P0601", "the run failed: odd", hint="look", cause=AssertionError("deep inside"))
    with caplog.at_level(logging.ERROR, "penstock.server"):
        run.active = False
        until(lambda: bool(caplog.records))
        time.sleep(0.05)
    (record,) = caplog.records
    assert record.getMessage() == "the run has ended with P0601: the run failed: odd"
    assert record.__dict__["fields"] == {"error": "P0601", "hint": "look"}
    assert "deep inside" in caplog.text
    assert made.health().problem == "the run failed: P0601"
    assert made.ended_by() is run.error


def test_a_run_that_goes_on_has_not_ended(served: Served) -> None:
    made, run = served.engine, served.run
    assert made.ended_by() is None
    # The error of a query that was left out, say.
    run.error = PenstockError("P0502", "odd")
    assert made.ended_by() is None


def test_spark_is_asked_seldom_whether_the_run_is_active(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = served.engine
    asked: list[str] = []

    def noted(run: FakeRun, name: str) -> object:
        asked.append(name)
        return object.__getattribute__(run, name)

    monkeypatch.setattr(FakeRun, "__getattribute__", noted)
    # The batches are asked for with every look.
    until(lambda: asked.count("batches") > 100)
    assert made.ended_by() is None
    looks, questions = asked.count("batches"), asked.count("active")
    assert 100 / spark._CHECKED_EVERY - 2 <= questions <= looks / spark._CHECKED_EVERY + 2
