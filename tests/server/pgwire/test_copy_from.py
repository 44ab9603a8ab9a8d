"""COPY FROM STDIN: rows into streams and relations, all of them or none, through drivers and by messages."""

from __future__ import annotations

import asyncio
import datetime as dt
import shutil
import subprocess
import threading
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.server.roles import AccessRole
from penstock.server.service import Service
from tests.server.pgwire.running import RawClient, RunningPg, problem, running_pg


def notes(pg: RunningPg, room: str) -> list[Any]:
    return sorted((one for (one,) in pg.rows("SELECT note FROM notes WHERE room = %s", room)), key=str)


def copied(raw: RawClient, statement: str, *parts: bytes, end: str = "c") -> list[tuple[str, bytes]]:
    """Send a COPY with its lines; return the messages up to ReadyForQuery."""
    raw.send("Q", statement.encode() + b"\0")
    found = raw.until("G" if statement.startswith("COPY") else "Z")
    assert found[-1][0] == "G", found
    for part in parts:
        raw.send("d", part)
    raw.send(end, b"enough\0" if end == "f" else b"")
    return raw.until("Z")


def test_rows_of_psycopg(pg: RunningPg) -> None:
    with pg.connect(autocommit=False) as connection:
        cursor = connection.cursor()
        with cursor.copy("COPY notes FROM STDIN") as copy:
            for note in ("plain", "tab\tand\nline\\", None, "", "\\N", "é🙂", "\\."):
                copy.write_row(("psycopg", note))
        assert cursor.statusmessage == "COPY 7" and cursor.rowcount == 7
        assert notes(pg, "psycopg") == [], "the rows wait for COMMIT"
        connection.commit()
    assert set(notes(pg, "psycopg")) == {"plain", "tab\tand\nline\\", None, "", "\\N", "é🙂", "\\."}


def test_a_relation_and_a_stream(pg: RunningPg) -> None:
    with pg.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE RELATION measured (a INT, b DATE, c DECIMAL(8, 2), d BINARY, e BOOLEAN) FROM MEMORY ()")
        with cursor.copy("COPY public.measured (b, c, a, d) FROM STDIN") as copy:
            copy.write_row((dt.date(2024, 2, 29), Decimal("1.50"), 3, b"\x01\xff\0"))
            copy.write_row((None, None, -1, None))
        found = set(connection.execute("SELECT * FROM measured").fetchall())
        assert found == {(3, dt.date(2024, 2, 29), Decimal("1.50"), b"\x01\xff\0", None), (-1, None, None, None, None)}
        # What COPY TO writes, COPY FROM reads.
        for options in ("(FORMAT text)", "(FORMAT csv, HEADER)"):
            with cursor.copy(f"COPY (SELECT * FROM measured WHERE a = 3) TO STDOUT {options}") as out:
                lines = b"".join(bytes(part) for part in out)
            with cursor.copy(f"COPY measured FROM STDIN {options}") as copy:
                copy.write(lines)
        assert len(connection.execute("SELECT a FROM measured WHERE d = X'01ff00'").fetchall()) == 4
        connection.execute("DROP RELATION measured")
        # A stream of its own: in the other one time may be far ahead of these rows.
        connection.execute(
            "CREATE STREAM copied (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at"
        )
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE TO (SELECT room, celsius FROM copied [NOW])")
        with pg.connect() as other, other.cursor() as copying:
            with copying.copy("COPY copied FROM STDIN (FORMAT csv, HEADER)") as copy:
                copy.write('at,room,celsius\n2024-04-01 09:00:00+00,hall,19.5\n2024-04-01T10:00:00Z,"a,b",NaN\n')
            assert copying.statusmessage == "COPY 2"
        found: list[tuple[Any, ...]] = []
        end = time.monotonic() + 20
        while not found and time.monotonic() < end:
            found += connection.execute("FETCH 1 FROM c WITH (timeout = '1s')").fetchall()
        assert found[0][1:] == ("+", "hall", 19.5)
        connection.execute("CLOSE c; COMMIT")
        connection.execute("DROP STREAM copied")


