"""Values of `interval` as texts: months, days and microseconds, each with a sign of its own, as PostgreSQL has them."""

from __future__ import annotations

import math
import re
import struct
from typing import NamedTuple

from penstock.pgwire.protocol.errors import WireError

_SECOND, _DAY = 1_000_000, 86_400_000_000
_MOST_SMALL, _MOST_TIME = 1 << 31, 1 << 63
#: By unit: months, days, microseconds.
_UNITS: dict[str, tuple[int, int, int]] = {
    "microsecond": (0, 0, 1),
    "millisecond": (0, 0, 1_000),
    "second": (0, 0, _SECOND),
    "minute": (0, 0, 60 * _SECOND),
    "hour": (0, 0, 3_600 * _SECOND),
    "day": (0, 1, 0),
    "week": (0, 7, 0),
    "month": (1, 0, 0),
    "year": (12, 0, 0),
    "decade": (120, 0, 0),
    "century": (1_200, 0, 0),
    "millennium": (12_000, 0, 0),
}
_SHORT = {
    "us": "microsecond", "usec": "microsecond", "usecs": "microsecond", "ms": "millisecond", "msec": "millisecond",
    "msecs": "millisecond", "s": "second", "sec": "second", "secs": "second", "m": "minute", "min": "minute",
    "mins": "minute", "h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week", "mon": "month",
    "mons": "month", "y": "year", "yr": "year", "yrs": "year", "decades": "decade", "dec": "decade", "decs": "decade",
    "c": "century", "cent": "century", "centuries": "century", "millennia": "millennium", "mil": "millennium",
    "mils": "millennium",
}  # fmt: skip
_PART = re.compile(
    r"([+-]?)(\d+):(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?|([+-]?)(\d+)-(\d{1,2})(?![\d.])|([+-]?(?:\d+\.?\d*|\.\d+))\s*([a-z]*)"
)
_ISO = re.compile(r"([+-]?\d+(?:\.\d*)?)([ymwdhs])")
_ISO_DATE = {"y": "year", "m": "month", "w": "week", "d": "day"}
_ISO_TIME = {"h": "hour", "m": "minute", "s": "second"}


class PgInterval(NamedTuple):
    """A length of time."""

    months: int
    days: int
    microseconds: int

    def plus(self, other: PgInterval, sign: int = 1) -> PgInterval:
        """Return the sum. Raises WireError 22008."""
        months, days, rest = (a + sign * b for a, b in zip(self, other, strict=True))
        return checked(PgInterval(months, days, rest))

    def times(self, factor: float) -> PgInterval:
        """Return a multiple; what is left of a month goes to the days, and of a day to the rest. Raises WireError
        22008."""
        exact = [value * factor for value in self]
        if not all(math.isfinite(value) for value in exact):
            raise _overflow()
        months, days = math.trunc(exact[0]), math.trunc(exact[1])
        of_months = round((exact[0] - months) * 30, 6)
        seconds = round((exact[1] - days + of_months - math.trunc(of_months)) * 86_400, 6)
        if abs(seconds) >= 86_400:
            days += math.trunc(seconds / 86_400)
            seconds -= math.trunc(seconds / 86_400) * 86_400
        return checked(PgInterval(months, days + math.trunc(of_months), round(exact[2] + seconds * _SECOND)))

    def total(self) -> int:
        """Return the microseconds by which intervals are in order: a month has 30 days, a day 24 hours."""
        return (self.months * 30 + self.days) * _DAY + self.microseconds


def read_interval(text: str, unit: str = "") -> PgInterval:
    """Return the value of a text. unit: of a number without one. Raises WireError 22007, 22008."""
    words = text.strip().lower()
    found = _iso(words[1:]) if words[:1] == "p" and len(words) > 1 else _parts(words, unit.lower())
    if found is None:
        message = f"{text[:100]!r} is no interval"
        raise WireError("22007", message, "'1 day 02:30:00'", code="P0203")
    return checked(found)


