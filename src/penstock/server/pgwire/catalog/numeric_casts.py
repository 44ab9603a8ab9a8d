"""Casts to numbers as PostgreSQL has them. SQLite's turn what is no number into 0, cut off fractions, and stop at the
ends of the range."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal

from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.wire_types import WireType

INTEGERS = {"int2": (-(1 << 15), (1 << 15) - 1), "int4": (-(1 << 31), (1 << 31) - 1),
            "int8": (-(1 << 63), (1 << 63) - 1), "oid": (0, (1 << 32) - 1), "xid": (0, (1 << 32) - 1)}  # fmt: skip
_WHOLE = re.compile(r"\s*([+-]?\d{1,40})\s*", re.ASCII)
_REAL = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\s*", re.IGNORECASE | re.ASCII)

#: What SQLite has for a value.
_Value = str | int | float | bytes | None


def keeps_values(inner: WireType | None, target: WireType) -> bool:
    """Return whether every value of a type is one of `target`, so that nothing needs to be checked."""
    if inner is None:
        return False
    if target.name not in INTEGERS:
        return inner.name in INTEGERS or inner.name in ("float4", "float8", "numeric")
    if inner.name not in INTEGERS:
        return inner.name == "bool"
    (low, high), (least, most) = INTEGERS[inner.name], INTEGERS[target.name]
    return least <= low and high <= most


def _to_integer(type_: str, shown: str) -> Callable[..., int | None]:
    least, most = INTEGERS[type_]

    def cast(value: _Value, is_decimal: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, float):
            if not math.isfinite(value):
                raise WireError("22003", f"{value} is no {shown}", code="P0203")
            # A decimal is rounded away from 0, a floating point number to the even one.
            number = int(Decimal(repr(value)).to_integral_value(ROUND_HALF_UP if is_decimal else ROUND_HALF_EVEN))
        elif isinstance(value, int):
            number = value
        else:
            match = _WHOLE.fullmatch(str(value))
            if match is None:
                raise WireError("22P02", f"{str(value)[:100]!r} is no {shown}", code="P0203")
            number = int(match[1])
        if not least <= number <= most:
            raise WireError("22003", f"{number} is out of the range of {shown}", code="P0203")
        return number

    return cast


def _to_real(value: _Value) -> float | None:
    """Return a text as a number."""
    if value is None or isinstance(value, float):
        return value
    text = str(value)
    if not isinstance(value, int) and _REAL.fullmatch(text) is None:
        raise WireError("22P02", f"{text[:100]!r} is no number", code="P0203")
    number = float(text)
    if not math.isfinite(number):
        raise WireError("22003", f"{text[:100]} is out of range", code="P0203")
    return number


#: By name, the type of its result and what carries it out.
NUMERIC_CASTS: Mapping[str, tuple[str, Callable[..., int | float | None]]] = {
    "pg_int2": ("int2", _to_integer("int2", "smallint")),
    "pg_int4": ("int4", _to_integer("int4", "integer")),
    "pg_int8": ("int8", _to_integer("int8", "bigint")),
    "pg_oid": ("oid", _to_integer("oid", "oid")),
    "pg_xid": ("xid", _to_integer("xid", "xid")),
    "pg_real": ("float8", _to_real),
}
