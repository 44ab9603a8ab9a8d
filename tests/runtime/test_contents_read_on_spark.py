"""Rows of relations without timestamps with the engine on Spark: each query has what was there when it began, whatever
is posted later, over restarts and losses of the process in each gap. Rounds run without Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from inline_engine import without_spark
from test_commands_in_a_row import SELECTS, Course

from penstock.algebra.nodes.query import Start, StartMode

__all__ = ["without_spark"]
pytestmark = pytest.mark.usefixtures("without_spark")

STARTS = tuple(Start(mode) for mode in (StartMode.NOW, StartMode.WARM, StartMode.BEGINNING))


def insert(course: Course, death: str = "") -> None:
    """Add rows to the relation, by a statement."""
    rows = [(course.draw.randint(0, 5), course.draw.randint(50, 99)) for _ in range(2)]
    course.rows["T"] += rows
    course.do(f"INSERT INTO T VALUES {', '.join(map(str, rows))};", death)


def create(course: Course, name: str, start: Start, death: str = "") -> None:
    course.do(f"CREATE QUERY {name} START {start.words} AS {SELECTS['static']};", death)
    course.begins(name, "static", start)


@pytest.mark.parametrize("start", STARTS, ids=lambda one: one.words)
@pytest.mark.parametrize("death", ["", "accepted", "changed"])
def test_each_query_has_what_was_there_when_it_began(tmp_path: Path, start: Start, death: str) -> None:
    compared = 0
    for number, rounds in enumerate(((0, 0, 0), (1, 0, 1), (0, 1, 0))):
        course = Course(tmp_path / str(number), random.Random(number))
        create(course, "q1", start)
        for _ in range(rounds[0]):
            course.feed()
        insert(course, death)
        for _ in range(rounds[1]):
            course.feed()
        create(course, "q2", start, death)
        for _ in range(rounds[2]):
            course.feed()
        assert course.server.control.readers_before("T") == ["q1"]
        course.do("ALTER QUERY q1 RENAME TO x1;")
        course.lives["x1"] = course.lives.pop("q1")
        course.feed()
        course.die()
        course.feed()
        compared += course.check()
        insert(course)
        course.ends("x1")
        course.do(f"ALTER QUERY x1 AS {SELECTS['static']} START NOW;")
        course.goes_on("x1", "static", STARTS[0])
        course.feed()
        course.feed()
        compared += course.check()
        assert course.server.control.readers_before("T") == ["q2"]
        course.server.close()
    assert compared > 30
