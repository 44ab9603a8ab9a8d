"""Statements over the catalogs beside what PostgreSQL 15 answers, recorded in `catalog_expressions.txt`: types and
values as it writes them, or its SQLSTATE.

PENSTOCK_REWRITE=1 records the answers anew, from a PostgreSQL server, to be read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.server.pgwire.running import RunningPg
from tests.servers.postgres import PASSWORD, Unavailable, server

FILE = Path(__file__).with_name("catalog_expressions.txt")
CASES = [
    (statement, "\n".join(answer))
    for statement, *answer in (part.splitlines() for part in FILE.read_text(encoding="utf-8").strip().split("\n\n"))
]


def answered(connection: psycopg.Connection[Any], statement: str) -> str:
    """Return the types of an answer and its rows, or the SQLSTATE of its error."""
    try:
        found = connection.execute(statement).pgresult  # type: ignore[call-overload]
    except psycopg.Error as error:
        return f"error {error.sqlstate}"
    assert found is not None
    named = [f"{(found.fname(n) or b'').decode()} {found.ftype(n)}" for n in range(found.nfields)]
    rows = [[found.get_value(row, n) for n in range(found.nfields)] for row in range(found.ntuples)]
    shown = [" | ".join("NULL" if one is None else one.decode() for one in row) for row in rows]
    return "\n".join([", ".join(named), *(f"  {one}" for one in shown)])


@pytest.mark.parametrize(("statement", "answer"), CASES, ids=[one for one, _ in CASES])
def test_statements_answer_as_postgres_does(pg: RunningPg, statement: str, answer: str) -> None:
    with pg.connect() as connection:
        assert answered(connection, statement) == answer


def test_the_answers_are_those_of_postgres() -> None:
    try:
        found = server()
    except Unavailable as error:
        pytest.skip(str(error))
    with psycopg.connect(found.url, password=PASSWORD, autocommit=True, options="-c TimeZone=UTC") as connection:
        made = "\n\n".join(f"{statement}\n{answered(connection, statement)}" for statement, _ in CASES) + "\n"
    if os.environ.get("PENSTOCK_REWRITE"):
        FILE.write_text(made, encoding="utf-8")
    assert made == FILE.read_text(encoding="utf-8") and len(CASES) > 100


@pytest.mark.parametrize("binary", [False, True])
def test_decimals_and_lengths_of_time_in_both_formats(pg: RunningPg, binary: bool) -> None:
    shown = ("12345678901234567890.10", "-0.0000000000000000000000001", "NaN", "-Infinity", "1 mon -2 days +00:00:01")
    with pg.connect() as connection:
        cursor = connection.cursor(binary=binary)
        statement = "SELECT " + ", ".join(f"'{one}'::numeric" for one in shown[:4]) + f", '{shown[4]}'::interval"
        *decimals, length = cursor.execute(statement).fetchone()  # type: ignore[call-overload, misc]
        assert tuple(format(one, "f") for one in decimals) == shown[:4]
        # psycopg has no months: it takes 30 days for one.
        assert length.days == 28 and length.seconds == 1


def test_arrays_have_a_limit_and_do_not_lose_elements(pg: RunningPg) -> None:
    made = "FROM generate_series(1, 400) a, generate_series(1, 400) b"
    assert pg.rows(f"SELECT cardinality(array_agg(a)), length(string_agg('x', '')) {made}") == [(160_000, 160_000)]
    made = "FROM generate_series(1, 40000) a, generate_series(1, 40000) b"
    for call in ("array_agg(a)", "string_agg(a::text, ',')"):
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            pg.rows(f"SELECT {call} {made}")
    assert pg.rows("SELECT 1") == [(1,)]
