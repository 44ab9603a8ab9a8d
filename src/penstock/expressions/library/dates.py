"""Dates and times, in UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError, nearest
from penstock.expressions.coercion import (
    BIGINT,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    implicit,
    is_numeric,
    is_temporal,
    misfit,
)
from penstock.expressions.library.date_patterns import DatePattern, checked_pattern
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.values import gregorian
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import (
    Arguments,
    Datum,
    Kernel,
    arrays,
    choose,
    from_numbers,
    is_scalar,
    length_of,
    null_unless,
    null_where_any,
    numbers,
    over_distinct,
    to_array,
)
from penstock.expressions.values.zones import checked_zone, shifted
from penstock.time_zones import Zone
from penstock.types import TIMESTAMP, WALL_CLOCK

Typed = tuple[tuple[Expression, ...], pa.DataType]

_UNITS = {
    "YEAR": "year",
    "YYYY": "year",
    "YY": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "MM": "month",
    "MON": "month",
    "WEEK": "week",
    "DAY": "day",
    "DD": "day",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
    "MILLISECOND": "millisecond",
    "MICROSECOND": "microsecond",
}
#: Units that are parts of a day.
_OF_DAY = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def _temporal(result: pa.DataType) -> Callable[[str, Sequence[Expression]], Typed]:
    """Return the rule of a function of a DATE or TIMESTAMP (or a string that becomes a TIMESTAMP)."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        (value,) = arguments
        return (_time(value, name),), result

    return rule


def _time(value: Expression, name: str) -> Expression:
    """Return a DATE or a TIMESTAMP_NTZ as it is, and what else is a time as a TIMESTAMP."""
    return value if value.type in (DATE, WALL_CLOCK) else implicit(value, TIMESTAMP, name)


def _field(name: str) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return gregorian.field(arguments[0], name)

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
    unit, value, *zone = arguments
    if is_temporal(unit.type) and isinstance(value, Literal) and str(value.value).upper() in _UNITS:
        raise misfit(name, [unit.type, value.type], f"the unit comes first: {name}('{value.value}', ..)")
    _unit(name, unit)
    if zone:
        checked_zone(zone[0])
        return (
            implicit(unit, STRING, name),
            implicit(value, TIMESTAMP, name),
            implicit(zone[0], STRING, name),
        ), TIMESTAMP
    time = value if value.type == WALL_CLOCK else implicit(value, TIMESTAMP, name)
    return (implicit(unit, STRING, name), time), time.type


def _trunc_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    value, unit = arguments
    if is_numeric(value.type):
        raise misfit(name, [value.type, unit.type], "FLOOR(x), CEIL(x) and ROUND(x, 2) are of numbers")
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
        start = gregorian.truncated(values, kind)
        result = pc.if_else(pc.fill_null(pc.equal(units, name), False), start, result)
    return result


def _date_trunc(arguments: Arguments, type_: pa.DataType) -> Datum:
    unit, value, *zone = arguments
    if not zone:
        return _truncate(value, unit, type_)
    times = to_array(value, length_of(arguments))
    clocks = shifted(times, zone[0], Zone.offset_at, WALL_CLOCK)
    starts = _truncate(clocks, unit, WALL_CLOCK)
    # A day begins at the instant that its clock shows; an hour that exists twice begins twice, with the offset of each.
    days = shifted(starts, zone[0], lambda of, wall_clock: -of.offset_of_local(wall_clock), TIMESTAMP)
    passed = numbers(clocks) - numbers(starts)
    within = null_where_any(gregorian.moved_back(times, passed), starts)
    of_day = pc.is_in(pc.utf8_upper(unit), value_set=pa.array(_OF_DAY))
    if is_scalar(of_day):
        return within if of_day.as_py() else days
    return choose(of_day, within, days)


def _trunc(arguments: Arguments, type_: pa.DataType) -> Datum:
    return _truncate(arguments[0], arguments[1], type_)


def _days(sign: int) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        moved, counts = arrays(arguments)
        return gregorian.dates(gregorian.days_of(moved) + sign * numbers(counts).astype(np.int64), moved, counts)

    return run


