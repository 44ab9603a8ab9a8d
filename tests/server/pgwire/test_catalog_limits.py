"""What a statement over the catalogs can reach and take: no files, so much time, so much memory; others go on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.pgwire.catalog.answers import is_fixed
from penstock.server.roles import AccessRole
from penstock.server.service import Service
from tests.server.pgwire.running import RunningPg, running_pg

#: Some seconds here, minutes without a limit.
ENDLESS = (
    "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b, generate_series(1, 1000) c"
)
RECURSIVE = "WITH RECURSIVE t(x) AS (SELECT 1::int8 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t"


@pytest.fixture(scope="module")
def hurried(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPg]:
    """A door whose statements may take two seconds."""
    with running_pg(tmp_path_factory.mktemp("hurried"), service, statement_timeout="2 seconds") as running:
        running.rows("SELECT 1")
        yield running


@pytest.mark.parametrize("statement", [ENDLESS, RECURSIVE])
def test_a_statement_that_takes_too_long_is_ended_and_others_go_on(hurried: RunningPg, statement: str) -> None:
    failures: list[psycopg.Error] = []

    def long() -> None:
        try:
            hurried.rows(statement)
        except psycopg.Error as error:
            failures.append(error)

    thread = threading.Thread(target=long)
    began = time.monotonic()
    thread.start()
    answers = 0
    with hurried.connect(AccessRole.READ) as connection:
        while thread.is_alive():
            found = connection.execute("SELECT count(*) > 100, now() IS NULL FROM pg_class").fetchall()
            assert found == [(True, False)]
            answers += 1
    assert [one.sqlstate for one in failures] == ["57014"] and "2 seconds" in str(failures[0])
    assert answers and time.monotonic() - began < 20
    assert hurried.rows("SELECT 1") == [(1,)]


def test_a_statement_is_cancelled(pg: RunningPg) -> None:
    with pg.connect() as connection:
        timer = threading.Timer(0.5, lambda: connection.cancel_safe(timeout=20))
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        timer.join()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT length(repeat('x', 2000000000))",
        "SELECT sum(length(repeat('x', 16000000 - g))) FROM generate_series(1, 3000) g",
        "SELECT cardinality(ARRAY(SELECT generate_series(1, 1000000000)))",
        "SELECT g FROM (SELECT array_agg(a) AS g FROM generate_series(1, 1000000000) a) t",
        "SELECT length(string_agg(a::text, ',')) FROM generate_series(1, 1000000000) a",
        "WITH RECURSIVE t(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM t) SELECT max(length(x)) FROM t",
        "SELECT length(lpad('x', 2000000000, 'y'))",
        "SELECT repeat('x', 100000000)",
        "SELECT generate_series(1, 1000000000)",
    ],
)
def test_a_statement_that_takes_too_much_is_ended_and_others_go_on(pg: RunningPg, statement: str) -> None:
    with pg.connect() as connection:
        began = time.monotonic()
        with pytest.raises((psycopg.errors.ProgramLimitExceeded, psycopg.errors.QueryCanceled)):
            connection.execute(statement)  # type: ignore[call-overload]
        assert time.monotonic() - began < 120
        assert connection.execute("SELECT count(*) FROM pg_database").fetchall() == [(1,)]
        assert connection.execute("SELECT repeat('x', 100)").fetchall() == [("x" * 100,)]


def test_a_number_that_is_too_large_for_a_text(pg: RunningPg) -> None:
    with pg.connect() as connection, pytest.raises(psycopg.errors.NumericValueOutOfRange):
        connection.execute("SELECT repeat('x', 10000000000)")


FILES = [
    "SELECT * FROM read_csv('/etc/passwd')", 'SELECT * FROM "read_csv"(\'/etc/passwd\')',
    "SELECT * FROM READ_CSV_AUTO('/etc/passwd')", "SELECT * FROM pg_catalog.read_csv('/etc/passwd')",
    "SELECT * FROM main.read_text('/etc/passwd')", "SELECT * FROM system.main.read_text('/etc/passwd')",
    "SELECT * FROM pg_class, LATERAL read_blob('/etc/passwd')", "SELECT read_text('/etc/passwd')",
    "WITH x AS (SELECT * FROM read_parquet('/etc/passwd')) SELECT * FROM x", "SELECT * FROM glob('/*')",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))", "SELECT * FROM parquet_scan('/x')",
    "SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"', "FROM '/etc/passwd'", 'TABLE "/etc/passwd"',
    "SELECT * FROM duckdb_settings()", "SELECT * FROM duckdb_secrets()", "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('x')", "SELECT getenv('HOME')", "SELECT * FROM pragma_version()",
    "SELECT * FROM pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')", "SELECT lo_import('/etc/passwd')",
    "ATTACH '/tmp/x.db'", "INSTALL httpfs", "LOAD httpfs", "PRAGMA threads=8", "PRAGMA database_list", "CHECKPOINT",
    "EXPORT DATABASE '/tmp/x'", "IMPORT DATABASE '/tmp/x'", "COPY (SELECT 1) TO '/tmp/x'",
    "COPY pg_class TO '/tmp/x'", "COPY rooms FROM '/etc/passwd'", "SET enable_external_access TO true",
    "SET memory_limit TO '10GB'", "SET threads TO 8", "CALL pragma_version()", "USE memory",
    "CREATE TABLE x AS SELECT 1", "DROP TABLE pg_class", "DELETE FROM pg_catalog.pg_class",
    "UPDATE pg_catalog.pg_class SET relname = 'x'", "INSERT INTO pg_catalog.pg_class (relname) VALUES ('x')",
    "SELECT * FROM facts.relations", 'SELECT * FROM "pg pg_catalog".pg_class', "SELECT * INTO x FROM pg_class",
    "SELECT px_setting('x')", "SELECT * FROM information_schema.read_csv",
    "SELECT 1 FROM pg_class WHERE relname IN (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT 1; SELECT * FROM read_csv('/etc/passwd')",
]  # fmt: skip


@pytest.mark.parametrize("statement", FILES)
def test_no_file_is_read_and_nothing_is_set(pg: RunningPg, statement: str) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)  # type: ignore[call-overload]
        assert caught.value.sqlstate not in (None, "XX000") and "root:" not in str(caught.value)
        assert connection.execute("SELECT count(*) FROM pg_database").fetchall() == [(1,)]


_REACHED = """
from penstock.pgwire.catalog.database.process import Database
from penstock.pgwire.catalog.database.requests import DatabaseRequest, DatabaseSession
database, session = Database(), DatabaseSession("u", 1, True, {})
for text in ("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
             "SELECT * FROM glob('/*')",
             "ATTACH '/tmp/x.db'", "COPY (SELECT 1) TO '/tmp/x'", "INSTALL httpfs", "LOAD httpfs", "SET threads = 8",
             "SET enable_external_access = true", "SET lock_configuration = false", "PRAGMA memory_limit='9GB'",
             "SELECT * FROM '/etc/passwd'", "SELECT session"):
    error = database.answer(DatabaseRequest(text, (), session, "", 10)).error
    print("refused" if error else f"carried out: {text}", flush=True)
