"""Statements that are prepared: by PREPARE, EXECUTE and DEALLOCATE, and by the messages of the protocol."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import subprocess
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock.pgwire import prepared
from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RawClient, RunningPg, problem


def test_a_select_is_prepared_and_executed(pg: RunningPg) -> None:
    with pg.connect() as connection:
        assert connection.execute(
            "PREPARE by_level (int) AS SELECT room FROM rooms WHERE level = $1"
        ).statusmessage == ("PREPARE")
        cursor = connection.execute("EXECUTE by_level (2)")
        assert cursor.fetchall() == [("attic",)] and cursor.statusmessage == "SELECT 1"
        assert connection.execute("execute BY_LEVEL(0)").fetchall() == [("hall",)]
        assert connection.execute("DEALLOCATE PREPARE by_level").statusmessage == "DEALLOCATE"
        with pytest.raises(psycopg.errors.InvalidSqlStatementName, match="P0201"):
            connection.execute("EXECUTE by_level(2)")
        connection.execute("PREPARE c AS SELECT $1::int + 1, upper($2)")
        assert connection.execute("EXECUTE c('41', 'x')").fetchall() == [(42, "X")]


def test_a_command_is_prepared_and_executed(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("PREPARE note AS INSERT INTO notes VALUES ($1, $2)")
        assert connection.execute("EXECUTE note('prepared', 'it''s; DROP')").statusmessage == "INSERT 0 1"
        assert connection.execute("EXECUTE note('prepared', NULL)").rowcount == 1
        connection.execute("BEGIN; EXECUTE note('prepared', 'gone'); ROLLBACK")
        connection.execute("BEGIN; EXECUTE note('prepared', 'stays'); COMMIT")
        found = connection.execute("SELECT note FROM notes WHERE room = 'prepared'").fetchall()
        assert sorted(found, key=str) == [("it's; DROP",), ("stays",), (None,)]
        # Several that are sent together happen together or not at all.
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("EXECUTE note('prepared', 'lost'); INSERT INTO nowhere VALUES (1)")
        assert len(connection.execute("SELECT note FROM notes WHERE room = 'prepared'").fetchall()) == 3
        connection.execute("BEGIN READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("EXECUTE note('prepared', 'x')")
    with pg.connect(AccessRole.READ) as connection:
        connection.execute("PREPARE note AS INSERT INTO notes VALUES ($1, $2)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("EXECUTE note('a', 'b')")


@pytest.mark.parametrize(
    ("type_", "argument", "value"),
    [("int", "-7", -7), ("int", "'5'", 5), ("int", "2.5", 3), ("bigint", "9223372036854775807", 9223372036854775807),
     ("int", "NULL", None), ("text", "NULL", None), ("text", "12", "12"), ("text", "TRUE", "true"),
     ("text", "E'a\\nb'", "a\nb"), ("text", "$$it's$$", "it's"), ("text", "'é🙂'", "é🙂"), ("text", "''", ""),
     ("numeric(10, 2)", "1.25", Decimal("1.25")), ("double precision", "1e3", 1000.0), ("boolean", "true", True),
     ("boolean", "'off'", False), ("date", "'2020-02-29'", dt.date(2020, 2, 29)),
     ("date", "DATE '2020-02-29'", dt.date(2020, 2, 29)), ("text", "CAST('a' AS text)", "a"),
     ("int", "'7'::int", 7), ("int", "('7'::bigint)", 7),
     ("timestamp with time zone", "TIMESTAMP '2020-01-01 00:00:00'", dt.datetime(2020, 1, 1, tzinfo=dt.UTC))],
)  # fmt: skip
def test_arguments(pg: RunningPg, type_: str, argument: str, value: object) -> None:
    with pg.connect() as connection:
        connection.execute(f"PREPARE p ({type_}) AS SELECT $1::{type_}")  # type: ignore[arg-type]
        assert connection.execute(f"EXECUTE p ({argument})").fetchall() == [(value,)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("statement", "state", "code"),
    [("EXECUTE nothing_such", "26000", "P0201"), ("DEALLOCATE nothing_such", "26000", "P0201"),
     ('EXECUTE "P"(1)', "26000", "P0201"), ("PREPARE p AS SELECT 1", "42P05", "P0206"),
     ("EXECUTE p", "42601", "P0204"), ("EXECUTE p()", "42601", "P0101"), ("EXECUTE p(1, 2)", "42601", "P0204"),
     ("EXECUTE p(1", "42601", "P0101"), ("EXECUTE p(1) x", "42601", "P0101"), ("EXECUTE p('x')", "22P02", "P0203"),
     ("EXECUTE p(TRUE)", "42804", "P0203"), ("EXECUTE p(DATE '2020-01-01')", "42804", "P0203"),
     ("EXECUTE p(99999999999)", "22P02", "P0203"), ("EXECUTE p($1)", "42P02", "P0203"),
     ("EXECUTE p((SELECT 1))", "0A000", "P0901"), ("EXECUTE p(level)", "0A000", "P0901"),
     ("EXECUTE p(1 + 1)", "42601", "P0101"), ("EXECUTE p('1'::nothing)", "42704", "P0207"),
     ("PREPARE q (nothing) AS SELECT 1", "42704", "P0207"), ("PREPARE q AS", "42601", "P0101"),
     ("PREPARE q", "42601", "P0101"), ("PREPARE q AS BEGIN", "42601", "P0101"),
     ("PREPARE q AS EXECUTE p(1)", "42601", "P0101"), ("PREPARE q AS COPY rooms FROM STDIN", "42601", "P0101"),
     ("PREPARE q AS SELECT * FROM nowhere", "42P01", "P0201"), ("PREPARE q () AS SELECT 1", "42601", "P0101"),
     ("EXECUTE p(" + "(" * 10_000 + "1", "54001", "P0105"), ("DEALLOCATE", "42601", "P0101"),
     ("DISCARD nothing", "42601", "P0101")],
)  # fmt: skip
def test_what_is_refused(raw: RawClient, statement: str, state: str, code: str) -> None:
    raw.query("PREPARE p (int) AS SELECT $1")
    found = problem(raw.query(statement))
    assert (found["C"], found["M"][:5]) == (state, code)
    assert ("D", b"\0\1\0\0\0\1" + b"3") in raw.query("EXECUTE p(3)")


def test_names(pg: RunningPg) -> None:
    with pg.connect() as connection:
        for number, name in enumerate(
            ['"a ""b"""', '"é🙂"', "all_of_it", '"ALL"', '"all"', "prepare", '"' + "x" * 5_000 + '"']
        ):
            connection.execute(f"PREPARE {name} AS SELECT {number}")  # type: ignore[arg-type]
            assert connection.execute(f"EXECUTE {name}").fetchall() == [(number,)]  # type: ignore[arg-type]
        connection.execute('DEALLOCATE "ALL"; DEALLOCATE prepare')
        assert connection.execute('EXECUTE "all"').fetchall() == [(4,)]
        connection.execute("DEALLOCATE PREPARE ALL")
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            connection.execute('EXECUTE "all"')


