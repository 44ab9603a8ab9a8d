"""What the engine on Spark refuses before a command is accepted; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.query import Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.control.engine import Activity, NextVersion, StandingQuery, StandingSource
from penstock.control.life.reconcile import difference
from penstock.engines.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.execution.step_failures import with_names
from penstock.runtime.live.starts import starts_text
from penstock.runtime.spark.work import Work

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY stream INTO MEMORY () AS SELECT v FROM S;
CREATE QUERY relation INTO MEMORY () AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"""
STREAM, RELATION = bind_script(SCRIPT).queries
NOW, RUNNING, PAUSED = Start(StartMode.NOW), Activity.RUNNING, Activity.PAUSED


@pytest.fixture
def engine(tmp_path: Path) -> SparkEngine:
    """An engine with a stream at place 1 and a relation at place 2, without Spark."""
    made = SparkEngine(tmp_path, lambda: pytest.fail("Spark is not needed"))
    standing = {1: StandingQuery(1, 11, STREAM, NOW, RUNNING), 2: StandingQuery(2, 12, RELATION, NOW, RUNNING)}
    sources = {0: StandingSource(0, next(iter(declared_sources(STREAM.root).values())))}
    made._version = NextVersion(0, sources, standing)
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


def work_of(engine: SparkEngine, version: NextVersion) -> Work:
    return engine._work(version, difference(version, engine._version.standing))


def test_a_version_becomes_the_work_of_a_run(engine: SparkEngine) -> None:
    exchanged = {1: StandingQuery(1, 12, STREAM, NOW, RUNNING), 2: StandingQuery(2, 11, STREAM, NOW, RUNNING)}
    work = work_of(engine, NextVersion(1, queries=exchanged))
    assert work.moved == {"q1": "q2", "q2": "q1"} and not work.silent
    silent = {1: StandingQuery(1, 11, STREAM, NOW, Activity.SILENT), 2: StandingQuery(2, 12, None, NOW, PAUSED)}
    work = work_of(engine, NextVersion(2, queries=silent))
    assert [query.name for query in work.queries] == ["q1"]
    assert (work.silent, work.paused, work.moved) == (frozenset({"q1"}), frozenset({"q2"}), {})


def test_before_anything_runs_a_query_can_begin_in_each_way(engine: SparkEngine) -> None:
    assert starts_text(engine.starts(STREAM)) == "NOW: yes\nWARM: yes\nBEGINNING: yes"


def test_an_error_has_the_names_of_queries_that_their_users_know() -> None:
    """Also where one of them has the name that another one has in the engine."""
    error = PenstockError("P0601", "query q1: it reads query q2 and query q12", hint="look", cause=ValueError())
    named = with_names(error, {"q1": "q2", "q2": "totals"})
    assert named.message == "query q2: it reads query totals and query q12"
    assert (named.code, named.hint, named.cause) == (error.code, error.hint, error.cause)
