"""The evaluator: its promises about shape, NULL, sharing and exactness."""

from __future__ import annotations

import dataclasses
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from expression_kit import BIGINT, BOOLEAN, DOUBLE, INT, STRING, call, checked, col, dec, evaluated, lit
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_casts import TYPES

from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_aggregate, build_call, build_cast, function
from penstock.expressions.evaluation import evaluate as module
from penstock.expressions.evaluation.evaluate import evaluate, evaluate_all, mask
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.expressions.text_equality import equals_text
from penstock.expressions.values.casts import converter
from penstock.expressions.values.datum import to_array

A, S = Column(INT, 0, "a"), Column(STRING, 1, "s")
COLUMNS = [pa.array([1, 2, None], INT), pa.array(["x", None, "y"])]


def test_literals_are_spread_over_the_rows() -> None:
    assert checked(lit(5), COLUMNS, 3) == [5, 5, 5]
    assert checked(Literal(STRING, None), COLUMNS, 2) == [None, None]
    assert checked(lit(None), COLUMNS, 2) == [None, None]
    assert checked(build_call("PI", []), [], 0) == []
    assert evaluate(A, COLUMNS, 3) is COLUMNS[0]


@pytest.mark.parametrize(
    "value",
    [
        pa.scalar(-(2**63)), pa.scalar(-1, pa.int8()), pa.scalar(0.1), pa.scalar(float("-inf"), pa.float32()),
        pa.scalar(1, pa.timestamp("us")), pa.scalar(1, pa.date32()), pa.scalar(1, pa.time64("us")),
        pa.scalar(1, pa.duration("ms")), pa.scalar((1, 2, 3), pa.month_day_nano_interval()), pa.scalar(b"ab"),
        pa.scalar(True), pa.scalar("é"),
        pa.scalar(decimal.Decimal("-1.50"), pa.decimal128(5, 2)), pa.scalar([1, 2]), pa.scalar(None, pa.int16()),
    ],
    ids=str,
)  # fmt: skip
def test_a_constant_keeps_its_bits(value: pa.Scalar) -> None:
    for length in (0, 3):
        found = to_array(value, length)
        found.validate(full=True)
        assert found.equals(pa.array([value.as_py()] * length, value.type))


def test_mask_is_true_only_where_the_predicate_is() -> None:
    predicate = build_call("GT", [A, lit(1)])
    assert mask(predicate, COLUMNS, 3).tolist() == [False, True, False]
    assert mask(build_call("NOT", [predicate]), COLUMNS, 3).tolist() == [True, False, False]
    for value in (True, False, None):
        assert mask(Literal(BOOLEAN, value), COLUMNS, 3).tolist() == [value is True] * 3
    assert mask(predicate, [c.slice(1) for c in COLUMNS], 2).tolist() == [True, False]
    assert mask(predicate, [c.slice(0, 0) for c in COLUMNS], 0).tolist() == []
    assert mask(predicate, COLUMNS, 3).dtype == np.bool_


def test_a_shared_subexpression_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counting(name: str) -> Any:
        row = function(name)

        def kernel(arguments: Any, type_: Any) -> Any:
            calls.append(name)
            return row.kernel(arguments, type_)

        return dataclasses.replace(row, kernel=kernel)

    monkeypatch.setattr(module, "function", counting)
    shared = build_call("MUL", [A, A])
    both = [build_call("ADD", [shared, shared]), build_call("NEG", [build_call("MUL", [A, A])])]
    assert [r.to_pylist() for r in evaluate_all(both, COLUMNS, 3)] == [[2, 8, None], [-1, -4, None]]
    assert sorted(calls) == ["ADD", "MUL", "NEG"]


def test_an_aggregate_has_no_value_for_a_row() -> None:
    with pytest.raises(PenstockError) as error:
        evaluate(build_aggregate("SUM", [A]), COLUMNS, 3)
    assert error.value.code == "P0304"


def test_rows_of_untaken_branches_do_no_harm() -> None:
    safe = build_call("CASE", [build_call("EQ", [A, lit(0)]), lit(0.0), build_call("DIV", [lit(1), A])])
    assert checked(safe, [pa.array([0, 2], INT)], 2) == [0.0, 0.5]


