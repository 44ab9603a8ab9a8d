"""Dates and times, in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, nearest
from penstock.expressions.coercion import BIGINT, DATE, DOUBLE, INT, STRING, implicit, is_numeric
from penstock.expressions.library.date_patterns import DatePattern, checked_pattern
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.registry import Function, takes
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import (
    Arguments,
    Datum,
    Kernel,
    arrays,
    from_numbers,
    is_scalar,
    null_unless,
    numbers,
    over_distinct,
)
from penstock.expressions.values.text_casts import days_from
from penstock.types import TIMESTAMP

Typed = tuple[tuple[Expression, ...], pa.DataType]

_DAY = 86_400_000_000
_UNITS = {
    "YEAR": "year", "YYYY": "year", "YY": "year", "QUARTER": "quarter", "MONTH": "month", "MM": "month", "MON": "month",
    "WEEK": "week", "DAY": "day", "DD": "day", "HOUR": "hour", "MINUTE": "minute", "SECOND": "second",
    "MILLISECOND": "millisecond", "MICROSECOND": "microsecond",
}  # fmt: skip
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def naive(array: pa.Array) -> pa.Array:
    """Return a TIMESTAMP column without its zone, over the same bits: kernels then need no time zone database."""
    return array.view(pa.timestamp("us")) if array.type == TIMESTAMP else array


def _temporal(result: pa.DataType) -> Callable[[str, Sequence[Expression]], Typed]:
    """Return the rule of a function of a DATE or TIMESTAMP (or a string that becomes a TIMESTAMP)."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        (value,) = arguments
        return (value if value.type == DATE else implicit(value, TIMESTAMP, name),), result

    return rule


def _part(kernel: Callable[..., Datum], **options: object) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return kernel(naive(arguments[0]), **options).cast(INT)

    return run


def _unit(name: str, argument: Expression) -> str | None:
    """Return the unit in a literal, None when the argument is not a literal.

    Raises:
        PenstockError: P0203, the unit is unknown.
    """
    if not isinstance(argument, Literal) or argument.value is None:
        return None
    unit = _UNITS.get(str(argument.value).upper())
    if unit is None:
        raise PenstockError(
            "P0203", f"{name} has no unit {argument.value!r}", hint=nearest(str(argument.value), _UNITS)
        )
    return unit


def _date_trunc_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    unit, value = arguments
    _unit(name, unit)
    return (implicit(unit, STRING, name), implicit(value, TIMESTAMP, name)), TIMESTAMP


def _trunc_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    value, unit = arguments
    _unit(name, unit)
    return (implicit(value, DATE, name), implicit(unit, STRING, name)), DATE


def _truncate(value: Datum, unit: Datum, type_: pa.DataType) -> Datum:
    """Truncate by one kernel call per unit; the unit is nearly always one literal."""
    values, units = arrays([value, unit])
    result = pa.nulls(len(values), type_)
    for name in pc.unique(units).to_pylist():
        kind = _UNITS.get(name.upper()) if name is not None else None
        if kind is None or (type_ == DATE and kind not in ("year", "quarter", "month", "week")):
            continue
        floor = pc.floor_temporal(naive(values), unit=kind)
        result = pc.if_else(pc.fill_null(pc.equal(units, name), False), floor.view(type_), result)
    return result