def test_an_error_within_a_prepared_statement_has_no_place_in_the_one_that_executes_it(raw: RawClient) -> None:
    found = problem(raw.query("PREPARE p AS SELECT room,\n nope FROM rooms"))
    assert (found["C"], found["P"]) == ("42703", "28")
    raw.query("PREPARE p AS INSERT INTO notes (room, nope) VALUES ($1, 'x')")
    found = problem(raw.query("EXECUTE p('a')"))
    assert found["C"] == "42703" and "P" not in found
    assert problem(raw.query("SELECT 1; EXECUTE other"))["P"] == "11"
    assert problem(raw.query("SELECT 1; EXECUTE p(1"))["P"] == "22"
    assert problem(raw.query("SELECT 1; PREPARE q AS BEGIN"))["P"] == "24"


def test_both_ways_of_preparing_share_their_names(raw: RawClient) -> None:
    raw.send("P", b"s\0SELECT $1 + 1\0\0\1\0\0\0\x17")
    raw.send("S")
    raw.until("Z")
    assert ("D", b"\0\1\0\0\0\1" + b"8") in raw.query("EXECUTE s(7)")
    assert problem(raw.query("PREPARE s AS SELECT 1"))["C"] == "42P05"
    raw.query("PREPARE t (int) AS SELECT $1 * 2")
    raw.send("P", b"t\0SELECT 1\0\0\0")
    raw.send("S")
    assert problem(raw.until("Z"))["C"] == "42P05"
    raw.send("B", b"\0t\0\0\0\0\1\0\0\0\2" + b"21" + b"\0\0")
    raw.send("D", b"P\0")
    raw.send("E", b"\0\0\0\0\0")
    raw.send("S")
    assert ("D", b"\0\1\0\0\0\2" + b"42") in raw.until("Z")
    for text in ("DEALLOCATE ALL", "DISCARD ALL"):
        raw.query("PREPARE u AS SELECT 1")
        raw.query(text)
        assert problem(raw.query("EXECUTE u"))["C"] == "26000"
    raw.query("PREPARE u AS SELECT 1")
    assert ("C", b"DISCARD PLANS\0") in raw.query("DISCARD PLANS")
    assert ("C", b"SELECT 1\0") in raw.query("EXECUTE u")
    raw.query("BEGIN")
    assert problem(raw.query("DISCARD ALL"))["C"] == "25001"