@pytest.mark.parametrize("text", ["", "a", "tcp", "12345678", "123456789", "é", "\0"])
def test_equality_with_a_short_text(text: str) -> None:
    pool = ["", "a", "tcp", "tcpx", "xtcp", "12345678", "123456789", "é", "e", "\0", "\0\0", None]
    values = [pool[(7 * i + i // 5) % len(pool)] for i in range(5000)]
    column = pa.array([*values, "xxx", *([""] * 20), text, None, ""])
    for piece in (column, column.slice(3), column.slice(0, 4990), column.slice(1, 5005)):
        expected = [None if v is None else v == text for v in piece.to_pylist()]
        assert equals_text(piece, text.encode()).to_pylist() == expected


NUMBERS = st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-1000, 1000))
TYPE = st.tuples(st.integers(1, 38), st.integers(0, 38)).filter(lambda t: t[1] <= t[0]).map(lambda t: dec(*t))
PRECISE = decimal.Context(prec=700, rounding=decimal.ROUND_HALF_UP)


def _decimal(number: int | None, type_: pa.DataType) -> decimal.Decimal | None:
    if number is None:
        return None
    size = abs(number) % 10**type_.precision
    return decimal.Decimal(size if number >= 0 else -size).scaleb(-type_.scale, PRECISE)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(
        [
            ("ADD", PRECISE.add),
            ("SUB", PRECISE.subtract),
            ("MUL", PRECISE.multiply),
            ("DIV", PRECISE.divide),
            ("MOD", PRECISE.remainder),
        ]
    ),
    TYPE,
    TYPE,
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5),
)
def test_decimals_are_exact(
    operation: tuple[str, Callable[..., decimal.Decimal]], left: pa.DataType, right: pa.DataType, rows: list[Any]
) -> None:
    name, precisely = operation
    pairs = [(_decimal(a, left), _decimal(b, right)) for a, b in rows]
    call_ = build_call(name, [Column(left, 0), Column(right, 1)])
    columns = [pa.array(c, t) for c, t in zip(zip(*pairs, strict=True), (left, right), strict=True)]
    assert checked(call_, columns, len(rows)) == [_expected(precisely, a, b, call_.type) for a, b in pairs]


def test_a_product_of_many_digits_is_rounded_half_up() -> None:
    left, right = pa.decimal128(13, 0), pa.decimal128(38, 20)
    pair = (decimal.Decimal(1_073_741_824), decimal.Decimal("238418579101.56249999999999972404"))
    call_ = build_call("MUL", [Column(left, 0), Column(right, 1)])
    columns = [pa.array([v], t) for v, t in zip(pair, (left, right), strict=True)]
    assert checked(call_, columns, 1) == [decimal.Decimal("256000000000000000000.000000")]


def _expected(precisely: Callable[..., decimal.Decimal], a: Any, b: Any, type_: pa.DataType) -> decimal.Decimal | None:
    try:
        exact = None if a is None or b is None else precisely(a, b)
    except (decimal.DivisionByZero, decimal.InvalidOperation):
        return None
    return _fitted(exact, type_)


def _fitted(exact: decimal.Decimal | None, type_: pa.DataType) -> decimal.Decimal | None:
    if exact is None:
        return None
    rounded = exact.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=PRECISE)
    return rounded if rounded.copy_abs() < decimal.Decimal(10) ** (type_.precision - type_.scale) else None


@settings(max_examples=200, deadline=None)
@given(TYPE, TYPE, st.lists(NUMBERS, max_size=5))
def test_decimal_casts_are_exact(source: pa.DataType, target: pa.DataType, numbers: list[Any]) -> None:
    values = [_decimal(v, source) for v in numbers]
    got = checked(build_cast(Column(source, 0), target), [pa.array(values, source)], len(values))
    assert got == [_fitted(v, target) for v in values]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(), max_size=6), st.integers(0, 8))
def test_doubles_round_and_become_decimals_by_their_shortest_text(values: list[float], places: int) -> None:
    columns = [pa.array(values, DOUBLE)]
    type_ = dec(30, places)
    got = checked(build_cast(Column(DOUBLE, 0), type_), columns, len(values))
    finite = [decimal.Decimal(repr(v)) if np.isfinite(v) else None for v in values]
    assert got == [_fitted(v, type_) for v in finite]
    rounded = checked(build_call("ROUND", [Column(DOUBLE, 0), lit(places)]), columns, len(values))
    for value, ours in zip(values, rounded, strict=True):
        if abs(value) < 1e15:
            expected = float(_round(decimal.Decimal(repr(value)), places))
            assert ours == pytest.approx(expected, rel=1e-15, abs=0)


def _round(value: decimal.Decimal, places: int) -> decimal.Decimal:
    return value.quantize(decimal.Decimal(1).scaleb(-places), context=PRECISE)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=8), st.from_regex(r"[-+ .:0-9TZdefin]{1,24}")), max_size=6))
@example(["0000", "-0001-01-01", "10000"])
def test_no_text_makes_a_cast_fail(texts: list[Any]) -> None:
    for type_ in TYPES:
        if converter(STRING, type_) is not None:
            evaluated(build_cast(Column(STRING, 0), type_), [pa.array(texts, STRING)], len(texts))


def test_long_columns_are_never_chunked() -> None:
    column = pa.array(["x" * 100] * 1000)
    result: Expression = build_call("REPEAT", [Column(STRING, 0), lit(10)])
    assert isinstance(evaluate(result, [column], 1000), pa.Array)
    assert call("ADD", col(BIGINT, 1), lit(1)) == [2]
