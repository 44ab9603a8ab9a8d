"""Column types, schemas, time domains and intervals.

A column type is a `pyarrow.DataType`, because Arrow is the one physical format. A `TimeDomain` is what one tick of a
query's time is [semantics 1]: microseconds for a TIMESTAMP column, the declared unit for an integer column.
"""

from __future__ import annotations

import datetime as dt
import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import pyarrow as pa

from penstock.errors import PenstockError, nearest

TIMESTAMP = pa.timestamp("us", tz="UTC")
#: What clocks show, of no zone: TIMESTAMP_NTZ.
WALL_CLOCK = pa.timestamp("us")
#: The type of a declared column whose type does not exist. No plan has such a column: its script has an error.
UNKNOWN_TYPE = pa.opaque(pa.null(), "unknown", "penstock")

#: The beginning and the end of time, in ticks. BEGIN is the `ts` of rows that are valid from the start (a static
#: relation); END (∞) is the `exp` of rows that never expire or whose expiration is not known yet. Sums with window
#: lengths must not overflow.
BEGIN = -(2**62)
END = 2**62
#: A timestamp lies between this many ticks before and after zero: so far from BEGIN and END that a window has room.
MOST_TICKS = 2**61
#: A length of time is shorter than this, in ticks: a timestamp and two lengths are an int64.
LONGEST_TICKS = 2**60


class Unit(enum.Enum):
    """Units of time; the value is the length in microseconds."""

    MICROSECOND = 1
    MILLISECOND = 1_000
    SECOND = 1_000_000
    MINUTE = 60_000_000
    HOUR = 3_600_000_000
    DAY = 86_400_000_000
    WEEK = 604_800_000_000

    @staticmethod
    def parse(word: str) -> Unit | None:
        """Return the unit of a word: singular, plural or usual short form, in any case; None when it names none."""
        return _UNIT_WORDS.get(word.lower())


#: Seconds since 1970 of instants from 2001 until 2100.
_PRESENT = range(1_000_000_000, 4_102_444_800)


