"""The schema `penstock` in PostgreSQL's catalogs, and the sessions of the door."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest

from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RunningPg


def test_control_relations_are_tables_of_a_schema(pg: RunningPg) -> None:
    found = pg.rows(
        "SELECT table_name, table_type, is_insertable_into FROM information_schema.tables"
        " WHERE table_schema = 'penstock' ORDER BY table_name"
    )
    assert found == sorted((one.name, "FOREIGN" if one.timestamp else "BASE TABLE", "NO") for one in CONTROL_RELATIONS)
    columns = pg.rows(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'penstock'"
        " AND table_name = 'batch_log' ORDER BY ordinal_position LIMIT 3"
    )
    assert columns == [("number", "bigint"), ("at", "timestamp with time zone"), ("seconds", "double precision")]
    assert ("penstock",) in pg.rows("SELECT nspname FROM pg_namespace")
    assert pg.rows("SELECT relkind FROM pg_class WHERE oid = 'penstock.queries'::regclass") == [("r",)]


def test_they_are_in_no_search_path(pg: RunningPg) -> None:
    """A declaration of a user may have the name of one of them."""
    assert pg.rows("SELECT to_regclass('queries')") == [(None,)]
    visible = pg.rows("SELECT relname FROM pg_class WHERE pg_table_is_visible(oid) AND relname = 'queries'")
    assert visible == []
    assert pg.rows("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public' AND tablename = 'queries'") == [(0,)]


def test_what_is_listed_can_be_read(pg: RunningPg) -> None:
    for (name,) in pg.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'"):
        pg.rows(f"SELECT * FROM penstock.{name} LIMIT 1")
    assert pg.rows("SELECT name FROM penstock.queries") == [("warm",)]


def test_sessions_are_listed(pg: RunningPg) -> None:
    before = time.time()
    with pg.connect(AccessRole.READ) as connection:
        sql = "SELECT id, door, who, role, address, began FROM penstock.sessions WHERE role = 'read'"
        ((id_, *rest, began),) = connection.execute(sql).fetchall()
        assert rest == ["postgresql", "read", "read", "127.0.0.1"] and id_.startswith("pg-")
        assert abs(began.timestamp() - before) < 30
    end = time.monotonic() + 10
    while pg.rows("SELECT id FROM penstock.sessions WHERE role = 'read'"):
        assert time.monotonic() < end


@pytest.mark.skipif(shutil.which("psql") is None, reason="no psql")
def test_psql_lists_the_schema(pg: RunningPg) -> None:
    for command, expected in (
        ("\\dt penstock.*", "batches"),
        ("\\dn", "penstock"),
        ("\\d penstock.batches", "rows_in"),
    ):
        done = subprocess.run(["psql", "-X", pg.dsn(), "-c", command], capture_output=True, text=True, check=False)
        assert expected in done.stdout, done.stderr


def test_tags_count_the_rows_that_have_changed(pg: RunningPg) -> None:
    with pg.connect() as connection:

        def done(statement: str) -> tuple[str | None, int]:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.statusmessage, cursor.rowcount

        connection.execute(
            "CREATE RELATION tagged (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY ()"
            " TIMESTAMP BY ts UNIT SECOND OPERATION BY op"
        )
        try:
            rows = ", ".join(f"({k}, '+', {k}, {k % 2})" for k in range(5))
            assert done(f"INSERT INTO tagged VALUES {rows}") == ("INSERT 0 5", 5)
            assert done("UPDATE tagged SET v = 7, ts = 10 WHERE v = 1") == ("UPDATE 2", 2)
            assert done("UPDATE tagged SET v = 8, ts = 11 WHERE v = 1") == ("UPDATE 0", 0)
        finally:
            connection.execute("DROP RELATION tagged")
