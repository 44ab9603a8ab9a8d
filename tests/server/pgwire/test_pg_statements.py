"""Statements through psycopg, against a live system in this process."""

from __future__ import annotations

import datetime as dt
import threading
import time
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RawClient, RunningPg


def test_what_reads_nothing_is_answered_at_once(pg: RunningPg) -> None:
    assert pg.rows("SELECT 1, 'it''s', TRUE, NULL, 1.5, -7 / 2") == [(1, "it's", True, None, Decimal("1.5"), -3)]
    ((version,),) = pg.rows("SELECT version()")
    assert version.startswith("PostgreSQL 15.0 (Penstock ")
    assert pg.rows("SELECT current_database(), current_schema(), current_user") == [("penstock", "public", "admin")]


@pytest.mark.parametrize("binary", [False, True])
def test_values_come_back_as_they_are(pg: RunningPg, binary: bool) -> None:
    with pg.connect() as connection, connection.cursor(binary=binary) as cursor:
        cursor.execute('SELECT * FROM "public"."rooms" AS r WHERE level >= %s ORDER BY r.level', (0,))
        assert cursor.fetchall() == [
            ("hall", 0, Decimal("12.50"), dt.date(2020, 2, 29)),
            ("attic", 2, None, None),
        ]
        assert [one.name for one in cursor.description or ()] == ["room", "level", "area", "since"]


@pytest.mark.parametrize("text", ["it's", "a\\b", "\\", "'; DROP QUERY warm; --", "é\u2028x", "$1", "a\nb\tc", ""])
def test_a_text_never_becomes_a_part_of_its_statement(pg: RunningPg, text: str) -> None:
    with pg.connect() as connection:
        assert connection.execute("INSERT INTO notes VALUES (%s, %s)", ("p", text)).rowcount == 1
        found = connection.execute("SELECT note FROM notes WHERE note = %s AND room = %s", (text, "p")).fetchall()
        assert found and set(found) == {(text,)}
        quoted = text.replace("'", "''")
        assert set(connection.execute(f"SELECT note FROM notes WHERE note = '{quoted}'").fetchall()) == {(text,)}  # type: ignore[arg-type]


def test_rows_of_a_query_over_constants_are_inserted_and_counted(pg: RunningPg) -> None:
    with pg.connect() as connection:
        text = "INSERT INTO notes SELECT 'of a query', CAST(n AS STRING) FROM range(%s) AS t (n) WHERE n > 0"
        assert connection.execute(text, (4,)).rowcount == 3
        found = connection.execute("SELECT note FROM notes WHERE room = 'of a query'").fetchall()
        assert sorted(found) == [("1",), ("2",), ("3",)]
        with pytest.raises(psycopg.Error, match="INSERT takes a query over constants, and this one reads rooms"):
            connection.execute("INSERT INTO notes (room) SELECT room FROM rooms")


def test_types_of_values_follow_what_they_are_compared_with(pg: RunningPg) -> None:
    with pg.connect() as connection:
        # psycopg leaves the types of texts open.
        assert connection.execute("SELECT room FROM rooms WHERE level = %s", ("2",)).fetchall() == [("attic",)]
        assert connection.execute("SELECT room FROM rooms WHERE since = %s", ("2020-02-29",)).fetchall() == [("hall",)]
        found = connection.execute("SELECT room FROM rooms WHERE level BETWEEN %s AND %s LIMIT %s", ("1", "3", 5))
        assert found.fetchall() == [("attic",)]
        with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="no integer"):
            connection.execute("SELECT room FROM rooms WHERE level = %s", ("high",))
        assert connection.execute("SELECT room FROM rooms WHERE level IN (%s, %s)", (2, 9)).fetchall() == [("attic",)]


