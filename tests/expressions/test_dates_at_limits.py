"""Functions of dates and times over the whole range of their types: held against Python's integers and NumPy's
calendar, and against DuckDB as far as its range reaches. What a type cannot hold is NULL.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from expression_kit import BIGINT, DATE, DOUBLE, DURATION, INT, STRING, Decimal, dec, lit

from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Column, Expression
from penstock.expressions.values.calendar import far_day, far_moment
from penstock.testing.scalars.dates import CalendarTime, day_from, evaluate_apart
from penstock.types import TIMESTAMP

_DAY = 86_400_000_000
_MOST, _LEAST = 2**63 - 1, -(2**63)
#: The first days of years around which a calendar may err: 16 bits, the switch of 1582, four digits, leap years.
_YEARS = (-32_768, -32_767, -401, -400, -4, -1, 0, 1, 4, 1582, 1583, 1900, 1970, 2000, 9999, 10_000, 32_767, 32_768)
_FIRSTS = [int(np.datetime64(year - 1970, "Y").astype("M8[D]").astype(np.int64)) for year in _YEARS]
_SWITCH = [int(np.datetime64(f"1582-10-{day:02d}", "D").astype(int)) for day in (4, 5, 14, 15)]
_NEAR, _LAST = 10**7, _MOST // _DAY  # where Arrow's kernels end, and where timestamps do
DAYS = sorted({
    *(-(2**31) + i for i in (0, 1, 2, 40, 400)), *(2**31 - 1 - i for i in (0, 1, 2, 40, 400)), *_SWITCH,
    *(first + i for first in _FIRSTS for i in (-1, 0, 1, 59, 60)), *(s * (_NEAR + i) for s in (-1, 1) for i in (0, 1)),
    *(s * (_LAST + i) for s in (-1, 1) for i in (-1, 0, 1, 2)),
})  # fmt: skip
TICKS = sorted({
    *(_LEAST + i for i in (0, 1, _DAY, 31 * _DAY)), *(_MOST - i for i in (0, 1, _DAY, 31 * _DAY)), -1, 0, 1,
    *(day * _DAY + i for day in DAYS if abs(day) < 10**8 for i in (-1, 0, 1, 45_296_123_456)),
})  # fmt: skip


def dates(days: list[int | None]) -> pa.Array:
    return pa.array(days, INT).view(DATE)


def times(ticks: list[int | None]) -> pa.Array:
    return pa.array(ticks, BIGINT).view(TIMESTAMP)


def raw(array: pa.Array) -> list[Any]:
    kinds = {DATE: INT, TIMESTAMP: BIGINT, DURATION: BIGINT}
    return list(array.view(kinds.get(array.type, array.type)).to_pylist())


def call_over(name: str, *arguments: pa.Array | Expression) -> tuple[Expression, list[pa.Array]]:
    """Return a call of the function over columns, and the columns."""
    columns = [a for a in arguments if isinstance(a, pa.Array)]
    places = iter(range(len(columns)))
    given = [a if isinstance(a, Expression) else Column(a.type, next(places)) for a in arguments]
    return build_call(name, given), columns


def agree(expression: Expression, columns: list[pa.Array]) -> None:
    """Both ways to compute give the same values, over the column, its parts and single rows."""
    length = len(columns[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = evaluate(expression, columns, length)
        near = [evaluate(expression, [c.slice(i, 1) for c in columns], 1) for i in range(0, length, 7)]
    apart = evaluate_apart(expression, columns, length)
    differing = [
        ([raw(c)[i] for c in columns], a, b)
        for i, (a, b) in enumerate(zip(raw(ours), raw(apart), strict=True))
        if a != b
    ]
    assert differing == []
    assert [raw(value)[0] for value in near] == raw(ours)[::7]


FIELDS = [
    "YEAR",
    "QUARTER",
    "MONTH",
    "DAY",
    "DAYOFWEEK",
    "WEEKDAY",
    "DAYOFYEAR",
    "WEEKOFYEAR",
    "HOUR",
    "MINUTE",
    "SECOND",
]
ONE = [*FIELDS, "LAST_DAY", "UNIX_SECONDS", "UNIX_MILLIS", "UNIX_MICROS"]


@pytest.mark.parametrize("values", [dates([*DAYS, None]), times([*TICKS, None])], ids=["DATE", "TIMESTAMP"])
@pytest.mark.parametrize("name", ONE)
def test_fields_of_all_years(name: str, values: pa.Array) -> None:
    agree(*call_over(name, values))


@pytest.mark.parametrize("unit", ["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"])
def test_starts_of_all_years(unit: str) -> None:
    agree(*call_over("DATE_TRUNC", lit(unit), times([*TICKS, None])))
    agree(*call_over("DATE_TRUNC", lit(unit), dates([*DAYS, None])))
    agree(*call_over("TRUNC", dates([*DAYS, None]), lit(unit)))


COUNTS = [0, 1, -1, 31, -31, 12, -400, 10**6, -(10**6), 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("name", ["DATE_ADD", "DATE_SUB", "ADD_MONTHS", "PLUS_MONTHS", "ADD", "SUB"])
def test_dates_moved_over_the_limits(name: str) -> None:
    days, counts = zip(*product([*DAYS, None], [*COUNTS, None]), strict=True)
    agree(*call_over(name, dates(list(days)), pa.array(counts, INT)))


LENGTHS = [0, 1, -1, _DAY, -_DAY, 10**15, _MOST, _LEAST, _LEAST + 1, _MOST // 2 + 1]


@pytest.mark.parametrize("name", ["ADD", "SUB"])
def test_times_and_intervals_moved_over_the_limits(name: str) -> None:
    ticks, lengths = zip(*product([*TICKS, None], [*LENGTHS, None]), strict=True)
    moves = pa.array(lengths, BIGINT).view(DURATION)
    agree(*call_over(name, times(list(ticks)), moves))
    agree(*call_over(name, pa.array(ticks, BIGINT).view(DURATION), moves))


def test_months_of_times_over_the_limits() -> None:
    ticks, counts = zip(*product([*TICKS, None], [*COUNTS, None]), strict=True)
    agree(*call_over("PLUS_MONTHS", times(list(ticks)), pa.array(counts, INT)))


def test_intervals_times_numbers_over_the_limits() -> None:
    lengths, factors = zip(*product([*LENGTHS, None], [0, 1, -1, 2, -2, 10**9, _MOST, _LEAST, None]), strict=True)
    column = pa.array(lengths, BIGINT).view(DURATION)
    agree(*call_over("MUL", column, pa.array(factors, BIGINT)))
    agree(*call_over("NEG", column))
    agree(*call_over("ABS", column))


@pytest.mark.parametrize("name", ["DATEDIFF", "MONTHS_BETWEEN", "SUB"])
def test_differences_of_all_years(name: str) -> None:
    draw = random.Random(name)
    for make, values in ((dates, DAYS), (times, TICKS)):
        some = [*values[:4], *values[-4:], *draw.sample(values, 20), None]
        ends, starts = zip(*product(some, some), strict=True)
        agree(*call_over(name, make(list(ends)), make(list(starts))))


@pytest.mark.parametrize("weekday", ["Mon", "tu", "SUNDAY", "x"])
def test_next_days_of_all_years(weekday: str) -> None:
    agree(*call_over("NEXT_DAY", dates([*DAYS, None]), lit(weekday)))


def test_dates_of_any_parts() -> None:
    years = [-(2**31), -5_877_642, -5_877_641, -1, 0, 1, 1900, 9999, 10_000, 32_768, 5_881_580, 5_881_581, 2**31 - 1]
    parts = list(
        product([*years, None], [-(2**31), 0, 1, 2, 6, 7, 12, 13], [0, 1, 11, 12, 22, 23, 29, 30, 31, 2**31 - 1])
    )
    agree(*call_over("MAKE_DATE", *(pa.array(column, INT) for column in zip(*parts, strict=True))))


def test_numbers_and_casts_at_the_limits() -> None:
    seconds = [s * (_MOST // 1_000_000 + i) for s in (-1, 1) for i in (-1, 0, 1, 2)]
    numbers = pa.array([_LEAST, _LEAST + 1, _MOST, _MOST // 1_000, _MOST // 1_000 + 1, *seconds, 0, -1, None], BIGINT)
    for name in ("TIMESTAMP_MILLIS", "TIMESTAMP_MICROS"):
        agree(*call_over(name, numbers))
    for values, target in ((numbers, TIMESTAMP), (dates([*DAYS, None]), TIMESTAMP), (times([*TICKS, None]), DATE)):
        agree(build_cast(Column(values.type, 0), target), [values])


def test_decimals_and_doubles_as_times() -> None:
    texts = [
        "9223372036854.775807",
        "9223372036854.775808",
        "-9223372036854.775808",
        "-9223372036854.775809",
        "7e9",
        "0.0000019",
    ]
    expected = [_MOST, None, _LEAST, None, 7 * 10**15, 1]
    exact = pa.array([*map(Decimal, texts), None], dec(38, 9))
    found = evaluate(build_cast(Column(exact.type, 0), TIMESTAMP), [exact], 7)
    assert raw(found) == [*expected, None]
    doubles = pa.array([9.3e12, -9.3e12, 9.2233720368547e12, float("inf"), float("nan"), 1.5], DOUBLE)
    found = evaluate(build_cast(Column(DOUBLE, 0), TIMESTAMP), [doubles], 6)
    assert raw(found) == [None, None, int(9.2233720368547e12 * 1e6), None, None, 1_500_000]


def test_the_second_way_is_numpys_calendar() -> None:
    days = np.array([*DAYS, *np.random.default_rng(1).integers(-(2**31), 2**31, 2000)], np.int64)
    months = days.astype("M8[D]").astype("M8[M]")
    years = days.astype("M8[D]").astype("M8[Y]")
    moments = [CalendarTime(int(day)) for day in days]
    assert [m.months - 1970 * 12 for m in moments] == months.astype(np.int64).tolist()
    assert [m.in_cycle.day for m in moments] == (days - months.astype("M8[D]").astype(np.int64) + 1).tolist()
    of_year = days - years.astype("M8[D]").astype(np.int64) + 1
    assert [m.in_cycle.timetuple().tm_yday for m in moments] == of_year.tolist()
    assert np.array_equal(np.is_busday(days.astype("M8[D]")), [m.in_cycle.weekday() < 5 for m in moments])
    assert [day_from(m.year, m.in_cycle.month, m.in_cycle.day) for m in moments] == moments


def cast_text(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    return evaluate(build_cast(Column(texts.type, 0), type_), [texts], len(texts))


def test_texts_of_all_dates() -> None:
    values = dates([*DAYS, None])
    texts = cast_text(values, STRING)
    assert texts.to_pylist() == [*map(far_day, DAYS), None]
    assert raw(cast_text(texts, DATE)) == [*DAYS, None]
    for pattern in ("yyyy-MM-dd", "dd/MM/y", "yyyy 'day' MM dd"):
        assert raw(_there_and_back("TO_DATE", values, pattern)) == [*DAYS, None]


def test_texts_of_all_times() -> None:
    values = times([*TICKS, None])
    texts = cast_text(values, STRING)
    assert texts.to_pylist()[-1] is None
    written = [None if text is None else text.replace(" ", "T") + "Z" for text in texts.to_pylist()]
    assert [w and _six_digits(w) for w in written] == [*map(far_moment, TICKS), None]
    assert raw(cast_text(texts, TIMESTAMP)) == [*TICKS, None]
    assert raw(_there_and_back("TO_TIMESTAMP", values, "yyyy-MM-dd HH:mm:ss.SSSSSS")) == [*TICKS, None]
    found = _there_and_back("UNIX_TIMESTAMP", values, "yyyy-MM-dd hh:mm:ss a")
    assert raw(found) == [*(tick // 1_000_000 for tick in TICKS), None]


def _six_digits(text: str) -> str:
    whole, point, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}{point}{fraction.ljust(6, '0') if point else ''}Z"


def _there_and_back(name: str, values: pa.Array, pattern: str) -> pa.Array:
    texts = build_call("DATE_FORMAT", [Column(values.type, 0), lit(pattern)])
    return evaluate(build_call(name, [texts, lit(pattern)]), [values], len(values))


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("5881580-07-12", DATE), ("-5877641-06-22", DATE), ("9999999-12-31", DATE), ("12001-02-29", DATE),
        ("+-044-01-01", DATE),
        ("294247-01-10 04:00:54.775808", TIMESTAMP), ("-290308-12-21 19:59:05.224191", TIMESTAMP),
        ("294247-01-10 04:00:54.775807-00:01", TIMESTAMP), ("5881580-07-11", TIMESTAMP),
    ],
)  # fmt: skip
def test_texts_beyond_a_type_are_null(text: str, type_: pa.DataType) -> None:
    assert cast_text(pa.array([text]), type_).null_count == 1


def test_texts_at_the_limits_and_of_any_sign() -> None:
    texts = pa.array(["5881580-07-11", "-5877641-06-23", "+12000-1-1", "0000", "-0001-12-31 and more", "12000-06"])
    assert cast_text(cast_text(texts, DATE), STRING).to_pylist() == [
        "5881580-07-11",
        "-5877641-06-23",
        "12000-01-01",
        "0000-01-01",
        "-0001-12-31",
        "12000-06-01",
    ]
    texts = pa.array(
        ["294247-01-10 04:00:54.775807", "-290308-12-21T19:59:05.224192Z", "294247-01-10 05:00:54.775807+01:00"]
    )
    assert raw(cast_text(texts, TIMESTAMP)) == [_MOST, _LEAST, _MOST]


def test_years_keep_their_sign_in_patterns() -> None:
    values = dates([day.days for year in (-44, 0, 7, 12_345) if (day := day_from(year, 3, 15))])
    written = evaluate(build_call("DATE_FORMAT", [Column(DATE, 0), lit("yyyy|yy|y|yyyyyy")]), [values], 4)
    assert written.to_pylist() == [
        "-0044|44|-44|-000044",
        "0000|00|0|000000",
        "0007|07|7|000007",
        "12345|45|12345|012345",
    ]


def test_times_of_dates_beyond_the_range_of_times() -> None:
    values = dates([2**31 - 1, -(2**31)])
    found = {name: raw(evaluate(*call_over(name, values), 2)) for name in ("HOUR", "UNIX_TIMESTAMP", "TO_TIMESTAMP")}
    assert found == {
        "HOUR": [0, 0],
        "UNIX_TIMESTAMP": [(2**31 - 1) * 86_400, -(2**31) * 86_400],
        "TO_TIMESTAMP": [None, None],
    }


def test_a_constant_beyond_python_is_computed_when_it_is_needed() -> None:
    far = build_call("YEAR", [build_cast(lit("5881580-07-11"), DATE)])
    assert raw(evaluate(fold(far), [], 1)) == [5_881_580]


OPINIONS: list[tuple[str, Callable[[Expression], Expression]]] = [
    ("year(d)", lambda d: build_call("YEAR", [d])),
    ("quarter(d)", lambda d: build_call("QUARTER", [d])),
    ("month(d)", lambda d: build_call("MONTH", [d])),
    ("day(d)", lambda d: build_call("DAY", [d])),
    ("dayofweek(d) + 1", lambda d: build_call("DAYOFWEEK", [d])),
    ("dayofyear(d)", lambda d: build_call("DAYOFYEAR", [d])),
    ("week(d)", lambda d: build_call("WEEKOFYEAR", [d])),
]


@pytest.mark.parametrize(("sql", "expression"), OPINIONS, ids=[sql for sql, _ in OPINIONS])
def test_duckdb_agrees_on_all_its_dates(sql: str, expression: Callable[[Expression], Expression]) -> None:
    # Its greatest and least date are the infinities, its least year is -5877641.
    days = [day for day in DAYS if -(2**31) + 400 <= day <= 2**31 - 3]
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("rows", pa.table({"d": dates(days)}))
        theirs = [row[0] for row in connection.execute(f"SELECT {sql} FROM rows").fetchall()]
    assert evaluate(expression(Column(DATE, 0)), [dates(days)], len(days)).to_pylist() == theirs
