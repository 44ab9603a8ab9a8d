"""DuckDB as a second opinion, over random columns, where its meaning is Spark's."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from expression_kit import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, checked, dec, lit

from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.nodes import Column, Expression
from penstock.types import TIMESTAMP

ROWS = 500
TYPES = {"i": INT, "j": INT, "l": BIGINT, "d": DOUBLE, "e": DOUBLE, "m": dec(9, 2), "n": dec(7, 3), "s": STRING,
         "t": STRING, "b": BOOLEAN, "c": BOOLEAN, "u": DATE, "w": TIMESTAMP}  # fmt: skip
COL = {name: Column(type_, index, name) for index, (name, type_) in enumerate(TYPES.items())}
i, j, l_, d, e, m, n, s, t, b, c, u, w = COL.values()
call = build_call


def _random(type_: pa.DataType, draw: random.Random) -> Any:
    if draw.random() < 0.1:
        return None
    if type_ == BOOLEAN:
        return draw.random() < 0.5
    if type_ in (INT, BIGINT):
        return draw.choice([draw.randint(-9, 9), draw.randint(-(10**6), 10**6)])
    if type_ == DOUBLE:
        return draw.choice([round(draw.uniform(-99, 99), 3), float(draw.randint(-3, 3)), draw.uniform(-1e6, 1e6)])
    if type_ == STRING:
        return "".join(draw.choice("ab%_é Z1") for _ in range(draw.randint(0, 6)))
    if type_ == DATE:
        return date(1970, 1, 1) + timedelta(days=draw.randint(-9000, 30000))
    if type_ == TIMESTAMP:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randint(-(10**14), 2 * 10**15))
    limit = 10**type_.precision - 1
    return Decimal(draw.choice([draw.randint(-limit, limit), draw.randint(-500, 500)])).scaleb(-type_.scale)


OPINIONS: list[tuple[str, Expression]] = [
    ("i + j", call("ADD", [i, j])),
    ("i * 3 - j", call("SUB", [call("MUL", [i, lit(3)]), j])),
    ("i / nullif(j, 0)", call("DIV", [i, j])),
    ("i // nullif(j, 0)", call("INT_DIV", [i, j])),
    ("i % nullif(j, 0)", call("MOD", [i, j])),
    ("d % nullif(e, 0)", call("MOD", [d, e])),
    ("m + n", call("ADD", [m, n])),
    ("m - n", call("SUB", [m, n])),
    ("m * n", call("MUL", [m, n])),
    ("m % nullif(n, 0)", call("MOD", [m, n])),
    ("round(m, 1)", call("ROUND", [m, lit(1)])),
    ("floor(d)", call("FLOOR", [d])),
    ("ceil(m)", call("CEIL", [m])),
    ("abs(d)", call("ABS", [d])),
    ("sqrt(abs(d))", call("SQRT", [call("ABS", [d])])),
    ("d < e", call("LT", [d, e])),
    ("i >= d", call("GE", [i, d])),
    ("m = n", call("EQ", [m, n])),
    ("m <> i", call("NE", [m, i])),
    ("b AND c OR NOT b", call("OR", [call("AND", [b, c]), call("NOT", [b])])),
    ("i IN (1, 2, NULL)", call("IN", [i, lit(1), lit(2), lit(None)])),
    ("i NOT IN (1, j)", call("NOT", [call("IN", [i, lit(1), j])])),
    ("i IS NOT DISTINCT FROM j", call("EQ_NULL_SAFE", [i, j])),
    ("CASE WHEN i > j THEN s WHEN b THEN t ELSE 'z' END", call("CASE", [call("GT", [i, j]), s, b, t, lit("z")])),
    ("coalesce(i, j, 5)", call("COALESCE", [i, j, lit(5)])),
    ("nullif(i, j)", call("NULLIF", [i, j])),
    ("greatest(i, j)", call("GREATEST", [i, j])),
    ("least(s, t)", call("LEAST", [s, t])),
    ("s || t", call("CONCAT", [s, t])),
    ("concat_ws('-', s, t)", call("CONCAT_WS", [lit("-"), s, t])),
    ("length(s)", call("LENGTH", [s])),
    ("upper(s)", call("UPPER", [s])),
    ("reverse(s)", call("REVERSE", [s])),
    ("substring(s, 2, 3)", call("SUBSTRING", [s, lit(2), lit(3)])),
    ("trim(s)", call("TRIM", [s])),
    ("replace(s, 'a', 'xy')", call("REPLACE", [s, lit("a"), lit("xy")])),
    ("starts_with(s, 'a')", call("STARTSWITH", [s, lit("a")])),
    ("contains(s, t)", call("CONTAINS", [s, t])),
    ("instr(s, 'b')", call("INSTR", [s, lit("b")])),
    ("lpad(s, 4, '*')", call("LPAD", [s, lit(4), lit("*")])),
    ("s = 'a'", call("EQ", [s, lit("a")])),
    ("s < t", call("LT", [s, t])),
    ("s LIKE 'a%'", call("LIKE", [s, lit("a%")])),
    ("s LIKE '%b_'", call("LIKE", [s, lit("%b_")])),
    (r"s LIKE '%\%%' ESCAPE '\'", call("LIKE", [s, lit(r"%\%%")])),
    ("s LIKE t", call("LIKE", [s, t])),
    ("regexp_matches(s, 'a+b')", call("RLIKE", [s, lit("a+b")])),
    ("md5(s)", call("MD5", [s])),
    ("year(u)", call("YEAR", [u])),
    ("quarter(w)", call("QUARTER", [w])),
    ("week(u)", call("WEEKOFYEAR", [u])),
    ("dayofyear(u)", call("DAYOFYEAR", [u])),
    ("hour(w)", call("HOUR", [w])),
    ("second(w)", call("SECOND", [w])),
    ("date_trunc('month', w)", call("DATE_TRUNC", [lit("MONTH"), w])),
    ("date_trunc('week', w)", call("DATE_TRUNC", [lit("WEEK"), w])),
    ("date_trunc('minute', w)", call("DATE_TRUNC", [lit("MINUTE"), w])),
    ("last_day(u)", call("LAST_DAY", [u])),
    ("u + 40", call("ADD", [u, lit(40)])),
    ("w + INTERVAL 90 MINUTE", call("ADD", [w, lit(timedelta(minutes=90))])),
    ("strftime(w, '%Y/%m/%d %H-%M')", call("DATE_FORMAT", [w, lit("yyyy/MM/dd HH-mm")])),
    ("CAST(w AS DATE)", build_cast(w, DATE)),
    ("CAST(i AS DOUBLE)", build_cast(i, DOUBLE)),
    ("TRY_CAST(m AS DECIMAL(6, 1))", build_cast(m, dec(6, 1))),
    ("CAST(i AS VARCHAR)", build_cast(i, STRING)),
    ("CAST(m AS DOUBLE)", build_cast(m, DOUBLE)),
]  # fmt: skip


@pytest.fixture(scope="module")
def table() -> tuple[duckdb.DuckDBPyConnection, list[pa.Array]]:
    draw = random.Random(20130101)
    columns = [pa.array([_random(type_, draw) for _ in range(ROWS)], type_) for type_ in TYPES.values()]
    # Without its zone: DuckDB then needs no time zone database either.
    naive = [column.view(pa.timestamp("us")) if column.type == TIMESTAMP else column for column in columns]
    rows = pa.table(naive, names=list(TYPES))
    connection = duckdb.connect(config={"threads": 1})
    connection.register("rows", rows)
    return connection, columns


@pytest.mark.parametrize(("sql", "expression"), OPINIONS, ids=[sql for sql, _ in OPINIONS])
def test_duckdb_agrees(sql: str, expression: Expression, table: tuple[Any, list[pa.Array]]) -> None:
    connection, columns = table
    theirs = [row[0] for row in connection.execute(f"SELECT {sql} FROM rows").fetchall()]
    ours = checked(expression, columns, ROWS)
    differing = [(row, a, o) for row, (a, o) in enumerate(zip(ours, theirs, strict=True)) if not _agree(a, o)]
    assert differing == []


def _agree(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, float):
        return math.isclose(ours, float(theirs), rel_tol=1e-12, abs_tol=1e-12)
    if isinstance(ours, datetime):
        return ours.replace(tzinfo=None) == theirs
    return bool(ours == theirs)