def test_an_error_has_its_code_and_place_and_leaves_the_connection_usable(pg: RunningPg) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            connection.execute("SELECT level,\n  roam FROM public.rooms")
        diagnostics = caught.value.diag
        assert (diagnostics.message_primary, diagnostics.statement_position) == ("P0202: unknown column roam", "17")
        assert diagnostics.message_hint == "did you mean room?"
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere")
        with pytest.raises(psycopg.errors.SyntaxError):
            connection.execute("SELEC 1")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            connection.execute("SELECT nothing_such(1)")
        # Several statements at once: the place is one in all that was sent.
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            connection.execute("SELECT 1; SELECT roam FROM rooms")
        assert caught.value.diag.statement_position == "18"


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE t (a INT)", "LISTEN x", "COPY rooms FROM STDIN BINARY", "SELECT * FROM pg_class, rooms",
     "GRANT SELECT ON rooms TO x", "SET client_encoding TO 'LATIN1'", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
     "SELECT * FROM pg_class TABLESAMPLE SYSTEM (1)", "DECLARE c SCROLL CURSOR FOR SELECT 1"],
)  # fmt: skip
def test_what_is_not_known_is_refused_as_such(pg: RunningPg, statement: str) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="P0901"):
            connection.execute(statement)  # type: ignore[arg-type]
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "hint"),
    [("CREATE TABLE t (a INT)", "CREATE RELATION name"), ("DROP TABLE rooms", "DROP RELATION name"),
     ("CREATE UNIQUE INDEX ON rooms (level)", "leave it out"), ("ALTER TABLE rooms ADD x INT", "ALTER RELATION name"),
     ("CREATE DATABASE d", "have no schema"), ("VACUUM rooms", "leave it out"), ("LOCK TABLE rooms", "leave it out"),
     ("MOVE 1 FROM c", "FETCH 10 FROM name"), ("SET ROLE bob", "another token"), ("\\d rooms", "DESCRIBE name"),
     ("SET penstock.kye = 'a'", "penstock.key"), ("SHOW penstock.postion", "penstock.position"),
     ("SHOW search_pth", "did you mean search_path"),
     ("SET search_path TO analytics", "SET search_path TO public"), ("SELECT * FROM $1", "a parameter is a value"),
     ("INSERT INTO rooms (room) VALUES ('hall')", "nothing has been inserted")],
)  # fmt: skip
def test_what_to_write_in_place_of_a_statement(pg: RunningPg, statement: str, hint: str) -> None:
    with pg.connect() as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.replace("$1", "%s"), ("rooms",) if "$1" in statement else None)  # type: ignore[call-overload]
    assert hint in str(caught.value.diag.message_hint)


def test_roles(pg: RunningPg) -> None:
    with pg.connect(AccessRole.READ) as connection:
        assert connection.execute("SELECT level FROM rooms WHERE room = 'hall'").fetchall() == [(0,)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="P0802"):
            connection.execute("INSERT INTO notes VALUES ('x', 'y')")
        assert connection.execute("SELECT has_table_privilege('rooms', 'INSERT')").fetchall() == [(False,)]


# -- transactions ----------------------------------------------------------------------------------------------


def count(connection: psycopg.Connection[Any], note: str) -> int:
    return len(connection.execute("SELECT note FROM notes WHERE note = %s", (note,)).fetchall())


def test_commands_of_a_transaction_happen_together_or_not_at_all(pg: RunningPg) -> None:
    with pg.connect() as other, pg.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO notes VALUES ('t', 'first')")
        connection.execute("SAVEPOINT s")
        connection.execute("INSERT INTO notes VALUES ('t', 'second')")
        connection.execute("ROLLBACK TO s")
        assert count(other, "first") == 0
        connection.commit()
        assert (count(other, "first"), count(other, "second")) == (1, 0)
        connection.execute("INSERT INTO notes VALUES ('t', 'third')")
        connection.rollback()
        assert count(other, "third") == 0


def test_a_transaction_does_not_read_what_it_has_commanded_and_says_so(pg: RunningPg) -> None:
    told: list[str] = []
    with pg.connect(autocommit=False) as connection:
        connection.add_notice_handler(lambda one: told.append(f"{one.message_primary}; {one.message_hint}"))
        assert count(connection, "unseen") == 0 and not told
        connection.execute("INSERT INTO notes VALUES ('t', 'unseen')")
        assert count(connection, "unseen") == 0
        assert "1 statement of this transaction will happen at COMMIT" in told[0] and "autocommit" in told[0]
        connection.execute("CREATE VIEW pending AS SELECT note FROM notes")
        with pytest.raises(psycopg.errors.UndefinedTable) as caught:
            connection.execute("SELECT * FROM pending")
        assert "is there behind COMMIT" in str(caught.value.diag.message_hint)
        connection.rollback()


def test_a_transaction_that_has_failed_only_ends(pg: RunningPg) -> None:
    with pg.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO notes VALUES ('t', 'lost')")
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            connection.execute("INSERT INTO notes (room, nope) VALUES ('t', 'x')")
        assert caught.value.diag.statement_position == "26"
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.commit()
        assert count(connection, "lost") == 0