@pytest.mark.parametrize(
    ("options", "lines", "rows"),
    [("", b"a\tb\n", ["b"]), ("", b"a\tb", ["b"]), ("", b"a\tb\r\na\tc\r\n", ["b", "c"]), ("", b"", []),
     ("", b"a\t\\N\n", [None]), ("", b"a\t\\\\N\n", ["\\N"]), ("", b"a\tx\\ty\\nz\\\\\n", ["x\ty\nz\\"]),
     ("", b"a\tx\\\ny\n", ["x\ny"]), ("", b"a\t\\101\\x42\\q\\\tz\n", ["ABq\tz"]), ("", b"a\t\n", [""]),
     ("", b"a\tb\n\\.\nwhatever", ["b"]), ("", b"a\t\\303\\251\n", ["é"]), ("", b"a\t\"b\"\n", ['"b"']),
     ("(HEADER)", b"x\ty\na\tb\n", ["b"]), ("(HEADER match)", b"Room\tnote\na\tb\n", ["b"]),
     ("(DELIMITER '|', NULL 'nil')", b"a|nil\na|\\|\n", [None, "|"]),
     ("WITH DELIMITER AS '^' NULL AS ''", b"a^\n", [None]),
     ("(FORMAT csv)", b'a,b\na,"b, ""c""\nd"\n', ["b", 'b, "c"\nd']), ("CSV", b'a,\na,""\n', [None, ""]),
     ("CSV HEADER", b'"x\ny",z\na,b\n', ["b"]), ("(FORMAT csv, HEADER match)", b"room,NOTE\na,b", ["b"]),
     ("(FORMAT csv, NULL 'nil', DELIMITER ';')", b'a;nil\na;"nil"\na;\n', [None, "nil", ""]),
     ("CSV", b"a,b\r\na,c\r\n\\.\r\n", ["b", "c"]), ("CSV", b"\\.\n", []), ("CSV", b"", []),
     ("CSV HEADER", b"x,y\n", []),
     ("CSV", b"a,\\N\n", ["\\N"]), ("CSV", "a,é🙂\u2028x\n".encode(), ["é🙂\u2028x"])],
)  # fmt: skip
def test_formats(raw: RawClient, options: str, lines: bytes, rows: list[str | None]) -> None:
    before = Counter(notes_of(raw))
    # The lines may be cut anywhere.
    parts = [lines[at : at + 3] for at in range(0, len(lines), 3)]
    assert ("C", f"COPY {len(rows)}\0".encode()) in copied(raw, f"COPY notes FROM STDIN {options}", *parts)
    assert Counter(notes_of(raw)) - before == Counter(rows)


def notes_of(raw: RawClient) -> list[str | None]:
    shown = raw.query("SELECT note FROM notes WHERE room = 'a'")
    return [None if body[2:6] == b"\xff" * 4 else body[6:].decode() for kind, body in shown if kind == "D"]


@pytest.mark.parametrize(
    ("statement", "lines", "state", "said"),
    [("COPY rooms FROM STDIN", b"ok\t1\t1\t2020-01-01\nx\tnone\t1\t2020-01-01\n", "22P02", "line 2: bad number 'none'"),
     ("COPY rooms FROM STDIN", b"ok\t1\t1\t2020-01-01\nx\t1\n", "22P04", "line 2: it has 2 columns, 4 are expected"),
     ("COPY rooms FROM STDIN", b"ok\t1\t1\t2020-01-01\n\n", "22P04", "line 2: it has 1 columns"),
     ("COPY rooms FROM STDIN", b"ok\t\t1\t2020-01-01\n", "22P02", "line 1: bad number ''"),
     ("COPY rooms FROM STDIN", b"ok\t1\t1\t2021-02-29\n", "22P02", "line 1: bad date '2021-02-29'"),
     ("COPY rooms FROM STDIN", b"ok\t99999999999\t1\t\\N\n", "22P02", "line 1: bad number"),
     ("COPY notes FROM STDIN", b"a\\\nb\tc\na\xff\tb\n", "22021", "line 3: it is not UTF-8"),
     ("COPY notes FROM STDIN", b"a\tb\0\n", "22021", "line 1: a text has no character"),
     ("COPY notes FROM STDIN", b"a\tb\\000\n", "22021", "line 1: a text has no character"),
     ("COPY notes FROM STDIN", b"a\tb\\377\n", "22P02", "line 1: bad text"),
     ("COPY notes FROM STDIN", b"a\tb\\", "22P04", "line 1: it ends with a backslash"),
     ("COPY notes FROM STDIN", b"a\tb\rc\n", "22P04", "line 1: it has a carriage return"),
     ("COPY notes FROM STDIN", b"a\tb\r\na\tc\na\td\r\n", "22P04", "line 2: it ends without"),
     ("COPY notes FROM STDIN CSV", b'a,"b\nc"\na,"x"\na,b,c\n', "22P04", "line 4: it has 3 columns, 2 are expected"),
     ("COPY notes FROM STDIN CSV HEADER", b'x,"b\nc"\na,"x"\na\n', "22P04", "line 4: it has 1 columns"),
     ("COPY notes FROM STDIN CSV", b'a,b\na,"c\n', "22P04", "a quote has no end"),
     ("COPY notes FROM STDIN CSV", b"a,b\n\na,b\n", "22P04", "line 2: it has 1 columns"),
     ("COPY rooms FROM STDIN CSV", b'"o\nk",1,1,2020-01-01\nx,y,1,2020-01-01\n', "22P02", "line 3: bad number 'y'"),
     ("COPY notes FROM STDIN (HEADER match)", b"room\tother\na\tb\n", "22P04", "line 1: the header has room, other"),
     ("COPY readings FROM STDIN", b"2024-01-01\thall\t1\n\\N\thall\t1\n", "23502", "line 2: column at is NULL")],
)  # fmt: skip
def test_a_malformed_line_adds_nothing(raw: RawClient, statement: str, lines: bytes, state: str, said: str) -> None:
    count = len(notes_of(raw))
    found = problem(copied(raw, statement, lines))
    assert found["C"] == state and said in found["M"] and "COPY added no row" in found["M"]
    assert ("C", b"SELECT 0\0") in raw.query("SELECT room FROM rooms WHERE room = 'ok'")
    assert len(notes_of(raw)) == count