def test_execute_by_the_messages_of_the_protocol(raw: RawClient) -> None:
    raw.query("PREPARE p (int) AS SELECT room FROM rooms WHERE level = $1")
    raw.send("P", b"\0EXECUTE p(2)\0\0\0")
    raw.send("D", b"S\0")
    raw.send("B", b"\0\0\0\0\0\0\0\0")
    raw.send("D", b"P\0")
    raw.send("E", b"\0\0\0\0\0")
    raw.send("S")
    found = raw.until("Z")
    assert "".join(kind for kind, _ in found) == "1tT2TDCZ"
    assert ("D", b"\0\1\0\0\0\5attic") in found and ("C", b"SELECT 1\0") in found
    # A statement that executes itself does not.
    raw.send("P", b"me\0EXECUTE me\0\0\0")
    raw.send("S")
    raw.until("Z")
    assert problem(raw.query("EXECUTE me"))["C"] == "0A000"


def test_a_failed_transaction_executes_nothing(raw: RawClient) -> None:
    raw.query("PREPARE p AS SELECT 1")
    raw.query("BEGIN")
    raw.query("SELECT nothing_such()")
    for text in ("EXECUTE p", "PREPARE q AS SELECT 1", "DEALLOCATE p"):
        assert problem(raw.query(text))["C"] == "25P02"
    raw.query("ROLLBACK")
    assert ("C", b"SELECT 1\0") in raw.query("EXECUTE p")
    # As in PostgreSQL, preparing is no part of a transaction.
    raw.query("BEGIN; PREPARE q AS SELECT 1; ROLLBACK")
    assert ("C", b"SELECT 1\0") in raw.query("EXECUTE q")


def test_the_number_of_prepared_statements_is_limited(raw: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepared._MOST == 10_000
    monkeypatch.setattr(prepared, "_MOST", 700)
    for first in (0, 350):
        done = raw.query(";".join(f"PREPARE p{number} AS SELECT 1" for number in range(first, first + 350)))
        assert not [message for message in done if message[0] == "E"]
    assert problem(raw.query("PREPARE more AS SELECT 1"))["C"] == "54000"


def test_drivers_that_prepare(pg: RunningPg) -> None:
    with pg.connect() as connection:
        for level in (2, 0, 2):
            found = connection.execute("SELECT room FROM rooms WHERE level = %s", (level,), prepare=True).fetchall()
            assert found == [("attic" if level else "hall",)]
        connection.execute("DEALLOCATE ALL")
    asyncpg = pytest.importorskip("asyncpg")

    async def talk() -> None:
        given: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": pg.port,
            "user": "admin",
            "password": pg.texts[AccessRole.ADMIN],
        }
        other = await asyncpg.connect(**given, database="penstock")
        try:
            statement = await other.prepare("SELECT room FROM rooms WHERE level = $1", name="mine")
            assert [row["room"] for row in await statement.fetch(2)] == ["attic"]
            assert [row["room"] for row in await other.fetch("EXECUTE mine(0)")] == ["hall"]
        finally:
            await other.close()

    asyncio.run(talk())


def test_a_value_is_a_part_of_a_clause(pg: RunningPg) -> None:
    """Where no expression may stand, the value stands in the text."""
    with pg.connect() as connection:
        for prepare in (False, True):
            for length in (1, 2):
                explained = connection.execute(
                    "EXPLAIN SELECT room FROM readings [RANGE %s MINUTE] WHERE room = %s",
                    (length, "x"),
                    prepare=prepare,
                ).fetchall()
                assert f"RANGE {length} MINUTE" in "\n".join(line for (line,) in explained), explained


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql; on Debian: apt-get install postgresql-client")
def test_psql(pg: RunningPg) -> None:
    lines = "PREPARE p AS SELECT room FROM rooms WHERE level = $1;\nEXECUTE p(2);\nDEALLOCATE p;\nEXECUTE p(2);\n"
    done = subprocess.run(["psql", pg.dsn(), "-X", "-A", "-t"], input=lines, capture_output=True, text=True, timeout=60)
    assert done.stdout == "PREPARE\nattic\nDEALLOCATE\n" and "there is no prepared statement p" in done.stderr
