"""Answers far larger than their input: in portions between which others go on, and beyond `result_limit` a query fails
alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from control_kit import Server

from penstock.errors import PenstockError
from penstock.results.result_source import ResultRequest
from penstock.runtime.live import measures
from penstock.runtime.result_limits import ResultLimits

STREAM = "CREATE STREAM s (t TIMESTAMP, v INT) FROM MEMORY () TIMESTAMP BY t;"
GOOD = "CREATE QUERY good AS SELECT v FROM s WHERE v > 0;"
FINE = "CREATE QUERY fine {}AS RSTREAM(SELECT COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND]);"
ROWS = "INSERT INTO s VALUES ('2024-01-01 00:00:00', 1), ('2024-01-01 00:00:01', 2), ('2024-01-01 02:00:00', 3);"
#: The instants of the first row in microseconds.
FIRST = 1_704_067_200_000_000


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def rows_of(system: Server, name: str) -> int:
    return sum(table.num_rows for table in system.engine.answers(system.control.query(name)[1].place))


@pytest.mark.parametrize(
    "bad",
    [
        FINE.format(""),
        "CREATE QUERY fine AS RSTREAM(SELECT * FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND]);",
        "CREATE QUERY fine AS RSTREAM(SELECT v, SUM(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND] GROUP BY v);",
        "CREATE QUERY fine AS RSTREAM(SELECT ARRAY_AGG(v) AS n FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND]);",
        "CREATE QUERY fine AS RSTREAM(SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])"
        " UNION ALL RSTREAM(SELECT -v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND]);",
        "CREATE QUERY fine AS SELECT COUNT(*) AS n FROM"
        " (RSTREAM(SELECT v FROM s [RANGE 1 HOUR SLIDE 1 MICROSECOND])) [RANGE 1 SECOND];",
    ],
)
def test_others_go_on_between_portions(tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "MOST_ANSWERS", 50_000)
    system = Server(tmp_path)
    outcomes = system.run(STREAM + GOOD + bad + ROWS)
    # Registration says beforehand what will come.
    assert [len(one.warnings) for one in outcomes] == [0, 0, 1, 0]
    for round_ in range(1, 4):
        system.engine.round()
        place = system.control.query("fine")[1].place
        beats = system.engine.version().heartbeats
        assert system.answers("good")[:2] == system.answers("good") and len(system.answers("good")) == 2
        # Its heartbeat is the instant up to which it has answered.
        assert FIRST <= beats[place] < FIRST + 1_000_000 * round_
        assert rows_of(system, "fine") < 10_000 * round_
        times = [row["ts"] for row in system.answers("fine")]
        assert times == sorted(times)
    place = system.control.query("fine")[1].place
    system.control.close()
    # Another process goes on where this one has stopped, and is told of rounds that are due.
    again = Server(tmp_path)
    before = again.engine.version().heartbeats[place]
    again.engine.round()
    assert again.engine.version().heartbeats[place] > before
    again.done("CREATE QUERY more AS SELECT v FROM s WHERE v > 1; DROP QUERY fine;" + ROWS.replace("2024", "2025"))
    again.engine.round()
    assert [row["v"] for row in again.answers("good")] == [1, 2, 3, 1, 2]
    assert place not in again.engine.version().heartbeats
    again.control.close()


def test_a_query_beyond_its_limit_fails_alone(tmp_path: Path) -> None:
    system = Server(tmp_path)
    pairs = (
        "CREATE QUERY pairs WITH (result_limit '100 kB') AS"
        " SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b;"
    )
    system.done(STREAM + GOOD + pairs)
    values = ", ".join(f"('2024-01-01 00:00:00', {k})" for k in range(1, 201))
    system.done(f"INSERT INTO s VALUES {values}, ('2024-01-01 00:00:01', 0);")
    system.engine.round()
    until(lambda: system.status("pairs") == "FAILED")
    query = system.control.query("pairs")[1]
    assert query.code == "P0634" and "may have 102,400 (result_limit)" in (query.message or "")
    assert system.status("good") == "RUNNING" and len(system.answers("good")) == 200
    system.done("INSERT INTO s VALUES ('2024-01-01 00:00:02', 7), ('2024-01-01 00:00:03', 0);")
    system.engine.round()
    assert len(system.answers("good")) == 201
    system.control.close()


def test_who_reads_answers_that_are_dropped_is_told(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + "CREATE QUERY kept WITH (result_limit '4 kB') AS SELECT v FROM s [RANGE 1 MINUTE];")
    system.done("INSERT INTO s VALUES ('2024-01-01 00:00:00', 1), ('2024-01-01 00:00:01', 2);")
    system.engine.round()
    place, query = system.control.query("kept")[1].place, system.control.catalog.queries["kept"]
    waiting = system.engine.results(place, query, ResultRequest(beginning=True))
    found = waiting.next(5)
    assert found is not None and found.rows.num_rows == 1 and waiting.next(0) is None
    values = ", ".join(f"('2024-01-01 00:00:02', {k})" for k in range(1000))
    system.done(f"INSERT INTO s VALUES {values}, ('2024-01-01 00:00:03', 0);")
    system.engine.round()
    until(lambda: system.status("kept") == "FAILED")
    for read in (
        lambda: waiting.next(5),
        lambda: system.engine.results(place, query, ResultRequest(cursor=found.cursor)),
        lambda: system.engine.results(place, query, ResultRequest(after=FIRST)),
    ):
        with pytest.raises(PenstockError, match=r"P0712: rows .* are gone") as told:
            read()
        assert told.value.hint
    with pytest.raises(PenstockError, match="P0711"):
        system.engine.results(place, query, ResultRequest(snapshot=True, after=FIRST))
    # One that begins to read now, and one at the first cursor that is left, have all that comes.
    now = system.engine.results(place, query, ResultRequest())
    assert now.cursor is not None and now.cursor in told.value.message
    system.done("INSERT INTO s VALUES ('2024-01-01 01:00:00', 7), ('2024-01-01 01:00:01', 8);")
    system.engine.round()
    system.done("ALTER QUERY kept RESUME START NOW; INSERT INTO s VALUES ('2024-01-01 01:00:02', 9);")
    system.done("INSERT INTO s VALUES ('2024-01-01 01:00:03', 0);")
    system.engine.round()
    for source in (now, system.engine.results(place, query, ResultRequest(cursor=now.cursor))):
        part = source.next(5)
        assert part is not None and [row["v"] for row in part.rows.to_pylist()] == [9]
    with pytest.raises(PenstockError, match="P0711: there is no snapshot of kept"):
        system.engine.results(place, query, ResultRequest(snapshot=True, after=FIRST))
    system.control.close()


def test_the_limits() -> None:
    limits = ResultLimits.of(0, 1_000, {"b": 250})
    assert (limits.each, limits.together) == (100, 250)
    assert limits.exceeded({"a": 100, "b": 140}) is None
    assert limits.exceeded({"a": 101, "b": 0}) == "a"
    assert limits.exceeded({"a": 51, "b": 0}, shards=2) == "a"
    assert limits.exceeded({"a": 99, "b": 152}) == "b"
    assert limits.exceeded({"a": 90, "c": 91, "d": 89}) == "c"
    assert ResultLimits.of(5, 1_000, {}).each == 5
    assert ResultLimits().exceeded({"a": 10**18}) is None
    assert "all queries together may have 250" in limits.error("c", 91).message
    assert "the query may have 100 " in limits.error("a", 101).message
