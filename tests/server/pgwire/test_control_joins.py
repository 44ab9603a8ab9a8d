"""Control relations joined with PostgreSQL's catalogs in one SELECT."""

from __future__ import annotations

import datetime as dt
import threading

import psycopg
import pytest

from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RunningPg

QUERIES = (
    "SELECT c.relname, c.relkind, q.state, q.weight FROM pg_catalog.pg_class c"
    " JOIN penstock.queries q ON q.name = c.relname"
)


def test_a_query_is_found_in_both(pg: RunningPg) -> None:
    assert pg.rows(QUERIES) == [("warm", "m", "RUNNING", 1.0)]
    assert pg.rows(f"{QUERIES} WHERE q.weight > %s AND c.relname = %s", 0.5, "warm") == [("warm", "m", "RUNNING", 1.0)]
    assert pg.rows(f"{QUERIES} WHERE q.weight > 1") == []
    assert pg.rows('SELECT "q"."name" FROM "penstock"."queries" "q", pg_class c WHERE c.relname = "q".name') == [
        ("warm",)
    ]


def test_every_column_of_every_relation_is_what_it_is_alone(pg: RunningPg) -> None:
    """A catalog of one row beside it changes neither names, types nor values."""
    with pg.connect() as connection:
        for one in CONTROL_RELATIONS:
            names = ", ".join(f'r."{a.name}"' for a in one.attributes)
            alone = connection.execute(f"SELECT {names} FROM penstock.{one.name} r LIMIT 0")  # type: ignore[call-overload]
            joined = connection.execute(  # type: ignore[call-overload]
                f"SELECT {names} FROM penstock.{one.name} r, pg_catalog.pg_database d LIMIT 0"
            )
            described = [(d.name, d.type_code) for d in joined.description]
            assert described == [(d.name, d.type_code) for d in alone.description], one.name
        for name in ("columns", "views", "functions", "attributes", "relations"):
            order = " ORDER BY " + ", ".join(str(n) for n in range(1, 4))
            columns = ", ".join(f"r.{a.name}" for a in _relation(name).attributes if a.origin.name == "CATALOG")
            alone = connection.execute(f"SELECT {columns} FROM penstock.{name} r{order}").fetchall()  # type: ignore[call-overload]
            text = f"SELECT {columns} FROM penstock.{name} r, pg_database d{order}"
            joined = connection.execute(text).fetchall()  # type: ignore[call-overload]
            if name == "attributes":
                # Their values are figures.
                alone, joined = [row[:2] + row[3:] for row in alone], [row[:2] + row[3:] for row in joined]
            assert sorted(joined, key=str) == sorted(alone, key=str) and alone, name


def _relation(name: str):  # type: ignore[no-untyped-def]
    return next(one for one in CONTROL_RELATIONS if one.name == name)


def test_instants_are_instants(pg: RunningPg) -> None:
    ((at, text),) = pg.rows(
        "SELECT q.started_at, q.started_at::text FROM penstock.queries q, pg_database"
        " WHERE q.started_at < now() AND q.started_at > '2020-01-01'"
    )
    assert isinstance(at, dt.datetime) and at.tzinfo is not None
    assert pg.rows("SELECT started_at FROM penstock.queries") == [(at,)]
    assert dt.datetime.fromisoformat(text + ":00") == at


def test_sub_queries_with_and_unions(pg: RunningPg) -> None:
    assert pg.rows("SELECT relname FROM pg_class WHERE relname IN (SELECT name FROM penstock.queries)") == [("warm",)]
    assert pg.rows(
        "WITH q AS (SELECT name, sink FROM penstock.queries) SELECT n.nspname, q.name FROM q"
        " JOIN pg_class c ON c.relname = q.name JOIN pg_namespace n ON n.oid = c.relnamespace"
    ) == [("public", "warm")]
    assert pg.rows(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname = 'public'"
        " UNION SELECT 'penstock', name FROM penstock.queries ORDER BY 1, 2"
    ) == [("penstock", "warm"), ("public", "notes"), ("public", "rooms")]
    # A LEFT JOIN: relations of the catalogs that no control relation lists.
    found = pg.rows(
        "SELECT c.relname, r.name, r.kind FROM pg_class c LEFT JOIN penstock.relations r ON r.name = c.relname"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY 1"
    )
    assert [row[:2] for row in found] == [("notes", "notes"), ("rooms", "rooms"), ("upstairs", None)]
    assert pg.rows("SELECT count(*) FROM penstock.columns k, pg_class c WHERE c.relname = k.object")[0][0] > 9
    assert pg.rows("SELECT 'penstock.queries'::regclass, count(*) FROM penstock.queries q, pg_database") == [
        ("penstock.queries", 1)
    ]


def test_what_changes_is_seen_by_the_next_statement(pg: RunningPg) -> None:
    with pg.connect() as connection:
        connection.execute("PREPARE w AS " + QUERIES)
        for weight in (3, 1):
            connection.execute(f"UPDATE penstock.queries SET weight = {weight} WHERE name = 'warm'")  # type: ignore[call-overload]
            assert connection.execute("EXECUTE w").fetchall() == [("warm", "m", "RUNNING", float(weight))]
            assert connection.execute(QUERIES).fetchall() == [("warm", "m", "RUNNING", float(weight))]
        connection.execute('CREATE VIEW "a ""b""; --" AS SELECT room FROM rooms')
        text = "SELECT v.name, c.relkind FROM penstock.views v JOIN pg_class c ON c.relname = v.name ORDER BY 1"
        try:
            assert connection.execute(text).fetchall() == [('a "b"; --', "v"), ("upstairs", "v")]
        finally:
            connection.execute('DROP VIEW "a ""b""; --"')


@pytest.mark.parametrize(
    ("statement", "state", "place"),
    [
        ("SELECT * FROM pg_class, penstock.nothing", "42P01", None),
        ("SELECT q.nope FROM pg_class c JOIN penstock.queries q ON q.name = c.relname", "42703", None),
        ("SELECT name FROM penstock.queries a, penstock.views b, pg_class", "42702", None),
        ("SELECT 1 FROM pg_class c JOIN penstock.queries q ON q.weight = 'x'", "22P02", None),
        ("SELECT 1 FROM pg_class c, penstock.queries q, rooms", "0A000", None),
        ("SELECT 1 FROM queries q, pg_class", "0A000", None),
    ],
)
def test_what_is_refused(pg: RunningPg, statement: str, state: str, place: int | None) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)  # type: ignore[call-overload]
        assert caught.value.sqlstate == state, caught.value
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_they_can_be_read_by_everybody_and_not_be_changed_through_the_join(pg: RunningPg) -> None:
    with pg.connect(AccessRole.READ) as connection:
        assert connection.execute(QUERIES).fetchall() == [("warm", "m", "RUNNING", 1.0)]


def test_many_connections_at_once(pg: RunningPg) -> None:
    failures: list[BaseException] = []

    def read() -> None:
        try:
            with pg.connect() as connection:
                for _ in range(5):
                    assert connection.execute(QUERIES).fetchall() == [("warm", "m", "RUNNING", 1.0)]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failures
