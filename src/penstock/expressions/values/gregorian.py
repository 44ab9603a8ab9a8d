"""The calendar over whole columns: fields of dates and timestamps, and the days and microseconds of fields.

Contract: the Gregorian calendar is counted on both ways, before the year 1 come the years 0, -1 and so on. Every
function is exact over all dates (int32 days) and all timestamps (int64 microseconds): Arrow's kernels compute with
years of 16 bits, NumPy's conversions between days, months and years are exact over int64. What a type cannot hold is
NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import DATE, INT
from penstock.expressions.values.datum import Datum, from_numbers, null_unless, numbers
from penstock.types import TIMESTAMP, WALL_CLOCK

Integers: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

DAY = 86_400_000_000
SECOND = 1_000_000
#: Days from 1970 up to which Arrow's kernels are exact, some 27,000 years: its years have 16 bits.
_NEAR = 10_000_000
_CLOCK = {"hour": 3_600 * SECOND, "minute": 60 * SECOND, "second": SECOND, "millisecond": 1_000, "microsecond": 1}


def is_near(array: pa.Array) -> bool:
    """Return whether Arrow's calendar kernels are exact over all dates or timestamps of `array`."""
    is_date = array.type == DATE
    span = pc.min_max(array.view(pa.int32() if is_date else pa.int64())).as_py()
    limit = _NEAR if is_date else _NEAR * DAY
    return span["min"] is None or (-limit <= span["min"] and span["max"] <= limit)


def days_of(array: pa.Array) -> Integers:
    """Return the days from 1970-01-01 to each date or timestamp, rounded down; arbitrary at NULL rows."""
    found: Integers = numbers(array).astype(np.int64)
    return found if array.type == DATE else found // DAY


def clock_of(array: pa.Array) -> Integers:
    """Return the microseconds since midnight of each date or timestamp; arbitrary at NULL rows."""
    if array.type == DATE:
        return np.zeros(len(array), np.int64)
    found: Integers = numbers(array) % DAY
    return found


def months_of(days: Integers) -> Integers:
    """Return the months from January 1970 to the months of `days`."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def start_of_month(months: Integers) -> Integers:
    """Return the days from 1970-01-01 to the first day of each month, counted from January 1970."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def day_of_week(days: Integers) -> Integers:
    """Return the day of the week, Monday is 0: 1970-01-01 was a Thursday."""
    return (days + 3) % 7


def _day_of_year(days: Integers) -> Integers:
    return days - days.astype("M8[D]").astype("M8[Y]").astype("M8[D]").astype(np.int64) + 1


def _iso_week(days: Integers) -> Integers:
    """Return the ISO week: a week belongs to the year of its Thursday."""
    return (_day_of_year(days - day_of_week(days) + 3) - 1) // 7 + 1