def test_a_header_that_is_read_as_a_row_is_named(raw: RawClient) -> None:
    head = b"room,level,area,since\nok,1,1,2020-01-01\n"
    found = problem(copied(raw, "COPY rooms FROM STDIN CSV", head))
    assert found["C"] == "22P02" and "HEADER" in found["H"], found
    other = problem(copied(raw, "COPY rooms FROM STDIN CSV", b"ok,none,1,2020-01-01\n"))
    assert "HEADER" not in other.get("H", "")


@pytest.mark.parametrize(
    ("statement", "lines", "hint"),
    [("COPY rooms FROM STDIN", b"room,level,area,since\n", "WITH (FORMAT csv, HEADER) reads commas"),
     ("COPY readings FROM STDIN CSV", b"2024-03-01 09:00 CET,hall,1\n", "2024-03-01 09:00:00+01")],
)  # fmt: skip
def test_what_to_do_about_a_malformed_line(raw: RawClient, statement: str, lines: bytes, hint: str) -> None:
    assert hint in problem(copied(raw, statement, lines))["H"]


@pytest.mark.parametrize(
    ("statement", "state", "hint"),
    [("COPY rooms FROM STDIN (FORMAT csv, FORCE_NULL (level))", "0A000", "FORMAT, HEADER, DELIMITER and NULL"),
     ("COPY rooms FROM STDIN (ENCODING 'LATIN1')", "0A000", "sent as UTF-8"),
     ("COPY rooms FROM STDIN (ON_ERROR ignore)", "0A000", "over HTTP"),
     ("COPY rooms FROM STDIN WHERE level > 0", "42601", "leave others out before it"),
     ("COPY upstairs FROM STDIN", "42P01", "rows go into a stream or relation"),
     ("COPY rooms TO '/tmp/rooms.csv'", "0A000", "TO STDOUT"),
     ("COPY SUBSCRIBE TO warm TO STDOUT", "42601", "COPY (SUBSCRIBE TO name) TO STDOUT")],
)  # fmt: skip
def test_what_to_write_in_place_of_it(raw: RawClient, statement: str, state: str, hint: str) -> None:
    found = problem(raw.query(statement))
    assert found["C"] == state and hint in found["H"], found


