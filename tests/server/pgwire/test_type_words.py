"""Types in PostgreSQL's words: in casts over data, in declarations, in parameters, in `pg_type`."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

from penstock.pgwire.statements.lexing import statements
from penstock.pgwire.statements.type_words import types_replaced
from tests.server.pgwire.running import RawClient, RunningPg
from tests.servers.postgres import PASSWORD, Unavailable, server

_MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("expression", "value", "oid"),
    [(f"'{_MOST}'::int8", _MOST, 20), ("300::int8", 300, 20), ("CAST(300 AS int8)", 300, 20),
     ("CAST(('-300'::int8) AS BIGINT)", -300, 20), ("level::int8", 0, 20), ("70000::int4", 70000, 23),
     ("300::int2", 300, 21), ("1.5::float8", 1.5, 701), ("1.5::float4", 1.5, 700), ("'x'::name", "x", 25),
     ("'-12345.67891'::numeric", Decimal("-12345.67891"), 1700), ("1.50::numeric", Decimal("1.50"), 1700),
     ("CAST('0.001' AS numeric)", Decimal("0.001"), 1700), ("CAST(1.5 AS decimal)", Decimal("1.5"), 1700),
     ("1.555::numeric(10,2)", Decimal("1.56"), 1700), ("area::numeric", Decimal("12.50"), 1700),
     ("'1e3'::numeric", Decimal(1000), 1700), ("-1.5::numeric", Decimal("-1.5"), 1700),
     ("'123456789012345678901234567890.12'::numeric", Decimal("123456789012345678901234567890.12"), 1700),
     (r"'\x0aFF'::bytea", b"\x0a\xff", 17), (r"CAST('\x' AS bytea)", b"", 17)],
)  # fmt: skip
def test_casts_over_data(pg: RunningPg, expression: str, value: object, oid: int) -> None:
    """`int8` is BIGINT, not eight bits, and a `numeric` keeps what is behind its point."""
    with pg.connect() as connection:
        cursor = connection.execute(f"SELECT {expression} AS v FROM rooms WHERE room = 'hall'")  # type: ignore[call-overload]
        assert cursor.fetchall() == [(value,)] and cursor.description[0].type_code == oid


def test_words_that_are_no_types_stay() -> None:
    for text in (
        "SELECT int8 FROM t",
        "SELECT 1 AS int8",
        "SELECT (a) AS int8, CAST(x AS STRING) AS name",
        "INSERT INTO t (int8) VALUES (1)",
        "SELECT '\\x00' AS bytea",
        "CREATE VIEW v AS SELECT 1 AS numeric",
        'SELECT a::"int8"',
        "SELECT a ::",
    ):
        assert types_replaced(statements(text)[0]) == {}, text


def test_declared_columns(pg: RunningPg) -> None:
    pg.rows("CREATE RELATION wide (a int8, b int2, c float8, d int4, name name, e numeric(12, 3)) FROM MEMORY ()")
    try:
        types = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'wide'::regclass"
        found = [one for (one,) in pg.rows(types)]
        assert found == ["bigint", "smallint", "double precision", "integer", "text", "numeric(12,3)"]
    finally:
        pg.rows("DROP RELATION wide")


def test_types_of_parameters(raw: RawClient) -> None:
    expected = {
        "SELECT relname FROM pg_class WHERE relname = ANY ($1)": 1003,
        "SELECT relname FROM pg_class WHERE pg_class.oid = ANY($1)": 1028,
        "SELECT relname FROM pg_class WHERE relkind <> ALL ($1)": 1002, "SELECT $1::char": 1042,
        'SELECT $1::"char"': 18, "SELECT CAST($1 AS VARCHAR)": 1043, "SELECT $1::int8": 20, "SELECT $1::numeric": 1700,
    }  # fmt: skip
    for text, oid in expected.items():
        raw.send("P", b"\0" + text.encode() + b"\0\0\0")
        raw.send("D", b"S\0")
        raw.send("S")
        found = dict(raw.until("Z"))
        assert int.from_bytes(found["t"][2:6], "big") == oid, text


@pytest.mark.parametrize("value", [5, 1.5, Decimal("0.10"), True, "it's", b"\0\xff", None, [1, 2]])
@pytest.mark.parametrize("binary", [False, True])
def test_a_parameter_keeps_its_type(pg: RunningPg, value: object, binary: bool) -> None:
    with pg.connect() as connection:
        cursor = connection.cursor(binary=binary)
        cursor.execute("SELECT %b" if binary else "SELECT %s", (value,))
        (found,) = cursor.fetchone() or ()
        # Bytes of a `bytea` over the catalogs are a text.
        assert found == value or isinstance(value, bytes)


def test_types_are_described_as_postgres_does(pg: RunningPg) -> None:
    """ADBC finds the meaning of a column by the names of the functions of its type."""
    names = (
        "typname, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem, typarray, typalign,"
        " typstorage, typtypmod, typcollation, typinput::text, typoutput::text, typreceive::text, typsend::text,"
        " typmodin::text, typmodout::text, typanalyze::text, typsubscript::text"
    )
    statement = f"SELECT oid::int8, {names} FROM pg_type"
    found = {row[0]: row for row in pg.rows(statement)}
    try:
        db = server()
    except Unavailable as error:
        pytest.skip(str(error))
    with psycopg.connect(db.url, password=PASSWORD) as connection:
        known = {row[0]: row for row in connection.execute(statement).fetchall()}  # type: ignore[call-overload]
    assert {oid: known.get(oid) for oid in found} == found


def test_definitions_of_queries_with_names_of_columns(pg: RunningPg) -> None:
    """What stood behind the first AS was shown, also where that is the name of a column."""
    (found,) = pg.rows("SELECT pg_get_viewdef('warm'::regclass)")
    assert found == ("SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room",)
