"""Values that a client sends for `$1`, `$2`: read by their types, and written as literals of the language.

A value never becomes a part of a statement as it came: it is read as a value of its type first, and its literal is
written from that.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from uuid import UUID

from penstock.language.statements.values import WrittenValue
from penstock.pgwire.protocol.errors import BAD_TEXT, WireError, unsupported
from penstock.pgwire.values.texts import array_elements
from penstock.pgwire.values.wire_types import WireType, type_of_oid, wire_type

#: A value as this server has it; of a text and of a date or an instant its text.
Scalar = bool | int | float | Decimal | str | bytes | None
#: An array is a list of them; only statements over the catalogs have such values.
Value = Scalar | list[Scalar]

_TRUE = frozenset({"t", "true", "y", "yes", "on", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "off", "0"})
_WHOLE = {"int2": 2, "int4": 4, "int8": 8, "oid": 4, "xid": 4}
_TEXTS = frozenset({"text", "varchar", "bpchar", "name", "unknown", "char", "json", "jsonb", "uuid", "regclass",
                    "regtype", "regproc", "regnamespace"})  # fmt: skip
_INSTANT = re.compile(
    r"\s*(\d{4,6})-(\d\d?)-(\d\d?)(?:[ T](\d\d?):(\d\d)(?::(\d\d)(\.\d{1,6})?\d*)?)?"
    r"\s*(Z|[+-]\d\d(?::?\d\d(?::\d\d)?)?)?\s*"
)
_OCTAL = re.compile(rb"\\([0-7]{3}|\\)")
#: The type of the language in which a value without another literal is written.
_CASTS = {
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "bool": "BOOLEAN",
    "bytea": "BINARY",
    "text": "STRING",
    "varchar": "STRING",
    "bpchar": "STRING",
}
_EPOCH = dt.datetime(2000, 1, 1)


class UnreadableValue(ValueError):
    """A value that is none of its type, with the reason."""


def read_value(data: bytes | None, type_: WireType, binary: bool, number: int) -> Value:
    """Return the value that a client sent. number: n of `$n`. Raises WireError 22P02, 22P03, 22021, 0A000."""
    if data is None:
        return None
    try:
        return _from_binary(data, type_) if binary else _from_text(_decoded(data), type_)
    except UnicodeDecodeError:
        raise WireError(BAD_TEXT, f"the value of ${number} is not UTF-8", code="P0203") from None
    except (struct.error, ValueError, OverflowError, InvalidOperation, RecursionError) as error:
        state = "22P03" if binary else "22P02"
        # Other errors are those of Python, whose words are about this program.
        reason = f": {error}" if isinstance(error, UnreadableValue) else ""
        message = f"the value of ${number} is no {type_.shown}{reason}"
        raise WireError(state, message, code="P0203") from None


def _decoded(data: bytes) -> str:
    return data.decode("utf-8")


def _from_text(text: str, type_: WireType) -> Value:
    name = type_.name
    if (element := type_of_oid(type_.element)) is not None:
        return [None if one is None else _scalar(_from_text(str(one), element)) for one in array_elements(text)]
    if name in _WHOLE:
        return _whole(int(text), name)
    if name == "bool":
        word = text.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError
    if name in ("float4", "float8"):
        return float(text)
    if name == "numeric":
        return _numeric(Decimal(text.strip()))
    if name == "bytea":
        if text.startswith("\\x"):
            return bytes.fromhex(text[2:])
        raw = text.encode()
        return _OCTAL.sub(lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 8) & 255]), raw)
    if name in ("date", "timestamp", "timestamptz"):
        return _instant(text, name == "date")
    if name in _TEXTS:
        return _without_nul(text)
    raise _no_type(type_)


def _from_binary(data: bytes, type_: WireType) -> Value:
    name = type_.name
    if type_.element:
        return _array(data)
    if name in _WHOLE:
        if len(data) != _WHOLE[name]:
            raise UnreadableValue(f"it has {len(data)} bytes")
        return int.from_bytes(data, "big", signed=name.startswith("int"))
    if name == "bool":
        (flag,) = struct.unpack("!B", data)
        return bool(flag)
    if name in ("float4", "float8"):
        (value,) = struct.unpack("!f" if name == "float4" else "!d", data)
        return float(value)
    if name == "numeric":
        return _numeric(_binary_numeric(data))
    if name == "bytea":
        return data
    if name == "date":
        (days,) = struct.unpack("!i", data)
        return (_EPOCH + dt.timedelta(days=days)).date().isoformat()
    if name in ("timestamp", "timestamptz"):
        (moved,) = struct.unpack("!q", data)
        return (_EPOCH + dt.timedelta(microseconds=moved)).isoformat(sep=" ") + "Z"
    if name == "uuid":
        return str(UUID(bytes=data))
    if name in _TEXTS:
        text = data.decode("utf-8")
        return _without_nul(text[1:] if name == "jsonb" and text[:1] == "\x01" else text)
    raise _no_type(type_)


def _array(data: bytes) -> list[Scalar]:
    dimensions, _, oid = struct.unpack_from("!iiI", data)
    element = type_of_oid(oid)
    if dimensions == 0:
        return []
    if dimensions != 1 or element is None:
        raise UnreadableValue("it has several dimensions, or elements of an unknown type")
    (count,) = struct.unpack_from("!i", data, 12)
    found: list[Scalar] = []
    at = 20
    for _ in range(count):
        (length,) = struct.unpack_from("!i", data, at)
        at += 4
        if length >= 0:
            if at + length > len(data):
                raise UnreadableValue("it ends in the middle")
            found.append(_scalar(_from_binary(data[at : at + length], element)))
            at += length
        else:
            found.append(None)
    return found


def _scalar(value: Value) -> Scalar:
    if isinstance(value, list):
        raise UnreadableValue("an array in an array")
    return value


def _no_type(type_: WireType) -> WireError:
    hint = "send it as a text, and CAST it in the statement"
    return WireError("0A000", f"values of the type {type_.shown} are not read", hint, code="P0901")


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise UnreadableValue("a text has no character with the code 0")
    return text


def _whole(value: int, name: str) -> int:
    bits = 8 * _WHOLE[name]
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if name.startswith("int") else (0, (1 << bits) - 1)
    if not least <= value <= most:
        raise UnreadableValue(f"{value} is out of range")
    return value


def _numeric(value: Decimal) -> Decimal:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise UnreadableValue("a decimal is a number")
    if len(value.as_tuple().digits) > 200 or abs(exponent) > 200:
        raise UnreadableValue("a decimal has 38 digits at most")
    return value


def _binary_numeric(data: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from("!hhHh", data)
    groups = struct.unpack_from(f"!{count}h", data, 8)
    if len(data) != 8 + 2 * count or sign not in (0, 0x4000) or any(not 0 <= group < 10_000 for group in groups):
        raise ValueError
    whole = 0
    for group in groups:
        whole = whole * 10_000 + group
    value = Decimal(whole).scaleb(4 * (weight - count + 1))
    exponent = -scale if scale >= 0 else 0
    digits = value.as_tuple()
    if isinstance(digits.exponent, int) and digits.exponent < exponent:
        value = Decimal((0, digits.digits[: len(digits.digits) + digits.exponent - exponent] or (0,), exponent))
    elif isinstance(digits.exponent, int) and digits.exponent > exponent and abs(digits.exponent) < 200:
        value = Decimal((0, digits.digits + (0,) * (digits.exponent - exponent), exponent))
    return -value if sign else value


def _instant(text: str, is_date: bool) -> str:
    match = _INSTANT.fullmatch(text)
    if match is None:
        raise ValueError
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    when = dt.datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0))
    if is_date:
        return when.date().isoformat()
    when = when.replace(microsecond=int(float(fraction or 0) * 1_000_000 + 0.5) if fraction else 0)
    if zone not in (None, "Z"):
        digits = zone[1:].replace(":", "").ljust(6, "0")
        shift = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:6]))
        when = when - shift if zone[0] == "+" else when + shift
    return when.isoformat(sep=" ") + "Z"


def literal(value: Value, type_: WireType) -> WrittenValue:
    """Return a value as a literal of the language. Raises WireError 0A000 for an array."""
    name = type_.name
    if isinstance(value, list) or (value is None and type_.element):
        raise unsupported("arrays are no values of the language", "name the values: IN ($1, $2)")
    if value is None:
        return WrittenValue.null().cast(_CASTS[name]) if name in _CASTS and name != "text" else WrittenValue.null()
    if isinstance(value, bool):
        return WrittenValue.boolean(value)
    if isinstance(value, int):
        return WrittenValue.number(str(value))
    if isinstance(value, bytes):
        return WrittenValue.binary(value)
    if isinstance(value, Decimal):
        return WrittenValue.number(format(value, "f"))
    if isinstance(value, float):
        return WrittenValue.string(repr(value)).cast(_CASTS[name])
    text = WrittenValue.string(value)
    return text.cast(_CASTS[name]) if name in ("date", "timestamp", "timestamptz") else text


def sample(type_: WireType) -> WrittenValue:
    """Return a literal of a type that is not NULL, to find the columns of a statement with it."""
    values: dict[str, Value] = {
        "bool": True,
        "numeric": Decimal("1.0"),
        "float4": 1.0,
        "float8": 1.0,
        "bytea": b"",
        "date": "2000-01-01",
        "timestamp": "2000-01-01 00:00:00Z",
        "timestamptz": "2000-01-01 00:00:00Z",
    }
    return literal(values.get(type_.name, 1 if type_.name in _WHOLE else ""), type_)


def declared_type(oid: int, found: Callable[[], WireType | None]) -> WireType:
    """Return the type of a parameter: the declared one, or else what `found` returns, or a text."""
    if oid in (0, 705):
        return found() or wire_type("text")
    known = type_of_oid(oid)
    if known is None:
        raise WireError("42704", f"there is no type with the oid {oid}", code="P0207")
    return known
