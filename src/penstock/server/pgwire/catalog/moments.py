"""Instants and days over the catalogs: texts of one form, so that they are in order as texts."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

from penstock.server.pgwire.protocol.errors import WireError

MOMENT_TYPES = frozenset({"timestamp", "timestamptz", "date"})


def moment_text(value: dt.datetime) -> str:
    """Return an instant in that form."""
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ", "microseconds") + "+00"


def _cast(value: Any, type_: str) -> str | None:
    """Return a text or an instant as a value of a type. Without a time zone it is in UTC."""
    if value is None:
        return None
    text = str(value).strip()
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise WireError("22007", f"{text[:100]!r} is no {type_}", "'2024-02-29 12:00:00'", code="P0203") from None
    if type_ == "date":
        return found.date().isoformat()
    if type_ == "timestamptz":
        return moment_text(found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC))
    return found.replace(tzinfo=None).isoformat(" ", "microseconds")


def _shown(value: Any) -> str | None:
    """Return an instant as PostgreSQL writes it: without zeros at the end of its fraction."""
    if value is None:
        return None
    text, zone, _ = str(value).partition("+00")
    return (text.rstrip("0").rstrip(".") if "." in text else text) + zone


def _part(field: Any, value: Any) -> float | None:
    """Return a part of an instant, such as its `epoch`, the seconds since 1970."""
    if value is None or field is None:
        return None
    moment = dt.datetime.fromisoformat(str(value))
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    parts: dict[str, Callable[[], float]] = {
        "epoch": moment.timestamp, "year": lambda: moment.year, "month": lambda: moment.month,
        "day": lambda: moment.day, "hour": lambda: moment.hour, "minute": lambda: moment.minute,
        "second": lambda: moment.second + moment.microsecond / 1e6, "dow": lambda: moment.isoweekday() % 7,
        "isodow": moment.isoweekday, "doy": lambda: moment.timetuple().tm_yday,
    }  # fmt: skip
    if str(field) not in parts:
        raise WireError("0A000", f"the part {str(field)[:100]} of an instant is not known", code="P0901")
    return float(parts[str(field)]())


_PATTERNS = {"YYYY": "%Y", "HH24": "%H", "HH12": "%I", "MM": "%m", "DD": "%d", "MI": "%M", "SS": "%S", "US": "%f",
             "TZ": "UTC"}  # fmt: skip
_PATTERN = re.compile("|".join(_PATTERNS))


def _written(value: Any, form: Any) -> str | None:
    """Return an instant in a form such as `YYYY-MM-DD HH24:MI:SS`."""
    if value is None or form is None:
        return None
    pattern = _PATTERN.sub(lambda found: _PATTERNS[found[0]], str(form).replace("%", "%%"))
    return dt.datetime.fromisoformat(str(value)).strftime(pattern)


MOMENTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "pg_moment": ("", _cast), "pg_moment_text": ("text", _shown), "date_part": ("float8", _part),
    "to_char": ("text", _written),
}  # fmt: skip
