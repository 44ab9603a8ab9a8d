"""Values on the wire: the same bytes as PostgreSQL's own, and back."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.language.grammar.fragments import parse_expression
from penstock.language.statements.values import WrittenValue
from penstock.language.text import SourceText
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.statements.lexing import cql_text, plain_text, statements
from penstock.pgwire.statements.parameters import literal, read_value
from penstock.pgwire.statements.script_texts import inserted_rows
from penstock.pgwire.values.arrow_types import wire_type_of
from penstock.pgwire.values.encoding import encoded
from penstock.pgwire.values.wire_types import wire_type
from tests.servers.postgres import PASSWORD, Unavailable, server

_UTC = pa.timestamp("us", "UTC")
#: Values of each type: what Arrow has, and how PostgreSQL is asked for the same.
VALUES: list[tuple[Any, pa.DataType, str]] = [
    (True, pa.bool_(), "true"), (False, pa.bool_(), "false"),
    (-(2**15), pa.int16(), "(-32768)::int2"), (2**31 - 1, pa.int32(), "2147483647::int4"),
    (-(2**63), pa.int64(), "(-9223372036854775808)::int8"),
    (1.5, pa.float32(), "1.5::float4"), (3.4028234663852886e38, pa.float32(), "3.4028235e38::float4"),
    (0.1, pa.float64(), "0.1::float8"), (1e300, pa.float64(), "1e300::float8"), (-0.0, pa.float64(), "'-0'::float8"),
    (1e-5, pa.float64(), "1e-5::float8"), (123456789012345.0, pa.float64(), "123456789012345::float8"),
    (float("nan"), pa.float64(), "'NaN'::float8"), (float("-inf"), pa.float64(), "'-Infinity'::float8"),
    (Decimal("0.00"), pa.decimal128(5, 2), "0.00::numeric"),
    (Decimal("-12345.6700"), pa.decimal128(9, 4), "-12345.6700"),
    (Decimal("10000"), pa.decimal128(9, 0), "10000::numeric"), (Decimal("0.0001"), pa.decimal128(9, 4), "0.0001"),
    (Decimal("99999999999999999999999999999999999999"), pa.decimal128(38, 0), "99999999999999999999999999999999999999"),
    ("", pa.string(), "''::text"), ("é\U0001f600\\ '", pa.string(), "'é\U0001f600\\ '''::text"),
    (b"", pa.binary(), "''::bytea"), (bytes(range(256)), pa.binary(), f"'\\x{bytes(range(256)).hex()}'::bytea"),
    (dt.date(1, 1, 1), pa.date32(), "'0001-01-01'::date"), (dt.date(9999, 12, 31), pa.date32(), "'9999-12-31'::date"),
    (-719_528, pa.date32(), "'0001-01-01 BC'::date"), (dt.date(2024, 2, 29), pa.date32(), "'2024-02-29'::date"),
    (0, _UTC, "'1970-01-01 00:00:00+00'::timestamptz"), (-1, _UTC, "'1969-12-31 23:59:59.999999+00'::timestamptz"),
    (1_500_000, _UTC, "'1970-01-01 00:00:01.5+00'::timestamptz"),
    (86_400_000_000 * 3 + 5, pa.duration("us"), "'72:00:00.000005'::interval"),
    ([1, None, 3], pa.list_(pa.int32()), "ARRAY[1, NULL, 3]"), ([], pa.list_(pa.string()), "ARRAY[]::text[]"),
    (["a", "", "null", 'b"c\\', "d,e", None], pa.list_(pa.string()),
     "ARRAY['a', '', 'null', 'b\"c\\', 'd,e', NULL]"),
]  # fmt: skip


def test_the_bytes_are_those_of_postgresql() -> None:
    try:
        database = server()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with psycopg.connect(database.url, password=PASSWORD, options="-c TimeZone=UTC") as connection:
        for value, type_, expression in VALUES:
            if not expression:
                continue
            column = pa.array(
                [value, None], pa.int32() if isinstance(value, int) and pa.types.is_date(type_) else type_
            )
            column = column.cast(type_)
            for binary in (False, True):
                cursor = connection.cursor(binary=binary)
                cursor.execute(f"SELECT {expression}")  # type: ignore[call-overload]
                result = cursor.pgresult
                assert result is not None
                known = wire_type_of(type_)
                assert result.ftype(0) == known.oid, expression
                assert encoded(column, known, binary) == [result.get_value(0, 0), None], (expression, binary)


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("int4", -5, "(-5)"), ("int8", 2**63 - 1, "9223372036854775807"), ("bool", True, "TRUE"),
        ("bool", False, "FALSE"),
        ("float8", 1.5, "CAST('1.5' AS DOUBLE)"), ("float8", float("inf"), "CAST('inf' AS DOUBLE)"),
        ("numeric", Decimal("-1.50"), "(-1.50)"), ("text", "it's \\ x", "'it''s \\\\ x'"),
        ("bytea", b"\0\xff", "X'00ff'"),
        ("date", "2024-02-29", "CAST('2024-02-29' AS DATE)"),
        ("timestamptz", "2024-02-29 10:00:00Z", "CAST('2024-02-29 10:00:00Z' AS TIMESTAMP)"),
    ],
)  # fmt: skip
def test_values_of_clients_become_literals(name: str, value: Any, written: str) -> None:
    type_ = wire_type(name)
    arrow = {
        "int4": pa.int32(),
        "int8": pa.int64(),
        "bool": pa.bool_(),
        "float8": pa.float64(),
        "text": pa.string(),
        "bytea": pa.binary(),
        "numeric": pa.decimal128(10, 2),
    }.get(name)
    made = literal(value, type_)
    assert made == WrittenValue(written, parse_expression(SourceText(written)))
    if arrow is not None:
        for binary in (False, True):
            (data,) = encoded(pa.array([value], arrow), type_, binary)
            assert read_value(data, type_, binary, 1) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("timestamptz", b"2024-02-29 12:00:00.25+02", "2024-02-29 10:00:00.250000Z"),
     ("timestamptz", b"2024-02-29T10:00:00Z", "2024-02-29 10:00:00Z"), ("date", b"2024-02-29", "2024-02-29"),
     ("timestamp", b"2024-02-29", "2024-02-29 00:00:00Z"), ("bytea", b"a\\001\\\\", b"a\x01\\"), ("bool", b"ON", True)],
)  # fmt: skip
def test_texts_of_clients(name: str, text: bytes, value: object) -> None:
    assert read_value(text, wire_type(name), False, 1) == value


@pytest.mark.parametrize(
    ("name", "data", "binary"),
    [("int2", b"32768", False), ("int4", b"1.5", False), ("int4", b"\0\0", True), ("bool", b"maybe", False),
     ("date", b"2024-02-30", False), ("timestamptz", b"soon", False), ("numeric", b"NaN", False),
     ("text", b"\xff", False),
     ("text", b"a\0b", True), ("float8", b"\0", True), ("numeric", b"\0\1\0\0\0\0\0\0\xff\xff", True),
     ("_int4", b"\0\0\0\1\0\0\0\0\0\0\0\x17\x7f\xff\xff\xff\0\0\0\1", True), ("interval", b"1 day", False)],
)  # fmt: skip
def test_values_that_are_none_of_their_types(name: str, data: bytes, binary: bool) -> None:
    with pytest.raises(WireError) as caught:
        read_value(data, wire_type(name), binary, 3)
    assert caught.value.state in ("22P02", "22P03", "22021", "0A000")


def test_statements_in_the_words_of_the_language() -> None:
    (first, second) = statements(
        """SELECT E'a\\n', 'b\\c', "Room", public.rooms.x, $$it's$$
        FROM "public"."rooms" /* ; /* x */ */ WHERE a=$2; --;
        SELECT [RANGE 1 HOUR];"""
    )
    made = cql_text(first, lambda: {"rooms"})
    assert " ".join(made.text.split()) == ("SELECT 'a ', 'b\\\\c', `Room`, rooms.x, 'it''s' FROM `rooms` WHERE a=$2")
    assert second.text == "SELECT [RANGE 1 HOUR]" and first.values == 2
    assert plain_text(statements("SELECT U, x::oid[], E'\\'' --")[0]) == "SELECT U, x::_oid, ''''"
    assert inserted_rows(statements("INSERT INTO t (a, b) VALUES (1, (2)), ('(', 3)")[0]) == 2
    for text in ("SELECT 'a", 'SELECT "a', "SELECT /* /* */", "SELECT $x$ a", 'SELECT ""', "SELECT U&'x'"):
        with pytest.raises(WireError, match=r"42601|P0101|P0803"):
            statements(text)
