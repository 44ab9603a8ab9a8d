"""What DuckDB lacks of PostgreSQL, or has with another meaning: functions that the translation calls.

Values are as DuckDB hands them over, a `numeric` as its `sorted_text`, an instant or a length of time as its text.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any
from uuid import UUID

from penstock.pgwire.protocol.errors import UNSUPPORTED, WireError
from penstock.pgwire.values.decimals import (
    calculated_decimal,
    decimal_of_real,
    decimal_text,
    of_sorted_text,
    read_decimal,
    rounded_decimal,
    sorted_text,
    with_modifier,
)
from penstock.pgwire.values.intervals import PgInterval, interval_text, read_interval, sql_interval
from penstock.pgwire.values.json_texts import JSON_FUNCTIONS
from penstock.pgwire.values.texts import array_elements, array_text, float_text, real_text
from penstock.pgwire.values.wire_types import INTEGERS, wire_type

_WHOLE = re.compile(r"\s*([+-]?\d{1,40})\s*", re.ASCII)
_REAL = re.compile(
    r"\s*(?:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|(inf|infinity))|(nan))\s*", re.IGNORECASE | re.ASCII
)
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), False),
}
_UUID = re.compile(r"(\{)?([0-9a-fA-F]{4}(?:-?[0-9a-fA-F]{4}){7})(\})?")
_PLACES = re.compile(r"%(?:(\d+)\$)?([sIL])|%%")
_DAY = 86_400_000_000


def _refused(state: str, message: str, hint: str | None = None) -> WireError:
    return WireError(state, message, hint, code="P0203")


def _out_of_range(shown: str, type_: str) -> WireError:
    return _refused("22003", f"{shown[:100]} is out of the range of {wire_type(type_).shown}")


# -- numbers ---------------------------------------------------------------------------------------------------


def _in_range(number: int, type_: str) -> int:
    least, most = INTEGERS[type_]
    if not least <= number <= most:
        raise _out_of_range(str(number), type_)
    return number


def whole(text: str, type_: str) -> int:
    """Return a text as a whole number."""
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise _refused("22P02", f"{text[:100]!r} is no {wire_type(type_).shown}")
    return _in_range(int(match[1]), type_)


def whole_of_numeric(value: str, type_: str) -> int:
    """Return a `numeric` as a whole number, rounded away from 0."""
    number, shown = of_sorted_text(value), wire_type(type_).shown
    if not number.is_finite():
        raise WireError(UNSUPPORTED, f"{decimal_text(number)} is no {shown}", code="P0901")
    if number.adjusted() > 40:
        raise _out_of_range(decimal_text(number), type_)
    return _in_range(int(number.to_integral_value(ROUND_HALF_UP)), type_)


def real(text: str) -> float:
    """Return a text as a floating point number."""
    match = _REAL.fullmatch(text)
    if match is None:
        raise _refused("22P02", f"{text[:100]!r} is no number")
    number = math.nan if match[2] else float(text)
    if math.isinf(number) and not match[1]:
        raise _refused("22003", f"{text[:100]} is out of range")
    return number


def single(number: float | str) -> float:
    """Return a number, or a text as one, with the precision of `float4`."""
    number = real(number) if isinstance(number, str) else float(number)
    if not math.isfinite(number):
        return number
    try:
        found = float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        found = math.inf
    if math.isinf(found) or (number and not found):
        raise _out_of_range(repr(number), "float4")
    return found


def calculated_real(mark: str, left: float, right: float, type_: str) -> float:
    """Return what an operation of two floating point numbers gives."""
    if mark == "/" and right == 0 and not math.isnan(left):
        raise _refused("22012", "division by zero")
    if mark == "/":
        found = left / right if right else left
    else:
        found = left + right if mark == "+" else left - right if mark == "-" else left * right
    is_lost = mark in "*/" and not found and left and ((math.isfinite(right) and right) or mark == "/")
    if (is_lost and not math.isinf(right)) or (math.isinf(found) and not math.isinf(left) and not math.isinf(right)):
        raise _out_of_range(f"{left!r} {mark} {right!r}", type_)
    return single(found) if type_ == "float4" else found


def numeric(value: Any, source: str) -> str:
    """Return a value of a type as a `numeric`."""
    if source in ("float4", "float8"):
        return sorted_text(decimal_of_real(float(value), 6 if source == "float4" else 15))
    return sorted_text(Decimal(value) if isinstance(value, int) else read_decimal(str(value)))


def _rounded(value: str, way: str, digits: int) -> str:
    ways = {"ceil": ROUND_CEILING, "ceiling": ROUND_CEILING, "floor": ROUND_FLOOR, "trunc": ROUND_DOWN}
    places = max(-2_000, min(2_000, digits))
    return sorted_text(rounded_decimal(of_sorted_text(value), places, ways.get(way, ROUND_HALF_UP)))


def _decimals(values: Sequence[Any]) -> list[Decimal]:
    return [Decimal(one) if isinstance(one, int) else of_sorted_text(one) for one in values if one is not None]


def _sum(values: Sequence[Decimal]) -> Decimal:
    total = Decimal(0)
    for one in values:
        total = calculated_decimal("+", total, one)
    return total


def _average(values: Sequence[Any]) -> str | None:
    numbers = _decimals(values)
    return sorted_text(calculated_decimal("/", _sum(numbers), Decimal(len(numbers)))) if numbers else None


def _total(values: Sequence[Any]) -> str | None:
    numbers = _decimals(values)
    return sorted_text(_sum(numbers)) if numbers else None


# -- instants and lengths of time --------------------------------------------------------------------------------

_WORDS = {"now": None, "today": 0, "yesterday": -1, "tomorrow": 1}
_DATED = re.compile(r"\d{4,6}-\d{1,2}-\d{1,2}", re.ASCII)


def _moment(text: str, type_: str) -> str:
    """Return a text as an instant of a type, as DuckDB reads it. Without a time zone it is in UTC."""
    text = text.strip()
    word, now = text.lower(), dt.datetime.now(dt.UTC)
    try:
        if word == "epoch":
            found = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        elif word in _WORDS:
            days = _WORDS[word]
            midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
            found = now if days is None else midnight + dt.timedelta(days)
        else:
            found = dt.datetime.fromisoformat(text)
    except ValueError:
        # One that is written as such, but is not in the calendar, or none at all.
        state = "22008" if _DATED.match(text) else "22007"
        raise _refused(state, f"{text[:100]!r} is no {type_}", "'2024-02-29 12:00:00'") from None
    if type_ == "date":
        return found.date().isoformat()
    if type_ == "timestamptz":
        return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).isoformat(" ")
    return found.replace(tzinfo=None).isoformat(" ")


def _times(text: str, factor: float, divides: bool) -> str:
    if divides and not factor:
        raise _refused("22012", "division by zero")
    return sql_interval(read_interval(text).times(1 / factor if divides else factor))


def _interval_total(texts: Sequence[str | None], name: str) -> str | None:
    given = [read_interval(one) for one in texts if one is not None]
    total = PgInterval(0, 0, 0)
    for one in given:
        total = total.plus(one)
    return sql_interval(total if name == "sum" else total.times(1 / len(given))) if given else None


def _justified(text: str, name: str) -> str:
    """Return a length of time with days of 24 hours, months of 30 days, or both."""
    months, days, rest = value = read_interval(text)
    if name == "justify_interval":
        sign = -1 if value.total() < 0 else 1
        all_days, rest = divmod(abs(value.total()), _DAY)
        return sql_interval(PgInterval(sign * (all_days // 30), sign * (all_days % 30), sign * rest))
    if name == "justify_hours":
        days, rest = _carried(days, rest, _DAY)
    else:
        months, days = _carried(months, days, 30)
    return sql_interval(PgInterval(months, days, rest))


def _carried(large: int, small: int, size: int) -> tuple[int, int]:
    more = int(small / size)
    large, small = large + more, small - more * size
    carry = (large < 0 < small) - (large > 0 > small)
    return large + carry, small - carry * size


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


def _written(text: str, form: str) -> str:
    """Return an instant in a form such as `YYYY-MM-DD HH24:MI:SS`."""
    pattern = re.sub("|".join(_PATTERNS), lambda found: _PATTERNS[found[0]], form.replace("%", "%%"))
    return dt.datetime.fromisoformat(text).strftime(pattern)


# -- texts and arrays ------------------------------------------------------------------------------------------


def text_of(value: Any, type_: str) -> str:
    """Return a value of a type as PostgreSQL writes it."""
    if type_.startswith("_"):
        return array_text(value, lambda one: text_of(one, type_[1:]))
    if isinstance(value, list):
        return array_text(value, str)
    if type_ == "bool":
        return "t" if value else "f"
    if type_ == "numeric":
        return decimal_text(of_sorted_text(value))
    if type_ in ("float8", "float4"):
        return (float_text if type_ == "float8" else real_text)(value)
    return interval_text(read_interval(value)) if type_ == "interval" else str(value)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in _BOOLEANS:
        raise _refused("22P02", f"{text[:100]!r} is no boolean")
    return _BOOLEANS[word]


def _uuid(text: str) -> str:
    """Return a text as PostgreSQL writes a UUID: 32 hexadecimal digits, with or without hyphens and braces."""
    match = _UUID.fullmatch(text.strip())
    if match is None or bool(match[1]) != bool(match[3]):
        raise _refused("22P02", f"{text[:100]!r} is no uuid")
    return str(UUID(match[2]))


def _joined(values: Iterable[str | None] | None, separator: str | None, null: str | None = None) -> str | None:
    if values is None or separator is None:
        return None
    shown = (null if one is None else one for one in values)
    return separator.join(one for one in shown if one is not None)


def _collected(values: Sequence[dict[str, str | None]]) -> str | None:
    """Return string_agg of texts, each with what stands before it."""
    given = [(one["v"], one["s"]) for one in values if one["v"] is not None]
    return "".join((separator or "") * (place > 0) + str(text) for place, (text, separator) in enumerate(given)) or (
        "" if given else None
    )


def _split(text: str | None, separator: str | None, null: str | None = None) -> list[str | None] | None:
    if text is None:
        return None
    parts = list(text) if separator is None else text.split(separator) if separator else [text]
    return [None if part == null else part for part in parts] if text else []


def quote_ident(name: str) -> str:
    """Return a name as it is written in a statement."""
    is_plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit() and name == name.lower()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def _quote_literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _formatted(form: str | None, *values: str | None) -> str | None:
    """Return a text in which `%s`, `%I` and `%L` are replaced by values, by themselves or by their numbers (`%1$s`)."""
    if form is None:
        return None
    at = 0

    def one(found: re.Match[str]) -> str:
        nonlocal at
        if found[0] == "%%":
            return "%"
        at = int(found[1]) if found[1] else at + 1
        if not 0 < at <= len(values):
            raise WireError("22023", "format has too few arguments", code="P0204")
        value = values[at - 1]
        if found[2] == "L":
            return "NULL" if value is None else _quote_literal(value)
        return quote_ident(value or "") if found[2] == "I" else value or ""

    return _PLACES.sub(one, form)


def parse_ident(text: str) -> list[str]:
    """Return the parts of a name."""
    parts = (part.strip() for part in text.split("."))
    return [part[1:-1].replace('""', '"') if part.startswith('"') and len(part) > 1 else part.lower() for part in parts]


def _encoded(value: str, form: str) -> str:
    """Return bytes, which are a text `\\x..`, as hex, base64 or escaped. Raises WireError 22023."""
    data = bytes.fromhex(value[2:]) if value.startswith("\\x") else value.encode()
    if form.lower() == "hex":
        return data.hex()
    if form.lower() == "base64":
        return base64.encodebytes(data).decode().rstrip("\n")
    if form.lower() == "escape":
        return "".join("\\\\" if one == 92 else chr(one) if 0 < one < 128 else f"\\{one:03o}" for one in data)
    raise _refused("22023", f"unknown encoding {form[:100]!r}", "hex, base64 or escape")


def _function_oid(name: str) -> int:
    """Return the number of a function, which is 0: `pg_proc` is empty. The catalogs name those that read and write
    types."""
    if name == "-" or re.search(r"(in|out|recv|send|handler|typanalyze)$", name):
        return 0
    raise WireError("42883", f"unknown function {name[:200]}", "\\df lists functions", code="P0204")


def _capitalized(text: str) -> str:
    return re.sub(r"[^\W_]+", lambda found: found[0].capitalize(), text)


#: By name: the type of the result for DuckDB, what is called, and whether it is called with NULL. A floating point
#: number is a text here: DuckDB takes one that is none for NULL.
FUNCTIONS: dict[str, tuple[str, Callable[..., Any], bool]] = {
    name: (type_, call, bool(rest))
    for name, type_, call, *rest in (
        ("px_whole", "BIGINT", whole), ("px_whole_of_numeric", "BIGINT", whole_of_numeric),
        ("px_real", "VARCHAR", lambda text: repr(real(text))),
        ("px_single", "VARCHAR", lambda number: repr(single(number))),
        ("px_calculated", "VARCHAR", lambda *given: repr(calculated_real(*given))),
        ("px_numeric", "VARCHAR", numeric),
        ("px_real_of_numeric", "VARCHAR", lambda one: repr(float(of_sorted_text(one)))),
        ("px_modified", "VARCHAR", lambda one, *digits: sorted_text(with_modifier(of_sorted_text(one), *digits))),
        ("px_decimal", "VARCHAR", lambda mark, *sides: sorted_text(calculated_decimal(mark, *_decimals(sides)))),
        ("px_scaled", "VARCHAR", lambda number, scale: sorted_text(Decimal(number).scaleb(-scale))),
        ("px_rounded", "VARCHAR", _rounded),
        ("px_absolute", "VARCHAR", lambda one: sorted_text(of_sorted_text(one).copy_abs())),
        ("px_sum", "VARCHAR", _total), ("px_avg", "VARCHAR", _average),
        ("px_boolean", "BOOLEAN", _boolean), ("px_uuid", "VARCHAR", _uuid), ("px_moment", "VARCHAR", _moment),
        ("px_interval", "VARCHAR", lambda text: sql_interval(read_interval(text))), ("px_times", "VARCHAR", _times),
        ("px_interval_total", "VARCHAR", _interval_total), ("px_justified", "VARCHAR", _justified),
        ("px_written", "VARCHAR", _written),
        ("px_text", "VARCHAR", text_of), ("px_elements", "VARCHAR[]", array_elements),
        ("px_joined", "VARCHAR", _joined, True), ("px_collected", "VARCHAR", _collected),
        ("px_split", "VARCHAR[]", _split, True), ("px_format", "VARCHAR", _formatted, True),
        ("px_quote_ident", "VARCHAR", quote_ident), ("px_quote_literal", "VARCHAR", _quote_literal),
        ("px_parse_ident", "VARCHAR[]", parse_ident), ("px_encode", "VARCHAR", _encoded),
        ("px_function_oid", "BIGINT", _function_oid), ("px_capitalized", "VARCHAR", _capitalized),
        *JSON_FUNCTIONS,
    )
}  # fmt: skip