def _date_difference(arguments: Arguments, type_: pa.DataType) -> Datum:
    end, start = arrays(arguments)
    days = gregorian.days_of(end) - gregorian.days_of(start)
    fits = days == days.astype(np.int32)
    return null_unless(fits, from_numbers(days.astype(np.int32), type_, end, start))


def _plus_months(arguments: Arguments, type_: pa.DataType) -> Datum:
    times, counts = arrays(arguments)
    days = gregorian.moved_by_months(gregorian.days_of(times), numbers(counts))
    if type_ == DATE:
        return gregorian.dates(days, times, counts)
    return gregorian.timestamps(days, gregorian.clock_of(times), times, counts).view(type_)


def _plus_months_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    value, months = arguments
    moved = _time(value, name)
    return (moved, implicit(months, INT, name)), moved.type


def _last_day(arguments: Arguments, type_: pa.DataType) -> Datum:
    (value,) = arguments
    months = gregorian.months_of(gregorian.days_of(value))
    return gregorian.dates(gregorian.start_of_month(months + 1) - 1, value)


def _next_day(arguments: Arguments, type_: pa.DataType) -> Datum:
    dates, names = arrays(arguments)

    def number(name: str) -> int | None:
        found = [i for i, day in enumerate(_WEEKDAYS) if len(name) >= 2 and day.startswith(name.upper())]
        return found[0] if found else None

    weekday = over_distinct(number, [names], INT)
    days = gregorian.days_of(dates)
    ahead = (numbers(weekday) - gregorian.day_of_week(days)) % 7
    return gregorian.dates(days + np.where(ahead == 0, 7, ahead), dates, weekday)


def _months_between_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    """Compare dates as they are, because some are beyond the range of TIMESTAMP."""
    both = all(argument.type == DATE for argument in arguments)
    time = WALL_CLOCK if any(argument.type == WALL_CLOCK for argument in arguments) else TIMESTAMP
    end, start = arguments if both else (implicit(argument, time, name) for argument in arguments)
    return (end, start), DOUBLE


def _months_between(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Count whole months when both are the same day of the month or both its last; otherwise 31 days are a month."""
    end, start = arrays(arguments)
    whole, day, last, rest = zip(*(_calendar(a) for a in (end, start)), strict=True)
    months = (whole[0] - whole[1]).astype(np.float64)
    same = (day[0] == day[1]) | (last[0] & last[1])
    fraction = ((day[0] - day[1]) * 86_400 + (rest[0] - rest[1])) / (31 * 86_400)
    exact = np.where(same, months, months + fraction)
    # Doubles beyond this size have no eighth decimal; rounding would change them.
    rounded = np.where(np.abs(exact) < 2.0**53 / 1e8, np.round(exact, 8), exact)
    return from_numbers(rounded, type_, end, start)


def _calendar(array: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (months since 1970, day of the month, whether it is the last, seconds of the day)."""
    days = gregorian.days_of(array)
    months = gregorian.months_of(days)
    day = days - gregorian.start_of_month(months) + 1
    last = days + 1 == gregorian.start_of_month(months + 1)
    return months, day, last, gregorian.clock_of(array) // 1_000_000


def _parsing(result: pa.DataType) -> Callable[[str, Sequence[Expression]], Typed]:
    """Return the rule of a function that parses a string by a pattern, or casts without one."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        value = arguments[0]
        if len(arguments) == 1:
            if is_numeric(value.type) and result != TIMESTAMP:
                raise PenstockError("P0203", f"{name} does not take a number")
            target = result if result in (DATE, TIMESTAMP) else TIMESTAMP
            # Seconds of a date exist beyond the range of TIMESTAMP.
            stays = result == TIMESTAMP if is_numeric(value.type) else (value.type, result) == (DATE, BIGINT)
            return (value if stays else implicit(value, target, name),), result
        checked_pattern(name, arguments[1])
        text = value if value.type in (DATE, TIMESTAMP) else implicit(value, STRING, name)
        return (text, implicit(arguments[1], STRING, name)), result

    return rule


def _parse(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Return the time in a string as `type_`: DATE, TIMESTAMP or seconds."""
    value = arguments[0]
    if len(arguments) == 1 or value.type in (DATE, TIMESTAMP):
        if type_ == BIGINT and value.type == DATE:
            return from_numbers(gregorian.days_of(value) * 86_400, BIGINT, value)
        return convert(value, type_)
    return _each_pattern(arguments, type_, lambda pattern, texts: pattern.parse(texts, type_))


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
    return (_time(arguments[0], name), implicit(arguments[1], STRING, name)), STRING


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


#: How many months are one of these units, and how many microseconds one of the others.
_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
_TICKS_OF = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": gregorian.DAY,
    "week": 7 * gregorian.DAY,
}


