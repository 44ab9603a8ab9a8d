"""Expressions as SQL text."""

from __future__ import annotations

from datetime import timedelta

import pytest
from expression_kit import BIGINT, DATE, DOUBLE, INT, STRING, Decimal, at, day, lit

from penstock.expressions.calls.functions import build_aggregate, build_call, build_cast
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.types import TIMESTAMP

A, B, S = Column(BIGINT, 0, "a"), Column(DOUBLE, 1, "b"), Column(STRING, 2, "s")
c = build_call
GT, LT = c("GT", [A, lit(5)]), c("LT", [B, lit(1.5)])


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (c("DIV", [A, lit(2)]), "a / 2"),
        (c("AND", [GT, c("LIKE", [S, lit("x%")])]), "a > 5 AND s LIKE 'x%'"),
        (c("AND", [c("OR", [GT, LT]), LT]), "(a > 5 OR b < 1.5) AND b < 1.5"),
        (c("OR", [c("AND", [GT, LT]), LT]), "a > 5 AND b < 1.5 OR b < 1.5"),
        (c("NOT", [c("AND", [GT, LT])]), "NOT (a > 5 AND b < 1.5)"),
        (c("NOT", [GT]), "NOT a > 5"),
        (c("NOT", [c("LIKE", [S, lit("x")])]), "s NOT LIKE 'x'"),
        (c("NOT", [c("IN", [A, lit(1), lit(2)])]), "a NOT IN (1, 2)"),
        (c("LIKE", [S, lit("x!%"), lit("!")]), "s LIKE 'x!%' ESCAPE '!'"),
        (c("MUL", [c("ADD", [A, lit(1)]), B]), "(a + 1) * b"),
        (c("SUB", [A, c("SUB", [A, lit(1)])]), "a - (a - 1)"),
        (c("SUB", [c("SUB", [A, lit(1)]), lit(2)]), "a - 1 - 2"),
        (c("ADD", [A, B]), "a + b"),
        (c("NEG", [c("ADD", [A, lit(1)])]), "-(a + 1)"),
        (c("NEG", [lit(-1)]), "-(-1)"),
        (c("EQ", [c("EQ", [A, lit(1)]), lit(True)]), "(a = 1) = TRUE"),
        (c("IS_NULL", [c("ADD", [A, lit(1)])]), "a + 1 IS NULL"),
        (c("IS_NOT_NULL", [S]), "s IS NOT NULL"),
        (c("CONCAT", [S, lit("'"), A]), "s || '''' || CAST(a AS STRING)"),
        (c("CASE", [GT, lit("x"), lit("y")]), "CASE WHEN a > 5 THEN 'x' ELSE 'y' END"),
        (c("SUBSTRING", [S, lit(1), lit(2)]), "substring(s, 1, 2)"),
        (c("SUB", [Column(TIMESTAMP, 0, "t"), lit(timedelta(minutes=5))]), "t - INTERVAL 5 MINUTE"),
        (build_cast(A, DOUBLE), "CAST(a AS DOUBLE)"),
        (c("ADD", [build_cast(S, INT), lit(1)]), "CAST(s AS INT) + 1"),
        (build_cast(A, INT, try_=True), "TRY_CAST(a AS INT)"),
        (Literal(DATE, day("2013-01-02")), "DATE '2013-01-02'"),
        (Literal(TIMESTAMP, at("2013-01-02T03:04:05")), "TIMESTAMP '2013-01-02 03:04:05'"),
        (lit(Decimal("1.50")), "1.50"),
        (lit(None), "NULL"),
        (lit(b"\x01"), "X'01'"),
        (build_aggregate("SUM", [Column(INT, 0, "bytes")]), "sum(bytes)"),
        (build_aggregate("COUNT", []), "count(*)"),
        (build_aggregate("COUNT", [S], distinct=True), "count(DISTINCT s)"),
        (build_aggregate("SUM", [A], filter=GT), "sum(a) FILTER (WHERE a > 5)"),
        (Column(INT, 3), "#3"),
    ],
)  # fmt: skip
def test_text(expression: Expression, text: str) -> None:
    assert to_sql(expression) == text


def test_names_of_the_operator_that_shows_it() -> None:
    assert to_sql(c("ADD", [A, B]), ["x", "y"]) == "x + y"
