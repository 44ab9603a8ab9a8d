"""Commands that follow each other about one query that begins WARM or WARM WAIT, or that another one is to replace:
whatever comes behind, with no, one or two rounds in between and with a loss of the process in each gap, the answers are
what the law says. As in `test_commands_in_a_row.py`, whose pairs are about two queries.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from inline_engine import without_spark
from test_commands_in_a_row import (
    DEATHS,
    NOW,
    QUERIES,
    SELECTS,
    WAIT,
    WARM,
    Course,
    Kind,
    created,
    opened,
    replaced,
    resumed,
)

from penstock.algebra.nodes.query import Start
from penstock.errors import PenstockError
from penstock.testing.live import Episode

__all__ = ["without_spark"]

#: What happens to the query first: it is q0 where that creates it, else p0.
FIRST = (
    created("counts", WARM), created("gone", WAIT), created("both", WAIT), created("last", WAIT), resumed(WARM),
    resumed(WAIT), replaced("sums", WARM), replaced("gone", WAIT), replaced("last", WAIT),
)  # fmt: skip
#: A statement, and what the law knows of it.
Command = tuple[str, Callable[[], object]]


def ends(course: Course, name: str) -> None:
    """A query ends, and is what was to take its place."""
    course.ends(name)
    course.lives[name].is_paused = True
    if (coming := course.coming.pop(name, None)) is not None:
        course.lives[name].query = coming.query


def begins(course: Course, name: str, select: str | None, start: Start) -> None:
    """A query begins again. select: what it is from now on, None for what it was."""
    life = course.lives[name]
    if not life.is_paused:
        ends(course, name)
    life.query = life.query if select is None else QUERIES[select]
    life.episodes.append(Episode(life.query, start, course.read, lost=course.lost(life.query)))
    life.is_paused = life.events = False


def pause(start: Start) -> Callable[[Course, str], Iterator[Command]]:
    def commands(course: Course, name: str) -> Iterator[Command]:
        yield f"ALTER QUERY {name} PAUSE;", lambda: ends(course, name)
        yield f"ALTER QUERY {name} RESUME START {start.words};", lambda: begins(course, name, None, start)

    return commands


def pause_with_state(course: Course, name: str) -> Iterator[Command]:
    statement = f"ALTER QUERY {name} PAUSE WITH STATE;"
    if course.server.control.query(name)[1].answer.waits:
        refused(course, statement, "waits for rows before it begins")
        return

    def effect() -> None:
        course.ends(name)
        course.lives[name].is_paused = True

    yield statement, effect

    def goes_on() -> None:
        life = course.lives[name]
        life.episodes.append(replace(life.episodes[-1], ended=None, shown=course.read))
        life.is_paused = life.events = False

    yield f"ALTER QUERY {name} RESUME;", goes_on


def drop(course: Course, name: str) -> Iterator[Command]:
    def effect() -> None:
        del course.lives[name]
        course.coming.pop(name, None)

    yield f"DROP QUERY {name};", effect


def rename(course: Course, name: str) -> Iterator[Command]:
    def effect() -> None:
        course.lives["renamed"] = course.lives.pop(name)
        if name in course.coming:
            course.coming["renamed"] = course.coming.pop(name)

    yield f"ALTER QUERY {name} RENAME TO renamed;", effect


def other(select: str, start: Start) -> Callable[[Course, str], Iterator[Command]]:
    def commands(course: Course, name: str) -> Iterator[Command]:
        statement = f"ALTER QUERY {name} AS {SELECTS[select]} START {start.words};"
        query = course.server.control.query(name)[1]
        if start.wait and query.beside is not None and query.beside.until is not None:
            refused(course, statement, "has not ended")
        elif start.wait and not query.answer.waits:
            yield statement, lambda: course.comes(name, select)
        else:
            yield statement, lambda: begins(course, name, select, start)

    return commands


def refused(course: Course, statement: str, reason: str) -> None:
    with pytest.raises(PenstockError, match=f"P0701.*{reason}"):
        course.do(statement)


BEHIND: dict[str, Callable[[Course, str], Iterator[Command]]] = {
    "PAUSE, RESUME NOW": pause(NOW), "PAUSE, RESUME WARM WAIT": pause(WAIT), "PAUSE WITH STATE": pause_with_state,
    "DROP": drop, "RENAME": rename, "AS NOW": other("counts", NOW), "AS WARM": other("sums", WARM),
    "AS gone WAIT": other("gone", WAIT), "AS last WAIT": other("last", WAIT),
}  # fmt: skip


def follow(folder: Path, first: Kind, behind: str, gap: int, death: str, seed: int) -> int:
    """Execute the commands; return how many rows were compared. gap: rounds with rows behind each of them."""
    with opened(folder, seed) as course:
        first.before(course, "0")
        course.feed()
        course.execute(first.statement(course, "0"), lambda: first.effect(course, "0"), death, True)
        (name,) = course.lives
        for _ in range(gap):
            course.feed()
        for statement, effect in BEHIND[behind](course, name):
            course.execute(statement, effect, death)
            for _ in range(gap):
                course.feed()
        return course.end()


#: Cases of `make test`.
SOME = 20


def all_cases() -> list[tuple[Kind, str, int, str]]:
    return [(first, behind, gap, death) for first in FIRST for behind in BEHIND for gap in range(3) for death in DEATHS]


def test_commands_about_one_query(
    tmp_path: Path, without_spark: None, case_count: int | None, case_seed: int | None
) -> None:
    draw, compared = random.Random(case_seed or 40), 0
    for number, case in enumerate(draw.sample(all_cases(), case_count or SOME)):
        compared += follow(tmp_path / str(number), *case, draw.randrange(10**6))
    assert compared > 100


def test_what_the_former_change_waited_for_is_there_for_the_next_one(tmp_path: Path, without_spark: None) -> None:
    """Its stream retains nothing, and the former change of the query had it keep rows, from which the next one begins
    at once."""
    first = next(one for one in FIRST if one.name == "ALTER AS last START WARM WAIT")
    assert follow(tmp_path / "replaced", first, "AS gone WAIT", 1, "", 427922) > 0


@pytest.mark.timeout(100)
def test_a_change_behind_a_start_does_not_wait_for_input(tmp_path: Path, without_spark: None) -> None:
    """An epoch without queries had no round before the process died, and there is nothing to read."""
    case = next(
        one
        for one in all_cases()
        if (one[0].name, one[1], *one[2:]) == ("CREATE START WARM WAIT both", "PAUSE, RESUME NOW", 0, "accepted")
    )
    assert follow(tmp_path / "case", *case, 202706) > 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_all_commands_about_one_query(tmp_path: Path, without_spark: None, case_seed: int | None) -> None:
    draw = random.Random(case_seed or 40)
    for number, case in enumerate(all_cases()):
        follow(tmp_path / str(number), *case, draw.randrange(10**6))
