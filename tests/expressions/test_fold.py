"""Folding: what becomes simpler, what must not, and that the value never changes."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest
from expression_kit import BIGINT, BOOLEAN, DOUBLE, INT, Decimal, checked, lit, run
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Call, Cast, Column, Expression, Literal

X, Y, K = Column(BOOLEAN, 0, "x"), Column(BOOLEAN, 1, "y"), Column(INT, 2, "k")
TRUE, FALSE, UNKNOWN = Literal(BOOLEAN, True), Literal(BOOLEAN, False), Literal(BOOLEAN, None)
c = build_call


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (c("AND", [TRUE, X]), X),
        (c("AND", [X, FALSE]), FALSE),
        (c("AND", [X, X]), X),
        (c("OR", [X, TRUE]), TRUE),
        (c("OR", [FALSE, X]), X),
        (c("NOT", [c("NOT", [X])]), X),
        (c("NOT", [c("LT", [K, lit(1)])]), c("GE", [K, lit(1)])),
        (c("ADD", [lit(1), lit(2)]), lit(3)),
        (c("DIV", [lit(1), lit(0)]), Literal(DOUBLE, None)),
        (c("CASE", [FALSE, lit(1), X, lit(2), TRUE, lit(3), Y, lit(4)]), c("CASE", [X, lit(2), lit(3)])),
        (c("CASE", [UNKNOWN, lit(1)]), Literal(INT, None)),
        (c("COALESCE", [Literal(INT, None), K, lit(2), Column(INT, 3)]), c("COALESCE", [K, lit(2)])),
        (c("COALESCE", [K, K]), K),
        (build_cast(Literal(INT, 5), BIGINT), Literal(BIGINT, 5)),
        (Cast(INT, K), K),
        (build_cast(build_cast(K, BIGINT), DOUBLE), Cast(DOUBLE, K)),
        (c("IS_NULL", [c("IS_NULL", [X])]), FALSE),
        (c("GT", [K, lit(Decimal("1.5"))]), c("GT", [K, lit(1)])),
        (c("LT", [lit(Decimal("-1.5")), K]), c("GT", [K, lit(-2)])),
        (c("EQ", [K, lit(Decimal("2.0"))]), c("EQ", [K, lit(2)])),
    ],
)  # fmt: skip
def test_simpler(before: Expression, after: Expression) -> None:
    assert fold(before) == after


@pytest.mark.parametrize(
    "kept",
    [
        c("EQ", [K, K]),  # NULL for a NULL
        c("MUL", [K, lit(0)]),  # the same
        c("AND", [UNKNOWN, X]),  # FALSE for a FALSE x
        c("OR", [UNKNOWN, X]),
        build_cast(build_cast(Column(DOUBLE, 3), INT), DOUBLE),
    ],
)
def test_not_simpler(kept: Expression) -> None:
    assert fold(kept) == kept


def test_a_comparison_with_a_fraction_is_never_equal_but_null_for_null() -> None:
    never = c("EQ", [Column(INT, 0), lit(Decimal("1.5"))])
    assert run(never, [pa.array([1, None], INT)], 2) == [False, None]


_LEAVES: list[Expression] = [X, Y, TRUE, FALSE, UNKNOWN, c("GT", [K, lit(1)]), c("EQ", [K, lit(Decimal("1.5"))])]


def _grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    two = st.tuples(inner, inner)
    return st.one_of(
        two.map(lambda p: c("AND", p)),
        two.map(lambda p: c("OR", p)),
        two.map(lambda p: c("EQ", p)),
        two.map(lambda p: c("EQ_NULL_SAFE", p)),
        two.map(lambda p: c("COALESCE", p)),
        inner.map(lambda e: c("NOT", [e])),
        inner.map(lambda e: c("IS_NULL", [e])),
        inner.map(lambda e: build_cast(build_cast(e, INT), BOOLEAN)),
        st.tuples(inner, inner, inner, inner, inner).map(lambda p: c("CASE", p)),
        st.tuples(inner, inner).map(lambda p: c("CASE", p)),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(st.sampled_from(_LEAVES), _grow, max_leaves=12))
def test_folding_keeps_every_value(expression: Expression) -> None:
    rows = list(product([True, False, None], [True, False, None], [1, 2, None]))
    columns = [pa.array(v, t) for v, t in zip(zip(*rows, strict=True), (BOOLEAN, BOOLEAN, INT), strict=True)]
    folded = fold(expression)
    assert checked(folded, columns, len(rows)) == checked(expression, columns, len(rows))
    assert fold(folded) == folded
    assert not any(isinstance(a, Call) and not a.arguments for a in folded.children)
