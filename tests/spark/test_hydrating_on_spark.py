"""A query reads its past beside a run on Spark while other commands are carried out."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.live.control import Control
from penstock.runtime.spark.changes.prefetch import Prefetch
from penstock.runtime.spark.hydration.catch_up import Pause


def state(control: Control, number: int) -> str:
    return next(one.state.value for _, _, one in control.commands() if one.number == number)


@pytest.mark.spark
def test_other_commands_pass_a_query_that_reads_its_past(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    go, begun = threading.Event(), threading.Semaphore(0)
    read = Prefetch.read

    def slow(self: Prefetch, pause: Pause) -> None:
        read(self, pause)
        begun.release()
        while not go.is_set():
            pause(0.0)
            time.sleep(0.01)

    monkeypatch.setattr(Prefetch, "read", slow)

    def query(name: str, start: str = "") -> str:
        into = f"INTO FILES (path '{out / name}', format 'json')"
        return f"CREATE QUERY {name} {into} {start} AS SELECT ISTREAM(SUM(v) AS s) FROM S [RANGE 3 SECONDS];"

    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 100 SECONDS;" + query("first")
    )
    control.insert("S", rows(1, 2, 3, 4))
    until(lambda: len(result(out / "first")) == 3, control)
    (told,) = control.submit(query("warm", "START WARM"))
    assert told.outcome is not None and told.outcome.state.value == "HYDRATING"
    number = told.outcome.number
    assert begun.acquire(timeout=100)
    (other,) = control.submit(query("other"))
    assert other.outcome is not None and other.outcome.state.value == "RUNNING"
    assert not begun.acquire(timeout=0.5), "it goes on behind the other change, and reads nothing again"
    assert state(control, number) == "HYDRATING"
    assert [(one.stored.name, one.status.value) for one in control.queries()][-1] == ("warm", "HYDRATING")
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    assert begun.acquire(timeout=100), "and after a restart"
    assert state(control, number) == "HYDRATING"
    assert "warm" not in control.catalog.queries and "other" in control.catalog.queries
    go.set()
    until(lambda: state(control, number) == "RUNNING", control)
    control.insert("S", rows(5, 6))
    until(lambda: len(result(out / "warm")) == 2, control)
    assert [one[-1] for one in result(out / "warm")] == [9, 12]
    until(lambda: len(result(out / "first")) == 5, control)
    # It began when the first four rows had been read.
    until(lambda: [one[-1] for one in result(out / "other")] == [5], control)
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    assert control.version().waiting == frozenset() and state(control, number) == "RUNNING"
    control.close()
    engine.close()