@pytest.mark.parametrize(
    ("statement", "state", "code"),
    [("COPY nowhere FROM STDIN", "42P01", "P0201"), ("COPY warm FROM STDIN", "42P01", "P0201"),
     ("COPY notes (nope) FROM STDIN", "42703", "P0202"), ("COPY notes (room, ROOM) FROM STDIN", "42701", "P0205"),
     ("COPY readings (room) FROM STDIN", "23502", "P0209"), ("COPY notes () FROM STDIN", "42601", "P0101"),
     ("COPY notes FROM '/etc/passwd'", "0A000", "P0901"), ("COPY notes FROM PROGRAM 'ls'", "0A000", "P0901"),
     ("COPY notes FROM STDIN (FORMAT binary)", "0A000", "P0901"), ("COPY notes FROM STDIN BINARY", "0A000", "P0901"),
     ("COPY notes FROM STDIN (FORMAT json)", "22023", "P0104"), ("COPY notes FROM STDIN (FREEZE)", "0A000", "P0901"),
     ("COPY notes FROM STDIN (DELIMITER 'ab')", "22023", "P0104"),
     ("COPY notes FROM STDIN (HEADER 7)", "22023", "P0104"),
     ("COPY notes FROM STDIN (NULL 'a\tb')", "22023", "P0104"),
     ("COPY notes FROM STDIN WHERE room = 'x'", "42601", "P0101"),
     ("COPY FROM STDIN", "42601", "P0101"), ("COPY (SELECT 1) FROM STDIN", "42601", "P0101"),
     ('COPY "a ""b""é" FROM STDIN', "42P01", "P0201"), ("COPY penstock.queries FROM STDIN", "42P01", "P0201")],
)  # fmt: skip
def test_what_is_refused_before_the_lines_come(raw: RawClient, statement: str, state: str, code: str) -> None:
    found = raw.query(statement)
    assert "G" not in [kind for kind, _ in found]
    assert (problem(found)["C"], problem(found)["M"][:5]) == (state, code)
    # What a client sends all the same is skipped.
    raw.send("d", b"x\ty\n")
    raw.send("c")
    assert ("C", b"SELECT 1\0") in raw.query("SELECT 1")


def test_a_client_that_takes_the_rows_back(raw: RawClient, pg: RunningPg) -> None:
    found = problem(copied(raw, "COPY notes FROM STDIN", b"back\ta\n", end="f"))
    assert (found["C"], found["M"][:5]) == ("57014", "P0726") and "enough" in found["M"]
    raw.send("Q", b"COPY notes FROM STDIN\0")
    raw.until("G")
    raw.send("d", b"back\ta\n")
    raw.send("H")
    raw.send("S")
    raw.send("Q", b"SELECT 1\0")
    assert problem(raw.until("Z"))["C"] == "08P01"
    assert ("C", b"SELECT 1\0") in raw.query("SELECT 1")
    with pg.connect() as connection:
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(ValueError, match="in the middle"), copying as copy:
            copy.write_row(("back", "b"))
            raise ValueError("in the middle")
    assert notes(pg, "back") == []


def test_a_client_that_vanishes_leaves_nothing(open_pg: RunningPg, pg: RunningPg) -> None:
    for end in (b"", b"X\0\0\0\4"):
        with RawClient(open_pg.port) as client:
            client.send("Q", b"COPY notes FROM STDIN\0")
            client.until("G")
            client.send("d", b"vanished\ta\n" * 1_000)
            client.socket.sendall(end or b"d\0\0\1\0half")
    end_ = time.monotonic() + 20
    while open_pg.door.connections and time.monotonic() < end_:
        time.sleep(0.02)
    assert notes(pg, "vanished") == []


def test_two_at_once_and_one_that_is_cancelled(open_pg: RunningPg, pg: RunningPg) -> None:
    with RawClient(open_pg.port) as one, RawClient(open_pg.port) as other:
        for client in (one, other):
            client.send("Q", b"COPY notes FROM STDIN\0")
            client.until("G")
            client.send("d", b"two\ta\n")
        for client in (other, one):
            client.send("d", b"two\tb\n")
            client.send("c")
            assert ("C", b"COPY 2\0") in client.until("Z")
    assert notes(pg, "two") == ["a", "a", "b", "b"]
    with pg.connect() as connection:
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(psycopg.errors.QueryCanceled), copying as copy:
            copy.write_row(("two", "c"))
            thread = threading.Thread(target=lambda: connection.cancel_safe(timeout=20))
            thread.start()
            thread.join()
            time.sleep(0.3)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        connection.execute("SET statement_timeout TO '200ms'")
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement_timeout"), copying:
            time.sleep(0.6)
    assert len(notes(pg, "two")) == 4


