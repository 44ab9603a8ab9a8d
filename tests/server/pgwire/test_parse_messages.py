"""Errors that are there when a statement is parsed come with its Parse message, as PostgreSQL sends them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RawClient, RunningPg, problem


def parse(raw: RawClient, text: str, name: str = "") -> list[tuple[str, bytes]]:
    raw.send("P", name.encode() + b"\0" + text.encode() + b"\0\0\0")
    raw.send("S")
    return raw.until("Z")


@pytest.mark.parametrize(
    ("statement", "state", "place"),
    [
        ("SELECT FROM FROM", "42601", None), ("SELECT * FROM nowhere", "42P01", 15),
        ("SELECT nope FROM rooms", "42703", 8),
        ("SELECT room FROM rooms WHERE nothing_such(level)", "42883", None),
        ("SELECT nope FROM pg_class", "42703", None), ("SELECT * FROM pg_catalog.nope", "42P01", None),
        ("SELECT q.nope FROM pg_class c, penstock.queries q", "42703", None), ("SELECT nothing_such()", "42883", None),
        ("SUBSCRIBE TO nowhere", "42P01", None), ("EXPLAIN SELECT nope FROM rooms", "42703", 16),
        ("INSERT INTO nowhere VALUES (1)", "42P01", 13),
        ("INSERT INTO notes (room, nope) VALUES ($1, 2)", "42703", None),
        ("UPDATE penstock.streams SET nope = $1 WHERE name = 'x'", "42703", None),
        ("DELETE FROM nowhere WHERE a = $1", "42P01", 13),
        ("UPDATE penstock.queries SET nope = 1 WHERE name = 'x'", "42703", None),
        ("CREATE VIEW broken AS SELEKT 1", "42601", None), ("CREATE QUERY broken", "42601", None),
        ("DROP NOTHING x", "42601", None), ("DECLARE c CURSOR FOR SELECT nope FROM rooms", "42703", 29),
        ("DECLARE c CURSOR", "42601", None), ("COPY", "42601", None), ("PREPARE p AS", "42601", None),
        ("FETCH 'x'", "42601", None),
        ("CREATE TABLE t (a INT)", "0A000", 1),
    ],
)  # fmt: skip
def test_an_error_comes_with_parse(raw: RawClient, statement: str, state: str, place: int | None) -> None:
    found = parse(raw, statement, "s")
    assert [kind for kind, _ in found] == ["E", "Z"], found
    fields = problem(found)
    assert fields["C"] == state, fields
    assert place is None or fields["P"] == str(place), fields
    # There is no such statement then.
    raw.send("D", b"Ss\0")
    raw.send("S")
    assert problem(raw.until("Z"))["C"] == "26000"


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT room FROM rooms WHERE level = $1", "SELECT room FROM rooms LIMIT $1", "SELECT $1::int + 1",
        "INSERT INTO notes VALUES ($1, $2)",
        "INSERT INTO readings VALUES ($1, $2, $3)", "UPDATE penstock.queries SET weight = $1 WHERE name = $2",
        # What PostgreSQL finds when it carries these out.
        "CREATE VIEW later AS SELECT nope FROM rooms", "DROP VIEW nowhere", "ALTER QUERY nowhere PAUSE",
        "SHOW nothing_such",
        "SET nothing_such = 1", "SELECT 1 / 0", "SELECT 'nope'::regclass", "EXECUTE nowhere", "FETCH 1 FROM nowhere",
        "SELECT relname FROM pg_class WHERE oid = $1", "COMMIT", "ROLLBACK TO nowhere",
        "UPDATE penstock.queries SET weight = $1",
    ],
)  # fmt: skip
def test_a_statement_whose_error_depends_on_more_is_parsed(raw: RawClient, statement: str) -> None:
    assert [kind for kind, _ in parse(raw, statement)] == ["1", "Z"]


def test_keys_are_those_of_the_values(raw: RawClient) -> None:
    """NULL stands for each of them, and one sample for all of a type, which no primary key takes."""
    raw.query("CREATE RELATION keyed (k INT, n STRING, PRIMARY KEY (k)) FROM MEMORY ()")
    try:
        for values in ("($1, 'a')", "($1, 'a'), ($2, 'b')", "($1, $2), ($3, $4)"):
            assert [kind for kind, _ in parse(raw, f"INSERT INTO keyed VALUES {values}")] == ["1", "Z"], values
        assert problem(parse(raw, "INSERT INTO keyed VALUES (NULL, 'a')"))["C"] == "42P17"
        assert problem(parse(raw, "INSERT INTO keyed (k, nope) VALUES ($1, 'a')"))["C"] == "42703"
    finally:
        raw.query("DROP RELATION keyed")


def test_in_a_transaction(raw: RawClient) -> None:
    raw.query("BEGIN")
    raw.query("CREATE RELATION parsed_later (k INT, PRIMARY KEY (k)) FROM MEMORY ()")
    # A command sees those before it in its transaction.
    assert [kind for kind, _ in parse(raw, "INSERT INTO parsed_later VALUES ($1)")] == ["1", "Z"]
    assert problem(parse(raw, "INSERT INTO parsed_later (nope) VALUES ($1)"))["C"] == "42703"
    for statement in ("SELECT 1", "INSERT INTO notes VALUES ('a', 'b')", "SET TimeZone = 'UTC'", "BEGIN"):
        assert problem(parse(raw, statement))["C"] == "25P02", statement
    assert [kind for kind, _ in parse(raw, "ROLLBACK")] == ["1", "Z"]
    raw.query("ROLLBACK")


def test_columns_are_those_of_the_declarations_when_they_are_asked_for(raw: RawClient) -> None:
    raw.query("CREATE VIEW changes AS SELECT room FROM rooms")
    try:
        assert parse(raw, "SELECT * FROM changes", "s")[0][0] == "1"
        raw.query("CREATE OR REPLACE VIEW changes AS SELECT level, room FROM rooms")
        raw.send("D", b"Ss\0")
        raw.send("S")
        (described,) = [body for kind, body in raw.until("Z") if kind == "T"]
        assert b"level" in described and b"room" in described
        raw.query("DROP VIEW changes")
        raw.send("D", b"Ss\0")
        raw.send("S")
        assert problem(raw.until("Z"))["C"] == "42P01"
    finally:
        raw.query("DROP VIEW IF EXISTS changes")


def test_clients_see_it_when_they_prepare(pg: RunningPg) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def talk() -> None:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": pg.port, "user": "admin", "database": "penstock"}
        connection = await asyncpg.connect(**given, password=pg.texts[AccessRole.ADMIN])
        try:
            with pytest.raises(asyncpg.UndefinedColumnError) as caught:
                await connection.prepare("INSERT INTO notes (nope) VALUES ($1)")
            assert caught.value.hint is not None
            assert await connection.fetchval("SELECT 1") == 1
        finally:
            await connection.close()

    asyncio.run(talk())
    with pg.connect() as connection, connection.pipeline():
        connection.execute("SELECT 1", prepare=True)
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere", prepare=True)
            connection.execute("SELECT 2").fetchone()
