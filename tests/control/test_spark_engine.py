"""What the engine on Spark refuses before a command is accepted; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.engine import Activity, NextVersion, StandingQuery
from penstock.control.spark import SparkEngine
from penstock.language import bind_script

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY stream INTO MEMORY () AS SELECT v FROM S;
CREATE QUERY relation INTO MEMORY () AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"""
STREAM, RELATION = bind_script(SCRIPT).queries
NOW, RUNNING, PAUSED = Start(StartMode.NOW), Activity.RUNNING, Activity.PAUSED


@pytest.fixture
def engine(tmp_path: Path) -> SparkEngine:
    """An engine with a stream at place 1 and a relation at place 2, without Spark."""
    made = SparkEngine(tmp_path, lambda: pytest.fail("Spark is not needed"))
    made._standing, made._sources = {1: (11, RUNNING), 2: (12, RUNNING)}, frozenset({"S"})
    return made


@pytest.mark.parametrize(
    "query",
    [
        StandingQuery(1, 11, STREAM, NOW, RUNNING),
        StandingQuery(1, 13, STREAM, NOW, RUNNING),
        StandingQuery(1, 11, STREAM, NOW, PAUSED),
        StandingQuery(1, 11, STREAM, NOW, Activity.SILENT),
        StandingQuery(1, 12, STREAM, NOW, RUNNING),
        StandingQuery(2, 13, RELATION, NOW, RUNNING),
        StandingQuery(2, 13, RELATION, NOW, RUNNING, reset=True),
        StandingQuery(3, 13, None, NOW, PAUSED),
    ],
)
def test_a_query_of_a_run_that_has_not_begun_is_checked_when_it_is_changed(
    engine: SparkEngine, query: StandingQuery
) -> None:
    engine.check(NextVersion(1, queries={query.place: query}))


def test_a_version_becomes_the_work_of_a_run(engine: SparkEngine) -> None:
    exchanged = {1: StandingQuery(1, 12, STREAM, NOW, RUNNING), 2: StandingQuery(2, 11, STREAM, NOW, RUNNING)}
    work = engine._work(NextVersion(1, queries=exchanged))
    assert work.moved == {"q1": "q2", "q2": "q1"} and not work.silent
    silent = {1: StandingQuery(1, 11, STREAM, NOW, Activity.SILENT), 2: StandingQuery(2, 12, None, NOW, PAUSED)}
    work = engine._work(NextVersion(2, queries=silent))
    assert [query.name for query in work.queries] == ["q1"]
    assert (work.silent, work.paused, work.moved) == (frozenset({"q1"}), frozenset({"q2"}), {})