#: Fields of a day: (Arrow's kernel, the same from days).
_DAY_FIELDS: dict[str, tuple[Callable[[pa.Array], pa.Array], Callable[[Integers], Integers]]] = {
    "year": (pc.year, lambda days: months_of(days) // 12 + 1970),
    "quarter": (pc.quarter, lambda days: months_of(days) % 12 // 3 + 1),
    "month": (pc.month, lambda days: months_of(days) % 12 + 1),
    "day": (pc.day, lambda days: days - start_of_month(months_of(days)) + 1),
    "day of week": (pc.day_of_week, day_of_week),
    "day of week from Sunday": (
        lambda days: pc.day_of_week(days, count_from_zero=False, week_start=7),
        lambda days: (days + 4) % 7 + 1,
    ),
    "day of year": (pc.day_of_year, _day_of_year),
    "iso week": (pc.iso_week, _iso_week),
}
#: Fields of the time of day: (Arrow's kernel, the same from microseconds since midnight).
_CLOCK_FIELDS: dict[str, tuple[Callable[[pa.Array], pa.Array], Callable[[Integers], Integers]]] = {
    "hour": (pc.hour, lambda clock: clock // (3_600 * SECOND)),
    "minute": (pc.minute, lambda clock: clock // (60 * SECOND) % 60),
    "second": (pc.second, lambda clock: clock // SECOND % 60),
}


def field(array: pa.Array, name: str) -> pa.Array:
    """Return one field of each date or timestamp as INT; days of the week count from Monday as 0, or Sunday as 1."""
    if name in _DAY_FIELDS:
        near, exact = _DAY_FIELDS[name]
        if is_near(array):
            return near(_naive(array)).cast(INT)
        return from_numbers(exact(days_of(array)).astype(np.int32), INT, array)
    near, exact = _CLOCK_FIELDS[name]
    if array.type == DATE:
        return from_numbers(np.zeros(len(array), np.int32), INT, array)
    if is_near(array):
        return near(_naive(array)).cast(INT)
    return from_numbers(exact(clock_of(array)).astype(np.int32), INT, array)


def _naive(array: pa.Array) -> pa.Array:
    """Return a TIMESTAMP column without its zone, over the same bits: kernels then need no time zone database."""
    return array.view(WALL_CLOCK) if array.type == TIMESTAMP else array


def truncated(array: pa.Array, unit: str) -> pa.Array:
    """Return the start of the year, quarter, month, week, day, hour, ... of each date or timestamp, in its type."""
    if is_near(array):
        return pc.floor_temporal(_naive(array), unit=unit).view(array.type)
    days, clock = days_of(array), clock_of(array)
    if unit in _CLOCK:
        return timestamps(days, clock - clock % _CLOCK[unit], array).view(array.type)
    if unit == "week":
        days = days - day_of_week(days)
    elif unit != "day":
        size = {"year": 12, "quarter": 3, "month": 1}[unit]
        months = months_of(days)
        days = start_of_month(months - months % size)
    return dates(days, array) if array.type == DATE else timestamps(days, np.zeros_like(clock), array).view(array.type)


def moved_by_months(days: Integers, count: npt.NDArray[np.integer]) -> Integers:
    """Move `days` by months: to the same day of the month, or its last."""
    months = months_of(days)
    offset = days - start_of_month(months)
    moved = months + count.astype(np.int64)
    return np.minimum(start_of_month(moved) + offset, start_of_month(moved + 1) - 1)


def days_from(years: Integers, months: Integers, days: Integers) -> tuple[Integers, Mask]:
    """Return (days since 1970-01-01 of a calendar date, whether the calendar has that date); years up to 32 bits."""
    fits = (months >= 1) & (months <= 12) & (days >= 1)
    count = np.where(fits, (years - 1970) * 12 + months - 1, 0)
    start, after = start_of_month(count), start_of_month(count + 1)
    found = start + days - 1
    return np.where(fits, found, 0), fits & (found < after)


def dates(days: Integers, *like: Datum) -> pa.Array:
    """Return DATE values, NULL where one of `like` is, and for days beyond 32 bits."""
    fits = days == days.astype(np.int32)
    return null_unless(fits, from_numbers(days.astype(np.int32), DATE, *like))


def timestamps(days: Integers, clock: Integers, *like: Datum) -> pa.Array:
    """Return TIMESTAMP values of days and the microseconds since midnight, NULL where one of `like` is, and beyond 64
    bits.
    """
    return scaled(days, DAY, clock, TIMESTAMP, *like)


def moved_back(times: pa.Array, lengths: Integers) -> pa.Array:
    """Return times less lengths of at most a day each, in microseconds; NULL beyond 64 bits."""
    ticks = numbers(times)
    moved = ticks - lengths
    return null_unless(moved <= ticks, from_numbers(moved, times.type, times))


def scaled(count: Integers, unit: int, rest: Integers | int, type_: pa.DataType, *like: Datum) -> pa.Array:
    """Return `count * unit + rest` as values of the 64-bit `type_`, NULL where one of `like` is, and beyond 64 bits.

    Args:
        rest: At least 0, less than `unit`.
    """
    ticks = count * np.int64(unit) + rest
    values = from_numbers(ticks, type_, *like)
    limit = 2**63 // unit - 1
    if not len(count) or (-limit <= count.min() and count.max() <= limit):
        return values
    # A product that wraps is off by multiples of 2^64, so its quotient is not `count`.
    return null_unless(ticks // unit == count, values)
