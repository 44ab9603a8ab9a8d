"""Instants, days and lengths of time over the catalogs. Instants and days are texts of one form, so that they are in
order as texts; lengths of time are texts of PostgreSQL's, with an order of their own."""

from __future__ import annotations

import calendar
import datetime as dt
import re
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.server.pgwire.catalog.arithmetic import WindowedSum
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.intervals import PgInterval, interval_text, read_interval

MOMENT_TYPES = frozenset({"timestamp", "timestamptz", "date"})
_DAY = dt.timedelta(days=1)
#: Words that stand for an instant.
_WORDS: dict[str, Callable[[], dt.datetime]] = {
    "now": lambda: dt.datetime.now(dt.UTC),
    "epoch": lambda: dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    "today": lambda: _midnight(0),
    "yesterday": lambda: _midnight(-1),
    "tomorrow": lambda: _midnight(1),
}


_DATED = re.compile(r"\d{4,6}-\d{1,2}-\d{1,2}", re.ASCII)


def _midnight(days: int) -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0) + days * _DAY


def moment_text(value: dt.datetime) -> str:
    """Return an instant in that form."""
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ", "microseconds") + "+00"


def _written_as(value: dt.datetime, type_: str) -> str:
    """Return an instant as a value of a type. Without a time zone it is in UTC."""
    if type_ == "date":
        return value.date().isoformat()
    if type_ == "timestamptz":
        return moment_text(value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC))
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


def _cast(value: Any, type_: str) -> str | None:
    """Return a text or an instant as a value of a type."""
    if value is None:
        return None
    text = str(value).strip()
    try:
        word = _WORDS.get(text.lower())
        found = dt.datetime.fromisoformat(text) if word is None else word()
    except ValueError:
        # One that is written as such, but is not in the calendar, or none at all.
        state = "22008" if _DATED.match(text) else "22007"
        raise WireError(state, f"{text[:100]!r} is no {type_}", "'2024-02-29 12:00:00'", code="P0203") from None
    return _written_as(found, type_)


def _shown(value: Any) -> str | None:
    """Return an instant as PostgreSQL writes it: without zeros at the end of its fraction."""
    if value is None:
        return None
    text, zone, _ = str(value).partition("+00")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + zone


# -- calculated ------------------------------------------------------------------------------------------------


def _moment(value: Any) -> dt.datetime:
    found = dt.datetime.fromisoformat(str(value))
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _out_of_range() -> WireError:
    return WireError("22008", "an instant is out of range", "the years 1 to 9999 are known", code="P0203")


def _shifted(value: Any, by: Any, sign: int, type_: str) -> str | None:
    """Return an instant and a length of time added. type_: of the result."""
    if value is None or by is None:
        return None
    moment, length = _moment(value), read_interval(str(by))
    try:
        month = moment.year * 12 + moment.month - 1 + sign * length.months
        year, month = month // 12, month % 12 + 1
        day = min(moment.day, calendar.monthrange(year, month)[1])
        moment = moment.replace(year=year, month=month, day=day)
        moment += dt.timedelta(days=sign * length.days, microseconds=sign * length.microseconds)
    except (ValueError, OverflowError, calendar.IllegalMonthError):
        raise _out_of_range() from None
    return _written_as(moment, type_)


def _other_day(value: Any, days: Any) -> str | None:
    if value is None or days is None:
        return None
    try:
        return (dt.date.fromisoformat(str(value)) + int(days) * _DAY).isoformat()
    except OverflowError:
        raise _out_of_range() from None


def _days_between(left: Any, right: Any) -> int | None:
    if left is None or right is None:
        return None
    return (dt.date.fromisoformat(str(left)) - dt.date.fromisoformat(str(right))).days


def _between(left: Any, right: Any) -> str | None:
    """Return the length of time between two instants: days, and what is left."""
    if left is None or right is None:
        return None
    passed = (_moment(left) - _moment(right)) // dt.timedelta(microseconds=1)
    days, rest = divmod(abs(passed), 86_400_000_000)
    sign = -1 if passed < 0 else 1
    return interval_text(PgInterval(0, sign * days, sign * rest))