"""


def test_the_database_itself_reaches_nothing() -> None:
    """Also what the translation would not write is refused."""
    done = subprocess.run([sys.executable, "-c", _REACHED], capture_output=True, text=True, check=False)
    assert done.stdout.split("\n")[:-1] == ["refused"] * 13, done.stdout + done.stderr[-2_000:]


def test_duckdb_is_not_loaded_by_the_server() -> None:
    text = "import sys, penstock.cli.serve, penstock.pgwire.listening; print('duckdb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_an_end_of_the_process_is_an_error_of_its_statement_alone(pg: RunningPg) -> None:
    pg.rows("SELECT 1")
    for process in list(pg.door.catalogs._idle):
        process.worker.kill()
    # It has ended before the statement, or while it reads it.
    outcomes = []
    for number in range(3):
        try:
            outcomes.append(pg.rows(f"SELECT {number}, now() IS NULL"))
        except psycopg.errors.ProgramLimitExceeded:
            outcomes.append([])
    assert outcomes[-1] == [(2, False)]


def test_an_answer_is_known_until_something_is_declared(pg: RunningPg) -> None:
    views = "SELECT count(*) FROM pg_views WHERE viewname = 'known_later'"
    with pg.connect() as connection, pg.connect(AccessRole.READ) as other:
        assert connection.execute(views).fetchall() == connection.execute(views).fetchall() == [(0,)]
        connection.execute("CREATE VIEW known_later AS SELECT room FROM rooms")
        try:
            assert connection.execute(views).fetchall() == other.execute(views).fetchall() == [(1,)]
        finally:
            connection.execute("DROP VIEW known_later")
        assert connection.execute(views).fetchall() == [(0,)]
        # What depends on the user, the connection, its settings or the time is its own.
        for text in ("SELECT current_user", "SELECT rolname FROM pg_roles", "SELECT pg_backend_pid()",
                     "SELECT has_table_privilege('rooms', 'insert')"):  # fmt: skip
            assert connection.execute(text).fetchall() != other.execute(text).fetchall(), text
        other.execute("SET application_name TO 'other'")
        name = "'application_name'"
        for setting in (f"SELECT current_setting({name})", f"SELECT setting FROM pg_settings WHERE name = {name}"):
            assert connection.execute(setting).fetchall() != other.execute(setting).fetchall()  # type: ignore[call-overload]
        for text in ("SELECT random()", "SELECT clock_timestamp()", "SELECT now()"):
            assert connection.execute(text).fetchall() != connection.execute(text).fetchall()
    assert is_fixed("SELECT 1") and not is_fixed("SELECT $now") and not is_fixed("SELECT px_setting('x')")


def test_the_files_of_the_catalogs_are_whole() -> None:
    """Each table of `catalog.sql` is one of the catalogs, and can be read."""
    folder = Path(sys.modules["penstock.pgwire.catalog.answers"].__file__ or "").parent
    assert (folder / "catalog.sql").read_text(encoding="utf-8").count("\n-- ") > 25


def test_an_answer_has_the_names_and_types_of_its_statement(pg: RunningPg) -> None:
    """Statements whose texts for DuckDB are alike."""
    with pg.connect() as connection:
        for text, name, oid in (
            ("1 AS a", "a", 23),
            ("1 AS b", "b", 23),
            ("NULL::name", "name", 19),
            ("NULL::text", "text", 25),
        ):
            (column,) = connection.execute(f"SELECT {text}").description or ()  # type: ignore[call-overload]
            assert (column.name, column.type_code) == (name, oid)