def _date_trunc(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _truncate(arguments[1], arguments[0], type_)


def _trunc(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _truncate(arguments[0], arguments[1], type_)


def _days(sign: int) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        dates, counts = arrays(arguments)
        return from_numbers(numbers(dates) + sign * numbers(counts), type_, dates, counts)

    return run


def _date_difference(arguments: Arguments, type_: pa.DataType) -> Datum:
    end, start = arrays(arguments)
    return from_numbers(numbers(end) - numbers(start), type_, end, start)


def _add_months(arguments: Arguments, type_: pa.DataType) -> Datum:
    dates, counts = arrays(arguments)
    return from_numbers(_days_moved(numbers(dates), numbers(counts)).astype(np.int32), type_, dates, counts)


def _days_moved(given: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Move days since 1970 by months: to the same day of the month, or its last."""
    days = given.astype("M8[D]")
    months = days.astype("M8[M]")
    offset = (days - months.astype("M8[D]")).astype(np.int64)
    moved = months + counts.astype(np.int64)
    start = moved.astype("M8[D]").astype(np.int64)
    last = (moved + 1).astype("M8[D]").astype(np.int64) - 1
    found: np.ndarray = np.minimum(start + offset, last)
    return found


def _plus_months_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    value, months = arguments
    moved = value if value.type == DATE else implicit(value, TIMESTAMP, name)
    return (moved, implicit(months, INT, name)), moved.type


def _plus_months(arguments: Arguments, type_: pa.DataType) -> Datum:
    if type_ == DATE:
        return _add_months(arguments, type_)
    times, counts = arrays(arguments)
    ticks = numbers(times)
    days = _days_moved(np.floor_divide(ticks, _DAY), numbers(counts))
    fits = np.abs(days) < 2**63 // _DAY - 1
    moved = np.where(fits, days, 0) * _DAY + np.mod(ticks, _DAY)
    return null_unless(fits, from_numbers(moved, type_, times, counts))


def _last_day(arguments: Arguments, type_: pa.DataType) -> Datum:
    (dates,) = arguments
    months = numbers(dates).astype("M8[D]").astype("M8[M]")
    return from_numbers(((months + 1).astype("M8[D]").astype(np.int64) - 1).astype(np.int32), type_, dates)


def _next_day(arguments: Arguments, type_: pa.DataType) -> Datum:
    dates, names = arrays(arguments)

    def number(name: str) -> int | None:
        found = [i for i, day in enumerate(_WEEKDAYS) if len(name) >= 2 and day.startswith(name.upper())]
        return found[0] if found else None

    wanted = over_distinct(number, [names], INT)
    days = numbers(dates)
    # 1970-01-01 was a Thursday, number 3 counted from Monday.
    ahead = (numbers(wanted) - (days + 3)) % 7
    return from_numbers((days + np.where(ahead == 0, 7, ahead)).astype(np.int32), type_, dates, wanted)


def _months_between(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Count whole months when both are the same day of the month or both its last; otherwise 31 days are a month."""
    end, start = arrays(arguments)
    whole, day, last, rest = zip(*(_calendar(a) for a in (end, start)), strict=True)
    months = (whole[0] - whole[1]).astype(np.float64)
    same = (day[0] == day[1]) | (last[0] & last[1])
    fraction = ((day[0] - day[1]) * 86_400 + (rest[0] - rest[1])) / (31 * 86_400)
    exact = np.where(same, months, months + fraction)
    return from_numbers(np.round(exact, 8), type_, end, start)


def _calendar(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (months since 1970, day of the month, whether it is the last, seconds of the day)."""
    ticks = numbers(array)
    days = np.floor_divide(ticks, _DAY).astype("M8[D]")
    months = days.astype("M8[M]")
    day = (days - months.astype("M8[D]")).astype(np.int64) + 1
    last = (days + 1).astype("M8[M]") != months
    return months.astype(np.int64), day, last, (np.mod(ticks, _DAY) // 1_000_000).astype(np.int64)


def _parsing(result: pa.DataType) -> Callable[[str, Sequence[Expression]], Typed]:
    """Return the rule of a function that parses a string by a pattern, or casts without one."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        value = arguments[0]
        if len(arguments) == 1:
            if is_numeric(value.type) and result != TIMESTAMP:
                raise PenstockError("P0203", f"{name} does not take a number")
            target = result if result in (DATE, TIMESTAMP) else TIMESTAMP
            numeric = is_numeric(value.type) and result == TIMESTAMP
            return (value if numeric else implicit(value, target, name),), result
        checked_pattern(name, arguments[1])
        text = value if value.type in (DATE, TIMESTAMP) else implicit(value, STRING, name)
        return (text, implicit(arguments[1], STRING, name)), result

    return rule


def _parse(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Return the time in a string as `type_`: DATE, TIMESTAMP or seconds."""
    value = arguments[0]
    if len(arguments) == 1 or value.type in (DATE, TIMESTAMP):
        if type_ == BIGINT and value.type == DATE:
            value = convert(value, TIMESTAMP)
        return convert(value, type_)
    return convert(_each_pattern(arguments, TIMESTAMP, DatePattern.parse), type_)


def _each_pattern(
    arguments: Arguments, type_: pa.DataType, apply: Callable[[DatePattern, pa.Array], pa.Array]
) -> pa.Array:
    """Apply each row's pattern to its value; NULL where the pattern is invalid."""
    values, patterns = arrays(arguments)
    result = pa.nulls(len(values), type_)
    for text in pc.unique(patterns).to_pylist():
        pattern = DatePattern.find(text)
        if pattern is None:
            continue
        found = apply(pattern, values)
        result = found if is_scalar(arguments[1]) else pc.if_else(pc.equal(patterns, text), found, result)
    return result


def _format_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    checked_pattern(name, arguments[1])
    return (implicit(arguments[0], TIMESTAMP, name), implicit(arguments[1], STRING, name)), STRING


def _format(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _each_pattern(arguments, STRING, DatePattern.format)


def _from_unixtime_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    pattern = arguments[1] if len(arguments) > 1 else Literal(STRING, "yyyy-MM-dd HH:mm:ss")
    checked_pattern(name, pattern)
    return (implicit(arguments[0], BIGINT, name), implicit(pattern, STRING, name)), STRING


def _from_unixtime(arguments: Arguments, type_: pa.DataType) -> Datum:
    seconds, patterns = arrays(arguments)
    pattern = arguments[1] if is_scalar(arguments[1]) else patterns
    return _format((convert(seconds, TIMESTAMP), pattern), type_)


def _make_date(arguments: Arguments, type_: pa.DataType) -> Datum:
    parts = arrays(arguments)
    days, fits = days_from(*(numbers(p).astype(np.int64) for p in parts))
    return null_unless(fits, from_numbers(days.astype(np.int32), DATE, *parts))


def _epoch(per_second: int) -> Kernel:
    """Return a TIMESTAMP as a whole number of units since 1970."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (value,) = arguments
        return from_numbers(np.floor_divide(numbers(value), 1_000_000 // per_second), BIGINT, value)

    return run


def _from_epoch(per_second: int) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (value,) = arguments
        scale = 1_000_000 // per_second
        data = numbers(value)
        fits = np.abs(data // 2) < 2**62 // scale
        return null_unless(fits, from_numbers(data * scale, TIMESTAMP, value))

    return run


def _seconds_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (value,) = arguments
    return (value if is_numeric(value.type) else implicit(value, BIGINT, name),), TIMESTAMP


def _from_seconds(arguments: Arguments, type_: pa.DataType) -> Datum:
    return convert(arguments[0], TIMESTAMP)


_SUNDAY_FIRST = {"count_from_zero": False, "week_start": 7}

FUNCTIONS = (
    Function("YEAR", "time", _temporal(INT), _part(pc.year), "year"),
    Function("QUARTER", "time", _temporal(INT), _part(pc.quarter), "quarter, 1 to 4"),
    Function("MONTH", "time", _temporal(INT), _part(pc.month), "month, 1 to 12"),
    Function("DAY", "time", _temporal(INT), _part(pc.day), "day of the month", ("DAYOFMONTH", "DAY_OF_MONTH")),
    Function(
        "DAYOFWEEK", "time", _temporal(INT), _part(pc.day_of_week, **_SUNDAY_FIRST), "day of the week, Sunday is 1",
        ("DAY_OF_WEEK",),
    ),
    Function("WEEKDAY", "time", _temporal(INT), _part(pc.day_of_week), "day of the week, Monday is 0"),
    Function("DAYOFYEAR", "time", _temporal(INT), _part(pc.day_of_year), "day of the year", ("DAY_OF_YEAR",)),
    Function(
        "WEEKOFYEAR", "time", _temporal(INT), _part(pc.iso_week), "ISO week of the year", ("WEEK", "WEEK_OF_YEAR")
    ),
    Function("HOUR", "time", takes(INT, TIMESTAMP), _part(pc.hour), "hour, 0 to 23"),
    Function("MINUTE", "time", takes(INT, TIMESTAMP), _part(pc.minute), "minute, 0 to 59"),
    Function("SECOND", "time", takes(INT, TIMESTAMP), _part(pc.second), "second, 0 to 59"),
    Function(
        "DATE_TRUNC", "unit, time", _date_trunc_rule, _date_trunc, "start of the YEAR, WEEK, HOUR, ... of a time",
    ),
    Function("TRUNC", "date, unit", _trunc_rule, _trunc, "start of the YEAR, QUARTER, MONTH or WEEK of a date"),
    Function(
        "TO_DATE", "string [, pattern]", _parsing(DATE), _parse, "a DATE read from a string; NULL if malformed",
        ("DATE",),
    ),
    Function(
        "TO_TIMESTAMP", "string [, pattern]", _parsing(TIMESTAMP), _parse,
        "a TIMESTAMP read from a string; NULL if malformed", ("TIMESTAMP",),
    ),
    Function(
        "UNIX_TIMESTAMP", "time [, pattern]", _parsing(BIGINT), _parse,
        "seconds since 1970; there is none of the clock, without a time",
        ("TO_UNIX_TIMESTAMP",),
    ),
    Function(
        "FROM_UNIXTIME", "seconds [, pattern]", _from_unixtime_rule, _from_unixtime, "seconds since 1970 as text"
    ),
    Function("UNIX_SECONDS", "time", takes(BIGINT, TIMESTAMP), _epoch(1), "seconds since 1970"),
    Function("UNIX_MILLIS", "time", takes(BIGINT, TIMESTAMP), _epoch(1_000), "milliseconds since 1970"),
    Function("UNIX_MICROS", "time", takes(BIGINT, TIMESTAMP), _epoch(1_000_000), "microseconds since 1970"),
    Function("TIMESTAMP_SECONDS", "number", _seconds_rule, _from_seconds, "time of seconds since 1970, with fractions"),
    Function("TIMESTAMP_MILLIS", "number", takes(TIMESTAMP, BIGINT), _from_epoch(1_000), "time of ms since 1970"),
    Function("TIMESTAMP_MICROS", "number", takes(TIMESTAMP, BIGINT), _from_epoch(1_000_000), "time of µs since 1970"),
    Function("DATE_ADD", "date, days", takes(DATE, DATE, INT), _days(1), "date moved by days"),
    Function("DATE_SUB", "date, days", takes(DATE, DATE, INT), _days(-1), "date moved back by days"),
    Function(
        "DATEDIFF", "end, start", takes(INT, DATE, DATE), _date_difference, "days from start to end", ("DATE_DIFF",)
    ),
    Function(
        "ADD_MONTHS", "date, months", takes(DATE, DATE, INT), _add_months, "date moved by months"
    ),
    Function(
        "PLUS_MONTHS", "time, months", _plus_months_rule, _plus_months,
        "a date or time moved by months, to the last day of a month that has no such day",
        operator="time + INTERVAL n MONTH",
    ),
    Function("MONTHS_BETWEEN", "end, start", takes(DOUBLE, TIMESTAMP), _months_between, "months from start to end"),
    Function("LAST_DAY", "date", takes(DATE, DATE), _last_day, "last day of the month"),
    Function("NEXT_DAY", "date, weekday", takes(DATE, DATE, STRING), _next_day, "next such weekday after a date"),
    Function("MAKE_DATE", "year, month, day", takes(DATE, INT), _make_date, "a DATE of its parts"),
    Function(
        "DATE_FORMAT", "time, pattern", _format_rule, _format, "text by a pattern such as yyyy-MM-dd HH:mm:ss"
    ),
)  # fmt: skip
