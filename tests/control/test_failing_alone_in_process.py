"""Without Spark too a query fails alone where one of its operators raises, takes too long, or emits too much."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import Server

from penstock.control.engine import EngineListener
from penstock.errors import PenstockError
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.testing import samples

DECLARED = (
    "CREATE FUNCTION checked (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:checked';"
    "CREATE STREAM s (t TIMESTAMP, v BIGINT) FROM MEMORY () TIMESTAMP BY t;"
    "CREATE QUERY good AS SELECT v FROM s;"
    "CREATE QUERY sums AS SELECT SUM(v) AS n FROM s [RANGE 1 HOUR];"
)
CHECKED = "query bad: the user-defined function checked failed: ValueError"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def rows(first: int, count: int, value: str = "{}") -> str:
    shown = (f"('2024-01-01 00:{n // 60:02}:{n % 60:02}', {value.format(n)})" for n in range(first, first + count))
    return f"INSERT INTO s VALUES {', '.join(shown)};"


@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        (
            "SELECT checked(v - 5) AS x FROM s",
            "P0621",
            CHECKED,
        ),
        (
            "SELECT checked(MIN(v - 5)) AS x FROM s [RANGE 1 HOUR]",
            "P0621",
            CHECKED,
        ),
        (
            "SELECT a.v FROM s [RANGE 1 HOUR] AS a, s [RANGE 1 HOUR] AS b WHERE a.v % 1 = b.v % 1",
            "P0634",
            "query bad: an operator, Join, emits",
        ),
    ],
)
def test_a_query_fails_alone(tmp_path: Path, bad: str, code: str, message: str) -> None:
    system = Server(tmp_path)
    system.done(DECLARED + f"CREATE QUERY bad WITH (result_limit '5 MB') AS {bad};")
    if code == "P0634":
        system.done("ALTER SYSTEM SET result_limit = '20 kB';")
    system.done(rows(5, 60))
    system.engine.round()
    assert system.status("bad") == "RUNNING" or code == "P0634"
    system.done(rows(65, 60, "{} - 65"))
    system.engine.round()
    until(lambda: system.status("bad") == "FAILED")
    query = system.control.query("bad")[1]
    assert query.code == code and (query.message or "").startswith(message)
    assert len(system.answers("good")) == 119
    system.done("CREATE QUERY more AS SELECT v FROM s WHERE v > 1000;")
    system.control.close()

    again = Server(tmp_path)
    assert again.status("bad") == "FAILED" and again.status("sums") == "RUNNING"
    again.done(rows(125, 2))
    again.engine.round()
    assert len(again.answers("good")) == 121
    again.done("DROP QUERY bad;")
    again.control.close()


class LateListener(EngineListener):
    """Tells a control of failures later, as where it is about to apply a command."""

    def __init__(self, listener: EngineListener) -> None:
        self._listener = listener
        self.failures: list[tuple[int, PenstockError]] = []

    def failed(self, place: int, error: PenstockError) -> None:
        self.failures.append((place, error))

    def batch(self, figures: BatchFigures, places: Mapping[str, int]) -> bool:
        return self._listener.batch(figures, places)

    def tell(self) -> None:
        for place, error in self.failures:
            self._listener.failed(place, error)


def test_a_command_that_was_accepted_before_the_failure_of_a_query_is_known(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(DECLARED.replace("TIMESTAMP BY t", "TIMESTAMP BY t RETAIN 1 MINUTE"))
    system.done(rows(5, 2))
    system.engine.round()
    system.done("CREATE QUERY bad AS SELECT checked(v) AS x FROM s;")
    system.done(rows(100, 2))
    late = LateListener(system.engine._listener)
    system.engine.listen(late)
    system.done(rows(300, 2, "{} - 400"))
    system.engine.round()
    assert [error.code for _, error in late.failures] == ["P0621"]
    # Its past is not kept any more: to begin it again would be an error.
    system.done("CREATE VIEW seen AS SELECT v FROM s; ALTER QUERY good SET (comment 'seen');")
    system.done(rows(400, 2))
    system.engine.round()
    assert system.status("bad") == "RUNNING" and len(late.failures) == 1
    late.tell()
    until(lambda: system.status("bad") == "FAILED")
    system.done("ALTER QUERY bad RESUME START NOW;")
    before = len(system.answers("bad"))
    system.done(rows(500, 2))
    system.engine.round()
    assert system.status("bad") == "RUNNING" and len(system.answers("bad")) > before
    system.control.close()


def test_a_function_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(numbers: pa.Array) -> pa.Array:
        time.sleep(0.5)
        return numbers

    monkeypatch.setattr(samples, "checked", slow)
    system = Server(tmp_path)
    system.done(DECLARED + "CREATE QUERY bad AS SELECT checked(v) AS x FROM s;")
    system.done("ALTER SYSTEM SET function_timeout = '10 ms';")
    system.done(rows(5, 10))
    system.engine.round()
    until(lambda: system.status("bad") == "FAILED")
    assert "takes longer than" in (system.control.query("bad")[1].message or "")
    assert len(system.answers("good")) == 9
    system.control.close()