def unit_of_present(number: int) -> Unit | None:
    """Return in which unit, of seconds, milliseconds and microseconds since 1970, a number is an instant of this
    century; None where it is in none."""
    units = (Unit.SECOND, Unit.MILLISECOND, Unit.MICROSECOND)
    return next((unit for unit in units if number * unit.value // Unit.SECOND.value in _PRESENT), None)


_UNIT_WORDS: dict[str, Unit] = {u.name.lower(): u for u in Unit}
_UNIT_WORDS |= {u.name.lower() + "s": u for u in Unit}
_UNIT_WORDS |= {
    "us": Unit.MICROSECOND,
    "ms": Unit.MILLISECOND,
    "s": Unit.SECOND,
    "sec": Unit.SECOND,
    "secs": Unit.SECOND,
    "min": Unit.MINUTE,
    "mins": Unit.MINUTE,
    "h": Unit.HOUR,
    "hr": Unit.HOUR,
    "hrs": Unit.HOUR,
    "d": Unit.DAY,
}


#: Characters, and the exponent, of a number that a length of time or a count of rows may need.
_MOST_DIGITS, _MOST_EXPONENT = 60, 60
_EXPONENT = re.compile(r"e([+-]?[0-9_]+)$", re.IGNORECASE)


def exact(text: str) -> Fraction:
    """Return the number in a text, exactly. Raises ValueError for a text without one, and for one with too many digits
    to write them all, as `1e999999999`."""
    exponent = _EXPONENT.search(text)
    if len(text) > _MOST_DIGITS or (exponent is not None and abs(int(exponent[1])) > _MOST_EXPONENT):
        raise ValueError("a number of too many digits")
    try:
        return Fraction(text)
    except ZeroDivisionError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True)
class Interval:
    """A length of time as written: `amount` of `unit`. Shown as `10 SECOND`."""

    amount: Fraction
    unit: Unit

    @staticmethod
    def parse(text: str) -> Interval | None:
        """Return the length of time in a text such as `10 seconds`; None where it is none."""
        words = text.split()
        unit = Unit.parse(words[1]) if len(words) == 2 else None
        try:
            return None if unit is None else Interval(exact(words[0]), unit)
        except ValueError:
            return None

    def __str__(self) -> str:
        amount = self.amount.numerator if self.amount.denominator == 1 else float(self.amount)
        return f"{amount} {self.unit.name}"


#: The first microsecond that has no ISO-8601 text of four digits for the year.
_YEAR_10000 = 253_402_300_800_000_000


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def microseconds_of(when: dt.datetime) -> int:
    """Return the microseconds since 1970 of an instant; UTC where it has no zone."""
    aware = when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class TimeDomain:
    """The meaning of a tick. `unit` is the tick; `calendar` is true for TIMESTAMP columns (ticks are microseconds since
    1970-01-01 UTC, shown as ISO-8601) and false for integer columns (shown as the integer)."""

    unit: Unit
    calendar: bool

    def ticks(self, interval: Interval) -> int:
        """Return `interval` in ticks. Raises PenstockError P0303 when it is not an integer number of ticks."""
        ticks = interval.amount * interval.unit.value / self.unit.value
        if ticks.denominator != 1:
            raise PenstockError(
                "P0303",
                f"{interval} is no whole number of ticks of {self.unit.name}",
                hint=f"declare the stream's timestamp with a finer UNIT, or use a multiple of 1 {self.unit.name}",
            )
        return int(ticks)

    def type(self) -> pa.DataType:
        """Return the Arrow type of a result's `ts` column."""
        return TIMESTAMP if self.calendar else pa.int64()

    def show(self, tick: int) -> str:
        """Return `tick` as text: ISO-8601 UTC for a calendar domain, else the integer."""
        if not self.calendar or not -(2**55) < tick < _YEAR_10000:
            return str(tick)
        when = _EPOCH + dt.timedelta(microseconds=tick)
        return when.strftime("%Y-%m-%dT%H:%M:%S") + (f".{when.microsecond:06d}" if when.microsecond else "") + "Z"

    def show_length(self, ticks: int) -> str:
        """Return a length of `ticks` as written in a query: in the largest unit that divides it, or in plain ticks."""
        size = ticks * self.unit.value
        for unit in sorted(Unit, key=lambda u: -u.value):
            if size % unit.value == 0 and size:
                return f"{size // unit.value} {unit.name}"
        return f"{ticks} ticks"


CALENDAR = TimeDomain(Unit.MICROSECOND, True)


@dataclass(frozen=True)
class Field:
    """A named column. `qualifier` is the alias or name of the source it came from, for name resolution only."""

    name: str
    type: pa.DataType
    qualifier: str | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a stream or relation, by position; names need not be unique inside a query."""

    fields: tuple[Field, ...]

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(f.type for f in self.fields)

    def index(self, name: str) -> int | None:
        """Return the position of the only column called `name` (case-insensitive), or None."""
        found = [i for i, f in enumerate(self.fields) if f.name.lower() == name.lower()]
        return found[0] if len(found) == 1 else None

    def qualified(self, qualifier: str) -> Schema:
        return Schema(tuple(Field(f.name, f.type, qualifier) for f in self.fields))


_TYPE_NAMES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(), "BOOL": pa.bool_(),
    "TINYINT": pa.int8(), "BYTE": pa.int8(), "SMALLINT": pa.int16(), "SHORT": pa.int16(),
    "INT": pa.int32(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "LONG": pa.int64(),
    "FLOAT": pa.float32(), "REAL": pa.float32(), "DOUBLE": pa.float64(),
    "STRING": pa.string(), "VARCHAR": pa.string(), "CHAR": pa.string(), "TEXT": pa.string(),
    "DATE": pa.date32(), "TIMESTAMP": TIMESTAMP, "TIMESTAMP_LTZ": TIMESTAMP, "TIMESTAMP_NTZ": WALL_CLOCK,
    "BINARY": pa.binary(),
    "DECIMAL": pa.decimal128(10, 0), "NUMERIC": pa.decimal128(10, 0), "DEC": pa.decimal128(10, 0),
}  # fmt: skip
#: Types of other systems -> what to declare in their place.
_ELSEWHERE = {
    **dict.fromkeys(("JSON", "JSONB", "VARIANT"), "declare it STRING: GET_JSON_OBJECT(json, '$.a.b') takes it apart"),
    **dict.fromkeys(("TIME", "TIMETZ"), "a time of day is a STRING, an instant a TIMESTAMP"),
    **dict.fromkeys(("UUID", "ENUM", "INET", "XML"), "declare it STRING"),
    **dict.fromkeys(("FLOAT64", "FLOAT8", "DOUBLE PRECISION"), "declare it DOUBLE"),
    **dict.fromkeys(("FLOAT32", "FLOAT4"), "declare it FLOAT"),
    **{
        name: f"declare it {type_}"
        for name, type_ in (
            ("INT8", "BIGINT"),
            ("INT64", "BIGINT"),
            ("INT32", "INT"),
            ("INT4", "INT"),
            ("INT16", "SMALLINT"),
            ("INT2", "SMALLINT"),
        )
    },
    **dict.fromkeys(("MONEY", "NUMBER"), "declare it DECIMAL(18, 2)"),
    **dict.fromkeys(("SERIAL", "BIGSERIAL"), "declare it BIGINT: the rows bring their numbers"),
}
#: The type of a length of time: expressions and results may have it, columns of sources may not.
INTERVAL_NAME = "INTERVAL DAY TO SECOND"
_DECIMAL = re.compile(r"^(?:DECIMAL|NUMERIC|DEC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$")
_SIZED = re.compile(r"^(VARCHAR|CHAR|STRING)\s*\(\s*\d+\s*\)$")


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of an SQL type name such as `DECIMAL(10,2)`. Raises PenstockError P0207 for an unknown
    one."""
    name = text.strip().upper()
    if name in _TYPE_NAMES:
        return _TYPE_NAMES[name]
    if match := _DECIMAL.match(name):
        precision, scale = int(match[1]), int(match[2] or 0)
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
        raise PenstockError("P0207", f"{text}: a DECIMAL has 1 to 38 digits, and at most as many decimals")
    if _SIZED.match(name):
        return pa.string()
    raise PenstockError("P0207", f"unknown type {text}", hint=unknown_type_hint(text))


def is_type_name(text: str) -> bool:
    """Return whether `text` is the name of a type, without digits in parentheses."""
    return text.strip().upper() in _TYPE_NAMES


def unknown_type_hint(text: str) -> str | None:
    if text.strip().upper().startswith("INTERVAL"):
        return (
            "an interval is the difference of two times, or written INTERVAL 10 SECOND; columns hold numbers or times"
        )
    if text.upper().startswith(("PERIOD", "VALID", "FOR ")) or text.upper().endswith("RANGE"):
        return "a period is two columns, its begin and its end: a TIMESTAMP, b TIMESTAMP, PERIOD FOR VALID (a, b)"
    if text.upper().startswith(("ARRAY", "MAP", "STRUCT")):
        return "columns hold single values: of json declare it STRING, and the text of the array or object is kept"
    return _ELSEWHERE.get(re.sub(r"\s*\(.*", "", text).strip().upper()) or nearest(text, _TYPE_NAMES)


def parse_result_type(text: str) -> pa.DataType:
    """Return the type as `parse_type` does, and the types of results only: intervals, ARRAY<type> and STRUCT<name:
    type, ...>."""
    name = text.strip()
    if name == INTERVAL_NAME:
        return pa.duration("us")
    if name.startswith("ARRAY<"):
        return pa.list_(parse_result_type(name.removeprefix("ARRAY<").removesuffix(">")))
    if name.startswith("STRUCT<"):
        parts = (part.split(": ", 1) for part in _TOP_COMMA.split(name.removeprefix("STRUCT<").removesuffix(">")))
        return pa.struct([(field, parse_result_type(type_)) for field, type_ in parts])
    return parse_type(name)


#: A comma between fields, not the one of DECIMAL(10,2).
_TOP_COMMA = re.compile(r", ")


def is_type(type_: pa.DataType) -> bool:
    """Return whether a column of the language can be of an Arrow type."""
    return type_ in _TYPE_NAMES.values() or pa.types.is_decimal128(type_)


def type_name(type_: pa.DataType) -> str:
    """Return the SQL name of an Arrow type: the inverse of `parse_result_type`."""
    if pa.types.is_list(type_):
        return f"ARRAY<{type_name(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{f.name}: {type_name(f.type)}' for f in type_)}>"
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "DATE", "BINARY"):
        if _TYPE_NAMES[name] == type_:
            return name
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz else "TIMESTAMP_NTZ"
    if pa.types.is_duration(type_):
        return INTERVAL_NAME
    if pa.types.is_null(type_):
        return "NULL"
    return str(type_).upper()
