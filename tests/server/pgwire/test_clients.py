"""Clients that are not written here: a session of psql as it is shown, and others where they are installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RunningPg

SESSION = Path(__file__).with_name("psql_session.txt")


@pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql; on Debian: apt-get install postgresql-client")
def test_a_session_of_psql(pg: RunningPg) -> None:
    """PENSTOCK_REWRITE=1 writes the session anew, to be read in the diff."""
    recorded = SESSION.read_text(encoding="utf-8") if SESSION.exists() else ""
    typed = [line.removeprefix("=> ") for line in recorded.splitlines() if line.startswith("=> ")]
    shown = ""
    for line in typed:
        done = subprocess.run(
            ["psql", pg.dsn(application_name="psql"), "-X", "-q", "-v", "VERBOSITY=default", "-c", line],
            capture_output=True, text=True, env={**os.environ, "PGCLIENTENCODING": "UTF8"}, timeout=60,
        )  # fmt: skip
        output = done.stdout + done.stderr
        shown += f"=> {line}\n" + "".join(f"{one.rstrip()}\n" for one in output.splitlines())
    if os.environ.get("PENSTOCK_REWRITE"):
        SESSION.write_text(shown, encoding="utf-8")
    assert shown == recorded and len(typed) > 10


def test_asyncpg(pg: RunningPg) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def talk() -> None:
        token = pg.texts[AccessRole.ADMIN]
        given: dict[str, Any] = {"host": "127.0.0.1", "port": pg.port, "user": "admin", "password": token}
        connection = await asyncpg.connect(**given, database="penstock")
        try:
            rows = await connection.fetch("SELECT room, level FROM rooms WHERE level > $1", 0)
            assert [tuple(row) for row in rows] == [("attic", 2)]
            assert await connection.fetchval("SELECT array_agg(level) AS levels FROM rooms") == [0, 2]
            # What a pool sends between two who use a connection.
            await connection.reset()
            async with connection.transaction():
                assert [row["room"] async for row in connection.cursor("SELECT room FROM rooms ORDER BY room")] == [
                    "attic",
                    "hall",
                ]
        finally:
            await connection.close()

    asyncio.run(talk())


def test_pg8000(pg: RunningPg) -> None:
    native = pytest.importorskip("pg8000.native")
    token = pg.texts[AccessRole.ADMIN]
    connection = native.Connection("admin", host="127.0.0.1", port=pg.port, password=token, database="penstock")
    assert connection.run("SELECT room FROM rooms WHERE level > :level", level=0) == [["attic"]]
    connection.close()


def test_sqlalchemy(pg: RunningPg) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    token = pg.texts[AccessRole.ADMIN]
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://admin:{token}@127.0.0.1:{pg.port}/penstock")
    with engine.connect() as connection:
        found = sqlalchemy.inspect(connection)
        assert set(found.get_table_names()) >= {"rooms", "notes"} and found.get_materialized_view_names() == ["warm"]
        assert found.get_pk_constraint("rooms")["constrained_columns"] == ["room"]
        table = sqlalchemy.Table("rooms", sqlalchemy.MetaData(), autoload_with=connection)
        chosen = sqlalchemy.select(table.c.room).where(table.c.level > 1).limit(3)
        assert [row[0] for row in connection.execute(chosen)] == ["attic"]
    engine.dispose()
