"""PostgreSQL's catalogs: the statements of clients, and what they answer."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.server.pgwire.running import RunningPg

_TEXT = Path(__file__).with_name("statements_of_clients.txt").read_text(encoding="utf-8")
STATEMENTS = re.findall(r"^-- ([^\n]+): (\d+|\*)\n(.*?)(?=^-- |\Z)", _TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("client", "count", "statement"), STATEMENTS, ids=[one[0] for one in STATEMENTS])
def test_statements_of_clients(pg: RunningPg, client: str, count: str, statement: str) -> None:
    found = pg.rows(statement)
    if client == "psql, \\d":
        assert found == [
            ("public", "notes", "table", "admin"),
            ("public", "readings", "foreign table", "admin"),
            ("public", "rooms", "table", "admin"),
            ("public", "upstairs", "view", "admin"),
            ("public", "warm", "materialized view", "admin"),
        ]
    elif count != "*":
        assert len(found) == int(count), found


def test_each_statement_of_the_file_is_one() -> None:
    assert len(STATEMENTS) > 50 and all("\n--" not in statement for _, _, statement in STATEMENTS)


def test_columns_types_keys_comments_and_definitions(pg: RunningPg) -> None:
    columns = pg.rows(
        "SELECT column_name, data_type, udt_name, is_nullable, numeric_precision, numeric_scale FROM"
        " information_schema.columns WHERE table_name = 'rooms' ORDER BY ordinal_position"
    )
    assert columns == [
        ("room", "text", "text", "NO", None, None),
        ("level", "integer", "int4", "YES", 32, 0),
        ("area", "numeric", "numeric", "YES", 8, 2),
        ("since", "date", "date", "YES", None, None),
    ]
    assert pg.rows("SELECT obj_description('warm'::regclass, 'pg_class')") == [("the last hour",)]
    assert pg.rows("SELECT pg_get_viewdef('upstairs'::regclass)") == [("SELECT room FROM rooms WHERE level > 0",)]
    assert pg.rows("SELECT pg_get_constraintdef(oid), conrelid::regclass FROM pg_constraint") == [
        ("PRIMARY KEY (room)", "rooms")
    ]
    assert pg.rows("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'rooms'::regclass") == [
        ("text",),
        ("integer",),
        ("numeric(8,2)",),
        ("date",),
    ]


def test_what_is_declared_meanwhile_is_there_with_the_same_oids(pg: RunningPg) -> None:
    with pg.connect() as connection:
        before = connection.execute("SELECT 'rooms'::regclass::oid").fetchall()
        connection.execute("CREATE VIEW brand_new AS SELECT room FROM rooms")
        assert connection.execute("SELECT relkind FROM pg_class WHERE relname = 'brand_new'").fetchall() == [("v",)]
        connection.execute("DROP VIEW brand_new")
        assert connection.execute("SELECT to_regclass('brand_new')").fetchall() == [(None,)]
        assert connection.execute("SELECT 'rooms'::regclass::oid").fetchall() == before


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'a' LIKE 'A'", False), ("'a_b' LIKE 'a\\_b'", True), ("'axb' LIKE 'a/_b' ESCAPE '/'", False),
        ("'ABC' ILIKE 'a%'", True), ("'abc' ~ '^(abc|d)$'", True), ("'abc' !~* 'B'", False),
        ("2 = ANY (ARRAY[1, 2])", True),
        ("2 <> ALL (ARRAY[1, 2])", False), ("(ARRAY['x', 'y'])[2]", "y"), ("array_to_string(ARRAY[1, 2], '-')", "1-2"),
        ("ARRAY(SELECT i FROM generate_series(1, 3) i WHERE i <> 2)", [1, 3]), ("NULL IS DISTINCT FROM 1", True),
        ("coalesce(NULL, 'x')", "x"), ("CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END", "b"), ("'t'::bool AND NOT false", True),
        ("1 BETWEEN 0 AND 2", True), ("substring('abcdef' from 2 for 3)", "bcd"), ("position('c' in 'abc')", 3),
        ("trim(both ' ' from '  x ')", "x"), ("(SELECT max(i) FROM generate_series(1, 4) i)", 4),
        ("EXISTS (SELECT 1 FROM pg_class WHERE relname = 'rooms')", True), ("1 IN (2, 1)", True),
        ("split_part('a.b.c', '.', 2)", "b"), ("'5'::int + 1", 6),
        ("(SELECT max(word) FROM pg_get_keywords() WHERE word <> ALL ('{select,wstream}'::text[]))", "subscribe"),
        (r"encode('\x00ff5c41', 'escape')", "\\000\\377\\\\A"), (r"encode('\x00ff', 'base64')", "AP8="),
        ("encode('ab', 'hex')", "6162"),
        ("(ARRAY[1, 2, 3])[2:3]", [2, 3]), ("(ARRAY[1, 2, 3])[:2]", [1, 2]), ("(ARRAY['a', 'b'])[0:1]", ["a"]),
        ("(ARRAY[1, 2])[2:1]", []), ("(ARRAY[1, 2, 3])[1 + 1:]", [2, 3]), ("(NULL::int[])[1:2]", None),
        ("oidvectortypes('23 25')", "integer, text"), ("bpchar('x')", "x"), ("NOT pg_is_wal_replay_paused()", True),
        ("true::text", "true"), ("format('%s.%I: %L %%', 'a', 'B c', 'it''s')", "a.\"B c\": 'it''s' %"),
     ("format('%2$s %1$s', 1, 'x')", "x 1"),
     ("extract(epoch FROM '2020-01-01 00:00:01+00'::timestamptz)::int", 1577836801),
     ("to_char('2020-02-29 13:05:09'::timestamp, 'YYYY-MM-DD HH24:MI:SS')", "2020-02-29 13:05:09"),
     ("(SELECT indkey[0] FROM pg_index)", 1), ("(SELECT array_upper(indkey, 1) FROM pg_index)", 0),
     ("(SELECT a.relname || b.relname FROM (pg_class a JOIN (pg_class b JOIN pg_namespace n ON n.oid = b.relnamespace)"
      " ON a.relname = 'rooms' AND b.relname = 'notes') LEFT JOIN pg_index i ON i.indrelid = b.oid)", "roomsnotes"),
    ],
)  # fmt: skip
def test_expressions(pg: RunningPg, expression: str, value: object) -> None:
    assert pg.rows(f"SELECT {expression}") == [(value,)]


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1.5::int", 2), ("2.5::int", 3), ("2.5::float8::int", 2), ("(-1.5)::int", -2), ("' 12 '::int8", 12),
     ("true::int", 1), ("32767::smallint", 32767), ("4294967295::oid", 4294967295),
     ("'-9223372036854775808'::int8", -(1 << 63)),
     ("'1e3'::float8", 1000.0),
     ("NULL::int", None), ("'12'::text::int", 12), ("(1 = '1')", True),
     ("'off'::bool", False), ("2147483647::int", 2147483647), ("2147483648::int8::text", "2147483648")],
)  # fmt: skip
def test_casts_to_numbers(pg: RunningPg, expression: str, value: object) -> None:
    """As PostgreSQL 15 answers."""
    assert pg.rows(f"SELECT {expression}") == [(value,)]


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SELECT nope FROM pg_class", "42703"), ("SELECT c.nope FROM pg_class c", "42703"),
        ("SELECT d.oid FROM pg_class c", "42P01"), ("SELECT oid FROM pg_class, pg_type", "42702"),
        ("SELECT * FROM pg_catalog.nope", "42P01"), ("SELECT 'nope'::regclass", "42P01"),
        ("SELECT 'x'::nope", "42704"), ("SELECT current_setting('nope')", "42704"), ("SELECT left('x')", "42883"),
        ("SELECT 'x' ~ '('", "42883"),
        ("SELECT * FROM pg_class c RIGHT JOIN LATERAL (SELECT c.relname) x ON true", "42P10"),
        ("SELECT load_extension('x')", "42883"),
        ("SELECT * FROM generate_series(1, 1000000000)", "54000"), ("SELECT pg_sleep(10)", "42883"),
        ("SELECT " + "(" * 3_000 + "1" + ")" * 3_000, "54001"),
        ("SELECT relname FROM pg_class UNION SELECT 1, 2", "42601"),
        ("SELECT 'x'::int", "22P02"), ("SELECT '1.5'::int", "22P02"), ("SELECT ''::float8", "22P02"),
        ("SELECT 'maybe'::bool", "22P02"), ("SELECT 'a'::uuid", "22P02"), ("SELECT '٣'::int", "22P02"),
        ("SELECT 1 WHERE 1 = 'x'", "22P02"), ("SELECT 40000::smallint", "22003"),
        ("SELECT '99999999999999999999'::bigint", "22003"), ("SELECT 3000000000::int", "22003"),
        ("SELECT (-1)::int8::oid", "22003"), ("SELECT '1e131072'::numeric", "22003"), ("SELECT 1e131072", "22003"),
        ("SELECT " + "9" * 131_073, "22003"), ("SELECT " + "9" * 5_000 + "::int", "22003"), ("SELECT $0", "42P02"),
        ("SELECT $" + "9" * 5_000, "42P02"), ("FETCH " + "9" * 5_000 + " FROM nothing", "34000"),
        ("SET statement_timeout TO " + "9" * 5_000, "22023"), ("SET extra_float_digits TO " + "9" * 5_000, "22023"),
    ],
)  # fmt: skip
def test_errors(pg: RunningPg, statement: str, state: str) -> None:
    with pg.connect() as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statement)  # type: ignore[arg-type]
        assert caught.value.sqlstate == state, caught.value
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("expression", "shown"),
    [("'NaN'::float8", "NaN"), ("'Infinity'::float8", "Infinity"), ("'-inf'::float8", "-Infinity"),
     ("' infinity '::float4", "Infinity"), ("'nan'::numeric", "NaN"), ("'+Infinity'::numeric", "Infinity"),
     ("'NaN'::float8 = 'NaN'::float8", "t"), ("'NaN'::float8 > 'Infinity'::float8", "t"),
     ("'NaN'::float8 > 1e300", "t"), ("1::float8 < 'NaN'", "t"), ("'NaN'::float8 <> 1", "t"),
     ("'NaN'::float8 + 1", "NaN"), ("'Infinity'::float8 - 'Infinity'::float8", "NaN"),
     ("'Infinity'::float8 * 0", "NaN"), ("- 'Infinity'::float8", "-Infinity"), ("- 'NaN'::float8", "NaN"),
     ("1 / 'Infinity'::float8", "0"), ("'Infinity'::float8 / 2", "Infinity"),
     ("abs('-Infinity'::float8)", "Infinity"), ("abs('NaN'::float8)", "NaN"), ("round('NaN'::float8)", "NaN"),
     ("'NaN'::float8::text", "NaN"), ("'-Infinity'::float8::text || '!'", "-Infinity!"),
     ("'NaN'::float4::float8", "NaN"), ("1::float8::text", "1"), ("1e20::float8::text", "1e+20"),
     ("coalesce(NULL, 'NaN'::float8)", "NaN"), ("greatest('NaN'::float8, 5)", "NaN"),
     ("least('NaN'::float8, 'Infinity')", "Infinity"),
     ("(SELECT max(x) FROM (VALUES ('NaN'::float8), (1), ('Infinity')) t(x))", "NaN"),
     ("(SELECT min(x) FROM (VALUES ('NaN'::float8), (1), ('-Infinity')) t(x))", "-Infinity"),
     ("(SELECT sum(x) FROM (VALUES ('NaN'::float8), (1)) t(x))", "NaN"),
     ("(SELECT avg(x) FROM (VALUES ('Infinity'::float8), (1)) t(x))", "Infinity"),
     ("(SELECT sum(x) FROM (VALUES (1.5::float8), (1)) t(x))", "2.5"),
     ("(SELECT count(DISTINCT x) FROM (VALUES ('NaN'::float8), ('nan'), (1)) t(x))", "2"),
     ("(SELECT string_agg(x::text, ' ' ) FROM (SELECT x FROM (VALUES ('NaN'::float8), (1), ('Infinity'), ('-Infinity'))"
      " t(x) ORDER BY x) u)", "-Infinity 1 Infinity NaN"),
     ("ARRAY['NaN'::float8, 1, 'Infinity']", "{NaN,1,Infinity}"),
     ("ARRAY[1, NULL, 3]", "{1,NULL,3}"), ("ARRAY['a b', 'NULL', 'c\"']", '{"a b","NULL","c\\""}'),
     ("ARRAY[true, false]", "{t,f}"), ("ARRAY(SELECT i FROM generate_series(1, 0) i)", "{}"),
     ("(ARRAY['NaN'::float8, '-Infinity'])[2]", "-Infinity"), ("'NaN'::float8 = ANY (ARRAY['NaN'::float8])", "t"),
     ("'NaN'::float8 BETWEEN 1 AND 'NaN'", "t"), ("'NaN'::float8 IN (1, 'NaN')", "t"),
     ("7 / 2", "3"), ("-7 / 2", "-3"), ("-7 % 3", "-1"), ("7.5 / 2", "3.7500000000000000"),
     ("2147483647::int8 + 1", "2147483648"),
     ("0.1::float4::float8", "0.10000000149011612")],
)  # fmt: skip
def test_numbers_that_are_none_or_endless(pg: RunningPg, expression: str, shown: str) -> None:
    """As PostgreSQL 15 answers, in text and, where a client reads it so, in binary."""
    with pg.connect() as connection:
        assert connection.execute(f"SELECT ({expression})::text").fetchall() in ([(shown,)], [(_long(shown),)])  # type: ignore[call-overload]
        (text,) = connection.execute(f"SELECT {expression}").fetchone()  # type: ignore[call-overload, misc]
        (value,) = connection.cursor(binary=True).execute(f"SELECT {expression}").fetchone()  # type: ignore[call-overload, misc]
        assert repr(text) == repr(value)
        if not isinstance(value, list):
            assert str(value).lower() in (
                shown.lower(),
                shown.lower().replace("infinity", "inf"),
                _long(shown).lower(),
                shown + ".0",
            )


def _long(shown: str) -> str:
    """A boolean as a cast to text writes it."""
    return {"t": "true", "f": "false"}.get(shown, shown)


@pytest.mark.parametrize(
    ("statement", "state"),
    [("SELECT 1 / 0", "22012"), ("SELECT 1.5 / 0", "22012"), ("SELECT 1 % 0", "22012"),
     ("SELECT 1::float8 / 0", "22012"),
     ("SELECT 2147483647 + 1", "22003"), ("SELECT -2147483647 - 2", "22003"),
     ("SELECT 9223372036854775807 + 1", "22003"), ("SELECT 9223372036854775807 * 2", "22003"),
     ("SELECT 1e308::float8 * 10", "22003"), ("SELECT 'NaN'::float8::int", "22003"),
     ("SELECT 'Infinity'::float8::int8", "22003"), ("SELECT 'NaN'::numeric::int", "0A000"),
     ("SELECT 'NaN'::int", "22P02"),
     ("SELECT 'NaN'::text::int", "22P02"), ("SELECT 'Infinit'::float8", "22P02"), ("SELECT '1e999'::float8", "22003"),
     ("SELECT 1e39::float4", "22003"), ("SELECT 'infinity'::bool", "22P02")],
)  # fmt: skip
def test_errors_of_arithmetic(pg: RunningPg, statement: str, state: str) -> None:
    test_errors(pg, statement, state)


@pytest.mark.parametrize(
    ("statement", "said"),
    [("SELECT pg_sleep(1)", "no function waits"), ("RELEASE a", "RELEASE needs a transaction"),
     ("SELECT room FROM public.roms", "did you mean rooms?")],
)  # fmt: skip
def test_what_an_error_says(pg: RunningPg, statement: str, said: str) -> None:
    with pg.connect() as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)  # type: ignore[arg-type]
    assert said in f"{caught.value.diag.message_primary} {caught.value.diag.message_hint}"