def _parts(words: str, unit: str) -> PgInterval | None:
    if "infinity" in words or len(words) > 1_000:
        return None
    words = words.removeprefix("@").strip()
    sign = 1
    if words.endswith(" ago"):
        words, sign = words[:-4].strip(), -1
    found, at = PgInterval(0, 0, 0), 0
    while at < len(words):
        match = _PART.match(words, at)
        if match is None:
            return None
        one = _part_of(match, unit)
        if one is None:
            return None
        found, at = found.plus(one, sign), match.end()
        while words[at : at + 1].isspace():
            at += 1
    return found if words else None


def _part_of(match: re.Match[str], unit: str) -> PgInterval | None:
    clock_sign, hours, minutes, seconds, year_sign, years, months, number, word = match.groups()
    if hours is not None:
        if int(minutes) > 59 or float(seconds or 0) >= 60:
            raise WireError("22015", f"{match[0][:100]!r} is no time", code="P0203")
        rest = (int(hours) * 3_600 + int(minutes) * 60) * _SECOND + round(float(seconds or 0) * _SECOND)
        return PgInterval(0, 0, -rest if clock_sign == "-" else rest)
    if years is not None:
        total = int(years) * 12 + int(months)
        return PgInterval(-total if year_sign == "-" else total, 0, 0)
    name = word or unit or "second"
    name = _SHORT.get(name) or (name if name in _UNITS else name.removesuffix("s"))
    return _scaled(number, name) if name in _UNITS else None


def _scaled(number: str, unit: str) -> PgInterval:
    """Return a number of a unit; a fraction goes to the smaller ones."""
    whole, _, fraction = number.partition(".")
    months, days, rest = _UNITS[unit]
    count = int(whole) if whole.lstrip("+-") else 0
    if len(whole) > 25:
        raise _overflow()
    part = float(f"0.{fraction or 0}") * (-1 if whole.startswith("-") else 1)
    found = PgInterval(months * count, days * count, rest * count)
    if months >= 12:
        return found.plus(PgInterval(round(part * months), 0, 0))
    if months:
        more_days = round(part * 30, 6)
        return found.plus(PgInterval(0, math.trunc(more_days), round((more_days - math.trunc(more_days)) * _DAY)))
    if days:
        more = round(part * days, 9)
        return found.plus(PgInterval(0, math.trunc(more), round((more - math.trunc(more)) * _DAY)))
    return found.plus(PgInterval(0, 0, round(part * rest)))


def _iso(words: str) -> PgInterval | None:
    """Return the value of `P1Y2M3DT4H5M6S`."""
    date, mark, time = words.partition("t")
    found = PgInterval(0, 0, 0)
    for text, units in ((date, _ISO_DATE), (time, _ISO_TIME)):
        if _ISO.sub("", text):
            return None
        for number, letter in _ISO.findall(text):
            if letter not in units:
                return None
            found = found.plus(_scaled(number, units[letter]))
    return None if mark and not time else found


def checked(value: PgInterval) -> PgInterval:
    """Return a value that is in the range of the type. Raises WireError 22008."""
    small = all(-_MOST_SMALL <= one < _MOST_SMALL for one in (value.months, value.days))
    if not small or not -_MOST_TIME <= value.microseconds < _MOST_TIME:
        raise _overflow()
    return value


def _overflow() -> WireError:
    return WireError("22008", "an interval is out of range", code="P0203")


def interval_text(value: PgInterval) -> str:
    """Return a value as PostgreSQL writes it."""
    parts: list[str] = []
    negative = False
    years, months = abs(value.months) // 12, abs(value.months) % 12
    sign = -1 if value.months < 0 else 1
    for count, word in ((sign * years, "year"), (sign * months, "mon"), (value.days, "day")):
        if count:
            plus = "+" if negative and count > 0 else ""
            parts.append(f"{plus}{count} {word}{'' if count == 1 else 's'}")
            negative = count < 0
    if value.microseconds or not parts:
        seconds, rest = divmod(abs(value.microseconds), _SECOND)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        clock += f".{rest:06d}".rstrip("0") if rest else ""
        parts.append(("-" if value.microseconds < 0 else "+" if negative else "") + clock)
    return " ".join(parts)


def interval_bytes(value: PgInterval) -> bytes:
    """Return a value in binary."""
    return struct.pack("!qii", value.microseconds, value.days, value.months)


def sql_interval(value: PgInterval) -> str:
    """Return a value as a text that DuckDB reads."""
    return f"{value.months} months {value.days} days {value.microseconds} microseconds"
