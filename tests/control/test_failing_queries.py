"""What happens where a query fails alone: its attribute `on_failure`, and failures that a start finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from control_kit import STREAM, SUM, Server

from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.life.reconcile import difference
from penstock.control.transactions.backlog import AcceptedItem, Backlog
from penstock.engines.in_process import InProcessEngine
from penstock.engines.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.runtime.spark.output.delivery import DeliveredAnswer, SinkIsolation

STOP = SUM.replace("q AS", "q WITH (on_failure 'stop server') AS")


class Failing(InProcessEngine):
    """An engine whose queries fail when they are told to; at its first change those at the places `left_out`."""

    def __init__(self, folder: Path, left_out: tuple[int, ...] = ()) -> None:
        super().__init__(folder)
        self._left_out = left_out

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        found = super().change(version, prepared)
        for place in self._left_out:
            self.fail(place)
        self._left_out = ()
        return found

    def fail(self, place: int) -> None:
        self._listener.failed(place, PenstockError("P0621", "a function failed"))


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def failed(folder: Path, script: str) -> Server:
    """Return a system whose query `q` has failed."""
    engine = Failing(folder / "engine")
    system = Server(folder, engine)
    system.done(STREAM + script)
    assert system.control.stop_reason is None
    engine.fail(system.control.query("q")[1].place)
    until(lambda: system.status("q") == "FAILED")
    return system


@pytest.mark.parametrize("script", [SUM, SUM.replace("q AS", "q WITH (on_failure 'pause') AS")])
def test_a_query_that_fails_is_left_out(tmp_path: Path, script: str) -> None:
    system = failed(tmp_path, script)
    assert system.control.stop_reason is None
    system.done("ALTER QUERY q RESUME START NOW;")
    assert system.status("q") == "RUNNING"
    system.control.close()


@pytest.mark.parametrize("script", [STOP, SUM + "ALTER QUERY q SET (on_failure 'stop server');"])
def test_a_query_stops_the_server_and_the_next_start_leaves_it_out(tmp_path: Path, script: str) -> None:
    system = failed(tmp_path, script)
    reason = system.control.stop_reason
    assert reason is not None and reason.code == "P0621" and "query q failed: a function failed" in reason.message
    assert "RESUME" in (reason.hint or "")
    system.control.close()
    again = Server(tmp_path)
    assert again.status("q") == "FAILED" and again.control.stop_reason is None
    again.done("ALTER QUERY q RESUME START NOW;")
    assert again.status("q") == "RUNNING" and again.control.stop_reason is None
    again.control.close()


@pytest.mark.parametrize("script", [SUM, STOP])
def test_a_failure_that_a_start_finds_is_noted(tmp_path: Path, script: str) -> None:
    system = Server(tmp_path)
    system.done(STREAM + script)
    place = system.control.query("q")[1].place
    system.control.close()
    again = Server(tmp_path, Failing(tmp_path / "engine", (place,)))
    until(lambda: again.status("q") == "FAILED")
    assert (again.control.stop_reason is not None) == (script == STOP)
    assert "FAILED: P0621 a function failed" in [text for _, text, _ in again.control.commands()]
    again.control.close()


def test_each_query_has_its_own_time_for_a_failing_sink(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + SUM.replace("q AS", "q WITH (sink_retry '200 ms') AS") + SUM.replace("q AS", "r AS"))
    applier = system.control._applier
    version = applier._next([], applier.current)
    places = {name: system.control.query(name)[1].place for name in "qr"}
    assert [version.queries[places[name]].sink_retry for name in "qr"] == [0.2, None]
    work = SparkEngine(tmp_path / "spark", lambda: pytest.fail("Spark is not needed"))._work(
        version, difference(version, {})
    )
    assert work.sink_retries == {f"q{places['q']}": 0.2}
    system.control.close()


class Keeping:
    """Keeps answers that no sink took."""

    def __init__(self) -> None:
        self.kept: list[str] = []

    def keep(self, query: str, batch: int, answer: object) -> None:
        self.kept.append(query)


def test_a_sink_is_tried_again_for_the_time_of_its_query() -> None:
    keeping, attempts = Keeping(), {"short": 0, "long": 0}
    isolation = SinkIsolation(keeping, 0.0, {"long": 0.5})  # type: ignore[arg-type]

    def attempt(query: str) -> DeliveredAnswer:
        attempts[query] += 1
        raise PenstockError("P0502", "its disk is full")

    for query in attempts:
        isolation.write(query, 1, lambda query=query: attempt(query), lambda: None)  # type: ignore[misc, arg-type]
    assert keeping.kept == ["short", "long"] and attempts["short"] == 1 and attempts["long"] > 2


def test_readings_end_that_stand_behind_one_that_cannot() -> None:
    class Reading:
        def __init__(self, error: BaseException | None) -> None:
            self.error, self.ended = error, False

        def end(self) -> None:
            self.ended = True
            if self.error is not None:
                raise self.error

    class Request:
        error: BaseException | None = None

        def refuse(self, error: BaseException) -> None:
            self.error = error

    backlog, failure = Backlog(), PenstockError("P0601", "the disk is full")
    readings = [Reading(OSError("the disk is full")), Reading(None)]
    requests = [Request(), Request()]
    for reading, request in zip(readings, requests, strict=True):
        backlog.add(AcceptedItem(None, reading=cast("Any", reading), request=cast("Any", request)))
    backlog.fail(failure)
    assert [reading.ended for reading in readings] == [True, True]
    assert [request.error for request in requests] == [failure, failure]
