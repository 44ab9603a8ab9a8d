"""Values of a column on the wire, as text and in binary.

Texts are those of PostgreSQL's output functions with DateStyle ISO, IntervalStyle postgres, bytea_output hex and
extra_float_digits 1. Instants are written in UTC.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.values.intervals import PgInterval, interval_bytes, read_interval
from penstock.pgwire.values.texts import array_text, float_text, real_text
from penstock.pgwire.values.wire_types import WireType, type_of_oid

#: A function from a value that is not NULL to its bytes.
Encoder = Callable[[Any], bytes]

_DAY = 86_400_000_000
#: Days and microseconds from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
_EPOCH_DAYS = 10_957
_EPOCH = _EPOCH_DAYS * _DAY
_FINITE = 2**63


def encoded(column: pa.Array, type_: WireType, binary: bool) -> list[bytes | None]:
    """Return the values of a column, None for NULL. Raises WireError 22008 for an instant that PostgreSQL lacks."""
    encode = _binary(type_.oid) if binary else _text(type_.oid)
    return [None if value is None else encode(value) for value in _plain(column)]


def _plain(column: pa.Array) -> list[Any]:
    """Return the values of a column as plain ones: of times the number of days or microseconds."""
    type_ = column.type
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        unit = pa.timestamp("us", type_.tz) if pa.types.is_timestamp(type_) else pa.duration("us")
        values: list[Any] = column.cast(unit).cast(pa.int64()).to_pylist()
        return values
    if pa.types.is_date32(type_):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_list(type_):
        rows: list[Any] = []
        for index in range(len(column)):
            one = column[index]
            rows.append(_plain(one.values) if one.is_valid else None)
        return rows
    return list(column.to_pylist())


# -- text ------------------------------------------------------------------------------------------------------


def _text(oid: int) -> Encoder:
    type_ = type_of_oid(oid)
    if type_ is not None and type_.element:
        element = _text(type_.element)
        return lambda values: array_text(values, lambda value: element(value).decode()).encode()
    return _TEXT.get(oid, _other)


def _other(value: Any) -> bytes:
    return str(value).encode("utf-8", "replace")


def _string(value: str) -> bytes:
    # A text of the protocol has a length, but one with a NUL is a text that PostgreSQL's clients do not expect.
    return value.encode("utf-8", "replace")


def _date_parts(days: int) -> tuple[int, int, int]:
    """Return year, month and day of days since 1970-01-01, in the Gregorian calendar; the year 0 is 1 BC."""
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    of_month = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, of_month


def _dated(days: int, rest: str = "") -> bytes:
    year, month, day = _date_parts(days)
    text = f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{rest}"
    return (text if year > 0 else f"{text} BC").encode()


def _clock(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _instant_text(value: int) -> bytes:
    days, rest = divmod(value, _DAY)
    return _dated(days, " " + _clock(rest) + "+00")


def _local_text(value: int) -> bytes:
    days, rest = divmod(value, _DAY)
    return _dated(days, " " + _clock(rest))


def _interval_text(value: int | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return ("-" if value < 0 else "").encode() + _clock(abs(value)).encode()


def numeric_text(value: Any) -> bytes:
    """Return a `numeric` as PostgreSQL writes it; a text is one already."""
    return format(value, "f").encode() if isinstance(value, Decimal) else str(value).encode()


def _json_text(value: Any) -> bytes:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_json_other)).encode()


def _json_other(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else str(value)


_TEXT: dict[int, Encoder] = {
    16: lambda value: b"t" if value else b"f",
    17: lambda value: b"\\x" + value.hex().encode(),
    700: lambda value: real_text(value).encode(),
    701: lambda value: float_text(value).encode(),
    1700: numeric_text,
    1082: _dated,
    1114: _local_text,
    1184: _instant_text,
    1186: _interval_text,
    114: _json_text,
    25: _string,
    1043: _string,
    19: _string,
}

# -- binary ----------------------------------------------------------------------------------------------------


def _binary(oid: int) -> Encoder:
    type_ = type_of_oid(oid)
    if type_ is not None and type_.element:
        inner, number = _binary(type_.element), type_.element
        return lambda values: _array_binary(values, inner, number)
    return _BINARY.get(oid) or _text(oid)


def _packed(form: str) -> Encoder:
    packer = struct.Struct(form)
    return lambda value: packer.pack(value)


def _instant(value: int) -> bytes:
    moved = value - _EPOCH
    if not -_FINITE <= moved < _FINITE:
        raise WireError("22008", "an instant is out of the range of PostgreSQL's timestamps", code="P0203")
    return struct.pack("!q", moved)


def _numeric(value: Any) -> bytes:
    """Return a decimal as groups of four decimal digits, the first weighing 10000 to the power of `weight`."""
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        special = 0xC000 if exponent == "n" else 0xF000 if sign else 0xD000
        return struct.pack("!hhHh", 0, 0, special, 0)
    scale = max(0, -exponent)
    text = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole, fraction = (text[:-scale], text[-scale:].rjust(scale, "0")) if scale else (text, "")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    groups = [int((whole + fraction)[at : at + 4]) for at in range(0, len(whole + fraction), 4)]
    weight = len(whole) // 4 - 1
    while groups and not groups[0]:
        groups.pop(0)
        weight -= 1
    while groups and not groups[-1]:
        groups.pop()
    head = struct.pack("!hhHh", len(groups), weight if groups else 0, 0x4000 if sign and groups else 0, scale)
    return head + struct.pack(f"!{len(groups)}h", *groups)


def _array_binary(values: Sequence[Any], element: Encoder, oid: int) -> bytes:
    if not values:
        return struct.pack("!iiI", 0, 0, oid)
    parts = [struct.pack("!iiIii", 1, any(v is None for v in values), oid, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            one = element(value)
            parts += [struct.pack("!i", len(one)), one]
    return b"".join(parts)


_BINARY: dict[int, Encoder] = {
    16: lambda value: b"\x01" if value else b"\x00",
    17: bytes,
    20: _packed("!q"),
    21: _packed("!h"),
    23: _packed("!i"),
    26: _packed("!I"),
    28: _packed("!I"),
    24: _packed("!I"),
    700: _packed("!f"),
    701: _packed("!d"),
    1700: _numeric,
    1082: lambda days: struct.pack("!i", days - _EPOCH_DAYS),
    1114: _instant,
    1184: _instant,
    2950: lambda value: UUID(value).bytes,
    3802: lambda value: b"\x01" + _json_text(value),
    1186: lambda value: interval_bytes(read_interval(value) if isinstance(value, str) else PgInterval(0, 0, value)),
}
