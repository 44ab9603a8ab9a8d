"""Casts to numbers as PostgreSQL has them. SQLite's turn what is no number into 0, cut off fractions, and stop at the
ends of the range.

SQLite has no NaN: among numbers it is the text `NaN`. Texts come behind all numbers there and are equal to themselves,
which is how PostgreSQL orders NaN.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

from penstock.server.pgwire.protocol.errors import UNSUPPORTED, WireError
from penstock.server.pgwire.values.decimals import decimal_of, decimal_text, read_decimal, with_modifier
from penstock.server.pgwire.values.encoding import float_text, real_text
from penstock.server.pgwire.values.wire_types import WireType

INTEGERS = {
    "int2": (-(1 << 15), (1 << 15) - 1),
    "int4": (-(1 << 31), (1 << 31) - 1),
    "int8": (-(1 << 63), (1 << 63) - 1),
    "oid": (0, (1 << 32) - 1),
    "xid": (0, (1 << 32) - 1),
}
REALS = frozenset({"float4", "float8", "numeric"})
SHOWN = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "oid": "oid",
    "xid": "xid",
    "float4": "real",
    "float8": "double precision",
    "numeric": "numeric",
}
#: What stands for the value that is no number.
NOT_A_NUMBER = "NaN"
_WHOLE = re.compile(r"\s*([+-]?\d{1,40})\s*", re.ASCII)
_REAL = re.compile(
    r"\s*(?:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|(inf|infinity))|(nan))\s*", re.IGNORECASE | re.ASCII
)

#: What SQLite has for a value, and for a number.
_Value = str | int | float | bytes | None
Number = int | float | str


def as_float(value: Number) -> float:
    """Return a number of SQLite's as one of Python's."""
    return math.nan if isinstance(value, str) else float(value)


def as_number(value: float) -> float | str:
    """Return a number of Python's as one of SQLite's."""
    return NOT_A_NUMBER if math.isnan(value) else value


def out_of_range(shown: str, type_: str) -> WireError:
    return WireError("22003", f"{shown[:100]} is out of the range of {SHOWN.get(type_, type_)}", code="P0203")


def keeps_values(inner: WireType | None, target: WireType) -> bool:
    """Return whether every value of a type is one of `target`, so that nothing needs to be checked."""
    if inner is None:
        return False
    if target.name == "numeric" or inner.name == "numeric":
        return inner.name == target.name
    if target.name not in INTEGERS:
        kept = ("int2", "float4") if target.name == "float4" else (*INTEGERS, "float4", "float8")
        return inner.name in kept
    if inner.name not in INTEGERS:
        return inner.name == "bool"
    (low, high), (least, most) = INTEGERS[inner.name], INTEGERS[target.name]
    return least <= low and high <= most


def _to_integer(type_: str) -> Callable[..., int | None]:
    (least, most), shown = INTEGERS[type_], SHOWN[type_]

    def cast(value: _Value, real: str) -> int | None:
        """Cast a value. real: its type, where that has fractions."""
        if value is None:
            return None
        if real == "numeric":
            value = _of_decimal(decimal_of(value), shown)  # type: ignore[arg-type]
        if isinstance(value, float) or (real and value == NOT_A_NUMBER):
            if isinstance(value, str) or not math.isfinite(value):
                text = value if isinstance(value, str) else float_text(value).decode()
                raise WireError("22003", f"{text} is no {shown}", code="P0203")
            # A floating point number is rounded to the even one.
            number = int(Decimal(repr(value)).to_integral_value(ROUND_HALF_EVEN))
        elif isinstance(value, int):
            number = value
        else:
            match = _WHOLE.fullmatch(str(value))
            if match is None:
                raise WireError("22P02", f"{str(value)[:100]!r} is no {shown}", code="P0203")
            number = int(match[1])
        if not least <= number <= most:
            raise out_of_range(str(number), type_)
        return number

    return cast


def _of_decimal(value: Decimal, shown: str) -> int:
    """Return a decimal as a whole number, rounded away from 0."""
    if not value.is_finite():
        raise WireError(UNSUPPORTED, f"{decimal_text(value)} is no {shown}", code="P0901")
    if value.adjusted() > 40:
        raise WireError("22003", f"{decimal_text(value)[:100]} is out of the range of {shown}", code="P0203")
    return int(value.to_integral_value(ROUND_HALF_UP))


def _to_decimal(value: _Value, type_: str = "", precision: int = 0, scale: int = 0) -> str | None:
    """Cast a value to `numeric`. type_: of it, where it is a floating point number; precision: 0 for any."""
    if value is None:
        return None
    if type_ == "float4" and isinstance(value, float) and math.isfinite(value):
        number = read_decimal(f"{value:.6g}")
    elif isinstance(value, int | float):
        number = decimal_of(value)
    else:
        number = read_decimal(str(value))
    return decimal_text(with_modifier(number, precision, scale) if precision else number)


def _to_real(value: _Value) -> float | str | None:
    """Return a text as a number."""
    if value is None or isinstance(value, float):
        return value
    text = str(value)
    match = None if isinstance(value, int) else _REAL.fullmatch(text)
    if not isinstance(value, int) and match is None:
        raise WireError("22P02", f"{text[:100]!r} is no number", code="P0203")
    if match is not None and match[2]:
        return NOT_A_NUMBER
    number = float(text)
    if math.isinf(number) and (match is None or not match[1]):
        raise WireError("22003", f"{text[:100]} is out of range", code="P0203")
    return number


def to_single(value: _Value) -> float | str | None:
    """Return a number, or a text as one, with the precision of `float4`."""
    number = _to_real(value)
    if number is None or isinstance(number, str) or math.isinf(number):
        return number
    try:
        found = float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise out_of_range(repr(number), "float4") from None
    if not found and number:
        raise out_of_range(repr(number), "float4")
    return found


def _real_shown(value: _Value, type_: str) -> str | None:
    """Return a number as PostgreSQL writes it."""
    if value is None:
        return None
    number = as_float(value)  # type: ignore[arg-type]
    return (real_text if type_ == "float4" else float_text)(number).decode()


#: By name, the type of its result and what carries it out.
NUMERIC_CASTS: Mapping[str, tuple[str, Callable[..., int | float | str | None]]] = {
    **{f"pg_{name}": (name, _to_integer(name)) for name in INTEGERS},
    "pg_numeric": ("numeric", _to_decimal),
    "pg_real": ("float8", _to_real),
    "pg_float4": ("float4", to_single),
    "pg_real_text": ("text", _real_shown),
}
