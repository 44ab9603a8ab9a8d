"""CAST between all pairs of types, and TRY_CAST."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from expression_kit import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INF,
    INT,
    NAN,
    SMALLINT,
    STRING,
    TINYINT,
    all_same,
    at,
    bind,
    checked,
    day,
    dec,
    run,
)
from expression_kit import col as column

from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_cast
from penstock.expressions.nodes import Column
from penstock.expressions.values.casts import converter
from penstock.types import TIMESTAMP

N = None
D = Decimal

CASES: list[tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = [
    (INT, [1, -1, 300, N], TINYINT, [1, -1, 44, N]),
    (BIGINT, [2**40 + 5, N], INT, [5, N]),
    (INT, [1, N], BIGINT, [1, N]),
    (INT, [16777217, N], DOUBLE, [16777217.0, N]),
    (INT, [5, -7, N], dec(5, 2), [D("5.00"), D("-7.00"), N]),
    (INT, [1000, 999], dec(5, 2), [N, D("999.00")]),
    (BIGINT, [2**63 - 1], dec(20, 0), [D(2**63 - 1)]),
    (BIGINT, [2**63 - 1, 5], dec(38, 30), [N, D(5)]),
    (DOUBLE, [1.9, -1.9, NAN, INF, -INF, 3e9, N], INT, [1, -1, 0, 2**31 - 1, -(2**31), 2**31 - 1, N]),
    (DOUBLE, [1e30, -1e30, 9.3e18], BIGINT, [2**63 - 1, -(2**63), 2**63 - 1]),
    (DOUBLE, [300.7, 1e10], TINYINT, [44, -1]),
    (DOUBLE, [0.285, 2.675, -0.005, 1e10, NAN, INF, N], dec(6, 2), [D("0.29"), D("2.68"), D("-0.01"), N, N, N, N]),
    (DOUBLE, [1e20, 0.1], dec(38, 3), [D(10**20), D("0.100")]),
    (FLOAT, [0.1, 1.5], dec(6, 3), [D("0.100"), D("1.500")]),
    (DOUBLE, [1.0, 1e20, 0.001, 1e-4, 1234567.0, 12345678.9, NAN, INF, -INF, -0.0, 0.0, 1.5e-300, N], STRING,
     ["1.0", "1.0E20", "0.001", "1.0E-4", "1234567.0", "1.23456789E7", "NaN", "Infinity", "-Infinity", "-0.0", "0.0",
      "1.5E-300", N]),
    (FLOAT, [0.1, 1e10], STRING, ["0.1", "1.0E10"]),
    (dec(5, 3), [D("1.235"), D("-1.235"), D("99.999"), N], dec(4, 2), [D("1.24"), D("-1.24"), N, N]),
    (dec(38, 38), [D("0.5"), N], dec(38, 0), [D(1), N]),
    (dec(4, 2), [D("12.70"), D("-12.70"), N], INT, [12, -12, N]),
    (dec(20, 0), [D(2**63), D(2**64 + 5)], BIGINT, [-(2**63), 5]),
    (dec(4, 2), [D("-12.70"), D("0.10"), N], DOUBLE, [-12.7, 0.1, N]),
    (dec(38, 18), [D("0.123456789012345678")], DOUBLE, [0.12345678901234568]),
    (dec(4, 2), [D("1.50"), N], STRING, ["1.50", N]),
    (dec(4, 2), [D("0.00"), D("0.10")], BOOLEAN, [False, True]),
    (INT, [0, 2, N], BOOLEAN, [False, True, N]),
    (DOUBLE, [0.0, -0.0, NAN], BOOLEAN, [False, False, True]),
    (BOOLEAN, [True, False, N], INT, [1, 0, N]),
    (BOOLEAN, [True, N], dec(3, 1), [D("1.0"), N]),
    (BOOLEAN, [True, False, N], STRING, ["true", "false", N]),
    (INT, [60, -1, N], TIMESTAMP, [at("1970-01-01T00:01"), at("1969-12-31T23:59:59"), N]),
    (BIGINT, [2**62], TIMESTAMP, [N]),
    (DOUBLE, [1.5, NAN, 1e300], TIMESTAMP, [at("1970-01-01T00:00:01.5"), N, N]),
    (dec(4, 2), [D("1.25")], TIMESTAMP, [at("1970-01-01T00:00:01.25")]),
    (TIMESTAMP, [at("1969-12-31T23:59:59.5"), N], BIGINT, [-1, N]),
    (TIMESTAMP, [at("1970-01-01T00:00:01.5")], DOUBLE, [1.5]),
    (TIMESTAMP, [at("1970-01-01T00:00:01.5"), N], dec(10, 1), [D("1.5"), N]),
    (TIMESTAMP, [at("1969-12-31T23:00"), N], DATE, [day("1969-12-31"), N]),
    (DATE, [day("2013-01-01"), N], TIMESTAMP, [at("2013-01-01"), N]),
    (DATE, [day("2013-01-01"), N], STRING, ["2013-01-01", N]),
    (TIMESTAMP, [at("2013-01-01"), at("2013-01-01T00:00:00.1205"), at("2013-01-01T10:20:30"), N], STRING,
     ["2013-01-01 00:00:00", "2013-01-01 00:00:00.1205", "2013-01-01 10:20:30", N]),
    (BINARY, [b"ab", b"\xff", N], STRING, ["ab", "�", N]),
    (STRING, ["é", N], BINARY, ["é".encode(), N]),
    (STRING, ["5", " +5\t", "12.7", "-.5", "", "x", "1e3", "0x1F", "99999999999", "+", ".", N, "0" * 30 + "7"], INT,
     [5, 5, 12, 0, N, N, N, N, N, N, N, N, 7]),
    (STRING, ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 60], BIGINT,
     [2**63 - 1, N, -(2**63), N]),
    (STRING, ["128", "-128"], TINYINT, [N, -128]),
    (STRING, ["1.5", " 1e3 ", "+2", "NaN", "-Infinity", "inf", "1.5d", "1.5F", "", "x", "1_0", "0x10", "1e400", ".5",
              "5.", ".", N], DOUBLE,
     [1.5, 1000.0, 2.0, NAN, -INF, INF, 1.5, 1.5, N, N, N, N, INF, 0.5, 5.0, N, N]),
    (STRING, ["1.235", " -1.235 ", "1e1", "1000", "x", "", "nan", N, "0." + "1" * 60], dec(5, 2),
     [D("1.24"), D("-1.24"), D("10.00"), N, N, N, N, N, D("0.11")]),
    (STRING, ["1.235", "-7", N], dec(5, 2), [D("1.24"), D("-7.00"), N]),
    (STRING, ["t", " TRUE ", "yes", "1", "y", "f", "false", "No", "0", "n", "2", "", N], BOOLEAN,
     [True] * 5 + [False] * 5 + [N, N, N]),
    (STRING, ["2013-01-02", "2013-1-2", "2013", "2013-02", "2013-01-02 junk", "2013-01-02T03", "2013-13-01",
              "2013-02-29", "2012-02-29", " 2013-01-02 ", "13-01-02", "", N], DATE,
     [day("2013-01-02"), day("2013-01-02"), day("2013-01-01"), day("2013-02-01"), day("2013-01-02"), day("2013-01-02"),
      N, N, day("2012-02-29"), day("2013-01-02"), N, N, N]),
    (STRING, ["2013-01-02 03:04:05", "2013-01-02T03:04:05.123456789", "2013-01-02", "2013-1-2 3:4",
              "2013-01-02 03:04:05Z",
              "2013-01-02 03:04:05+02:00", "2013-01-02 03:04:05 UTC", "2013-01-02 03:04:05-0130", "2013-01-02 24:00:00",
              "2013-01-02 03:04:05 GMT+1", "x", "", N], TIMESTAMP,
     [at("2013-01-02T03:04:05"), at("2013-01-02T03:04:05.123456"), at("2013-01-02"), at("2013-01-02T03:04"),
      at("2013-01-02T03:04:05"), at("2013-01-02T01:04:05"), at("2013-01-02T03:04:05"), at("2013-01-02T04:34:05"), N,
      at("2013-01-02T02:04:05"), N, N, N]),
    (STRING, ["2013-01-02 03:04:05", "2013-01-02"], TIMESTAMP, [at("2013-01-02T03:04:05"), at("2013-01-02")]),
]  # fmt: skip

TYPES = (
    TINYINT,
    SMALLINT,
    INT,
    BIGINT,
    FLOAT,
    DOUBLE,
    dec(5, 2),
    dec(38, 10),
    STRING,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    BINARY,
)


@pytest.mark.parametrize(("source", "values", "target", "expected"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_values(source: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]) -> None:
    expressions, columns, length = bind([column(source, *values)])
    got = run(build_cast(expressions[0], target), columns, length)
    assert all_same(got, expected), got


@pytest.mark.parametrize("source", TYPES, ids=str)
@pytest.mark.parametrize("target", TYPES, ids=str)
def test_every_pair_takes_nulls_and_no_rows_or_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    argument = Column(source, 0)
    if converter(source, target) is None:
        with pytest.raises(PenstockError) as refused:
            build_cast(argument, target)
        assert refused.value.code == "P0203"
        return
    for values in ([], [None], [None, None, None]):
        assert checked(build_cast(argument, target), [pa.array(values, source)], len(values)) == values
        assert checked(build_cast(argument, target, try_=True), [pa.array(values, source)], len(values)) == values


def test_a_cast_that_means_nothing_names_both_types() -> None:
    with pytest.raises(PenstockError, match="DATE cannot be cast to INT"):
        build_cast(Column(DATE, 0), INT)


@pytest.mark.parametrize(
    ("source", "values", "target", "expected"),
    [
        (INT, [1, 300, -129, N], TINYINT, [1, N, N, N]),
        (DOUBLE, [1.9, 3e9, NAN, N, 127.9], INT, [1, N, N, N, 127]),
        (DOUBLE, [9.3e18, 1.0], BIGINT, [N, 1]),
        (dec(20, 0), [D(2**63), D(7)], BIGINT, [N, 7]),
        (STRING, ["x", "7"], INT, [N, 7]),
    ],
)  # fmt: skip
def test_try_cast_is_null_where_cast_wraps(
    source: pa.DataType, values: list[Any], target: pa.DataType, expected: list[Any]
) -> None:
    expressions, columns, length = bind([column(source, *values)])
    assert run(build_cast(expressions[0], target, try_=True), columns, length) == expected
