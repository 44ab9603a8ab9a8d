"""What the engine on Spark refuses before a command is accepted; nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.engine import Activity, NextVersion, StandingQuery
from penstock.control.spark import SparkEngine
from penstock.errors import PenstockError
from penstock.language import bind_script

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY stream INTO MEMORY () AS SELECT v FROM S;
CREATE QUERY relation INTO MEMORY () AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"""
STREAM, RELATION = bind_script(SCRIPT).queries
NOW, RUNNING = Start(StartMode.NOW), Activity.RUNNING


def engine(folder: Path) -> SparkEngine:
    """An engine with a stream at place 1 and a relation at place 2, without Spark."""
    made = SparkEngine(folder, lambda: pytest.fail("Spark is not needed"))
    made._standing, made._sources = {1: (11, RUNNING), 2: (12, RUNNING)}, frozenset({"S"})
    return made


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (StandingQuery(1, 11, STREAM, NOW, RUNNING), None),
        (StandingQuery(1, 13, STREAM, NOW, RUNNING), None),
        (StandingQuery(1, 11, STREAM, NOW, Activity.PAUSED), None),
        (StandingQuery(1, 11, STREAM, NOW, Activity.SILENT), "P0701"),
        (StandingQuery(1, 12, STREAM, NOW, RUNNING), "P0701"),
        (StandingQuery(2, 13, RELATION, NOW, RUNNING), "P0703"),
        (StandingQuery(2, 13, RELATION, NOW, RUNNING, reset=True), None),
        (StandingQuery(3, 13, RELATION, NOW, RUNNING), None),
        (StandingQuery(3, 13, None, NOW, Activity.PAUSED), None),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, query: StandingQuery, code: str | None) -> None:
    version = NextVersion(1, queries={query.place: query})
    if code is None:
        engine(tmp_path).check(version)
        return
    with pytest.raises(PenstockError, match=code):
        engine(tmp_path).check(version)
