"""Dates and timestamps in the years that neither Python nor Arrow's texts know, by the calendar of all other years.

Contract: the Gregorian calendar is counted on both ways; before the year 1 come the years 0, -1 and so on. Texts are
ISO-8601 with as many digits of the year as it needs, at least four.
"""

from __future__ import annotations

import re

_SECONDS = 86_400
_FAR = re.compile(
    r"(?P<year>[+-]?[0-9]{4,7})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?P<time>[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(:(?P<second>[0-9]{2})(\.(?P<fraction>[0-9]+))?)?"
    r"(?P<zone> ?(UTC|GMT)|Z|[+-][0-9]{2}(:?[0-9]{2})?)?)?(?P<before> BC)?"
)


def far_day(days: int) -> str:
    """The date so many days after 1970-01-01, in any year; before the year 1 years are 0, -1 and so on."""
    # Days are counted from 0000-03-01, in the 400 years after which the calendar repeats itself.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day_of_month = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += era * 400 + (month <= 2)
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day_of_month:02d}"


def far_moment(ticks: int) -> str:
    """The moment so many microseconds after 1970, in any year."""
    days, rest = divmod(ticks, 86_400_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{far_day(days)}T{time}{f'.{fraction:06d}' if fraction else ''}Z"


def day_of(text: str) -> int | None:
    """Return the days from 1970-01-01 to a date as `far_day` writes it; None for what is none, or beyond 32 bits."""
    found = _FAR.fullmatch(text)
    days = None if found is None or found["time"] else _days(found)
    return days if days is not None and -(2**31) <= days < 2**31 else None


def moment_of(text: str) -> int | None:
    """Return the microseconds from 1970 to a timestamp as `far_moment` writes it, or to the beginning of a date; None
    for what is none, or beyond 64 bits.
    """
    found = _FAR.fullmatch(text)
    days = None if found is None else _days(found)
    if found is None or days is None:
        return None
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    west = re.fullmatch(r"([+-])([0-9]{2}):?([0-9]{2})?", found["zone"] or "")
    ahead = (1 if west[1] == "+" else -1) * (60 * int(west[2]) + int(west[3] or 0)) if west else 0
    if hour > 23 or minute > 59 or second > 59 or abs(ahead) >= 1440:
        return None
    seconds = days * _SECONDS + hour * 3600 + (minute - ahead) * 60 + second
    ticks = seconds * 1_000_000 + int((found["fraction"] or "")[:6].ljust(6, "0"))
    return ticks if -(2**63) <= ticks < 2**63 else None


def _days(found: re.Match[str]) -> int | None:
    year, month, day = int(found["year"]), int(found["month"]), int(found["day"])
    if found["before"]:
        # As PostgreSQL writes it, which has no year 0.
        if year < 1 or found["year"].startswith("+"):
            return None
        year = 1 - year
    if not 1 <= month <= 12 or day < 1:
        return None
    days = _days_from(year, month, day)
    return days if days < _days_from(year + month // 12, month % 12 + 1, 1) else None


def _days_from(year: int, month: int, day: int) -> int:
    """The inverse of `far_day`."""
    year -= month <= 2
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
