"""Drivers and what is built on them, further than `test_clients.py`: pipelines, pools, cursors, types, reflection, data
frames; and the statements that dashboards make of their macros."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RunningPg

DRIVERS = ("psycopg", "pg8000", "asyncpg")


@pytest.fixture(scope="module")
def kept(pg: RunningPg) -> Iterator[RunningPg]:
    """Readings that can be read: a relation, since a system without Spark keeps no streams."""
    pg.rows("CREATE RELATION kept (at TIMESTAMP, room STRING, celsius DOUBLE) FROM MEMORY ()")
    rows = [
        f"(TIMESTAMP '2024-03-01 0{hour}:{minute}0:00Z', '{room}', {celsius})"
        for hour, minute, room, celsius in (
            (8, 0, "hall", 19.5),
            (8, 4, "attic", 23),
            (9, 1, "hall", 20),
            (9, 5, "hall", 21),
        )
    ]
    pg.rows(f"INSERT INTO kept VALUES {', '.join(rows)}")
    yield pg
    pg.rows("DROP RELATION kept")


_RANGE = "BETWEEN '2024-03-01T08:00:00Z' AND '2024-03-01T10:00:00Z'"


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        # $__timeGroupAlias(at, '1h'), $__timeFilter(at)
        ('SELECT floor(extract(epoch from "at")/3600)*3600 AS "time", room AS metric, avg(celsius) AS "celsius" FROM'
         f' kept WHERE "at" {_RANGE} GROUP BY 1, 2 ORDER BY 1, 2',
         [(1709280000, "attic", 23.0), (1709280000, "hall", 19.5), (1709283600, "hall", 20.5)]),
        # $__time(at)
        (f'SELECT "at" AS "time", celsius FROM kept WHERE "at" {_RANGE} AND room = \'attic\' ORDER BY 1 LIMIT 50000',
         [(dt.datetime(2024, 3, 1, 8, 40, tzinfo=dt.UTC), 23.0)]),
        # $__unixEpochFilter, of seconds
        ("SELECT count(*) AS n FROM kept WHERE extract(epoch from at) >= 1709281800 AND extract(epoch from at) <="
         " 1709285400",
         [(2,)]),
        # Metabase: by hour, and a question about a table
        ('SELECT DATE_TRUNC(\'hour\', "public"."kept"."at") AS "at", COUNT(*) AS "count" FROM "public"."kept" GROUP BY'
         ' DATE_TRUNC(\'hour\', "public"."kept"."at") ORDER BY DATE_TRUNC(\'hour\', "public"."kept"."at") ASC',
         [(dt.datetime(2024, 3, 1, 8, tzinfo=dt.UTC), 2), (dt.datetime(2024, 3, 1, 9, tzinfo=dt.UTC), 2)]),
        ('SELECT "source"."room" AS "room", SUM("source"."celsius") AS "sum" FROM (SELECT "public"."kept"."room" AS'
         ' "room", "public"."kept"."celsius" AS "celsius" FROM "public"."kept" LIMIT 1048575) AS "source" GROUP BY'
         ' "source"."room" ORDER BY "sum" DESC, "source"."room" ASC', [("hall", 60.5), ("attic", 23.0)]),
        # Superset: a preview, and a time range
        (f"SELECT * FROM (SELECT room, celsius FROM kept WHERE at {_RANGE}) AS virtual_table ORDER BY celsius LIMIT 1",
         [("hall", 19.5)]),
        # Beside what the server says of itself
        ("SELECT k.room, s.kind FROM kept k, penstock.streams s WHERE s.name = 'readings' AND k.celsius > 22",
         [("attic", "stream")]),
    ],
)  # fmt: skip
def test_statements_of_dashboards_over_readings(kept: RunningPg, statement: str, rows: list[Any]) -> None:
    assert kept.rows(statement) == rows


# -- psycopg ---------------------------------------------------------------------------------------------------


def test_a_pipeline_of_psycopg(pg: RunningPg) -> None:
    with pg.connect() as connection:
        with connection.pipeline():
            first = connection.execute("SELECT room FROM rooms WHERE level > %s", (0,))
            second = connection.execute("SELECT 2")
            assert first.fetchall() == [("attic",)] and second.fetchall() == [(2,)]
        # The answer may come while the second is sent, or at the end alone: the end of the pipeline takes both in.
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.pipeline():
            connection.execute("SELECT nope FROM rooms")
            connection.execute("SELECT 3")
        with connection.pipeline():
            assert connection.execute("SELECT 4").fetchall() == [(4,)]


def test_cursors_of_the_server(kept: RunningPg) -> None:
    with kept.connect(autocommit=False) as connection, connection.cursor("named", row_factory=dict_row) as cursor:
        cursor.itersize = 1
        cursor.execute("SELECT room, celsius FROM kept WHERE celsius > %s ORDER BY celsius", (19.9,))
        assert [row["celsius"] for row in cursor] == [20.0, 21.0, 23.0]


def test_parameters_of_each_type_over_data(pg: RunningPg) -> None:
    instant = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, dt.UTC)
    values = (True, 5, 2**40, 1.5, Decimal("1.50"), 'it\'s \\ "q"', b"\0\xff", dt.date(2024, 2, 29), instant)
    marks = ", ".join(f"%s AS v{n}" for n in range(len(values)))
    for binary in (False, True):
        with pg.connect() as connection:
            cursor = connection.cursor(binary=binary)
            (found,) = cursor.execute(f"SELECT {marks} FROM rooms LIMIT 1", values).fetchall()  # type: ignore[call-overload]
            assert found == values
            nothing = tuple(None for _ in values)
            (found,) = cursor.execute(f"SELECT {marks} FROM rooms LIMIT 1", nothing).fetchall()  # type: ignore[call-overload]
            assert found == nothing


def test_an_error_points_at_its_place(pg: RunningPg) -> None:
    with pg.connect() as connection:
        for statement, place in (("SELECT room,\n nope FROM rooms", 15), ("SELECT relname, nope FROM pg_class", None)):
            with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
                connection.execute(statement)  # type: ignore[call-overload]
            position = caught.value.diag.statement_position
            assert place is None or position == str(place)


# -- asyncpg ---------------------------------------------------------------------------------------------------


def test_a_pool_of_asyncpg(kept: RunningPg) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def talk() -> None:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": kept.port, "user": "admin", "database": "penstock",
                                 "password": kept.texts[AccessRole.ADMIN]}  # fmt: skip
        async with asyncpg.create_pool(**given, min_size=2, max_size=5, statement_cache_size=10) as pool:
            select = "SELECT count(*) AS n FROM kept WHERE celsius >= $1"
            found = await asyncio.gather(*(pool.fetchval(select, 18.0 + n) for n in range(20)))
            assert found[:6] == [4, 4, 3, 2, 1, 1]
            async with pool.acquire() as one:
                prepared = await one.prepare(
                    "SELECT $1::int8, $2::numeric, $3::timestamptz, $4::bool, $5::text FROM rooms"
                )
                assert [str(p.name) for p in prepared.get_parameters()] == [
                    "int8",
                    "numeric",
                    "timestamptz",
                    "bool",
                    "text",
                ]
                instant = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
                row = await prepared.fetchrow(2**40, Decimal("1.5"), instant, True, "x")
                assert tuple(row) == (2**40, Decimal("1.5"), instant, True, "x")
                names = await one.fetch(
                    "SELECT relname FROM pg_class WHERE relname = ANY($1) ORDER BY 1", ["rooms", "notes"]
                )
                assert [name[0] for name in names] == ["notes", "rooms"]
                assert await one.fetchval("SELECT interval '1 mon 2 days'") == dt.timedelta(days=32)
                with pytest.raises(asyncpg.UndefinedColumnError) as caught:
                    await one.fetch("SELECT nope FROM rooms")
                assert caught.value.position == "8"
                with pytest.raises(asyncio.TimeoutError):
                    await one.fetch("SUBSCRIBE TO warm", timeout=0.5)
                assert await one.fetchval("SELECT 1") == 1

    asyncio.run(talk())


# -- SQLAlchemy and pandas -------------------------------------------------------------------------------------


def _reflected(connection: Any) -> dict[str, object]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    found = sqlalchemy.inspect(connection)
    return {
        "schemas": found.get_schema_names(),
        "tables": sorted(set(found.get_table_names()) & {"rooms", "notes"}),
        "views": found.get_view_names(),
        "materialized": found.get_materialized_view_names(),
        "foreign": "readings" in found.get_foreign_table_names(),
        "sequences": found.get_sequence_names(),
        "temporary": (found.get_temp_table_names(), found.get_temp_view_names()),
        "others": (found.get_enums(), found.get_domains()),
        "columns": [(one["name"], str(one["type"]), one["nullable"]) for one in found.get_columns("rooms")],
        "key": found.get_pk_constraint("rooms")["constrained_columns"],
        "foreign keys": found.get_foreign_keys("rooms"),
        "indexes": found.get_indexes("rooms"),
        "unique": found.get_unique_constraints("rooms"),
        "checks": found.get_check_constraints("rooms"),
        "comment": found.get_table_comment("warm"),
        "options": found.get_table_options("rooms"),
        "oid": found.get_table_oid("rooms") > 0,
        "definition": found.get_view_definition("warm").startswith("SELECT room, MAX(celsius)"),
        "has": (found.has_table("rooms"), found.has_table("nope"), found.has_schema("public"), found.has_sequence("x")),
        "many": [
            len(call()) > 1
            for call in (
                found.get_multi_columns,
                found.get_multi_pk_constraint,
                found.get_multi_foreign_keys,
                found.get_multi_indexes,
                found.get_multi_unique_constraints,
                found.get_multi_check_constraints,
                found.get_multi_table_comment,
            )
        ],
        "of the server": "queries" in found.get_table_names(schema="penstock"),
    }


REFLECTED = {
    "schemas": ["information_schema", "penstock", "public"], "tables": ["notes", "rooms"], "views": ["upstairs"],
    "materialized": ["warm"], "foreign": True, "sequences": [], "temporary": ([], []), "others": ([], []),
    "columns": [("room", "TEXT", False), ("level", "INTEGER", True), ("area", "NUMERIC(8, 2)", True),
                ("since", "DATE", True)],
    "key": ["room"], "foreign keys": [], "indexes": [], "unique": [], "checks": [],
    "comment": {"text": "the last hour"}, "options": {}, "oid": True, "definition": True,
    "has": (True, False, True, False), "many": [True] * 7, "of the server": True,
}  # fmt: skip


@pytest.mark.parametrize("driver", DRIVERS)
def test_reflection_of_sqlalchemy(pg: RunningPg, driver: str) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pytest.importorskip(driver)
    url = f"postgresql+{driver}://admin:{pg.texts[AccessRole.ADMIN]}@127.0.0.1:{pg.port}/penstock"
    statement = sqlalchemy.text("SELECT room, level FROM rooms WHERE level > :level")
    if driver == "asyncpg":
        pytest.importorskip("greenlet")
        from sqlalchemy.ext.asyncio import create_async_engine

        async def talk() -> tuple[dict[str, object], list[Any]]:
            engine = create_async_engine(url)
            async with engine.connect() as connection:
                found = (
                    await connection.run_sync(_reflected),
                    (await connection.execute(statement, {"level": 0})).fetchall(),
                )
            await engine.dispose()
            return found

        reflected, rows = asyncio.run(talk())
    else:
        engine = sqlalchemy.create_engine(url)
        with engine.connect() as connection:
            reflected, rows = _reflected(connection), connection.execute(statement, {"level": 0}).fetchall()
        engine.dispose()
    assert reflected == REFLECTED and [tuple(row) for row in rows] == [("attic", 2)]


def test_data_frames(kept: RunningPg) -> None:
    pandas = pytest.importorskip("pandas")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = f"postgresql+psycopg://admin:{kept.texts[AccessRole.ADMIN]}@127.0.0.1:{kept.port}/penstock"
    engine = sqlalchemy.create_engine(url)
    select = "SELECT at, room, celsius FROM kept WHERE celsius >= %(least)s ORDER BY at"
    found = pandas.read_sql(select, engine, params={"least": 20})
    assert list(found.celsius) == [23.0, 20.0, 21.0] and str(found["at"].dtype).startswith("datetime64")
    rooms = pandas.read_sql_table("rooms", engine)
    assert sorted(rooms.room) == ["attic", "hall"] and rooms.level.dtype == "int64"
    parts = list(pandas.read_sql("SELECT i FROM generate_series(1, 10) i", engine, chunksize=4))
    assert [len(part) for part in parts] == [4, 4, 2]
    engine.dispose()


# -- Node ------------------------------------------------------------------------------------------------------

_NODE = """
const { Client, Pool } = require('pg');
(async () => {
  const given = JSON.parse(process.argv[2]);
  const client = new Client(given);
  await client.connect();
  const shown = [];
  const show = async (text, values) => shown.push((await client.query({ text, values, rowMode: 'array' })).rows);
  await show('SELECT room, level FROM rooms WHERE level >= $1 ORDER BY room', [0]);
  await show('SELECT $1::int8, $2::bool, $3::text FROM rooms LIMIT 1', ['9007199254740993', true, "it's"]);
  await show('SELECT relname FROM pg_class WHERE relname = ANY($1) ORDER BY 1', [['rooms', 'notes']]);
  try { await client.query('SELECT nope FROM rooms'); } catch (error) { shown.push([error.code, error.position]); }
  await client.end();
  const pool = new Pool({ ...given, max: 3, statement_timeout: 500 });
  const many = [...Array(9).keys()].map(i => pool.query('SELECT $1::int AS i', [i]));
  shown.push((await Promise.all(many)).map(found => found.rows[0].i));
  try { await pool.query('SUBSCRIBE TO warm'); } catch (error) { shown.push(error.code); }
  await pool.end();
  console.log(JSON.stringify(shown));
})();
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with node-postgres."""
    folder = tmp_path_factory.mktemp("node")
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs node and npm")
    command = ["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "pg@8.16.3"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("node-postgres cannot be had from the npm registry: no answer")
    if done.returncode:
        pytest.skip(f"node-postgres cannot be had from the npm registry: {done.stderr.strip()[-200:]}")
    return folder


def test_node_postgres(pg: RunningPg, node: Path) -> None:
    given = {"host": "127.0.0.1", "port": pg.port, "user": "admin", "password": pg.texts[AccessRole.ADMIN],
             "database": "penstock"}  # fmt: skip
    (node / "program.js").write_text(_NODE, encoding="utf-8")
    command = ["node", "program.js", json.dumps(given)]
    done = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        [["attic", 2], ["hall", 0]],
        [["9007199254740993", True, "it's"]],
        [["notes"], ["rooms"]],
        ["42703", "8"],
        list(range(9)),
        "57014",
    ]
