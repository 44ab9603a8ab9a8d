"""Functions of dates and times computed a second way: row by row, with Python's integers and without Arrow.

Contract: `evaluate_apart` returns what `evaluate` returns. The calendar repeats itself after 400 years, a whole number
of weeks, so any date is a date of Python's in the years 2000 to 2399 and a number of such cycles.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import BIGINT, DATE, DURATION, INT, is_integer
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.nodes import Call, Cast, Column, Expression
from penstock.tree import Node, transform_up
from penstock.types import TIMESTAMP, WALL_CLOCK

_DAY = 86_400_000_000
_FIRST = dt.date(2000, 1, 1)
_FIRST_DAY = (_FIRST - dt.date(1970, 1, 1)).days
_CYCLE = 146_097
_WEEKDAYS = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")
_CLOCK = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1}


class CalendarTime(NamedTuple):
    """A date or a time: days since 1970-01-01, and microseconds since midnight."""

    days: int
    clock: int = 0

    @property
    def ticks(self) -> int:
        return self.days * _DAY + self.clock

    @property
    def year(self) -> int:
        return self.in_cycle.year + 400 * ((self.days - _FIRST_DAY) // _CYCLE)

    @property
    def in_cycle(self) -> dt.date:
        """The date of the same month, day and weekday in the years 2000 to 2399."""
        return _FIRST + dt.timedelta(days=(self.days - _FIRST_DAY) % _CYCLE)

    @property
    def months(self) -> int:
        """Months since the year 0."""
        return 12 * self.year + self.in_cycle.month - 1

    @property
    def ends_month(self) -> bool:
        return CalendarTime(self.days + 1).in_cycle.day == 1


def day_from(year: int, month: int, day: int) -> CalendarTime | None:
    """Return the date of these parts, None if there is none."""
    cycles, in_cycle = divmod(year - 2000, 400)
    try:
        return CalendarTime((dt.date(2000 + in_cycle, month, day) - _FIRST).days + _FIRST_DAY + cycles * _CYCLE)
    except (ValueError, OverflowError):
        return None


def _first_of(months: int) -> CalendarTime:
    found = day_from(months // 12, months % 12 + 1, 1)
    assert found is not None
    return found


def _moved(at: CalendarTime, months: int) -> CalendarTime:
    target = at.months + months
    last = _first_of(target + 1).days - 1
    return CalendarTime(min(_first_of(target).days + at.in_cycle.day - 1, last), at.clock)


def _start(at: CalendarTime, unit: str) -> CalendarTime | None:
    unit = unit.upper()
    size = {"YEAR": 12, "YYYY": 12, "YY": 12, "QUARTER": 3, "MONTH": 1, "MM": 1, "MON": 1}.get(unit)
    if size is not None:
        return _first_of(at.months // size * size)
    if unit == "WEEK":
        return CalendarTime(at.days - at.in_cycle.weekday())
    if unit in ("DAY", "DD"):
        return CalendarTime(at.days)
    return CalendarTime(at.days, at.clock // _CLOCK[unit] * _CLOCK[unit]) if unit in _CLOCK else None


def _start_in(at: CalendarTime, unit: str, name: str) -> CalendarTime | None:
    """Return the start of a unit of the clock of a zone. Parts of a day begin with the offset of the time itself."""
    clock = _to_zone(at, name)
    start = None if clock is None else _start(clock, unit)
    if clock is None or start is None:
        return None
    return _instant(at.ticks - (clock.ticks - start.ticks)) if unit.upper() in _CLOCK else _from_zone(start, name)


def _start_of_day(at: CalendarTime, unit: str) -> CalendarTime | None:
    return None if unit.upper() in ("DAY", "DD", *_CLOCK) else _start(at, unit)


def _next(at: CalendarTime, name: str) -> CalendarTime | None:
    numbers = [i for i, day in enumerate(_WEEKDAYS) if len(name) >= 2 and day.startswith(name.upper())]
    return CalendarTime(at.days + ((numbers[0] - at.in_cycle.weekday() - 1) % 7) + 1) if numbers else None


def _months_between(end: CalendarTime, start: CalendarTime) -> float:
    months = float(end.months - start.months)
    if end.in_cycle.day == start.in_cycle.day or (end.ends_month and start.ends_month):
        return months
    seconds = (end.in_cycle.day - start.in_cycle.day) * 86_400 + end.clock // 1_000_000 - start.clock // 1_000_000
    exact = months + seconds / (31 * 86_400)
    return round(exact * 1e8) / 1e8 if abs(exact) < 2.0**53 / 1e8 else exact


def _instant(ticks: int) -> CalendarTime:
    return CalendarTime(*divmod(ticks, _DAY))


def _plus(sign: int) -> Callable[[Any, Any], Any]:
    def run(left: Any, right: Any) -> Any:
        if isinstance(left, CalendarTime) and isinstance(right, CalendarTime):
            return left.ticks - right.ticks
        return _instant(left.ticks + sign * right) if isinstance(left, CalendarTime) else left + sign * right

    return run


def _plus_days(sign: int) -> Callable[[CalendarTime, int], CalendarTime]:
    return lambda at, days: CalendarTime(at.days + sign * days, at.clock)


@cache
def _zone(name: str) -> dt.tzinfo | None:
    """Return Python's zone of a name, over the data that kernels read; None where there is none."""
    listed = {known.lower(): known for known in (files("tzdata") / "zones").read_text(encoding="utf-8").split()}
    key = listed.get(name.lower())
    try:
        if key is None:
            return dt.datetime.strptime(name, "%z").tzinfo
    except ValueError:
        return None
    with (files("tzdata") / "zoneinfo").joinpath(*key.split("/")).open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file, key)