def test_the_limit_of_bytes_and_a_huge_line(service: Service, pg: RunningPg, tmp_path: Path) -> None:
    with running_pg(tmp_path, service, max_body_bytes="100000") as running, running.connect() as connection:
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="max_body_bytes"), copying as copy:
            for _ in range(2_000):
                copy.write(b"large\t" + b"x" * 100 + b"\n")
        connection.execute("BEGIN")
        with connection.cursor().copy("COPY notes FROM STDIN") as copy:
            copy.write(b"large\t" + b"x" * 60_000 + b"\n")
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded), copying as copy:
            copy.write(b"large\t" + b"x" * 60_000 + b"\n")
        connection.execute("ROLLBACK")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert notes(pg, "large") == []
    with pg.connect() as connection:
        text = "y" * 5_000_000
        with connection.cursor().copy("COPY notes FROM STDIN CSV") as copy:
            copy.write(f'large,"{text}"\n')
        assert notes(pg, "large") == [text]


def test_transactions(pg: RunningPg) -> None:
    def copy(connection: psycopg.Connection[Any], note: str, table: str = "notes") -> None:
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as copying:  # type: ignore[arg-type]
            copying.write_row(("tx", note) if table == "notes" else ("tx", 1, None, None))

    with pg.connect(autocommit=False) as connection:
        copy(connection, "a")
        connection.execute("SAVEPOINT s")
        copy(connection, "b")
        connection.execute("ROLLBACK TO s")
        copy(connection, "c")
        connection.commit()
        assert notes(pg, "tx") == ["a", "c"]
        copy(connection, "d")
        connection.rollback()
        copy(connection, "e")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="COPY FROM"):
            connection.execute("INSERT INTO notes VALUES ('tx', 'f')")
        connection.rollback()
        connection.execute("INSERT INTO notes VALUES ('tx', 'g')")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            copy(connection, "h")
        connection.rollback()
        copy(connection, "i")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            copy(connection, "j", "rooms")
        connection.commit()
        connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            copy(connection, "k")
        connection.rollback()
    assert notes(pg, "tx") == ["a", "c"]
    with pg.connect() as connection:
        connection.execute("SET penstock.key = 'copies'")
        copy(connection, "once")
        copy(connection, "once")
        copy(connection, "other")
    assert notes(pg, "tx") == ["a", "c", "once", "other"]


def test_roles(pg: RunningPg) -> None:
    with pg.connect(AccessRole.READ) as connection:
        copying = connection.cursor().copy("COPY notes FROM STDIN")
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="P0802"), copying as copy:
            copy.write_row(("role", "x"))
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
    with pg.connect(AccessRole.CONTROL) as connection, connection.cursor().copy("COPY notes FROM STDIN") as copy:
        copy.write_row(("role", "x"))
    assert notes(pg, "role") == ["x"]


def test_by_the_extended_messages_and_among_other_statements(raw: RawClient, pg: RunningPg) -> None:
    for lines, kinds in ((b"extended\ta\n", "12nGCZ"), (b"extended\n", "12nGEZ")):
        raw.send("P", b"\0COPY notes FROM STDIN\0\0\0")
        raw.send("B", b"\0\0\0\0\0\0\0\0")
        raw.send("D", b"P\0")
        raw.send("E", b"\0\0\0\0\0")
        raw.send("S")
        found = raw.until("G")
        raw.send("d", lines)
        raw.send("c")
        raw.send("S")
        assert "".join(kind for kind, _ in [*found, *raw.until("Z")]) == kinds
    assert notes(pg, "extended") == ["a"]
    raw.send("Q", b"SELECT 1; COPY notes FROM STDIN; SELECT 2; COPY notes FROM STDIN\0")
    for note in (b"b", b"c"):
        raw.until("G")
        raw.send("d", b"extended\t" + note + b"\n")
        raw.send("c")
    assert ("C", b"COPY 1\0") in raw.until("Z")
    assert notes(pg, "extended") == ["a", "b", "c"]