def _of_unit(result: pa.DataType, *parameters: pa.DataType) -> Callable[[str, Sequence[Expression]], Typed]:
    """Return the rule of a function whose first argument is a unit, written as a word or a text."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        if not isinstance(arguments[0], Literal):
            raise PenstockError("P0203", f"the unit of {name} is a word, such as HOUR")
        _unit(name, arguments[0])
        return takes(result, STRING, *parameters)(name, arguments)

    return rule


def _by_unit(run: Callable[[str, pa.Array, pa.Array], pa.Array]) -> Kernel:
    """Return the kernel of a function whose first argument is a unit; NULL for NULL."""

    def kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
        units, first, second = arrays(arguments)
        unit = units[0].as_py() if len(units) else None
        return pa.nulls(len(units), type_) if unit is None else run(_UNITS[unit.upper()], first, second)

    return kernel


def _moved_by_units(kind: str, counts: pa.Array, times: pa.Array) -> pa.Array:
    days, clock, count = gregorian.days_of(times), gregorian.clock_of(times), numbers(counts).astype(np.int64)
    if kind in _MONTHS_OF:
        return gregorian.timestamps(gregorian.moved_by_months(days, count * _MONTHS_OF[kind]), clock, times, counts)
    size = _TICKS_OF[kind]
    if size % gregorian.DAY == 0:
        return gregorian.timestamps(days + count * (size // gregorian.DAY), clock, times, counts)
    a_day = gregorian.DAY // size
    clock = clock + count % a_day * size
    return gregorian.timestamps(days + count // a_day + clock // gregorian.DAY, clock % gregorian.DAY, times, counts)


def _apart(kind: str, start: pa.Array, end: pa.Array) -> pa.Array:
    """Return the whole units from the first time to the second, rounded towards zero."""
    days = gregorian.days_of(end) - gregorian.days_of(start)
    clock = gregorian.clock_of(end) - gregorian.clock_of(start)
    # A day that is not whole is none.
    step = np.where((days > 0) & (clock < 0), -1, np.where((days < 0) & (clock > 0), 1, 0))
    if kind in _MONTHS_OF:
        first, first_day = _month_and_day(gregorian.days_of(start))
        last, last_day = _month_and_day(gregorian.days_of(end) + step)
        # A month that is not whole is none, whatever number of days it has.
        months = _towards_zero((last - first) * 32 + last_day - first_day, 32)
        return from_numbers(_towards_zero(months, _MONTHS_OF[kind]), BIGINT, start, end)
    size = _TICKS_OF[kind]
    days, clock = days + step, clock - step * gregorian.DAY
    if size >= gregorian.DAY:
        return from_numbers(_towards_zero(days, size // gregorian.DAY), BIGINT, start, end)
    found = days * (gregorian.DAY // size) + _towards_zero(clock, size)
    # Only microseconds may be beyond 64 bits.
    fits = np.abs(days) < 2**63 // gregorian.DAY if size == 1 else np.ones(len(found), np.bool_)
    return null_unless(fits, from_numbers(found, BIGINT, start, end))


def _month_and_day(days: gregorian.Integers) -> tuple[gregorian.Integers, gregorian.Integers]:
    months = gregorian.months_of(days)
    return months, days - gregorian.start_of_month(months)


def _towards_zero(count: gregorian.Integers, size: int) -> gregorian.Integers:
    found: gregorian.Integers = np.sign(count) * (np.abs(count) // size)
    return found


def _bin(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Return the start of the stretch of a length, counted from an origin, in which a time lies."""
    parts = arrays(arguments)
    length, time = numbers(parts[0]), numbers(parts[1])
    origin = numbers(parts[2]) if len(parts) > 2 else np.zeros(len(time), np.int64)
    size = np.maximum(length, 1)
    start = time - (time % size - origin % size) % size
    return null_unless((length > 0) & (start <= time), from_numbers(start, type_, *parts))


