"""No value makes a function fail: every function over the greatest, least and oddest values of every type it takes."""

from __future__ import annotations

import random
import warnings
from itertools import product

import pyarrow as pa
import pytest
from expression_kit import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INF,
    INT,
    NAN,
    STRING,
    TINYINT,
    Decimal,
    dec,
)

from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.library import TABLE
from penstock.expressions.nodes import Column, Expression
from penstock.types import TIMESTAMP

NINES = Decimal("9" * 38)
WIDE = [-(2**63), 2**63 - 1, 0, None, 1, 2**60]
EXTREMES = {
    TINYINT: pa.array([-128, 127, 0, None, 1, -1], TINYINT),
    INT: pa.array([-(2**31), 2**31 - 1, 0, None, 1, -1], INT),
    BIGINT: pa.array(WIDE, BIGINT),
    FLOAT: pa.array([3e38, -3e38, NAN, None, INF, -0.0], FLOAT),
    DOUBLE: pa.array([1e308, -1e308, NAN, None, INF, 5e-324], DOUBLE),
    dec(38, 0): pa.array([NINES, NINES.copy_negate(), Decimal(0), None, Decimal(1), Decimal(-1)], dec(38, 0)),
    dec(38, 38): pa.array([Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38),
                           Decimal(0), None, Decimal("1E-38"), Decimal("0.5")], dec(38, 38)),
    STRING: pa.array(["", "a" * 40, "\0", None, "%", "2013-01-01"]),
    BINARY: pa.array([b"", b"\xff", b"\0", None, b"%", b"x"]),
    BOOLEAN: pa.array([True, False, None, None, True, False]),
    DATE: pa.array([-(2**31), 2**31 - 1, 0, None, 1, -1], INT).view(DATE),
    TIMESTAMP: pa.array(WIDE, BIGINT).view(TIMESTAMP),
    DURATION: pa.array(WIDE, BIGINT).view(DURATION),
}  # fmt: skip
CALLED = sorted(name for name, row in TABLE.items() if name == row.name and name != "TRY_CAST")


@pytest.mark.parametrize("name", CALLED)
def test_every_function_bears_every_value(name: str) -> None:
    least, most = TABLE[name].counts
    draw = random.Random(name)
    for count in {least, least + 1 if most is None else most}:
        # Of a function of many arguments the first three are of all types.
        combinations = list(product(EXTREMES, repeat=min(count, 3)))
        for types in (c + (BIGINT,) * (count - 3) for c in draw.sample(combinations, min(len(combinations), 40))):
            _bears(lambda types=types: build_call(name, [Column(t, i) for i, t in enumerate(types)]), types)  # type: ignore[misc]


def test_every_cast_bears_every_value() -> None:
    for source, target, try_ in product(EXTREMES, EXTREMES, (False, True)):
        _bears(lambda: build_cast(Column(source, 0), target, try_), (source,))  # noqa: B023


def _bears(build: object, types: tuple[pa.DataType, ...]) -> None:
    try:
        expression: Expression = build()  # type: ignore[operator]
    except PenstockError as refused:
        assert refused.code == "P0203"
        return
    columns = [EXTREMES[t] for t in types]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate(expression, columns, 6)
        assert result.type == expression.type
        assert len(result) == 6
        piece = evaluate(expression, [c.slice(2, 3) for c in columns], 3)
    # Compared as text, where NaN equals itself; the years of some times are beyond Python's.
    assert str(piece) == str(result.slice(2, 3))