def test_asyncpg(pg: RunningPg, tmp_path: Path) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    (tmp_path / "notes.csv").write_text('asyncpg,a\nasyncpg,"b,c"\n', encoding="utf-8")

    async def talk() -> None:
        token = pg.texts[AccessRole.ADMIN]
        given: dict[str, Any] = {"host": "127.0.0.1", "port": pg.port, "user": "admin", "password": token}
        connection = await asyncpg.connect(**given, database="penstock")
        try:
            done = await connection.copy_to_table("notes", source=tmp_path / "notes.csv", format="csv")
            assert done == "COPY 2"
            # It sends these in binary.
            with pytest.raises(asyncpg.FeatureNotSupportedError, match="binary"):
                await connection.copy_records_to_table("notes", records=[("asyncpg", "d")])
            assert await connection.fetchval("SELECT 1") == 1
            # It reads these in binary.
            text = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
            assert str(await connection.fetchval(f"SELECT '{text}'::uuid")) == text
        finally:
            await connection.close()

    asyncio.run(talk())
    assert notes(pg, "asyncpg") == ["a", "b,c"]


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql; on Debian: apt-get install postgresql-client")
def test_psql(pg: RunningPg, tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("room,note\npsql,a\n", encoding="utf-8")
    lines = (
        f"COPY notes FROM STDIN;\npsql\tb\\tc\n\\.\n\\copy notes from '{tmp_path}/notes.csv' csv header\nSELECT 1;\n"
    )
    done = subprocess.run(["psql", pg.dsn(), "-X", "-A", "-t"], input=lines, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("COPY 1\nCOPY 1\n1\n", "")
    assert notes(pg, "psql") == ["a", "b\tc"]


def test_notices_of_rows_that_are_late_replaced_or_in_another_unit(pg: RunningPg) -> None:
    told: list[str] = []
    with pg.connect() as connection, connection.cursor() as cursor:
        connection.add_notice_handler(lambda one: told.append(f"{one.severity} {one.message_primary}"))
        cursor.execute("CREATE STREAM beats (t BIGINT, k INT) FROM HTTP () TIMESTAMP BY t UNIT MILLISECOND")
        cursor.execute(
            "CREATE RELATION kept (k INT, v INT, t TIMESTAMP, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY t"
        )
        for statement, rows, said in (
            ("COPY beats FROM STDIN", [(9_000, 1), (8_000, 2)], "NOTICE 1 of 2 rows of beats"),
            ("COPY beats FROM STDIN", [(1_709_283_600, 1)], "TIMESTAMP BY t UNIT SECOND declares that"),
            ("COPY kept FROM STDIN", [(1, 1, "2024-03-01"), (1, 2, "2024-03-01")], "1 row of kept is replaced"),
        ):
            with cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(row)
            assert len(told) == 1 and said in told.pop()
        # In a transaction the rows are added, and judged, at its end.
        connection.execute("BEGIN")
        with cursor.copy("COPY beats FROM STDIN") as copy:
            copy.write_row((1_709_283_700_000, 3))
            copy.write_row((1_709_283_600_000, 4))
        assert not told
        connection.execute("COMMIT")
        assert "1 of 2 rows of beats came late" in told[0]
        connection.execute("DROP STREAM beats")
        connection.execute("DROP RELATION kept")


def test_rows_of_a_relation_that_a_query_has_read(pg: RunningPg) -> None:
    """INSERT and COPY are carried out, and a notice names the queries that keep what they have read."""
    told: list[tuple[str | None, str | None]] = []
    with pg.connect() as connection, connection.cursor() as cursor:
        connection.add_notice_handler(lambda one: told.append((one.severity, one.message_primary)))
        cursor.execute("CREATE RELATION shelves (k INT) FROM MEMORY ()")
        cursor.execute("INSERT INTO shelves VALUES (1)")
        cursor.execute("CREATE QUERY shelved AS SELECT k + 1 AS n FROM shelves")
        assert told == []
        cursor.execute("INSERT INTO shelves VALUES (2)")
        assert cursor.statusmessage == "INSERT 0 1"
        with cursor.copy("COPY shelves FROM STDIN") as copy:
            copy.write_row((3,))
        assert cursor.statusmessage == "COPY 1"
        message = "shelves has no timestamps: shelved keeps what was read of it at the start"
        assert told == [("NOTICE", message)] * 2
        assert set(connection.execute("SELECT k FROM shelves").fetchall()) == {(1,), (2,), (3,)}
        assert connection.execute("SELECT n FROM shelved").fetchall() == [(2,)]
        cursor.execute("DROP QUERY shelved")
        cursor.execute("CREATE QUERY shelved AS SELECT k + 1 AS n FROM shelves")
        assert set(connection.execute("SELECT n FROM shelved").fetchall()) == {(2,), (3,), (4,)}
        assert len(told) == 2
        # Other tests list what the server has.
        cursor.execute("DROP QUERY shelved")
        cursor.execute("DROP RELATION shelves")