def _make_date(arguments: Arguments, type_: pa.DataType) -> Datum:
    parts = arrays(arguments)
    days, exists = gregorian.days_from(*(numbers(p).astype(np.int64) for p in parts))
    return null_unless(exists, gregorian.dates(days, *parts))


def _epoch(per_second: int) -> Kernel:
    """Return a TIMESTAMP as a whole number of units since 1970."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (value,) = arguments
        return from_numbers(np.floor_divide(numbers(value), 1_000_000 // per_second), BIGINT, value)

    return run


def _from_epoch(per_second: int) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (value,) = arguments
        return gregorian.scaled(numbers(value), 1_000_000 // per_second, 0, TIMESTAMP, value)

    return run


def _seconds_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (value,) = arguments
    return (value if is_numeric(value.type) else implicit(value, BIGINT, name),), TIMESTAMP


def _from_seconds(arguments: Arguments, type_: pa.DataType) -> Datum:
    return convert(arguments[0], TIMESTAMP)


def _has_no_zone(arguments: Sequence[Expression]) -> bool:
    # In a zone clocks are put back, and days have come twice.
    return len(arguments) == 2


def _is_of_time(arguments: Sequence[Expression]) -> bool:
    """Return whether the first argument is no text."""
    return arguments[0].type in (DATE, TIMESTAMP)


FUNCTIONS = (
    Function("YEAR", "time", _temporal(INT), _field("year"), "year", rises_with=0),
    Function("QUARTER", "time", _temporal(INT), _field("quarter"), "quarter, 1 to 4"),
    Function("MONTH", "time", _temporal(INT), _field("month"), "month, 1 to 12"),
    Function("DAY", "time", _temporal(INT), _field("day"), "day of the month", ("DAYOFMONTH", "DAY_OF_MONTH")),
    Function(
        "DAYOFWEEK", "time", _temporal(INT), _field("day of week from Sunday"),
        "day of the week, Sunday is 1", ("DAY_OF_WEEK",),
    ),
    Function("WEEKDAY", "time", _temporal(INT), _field("day of week"), "day of the week, Monday is 0"),
    Function("DAYOFYEAR", "time", _temporal(INT), _field("day of year"), "day of the year", ("DAY_OF_YEAR",)),
    Function(
        "WEEKOFYEAR", "time", _temporal(INT), _field("iso week"), "ISO week of the year",
        ("WEEK", "WEEK_OF_YEAR"),
    ),
    Function("HOUR", "time", _temporal(INT), _field("hour"), "hour, 0 to 23"),
    Function("MINUTE", "time", _temporal(INT), _field("minute"), "minute, 0 to 59"),
    Function("SECOND", "time", _temporal(INT), _field("second"), "second, 0 to 59"),
    Function(
        "DATE_TRUNC", "unit, time [, zone]", _date_trunc_rule, _date_trunc,
        "start of the YEAR, WEEK, HOUR, ... of a time, as clocks of the zone show them",
        rises_with=1, rises_if=_has_no_zone,
    ),
    Function(
        "DATE_BIN", "length, time [, origin]", takes(TIMESTAMP, DURATION, TIMESTAMP), _bin,
        "start of the stretch of a length in which a time lies, counted from the origin, 1970 without it", rises_with=1,
    ),
    Function(
        "TIMESTAMPADD", "unit, count, time", _of_unit(TIMESTAMP, INT, TIMESTAMP), _by_unit(_moved_by_units),
        "time moved by a number of a unit such as HOUR, months by the calendar", ("TIMESTAMP_ADD",),
    ),
    Function(
        "TIMESTAMPDIFF", "unit, start, end", _of_unit(BIGINT, TIMESTAMP, TIMESTAMP), _by_unit(_apart),
        "whole units, such as HOUR, from start to end", ("TIMESTAMP_DIFF",),
    ),
    Function(
        "TRUNC", "date, unit", _trunc_rule, _trunc, "start of the YEAR, QUARTER, MONTH or WEEK of a date",
        rises_with=0,
    ),
    Function(
        "TO_DATE", "string [, pattern]", _parsing(DATE), _parse, "a DATE read from a string; NULL if malformed",
        ("DATE",), rises_with=0, rises_if=_is_of_time,
    ),
    Function(
        "TO_TIMESTAMP", "string [, pattern]", _parsing(TIMESTAMP), _parse,
        "a TIMESTAMP read from a string; NULL if malformed", ("TIMESTAMP",),
    ),
    Function(
        "UNIX_TIMESTAMP", "time [, pattern]", _parsing(BIGINT), _parse,
        "seconds since 1970; there is none of the clock, without a time",
        ("TO_UNIX_TIMESTAMP",), rises_with=0, rises_if=_is_of_time,
    ),
    Function(
        "FROM_UNIXTIME", "seconds [, pattern]", _from_unixtime_rule, _from_unixtime, "seconds since 1970 as text"
    ),
    Function("UNIX_SECONDS", "time", takes(BIGINT, TIMESTAMP), _epoch(1), "seconds since 1970", rises_with=0),
    Function("UNIX_MILLIS", "time", takes(BIGINT, TIMESTAMP), _epoch(1_000), "milliseconds since 1970", rises_with=0),
    Function(
        "UNIX_MICROS", "time", takes(BIGINT, TIMESTAMP), _epoch(1_000_000), "microseconds since 1970", rises_with=0
    ),
    Function(
        "TIMESTAMP_SECONDS", "number", _seconds_rule, _from_seconds,
        "time of seconds since 1970, with fractions", rises_with=0,
    ),
    Function(
        "TIMESTAMP_MILLIS", "number", takes(TIMESTAMP, BIGINT), _from_epoch(1_000),
        "time of ms since 1970", rises_with=0,
    ),
    Function(
        "TIMESTAMP_MICROS", "number", takes(TIMESTAMP, BIGINT), _from_epoch(1_000_000),
        "time of µs since 1970", rises_with=0,
    ),
    Function("DATE_ADD", "date, days", takes(DATE, DATE, INT), _days(1), "date moved by days"),
    Function("DATE_SUB", "date, days", takes(DATE, DATE, INT), _days(-1), "date moved back by days"),
    Function(
        "DATEDIFF", "end, start", takes(INT, DATE, DATE), _date_difference, "days from start to end", ("DATE_DIFF",)
    ),
    Function(
        "ADD_MONTHS", "date, months", takes(DATE, DATE, INT), _plus_months, "date moved by months"
    ),
    Function(
        "PLUS_MONTHS", "time, months", _plus_months_rule, _plus_months,
        "a date or time moved by months, to the last day of a month that has no such day",
        operator="time + INTERVAL n MONTH",
    ),
    Function("MONTHS_BETWEEN", "end, start", _months_between_rule, _months_between, "months from start to end"),
    Function("LAST_DAY", "date", takes(DATE, DATE), _last_day, "last day of the month"),
    Function("NEXT_DAY", "date, weekday", takes(DATE, DATE, STRING), _next_day, "next such weekday after a date"),
    Function("MAKE_DATE", "year, month, day", takes(DATE, INT), _make_date, "a DATE of its parts"),
    Function(
        "DATE_FORMAT", "time, pattern", _format_rule, _format, "text by a pattern such as yyyy-MM-dd HH:mm:ss"
    ),
)  # fmt: skip