def _age(left: Any, right: Any) -> str | None:
    """Return the length of time between two instants in years, months, days and what is left."""
    if left is None or right is None:
        return None
    later, earlier = _moment(left), _moment(right)
    sign = 1
    if later < earlier:
        later, earlier, sign = earlier, later, -1
    months = (later.year - earlier.year) * 12 + later.month - earlier.month
    days = later.day - earlier.day
    rest = (later - later.replace(hour=0, minute=0, second=0, microsecond=0)) - (
        earlier - earlier.replace(hour=0, minute=0, second=0, microsecond=0)
    )
    if rest < dt.timedelta(0):
        rest, days = rest + _DAY, days - 1
    if days < 0:
        # A month is as long as that of the earlier instant, or of the later where the answer is negative.
        of = earlier if sign > 0 else later
        days, months = days + calendar.monthrange(of.year, of.month)[1], months - 1
    microseconds = rest // dt.timedelta(microseconds=1)
    return interval_text(PgInterval(sign * months, sign * days, sign * microseconds))


def _interval(value: Any, unit: str = "") -> str | None:
    return None if value is None else interval_text(read_interval(str(value), unit))


def _interval_sum(left: Any, right: Any, sign: int = 1) -> str | None:
    if left is None or right is None:
        return None
    return interval_text(read_interval(str(left)).plus(read_interval(str(right)), sign))


def _interval_times(value: Any, factor: Any, divides: int = 0) -> str | None:
    if value is None or factor is None:
        return None
    number = float(factor)
    if divides and not number:
        raise WireError("22012", "division by zero", code="P0203")
    return interval_text(read_interval(str(value)).times(1 / number if divides else number))