def test_a_transaction_that_only_reads(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("BEGIN READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("INSERT INTO notes VALUES ('t', 'x')")
        connection.execute("ROLLBACK")
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("INSERT INTO notes VALUES ('t', 'x')")


def test_statements_that_are_sent_together_are_one_transaction(pg: RunningPg) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("INSERT INTO notes VALUES ('t', 'both'); INSERT INTO nowhere VALUES (1)")
        assert count(connection, "both") == 0
        connection.execute("INSERT INTO notes VALUES ('t', 'both'); INSERT INTO notes VALUES ('t', 'both')")
        assert count(connection, "both") == 2


def test_settings(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("SET application_name TO 'a test'")
        assert connection.execute("SHOW application_name").fetchall() == [("a test",)]
        assert connection.info.parameter_status("application_name") == "a test"
        connection.execute("BEGIN; SET LOCAL statement_timeout TO '5s'; COMMIT")
        assert connection.execute("SHOW statement_timeout").fetchall() == [("0",)]
        connection.execute("BEGIN; SET statement_timeout TO 700; ROLLBACK")
        assert connection.execute("SELECT current_setting('statement_timeout')").fetchall() == [("0",)]
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            connection.execute("SET isolation TO 'sometimes'")
        connection.execute("SET isolation TO 'window'")
        connection.execute("RESET ALL")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="unknown setting"):
            connection.execute("SET nothing_such TO 1")
        notices: list[str] = []
        connection.add_notice_handler(lambda one: notices.append(one.message_primary or ""))
        connection.execute("SET TimeZone TO 'Europe/Berlin'")
        assert "shown in UTC" in notices[0] and connection.execute("SHOW TIME ZONE").fetchall() == [("UTC",)]


def test_what_is_to_be_known_of_the_first_settings_does_not_break_the_login(pg: RunningPg) -> None:
    with pg.connect(options="-c timezone=Europe/Berlin") as connection:
        assert connection.execute("SHOW TIME ZONE").fetchall() == [("UTC",)]


def test_a_key_makes_a_command_happen_once(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("SET penstock.key = 'k1'")
        for _ in range(2):
            connection.execute("INSERT INTO notes VALUES ('t', 'keyed')")
        connection.execute("INSERT INTO notes VALUES ('t', 'keyed otherwise')")
        assert (count(connection, "keyed"), count(connection, "keyed otherwise")) == (1, 1)


# -- rows that come --------------------------------------------------------------------------------------------


def test_a_cursor_of_a_subscription_waits_for_rows(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT room, celsius FROM readings [NOW])")
        assert connection.execute("FETCH 10 FROM c WITH (timeout '0s')").fetchall() == []
        pg.post([("2024-05-01 09:00:00", "hall", 19.5), ("2024-05-01 09:20:00", "attic", 23.0)])
        pg.post([("2024-05-01 10:10:00", "hall", 20.0)])
        found: list[tuple[Any, ...]] = []
        end = time.monotonic() + 20
        while len(found) < 2 and time.monotonic() < end:
            found += connection.execute("FETCH 1 FROM c WITH (timeout = '1s')").fetchall()
        assert [row[1:] for row in found[:2]] == [("+", "hall", 19.5), ("-", "hall", 19.5)]
        assert isinstance(found[0][0], dt.datetime) and found[0][0].tzinfo is not None
        connection.execute("CLOSE c; COMMIT")
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH c")
    assert pg.door.subscriptions == 0


def test_copy_of_a_subscription_goes_on_until_it_is_cancelled(pg: RunningPg) -> None:
    with pg.connect() as connection:
        lines: list[bytes] = []

        def cancel() -> None:
            end = time.monotonic() + 20
            while not lines and time.monotonic() < end:
                pg.post([(f"2025-01-01 09:00:{second:02d}", "hall", 1.5) for second in range(0, 60, 10)])
                time.sleep(0.05)
            # The other one keeps this process from answering.
            connection.cancel_safe(timeout=20)

        thread = threading.Thread(target=cancel)
        statement = "COPY (SUBSCRIBE TO (SELECT room FROM readings [NOW])) TO STDOUT"
        with pytest.raises(psycopg.errors.QueryCanceled), connection.cursor().copy(statement) as copy:
            thread.start()
            lines.extend(bytes(row) for row in copy)
        thread.join()
        assert lines and lines[0].endswith(b"\t+\thall\n")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert pg.door.subscriptions == 0


def test_copy_in_each_format(pg: RunningPg) -> None:
    def copied(statement: str) -> bytes:
        with pg.connect() as connection, connection.cursor().copy(statement) as copy:  # type: ignore[arg-type]
            return b"".join(bytes(part) for part in copy)

    assert copied("COPY (SELECT 'a\tb\\c', NULL, 1) TO STDOUT") == b"a\\tb\\\\c\t\\N\t1\n"
    assert copied("COPY (SELECT 'a,\"b' AS x, NULL AS y, '' AS z) TO STDOUT (FORMAT csv, HEADER)") == (
        b'x,y,z\n"a,""b",,""\n'
    )
    assert copied("COPY (SELECT 1::int4) TO STDOUT WITH BINARY").endswith(b"\0\x01\0\0\0\4\0\0\0\1\xff\xff")
    assert copied("COPY public.rooms TO STDOUT CSV").startswith(b"hall,0,12.50,2020-02-29\n")


def test_a_named_cursor_reads_part_by_part(pg: RunningPg) -> None:
    with pg.connect(autocommit=False) as connection, connection.cursor("mine") as cursor:
        cursor.execute("SELECT room FROM rooms ORDER BY room")
        assert cursor.fetchmany(1) == [("attic",)]
        assert cursor.fetchall() == [("hall",)]
    with pg.connect() as connection:
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            connection.execute("DECLARE c CURSOR FOR SELECT 1")
        connection.execute("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM generate_series(1, 5)")
        assert connection.execute("FETCH FORWARD 2 FROM c").fetchall() == [(1,), (2,)]
        assert connection.execute("FETCH ALL IN c").fetchall() == [(3,), (4,), (5,)]


def test_a_statement_ends_after_the_time_of_its_client(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("SET statement_timeout TO '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SUBSCRIBE TO warm")
        slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement_timeout"):
            connection.execute(slow)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("statement", ["SUBSCRIBE TO warm", "SUBSCRIBE TO (SELECT room FROM readings [NOW])"])
@pytest.mark.parametrize("milliseconds", [1, 60])
def test_a_subscription_that_is_over_in_time_is_no_success(pg: RunningPg, statement: str, milliseconds: int) -> None:
    """Its rows have not ended: 57014 and P0725, whichever statement reads them."""
    timeout = f"SET statement_timeout TO {milliseconds}"
    with pg.connect() as connection:

        def copied() -> None:
            with connection.cursor().copy(f"COPY ({statement}) TO STDOUT") as copy:
                list(copy)

        def fetched() -> None:
            connection.execute("SET statement_timeout TO 0")
            connection.execute("BEGIN")
            connection.execute(f"DECLARE c CURSOR FOR {statement}")
            connection.execute(timeout)
            connection.execute("FETCH 1 FROM c")

        ways = (copied, fetched, lambda: connection.execute(statement),
                lambda: connection.execute(statement, prepare=True))  # fmt: skip
        for read in ways:
            connection.execute(timeout)
            with pytest.raises(psycopg.errors.QueryCanceled, match="P0725"):
                read()
            connection.execute("ROLLBACK")
        connection.execute("SET statement_timeout TO 0")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert pg.door.subscriptions == 0


def test_the_signature_of_a_binary_copy_comes_with_the_first_row(raw: RawClient) -> None:
    """ADBC's driver reads a row from the message that begins with it."""
    signature, end = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8, b"\xff\xff"
    row = b"\0\1" + b"\0\0\0\4" + b"\0\0\0"
    for where, expected in (("", [signature + row + b"\1", row + b"\2", end]), (" WHERE i > 5", [signature + end])):
        found = raw.query(f"COPY (SELECT i FROM generate_series(1, 2) i{where}) TO STDOUT (FORMAT binary)")
        assert [body for kind, body in found if kind == "d"] == expected


def test_a_heartbeat_is_a_statement(pg: RunningPg) -> None:
    """One far before the rows, since other tests share the stream."""
    with pg.connect() as connection:
        assert connection.execute("ADVANCE readings TO TIMESTAMP '1901-01-01 00:00:00'").statusmessage == "ADVANCE"
        with pytest.raises(psycopg.Error, match="rooms is a relation"):
            connection.execute("ADVANCE rooms TO 5")
