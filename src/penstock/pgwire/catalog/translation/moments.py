"""Operations with instants, days and lengths of time, and functions of them, as texts for DuckDB."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.pgwire.catalog.translation.scopes import SqlColumn, text_literal
from penstock.pgwire.catalog.translation.typed_values import (
    INT,
    INTERVAL,
    MOMENT_TYPES,
    NUMERIC,
    REAL,
    TEXT,
    as_type,
    cast,
    is_number,
    made,
    name_of,
)
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.intervals import read_interval, sql_interval
from penstock.pgwire.values.wire_types import WireType, wire_type

_OF_TIME = MOMENT_TYPES | {"interval"}
_TIMESTAMP, _WITH_ZONE = wire_type("timestamp"), wire_type("timestamptz")
#: Functions whose first or last argument is an instant.
FUNCTIONS = frozenset({"date_part", "date_trunc", "age", "timezone", "to_char"})


def _shown(type_: WireType | None) -> str:
    return "unknown" if type_ is None else type_.shown


def interval(text: str, unit: str = "") -> SqlColumn:
    """Return a literal. unit: of a number without one."""
    return SqlColumn(f"{text_literal(sql_interval(read_interval(text, unit)))}::INTERVAL", INTERVAL)


def operation(mark: str, left: SqlColumn, right: SqlColumn) -> SqlColumn | None:
    """Return an operation with instants or lengths of time; None where neither side is one. Raises WireError 42883."""
    if not {name_of(left), name_of(right)} & _OF_TIME:
        return None
    left, right = _typed(mark, left, right), _typed(mark, right, left, is_left=False)
    names = name_of(left), name_of(right)
    plain = f"({left.text} {mark} {right.text})"
    if names == ("interval", "interval") and mark in "+-":
        return SqlColumn(plain, INTERVAL)
    if mark == "+" and names[0] == "interval" and names[1] in MOMENT_TYPES:
        return SqlColumn(plain, _TIMESTAMP if names[1] == "date" else right.type)
    if mark in "+-" and names[0] in MOMENT_TYPES and names[1] == "interval":
        return SqlColumn(plain, _TIMESTAMP if names[0] == "date" else left.type)
    if mark == "-" and names == ("date", "date"):
        return SqlColumn(f"{plain}::INTEGER", INT)
    if mark == "-" and names[0] in MOMENT_TYPES and names[1] in MOMENT_TYPES:
        common = _WITH_ZONE if "timestamptz" in names else _TIMESTAMP
        return SqlColumn(f"({cast(left, common).text} - {cast(right, common).text})", INTERVAL)
    whole = ("int2", "int4")
    if mark in "+-" and names[0] == "date" and names[1] in whole:
        return SqlColumn(f"({left.text} {mark} {right.text}::INTEGER)", left.type)
    if mark == "+" and names[1] == "date" and names[0] in whole:
        return SqlColumn(f"({right.text} + {left.text}::INTEGER)", right.type)
    if mark in "*/" and names[0] == "interval" and right.type is not None and is_number(right.type):
        return _times(left, right, mark == "/")
    if mark == "*" and names[1] == "interval" and left.type is not None and is_number(left.type):
        return _times(right, left, False)
    given = " ".join((_shown(left.type), mark, _shown(right.type)))
    raise WireError("42883", f"there is no operator {given}", "cast a side to the other's type", code="P0204")


def _typed(mark: str, one: SqlColumn, other: SqlColumn, is_left: bool = True) -> SqlColumn:
    """Return a text without a type as what PostgreSQL takes it for beside an instant or a length of time."""
    if one.type is not None or not {name_of(other)} & _OF_TIME:
        return one
    if mark in "*/":
        return cast(one, REAL)
    alike = mark == "-" and not is_left and name_of(other) != "interval"
    return as_type(one, other.type if alike else INTERVAL)


def _times(length: SqlColumn, factor: SqlColumn, divides: bool) -> SqlColumn:
    return made("px_times", INTERVAL, f"{length.text}::VARCHAR", cast(factor, REAL).text, str(divides).lower())


# -- parts -----------------------------------------------------------------------------------------------------

#: By part: the text of a whole number, and how many of its digits stand behind the point.
_OF_ALL = {
    **{name: (f"extract({name} FROM {{}})", 0) for name in ("year", "month", "day", "quarter", "decade", "century")},
}
_OF_CLOCK = {
    "hour": ("extract(hour FROM {})", 0),
    "minute": ("extract(minute FROM {})", 0),
    "second": ("extract(microseconds FROM {})", 6),
    "milliseconds": ("extract(microseconds FROM {})", 3),
    "microseconds": ("extract(microseconds FROM {})", 0),
}
_OF_DAYS = {
    **_OF_ALL,
    **{name: (f"extract({name} FROM {{}})", 0) for name in ("dow", "isodow", "doy", "week", "isoyear", "millennium")},
}
_PARTS: dict[str, dict[str, tuple[str, int]]] = {
    "date": {**_OF_DAYS, "epoch": ("epoch({})::BIGINT", 0)},
    "timestamp": {**_OF_DAYS, **_OF_CLOCK, "epoch": ("epoch_us({})", 6)},
    "timestamptz": {**_OF_DAYS, **_OF_CLOCK, "epoch": ("epoch_us({})", 6),
                    **dict.fromkeys(("timezone", "timezone_hour", "timezone_minute"), ("0 * epoch_us({})", 0))},
    "interval": {**_OF_ALL, **_OF_CLOCK, "epoch": ("round(epoch({}) * 1000000)::BIGINT", 6)},
}  # fmt: skip
_KNOWN = frozenset(name for parts in _PARTS.values() for name in parts) | {"julian"}


def extracted(field: str | None, one: SqlColumn, as_real: bool = False) -> SqlColumn:
    """Return a part of an instant or a length of time: a `numeric`, or a `float8`. Raises WireError."""
    one = as_type(one, _WITH_ZONE)
    parts = _PARTS.get(name_of(one))
    if parts is None or field is None:
        raise WireError("42883", f"a {_shown(one.type)} has no parts", code="P0204")
    name = field.lower()
    plural = {"seconds": "second", "millisecond": "milliseconds", "microsecond": "microseconds"}
    name = plural.get(name, name.removesuffix("s") if name.removesuffix("s") in parts else name)
    if name not in parts:
        known = name in _KNOWN
        message = f"the part {name[:100]} of a {name_of(one)} is not known"
        raise WireError("0A000" if known else "22023", message, code="P0901" if known else "P0203")
    text, scale = parts[name]
    text = text.replace("{}", one.text)
    if as_real:
        return SqlColumn(f"({text}::DOUBLE / {10**scale})", REAL)
    return made("px_scaled", NUMERIC, text, str(scale))


_TRUNCATED = frozenset(
    {
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
    }
)


def _truncated(field: str | None, one: SqlColumn) -> SqlColumn:
    """Return the beginning of the hour, day and so on of an instant. Raises WireError 22023."""
    name = (field or "").lower().removesuffix("s")
    name = {"microsecond": "microseconds", "millisecond": "milliseconds", "centurie": "century"}.get(name, name)
    if name.removesuffix("s") not in _TRUNCATED:
        raise WireError("22023", f"the part {name[:100]} of an instant is not known", code="P0203")
    one = cast(one, _WITH_ZONE) if name_of(one) != "timestamp" else one
    text = one.text
    if name in ("century", "millennium"):
        # They begin with the year 1.
        text = f"date_trunc('{name}', {text} - INTERVAL 1 YEAR) + INTERVAL 1 YEAR"
        return SqlColumn(f"({text})", one.type)
    return SqlColumn(f"date_trunc('{name}', {text})", one.type)


def in_zone(zone: SqlColumn, one: SqlColumn) -> SqlColumn:
    """Return `one AT TIME ZONE zone`."""
    one = as_type(one, _WITH_ZONE)
    one = cast(one, _WITH_ZONE) if name_of(one) == "date" else one
    if name_of(one) not in MOMENT_TYPES:
        raise WireError("42883", f"a {_shown(one.type)} has no time zone", code="P0204")
    result = _TIMESTAMP if name_of(one) == "timestamptz" else _WITH_ZONE
    return SqlColumn(f"timezone({zone.text}, {one.text})", result)


def called(name: str, fields: Sequence[str | None], given: Sequence[SqlColumn]) -> SqlColumn:
    """Return a call of one of FUNCTIONS. fields: the first argument where it is a literal. Raises WireError 42883."""
    if name == "date_part" and len(given) == 2:
        return extracted(fields[0], given[1], as_real=True)
    if name == "timezone" and len(given) == 2:
        return in_zone(*given)
    if name == "to_char" and len(given) == 2 and (given[0].type is None or name_of(given[0]) in MOMENT_TYPES):
        return made("px_written", TEXT, f"{as_type(given[0], _WITH_ZONE).text}::VARCHAR", given[1].text)
    if name == "date_trunc" and len(given) == 2 and name_of(one := as_type(given[1], _WITH_ZONE)) in MOMENT_TYPES:
        return _truncated(fields[0], one)
    if name == "age" and [name_of(one) for one in given] == ["xid"]:
        # All is frozen.
        return SqlColumn(f"CASE WHEN {given[0].text} IS NOT NULL THEN 2147483647 END", INT)
    if name == "age" and len(given) in (1, 2):
        ends = [as_type(one, _TIMESTAMP) for one in given]
        ends = ends if len(ends) == 2 else [SqlColumn("$now::TIMESTAMPTZ::DATE", wire_type("date")), *ends]
        common = _WITH_ZONE if "timestamptz" in map(name_of, ends) else _TIMESTAMP
        return SqlColumn(f"age({', '.join(cast(one, common).text for one in ends)})", INTERVAL)
    types = ", ".join(_shown(one.type) for one in given)
    raise WireError("42883", f"there is no function {name}({types})", code="P0204")