def _justified(*, hours: bool, days: bool) -> Callable[[Any], str | None]:
    """Return a function that makes days of 24 hours and months of 30 days."""

    def apply(value: Any) -> str | None:
        if value is None:
            return None
        months, of_days, rest = read_interval(str(value))
        if hours and days:
            total = PgInterval(months, of_days, rest).total()
            sign = -1 if total < 0 else 1
            all_days, rest = divmod(abs(total), 86_400_000_000)
            return interval_text(PgInterval(sign * (all_days // 30), sign * (all_days % 30), sign * rest))
        if hours:
            more = int(rest / 86_400_000_000)
            of_days, rest = of_days + more, rest - more * 86_400_000_000
            if of_days > 0 > rest:
                of_days, rest = of_days - 1, rest + 86_400_000_000
            elif of_days < 0 < rest:
                of_days, rest = of_days + 1, rest - 86_400_000_000
        else:
            more = int(of_days / 30)
            months, of_days = months + more, of_days - 30 * more
            if months > 0 > of_days:
                months, of_days = months - 1, of_days + 30
            elif months < 0 < of_days:
                months, of_days = months + 1, of_days - 30
        return interval_text(PgInterval(months, of_days, rest))

    return apply


class IntervalSum(WindowedSum):
    """SUM of lengths of time; also over windows."""

    def __init__(self) -> None:
        super().__init__()
        self._sum = PgInterval(0, 0, 0)

    def _add(self, value: Any, by: int) -> None:
        self._sum = self._sum.plus(read_interval(str(value)), by)

    def total(self) -> PgInterval:
        return self._sum

    def value(self) -> str | None:
        return interval_text(self._sum) if self.count else None


class IntervalAverage(IntervalSum):
    """AVG of such values."""

    def value(self) -> str | None:
        return interval_text(self.total().times(1 / self.count)) if self.count else None


# -- parts -----------------------------------------------------------------------------------------------------


_PARTS = frozenset({
    "epoch", "year", "month", "day", "dow", "isodow", "doy", "week", "isoyear", "quarter", "decade", "century",
    "millennium", "hour", "minute", "second", "milliseconds", "microseconds", "timezone", "timezone_hour",
    "timezone_minute", "julian",
})  # fmt: skip


def _extracted(field: Any, value: Any, type_: str = "timestamptz") -> str | None:
    """Return a part of an instant or a length of time as a decimal, such as its `epoch`, in seconds."""
    if value is None or field is None:
        return None
    name = str(field).lower()
    parts = _of_interval(read_interval(str(value))) if type_ == "interval" else _of_moment(_moment(value), type_)
    singular = {"seconds": "second", "millisecond": "milliseconds", "microsecond": "microseconds"}.get(
        name, name.removesuffix("s") if name.removesuffix("s") in parts else name
    )
    if singular not in parts:
        known = singular in _PARTS
        message = f"the part {name[:100]} of a {type_} is not known"
        raise WireError("0A000" if known else "22023", message, code="P0901" if known else "P0203")
    return format(parts[singular](), "f")


def _seconds(whole: int, microseconds: int) -> Decimal:
    return Decimal(whole * 1_000_000 + microseconds).scaleb(-6)


def _of_interval(value: PgInterval) -> dict[str, Callable[[], Decimal]]:
    def years() -> int:
        return int(value.months / 12)

    def rest(unit: int) -> int:
        return int(value.microseconds / unit)

    def minute() -> int:
        return value.microseconds - rest(60_000_000) * 60_000_000

    def epoch() -> Decimal:
        # A year has 365.25 days, a month 30.
        days = Decimal("365.25") * years() + 30 * (value.months - 12 * years()) + value.days
        return (days * 86_400 + Decimal(value.microseconds).scaleb(-6)).quantize(Decimal("0.000001"))

    return {
        "epoch": epoch,
        "year": lambda: Decimal(years()),
        "month": lambda: Decimal(value.months - 12 * years()),
        "day": lambda: Decimal(value.days),
        "hour": lambda: Decimal(rest(3_600_000_000)),
        "minute": lambda: Decimal(rest(60_000_000) - 60 * rest(3_600_000_000)),
        "second": lambda: _seconds(0, minute()),
        "milliseconds": lambda: Decimal(minute()).scaleb(-3),
        "microseconds": lambda: Decimal(minute()),
        "quarter": lambda: Decimal((value.months - 12 * years()) // 3 + 1),
        "decade": lambda: Decimal(int(years() / 10)),
        "century": lambda: Decimal(int(years() / 100)),
    }


def _of_moment(moment: dt.datetime, type_: str) -> dict[str, Callable[[], Decimal]]:
    epoch = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    of_days: dict[str, Callable[[], Decimal]] = {
        "epoch": lambda: Decimal(epoch // 1_000_000) if type_ == "date" else Decimal(epoch).scaleb(-6),
        "year": lambda: Decimal(moment.year),
        "month": lambda: Decimal(moment.month),
        "day": lambda: Decimal(moment.day),
        "dow": lambda: Decimal(moment.isoweekday() % 7),
        "isodow": lambda: Decimal(moment.isoweekday()),
        "doy": lambda: Decimal(moment.timetuple().tm_yday),
        "week": lambda: Decimal(moment.isocalendar()[1]),
        "isoyear": lambda: Decimal(moment.isocalendar()[0]),
        "quarter": lambda: Decimal((moment.month + 2) // 3),
        "decade": lambda: Decimal(moment.year // 10),
        "century": lambda: Decimal((moment.year + 99) // 100),
        "millennium": lambda: Decimal((moment.year + 999) // 1000),
    }
    if type_ == "date":
        return of_days
    of_clock: dict[str, Callable[[], Decimal]] = {
        "hour": lambda: Decimal(moment.hour),
        "minute": lambda: Decimal(moment.minute),
        "second": lambda: _seconds(moment.second, moment.microsecond),
        "milliseconds": lambda: _seconds(moment.second, moment.microsecond).scaleb(3),
        "microseconds": lambda: Decimal(moment.second * 1_000_000 + moment.microsecond),
    }
    zones = ("timezone", "timezone_hour", "timezone_minute") if type_ == "timestamptz" else ()
    return of_days | of_clock | dict.fromkeys(zones, lambda: Decimal(0))


def _part(field: Any, value: Any, type_: str = "timestamptz") -> float | None:
    found = _extracted(field, value, type_)
    return None if found is None else float(found)


_TRUNCATED = (
    "microsecond",
    "millisecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
)


def _truncated(field: Any, value: Any, type_: str) -> str | None:
    """Return the beginning of the hour, day and so on of an instant. type_: of the result."""
    if field is None or value is None:
        return None
    name = str(field).lower().removesuffix("s")
    if name not in _TRUNCATED:
        raise WireError("22023", f"the part {name[:100]} of an instant is not known", code="P0203")
    moment = _moment(value)
    if name == "microsecond":
        return _written_as(moment, type_)
    if name == "millisecond":
        return _written_as(moment.replace(microsecond=moment.microsecond // 1_000 * 1_000), type_)
    clock = {
        "second": {"microsecond": 0},
        "minute": {"second": 0, "microsecond": 0},
        "hour": {"minute": 0, "second": 0, "microsecond": 0},
    }
    if name in clock:
        return _written_as(moment.replace(**clock[name]), type_)  # type: ignore[arg-type]
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if name == "week":
        return _written_as(day - (day.isoweekday() - 1) * _DAY, type_)
    if name == "month":
        day = day.replace(day=1)
    elif name == "quarter":
        day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    elif name != "day":
        years = {
            "year": day.year,
            "decade": max(1, day.year // 10 * 10),
            "century": (day.year - 1) // 100 * 100 + 1,
            "millennium": (day.year - 1) // 1000 * 1000 + 1,
        }
        day = day.replace(year=years[name], month=1, day=1)
    return _written_as(day, type_)


def _in_zone(zone: Any, value: Any, type_: str) -> str | None:
    """Return an instant as the clock of a time zone shows it, or what that clock shows as an instant. type_: of the
    value."""
    if zone is None or value is None:
        return None
    try:
        found = zoneinfo.ZoneInfo("UTC" if str(zone).upper() in ("UTC", "GMT", "Z") else str(zone))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise WireError("22023", f"unknown time zone {str(zone)[:100]}", code="P0203") from None
    moment = dt.datetime.fromisoformat(str(value))
    if type_ == "timestamptz":
        return _written_as(moment.astimezone(found).replace(tzinfo=None), "timestamp")
    return moment_text(moment.replace(tzinfo=found))


def _of_epoch(seconds: Any) -> str | None:
    if seconds is None:
        return None
    try:
        return moment_text(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=float(seconds)))
    except (OverflowError, ValueError):
        raise _out_of_range() from None


_PATTERNS = {
    "YYYY": "%Y",
    "HH24": "%H",
    "HH12": "%I",
    "MM": "%m",
    "DD": "%d",
    "MI": "%M",
    "SS": "%S",
    "US": "%f",
    "TZ": "UTC",
}
_PATTERN = re.compile("|".join(_PATTERNS))


def _written(value: Any, form: Any) -> str | None:
    """Return an instant in a form such as `YYYY-MM-DD HH24:MI:SS`."""
    if value is None or form is None:
        return None
    pattern = _PATTERN.sub(lambda found: _PATTERNS[found[0]], str(form).replace("%", "%%"))
    return dt.datetime.fromisoformat(str(value)).strftime(pattern)


MOMENTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "pg_moment": ("", _cast),
    "pg_moment_text": ("text", _shown),
    "pg_part": ("float8", _part),
    "pg_extracted": ("numeric", _extracted),
    "to_char": ("text", _written),
    "pg_interval": ("interval", _interval),
    "pg_shifted": ("", _shifted),
    "pg_other_day": ("date", _other_day),
    "pg_days_between": ("int4", _days_between),
    "pg_between": ("interval", _between),
    "pg_interval_sum": ("interval", _interval_sum),
    "pg_interval_times": ("interval", _interval_times),
    "pg_age": ("interval", _age),
    "pg_truncated": ("", _truncated),
    "pg_in_zone": ("", _in_zone),
    "pg_of_epoch": ("timestamptz", _of_epoch),
    "justify_hours": ("interval", _justified(hours=True, days=False)),
    "justify_days": ("interval", _justified(hours=False, days=True)),
    "justify_interval": ("interval", _justified(hours=True, days=True)),
}