def _near(at: CalendarTime) -> dt.datetime:
    """Return a time of the years 2 to 9998 at which zones do what they do at this one: before, nothing changes; behind,
    their rules repeat after 400 years."""
    cycles = max(0, -((9998 - at.year) // 400))
    days = at.days - cycles * _CYCLE if at.year > 1 else (dt.date(2, 1, 1) - dt.date(1970, 1, 1)).days
    return dt.datetime(1970, 1, 1) + dt.timedelta(days=days, microseconds=at.clock)


def _to_zone(at: CalendarTime, name: str) -> CalendarTime | None:
    zone = _zone(name)
    if zone is None:
        return None
    offset = _near(at).replace(tzinfo=dt.UTC).astimezone(zone).utcoffset()
    return _instant(at.ticks + (offset or dt.timedelta()) // dt.timedelta(microseconds=1))


def _from_zone(at: CalendarTime, name: str) -> CalendarTime | None:
    zone = _zone(name)
    if zone is None:
        return None
    offset = _near(at).replace(tzinfo=zone).utcoffset()
    return _instant(at.ticks - (offset or dt.timedelta()) // dt.timedelta(microseconds=1))


#: What each function computes of values that are not NULL.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "YEAR": lambda at: at.year,
    "QUARTER": lambda at: (at.in_cycle.month + 2) // 3,
    "MONTH": lambda at: at.in_cycle.month,
    "DAY": lambda at: at.in_cycle.day,
    "DAYOFWEEK": lambda at: at.in_cycle.isoweekday() % 7 + 1,
    "WEEKDAY": lambda at: at.in_cycle.weekday(),
    "DAYOFYEAR": lambda at: at.in_cycle.timetuple().tm_yday,
    "WEEKOFYEAR": lambda at: at.in_cycle.isocalendar().week,
    "HOUR": lambda at: at.clock // _CLOCK["HOUR"],
    "MINUTE": lambda at: at.clock // _CLOCK["MINUTE"] % 60,
    "SECOND": lambda at: at.clock // _CLOCK["SECOND"] % 60,
    "DATE_TRUNC": lambda unit, at, *zone: _start_in(at, unit, *zone) if zone else _start(at, unit),
    "TRUNC": _start_of_day,
    "UNIX_SECONDS": lambda at: at.ticks // 1_000_000,
    "UNIX_MILLIS": lambda at: at.ticks // 1_000,
    "UNIX_MICROS": lambda at: at.ticks,
    "TIMESTAMP_MILLIS": lambda number: _instant(number * 1_000),
    "TIMESTAMP_MICROS": _instant,
    "DATE_ADD": _plus_days(1),
    "DATE_SUB": _plus_days(-1),
    "DATEDIFF": lambda end, start: end.days - start.days,
    "ADD_MONTHS": _moved,
    "PLUS_MONTHS": _moved,
    "MONTHS_BETWEEN": _months_between,
    "LAST_DAY": lambda at: CalendarTime(_first_of(at.months + 1).days - 1),
    "NEXT_DAY": _next,
    "MAKE_DATE": day_from,
    "FROM_UTC_TIMESTAMP": _to_zone,
    "TO_UTC_TIMESTAMP": _from_zone,
    "CONVERT_TIMEZONE": lambda source, target, at: (
        None if (instant := _from_zone(at, source)) is None else _to_zone(instant, target)
    ),
}
#: Operators, where one of their types is a date, a time or an interval.
_OPERATORS: dict[str, Callable[..., Any]] = {
    "ADD": _plus(1),
    "SUB": _plus(-1),
    "MUL": lambda length, number: length * number,
    "NEG": lambda length: -length,
    "ABS": abs,
}
_TEMPORAL = (DATE, TIMESTAMP, WALL_CLOCK, DURATION)
_RAW = {DATE: INT, TIMESTAMP: BIGINT, WALL_CLOCK: BIGINT, DURATION: BIGINT}


def evaluate_apart(expression: Expression, columns: Sequence[pa.Array], length: int) -> pa.Array:
    """Return the values of `expression`, functions of dates and times computed by this module."""
    if volatile(expression):
        return evaluate(expression, columns, length)
    known = list(columns)

    def replaced(node: Node) -> Node:
        function = _function(node)
        if function is None:
            return node
        assert isinstance(node, Call | Cast)
        arguments = node.arguments if isinstance(node, Call) else (node.argument,)
        values = [_decoded(evaluate(argument, known, length)) for argument in arguments]
        results = [None if None in row else function(*row) for row in zip(*values, strict=True)]
        known.append(_encoded(results, node.type))
        return Column(node.type, len(known) - 1)

    return evaluate(transform_up(expression, replaced), known, length)


def _function(node: Node) -> Callable[..., Any] | None:
    """Return what `node` computes, None if this module does not know it."""
    if isinstance(node, Cast):
        types = (node.argument.type, node.type)
        if all(type_ in (DATE, TIMESTAMP, WALL_CLOCK) for type_ in types):
            return lambda at: CalendarTime(at.days, 0 if node.type == DATE else at.clock)
        return (lambda n: _instant(n * 1_000_000)) if is_integer(types[0]) and types[1] == TIMESTAMP else None
    if not isinstance(node, Call):
        return None
    if node.function in _OPERATORS and node.type in _TEMPORAL:
        days = node.type == DATE and len(node.arguments) == 2 and is_integer(node.arguments[1].type)
        return _plus_days(1 if node.function == "ADD" else -1) if days else _OPERATORS[node.function]
    if node.function == "AT_TIME_ZONE":
        return _from_zone if node.type == TIMESTAMP else _to_zone
    return _FUNCTIONS.get(node.function)


def _decoded(values: pa.Array) -> list[Any]:
    if values.type not in _RAW:
        return list(values.to_pylist())
    raw = values.cast(_RAW[values.type]).to_pylist()
    if values.type == DURATION:
        return list(raw)
    of = CalendarTime if values.type == DATE else _instant
    return [None if number is None else of(number) for number in raw]


def _encoded(results: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return `results` as a column, NULL where `type_` cannot hold one."""
    if type_ == DATE:
        results = [result and result.days for result in results]
    elif type_ in (TIMESTAMP, WALL_CLOCK):
        results = [result and result.ticks for result in results]
    raw = _RAW.get(type_, type_)
    if is_integer(raw):
        size = 1 << (raw.bit_width - 1)
        results = [result if result is not None and -size <= result < size else None for result in results]
    return pa.array(results, raw).cast(type_)
