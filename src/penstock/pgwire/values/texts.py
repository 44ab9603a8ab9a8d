"""Numbers and arrays as PostgreSQL writes them, and arrays as it reads them."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

_SPECIAL = frozenset('{},"\\ \t\n\r\v\f')


def float_text(value: float) -> str:
    """Return a `float8` as PostgreSQL writes it."""
    return _shortest(repr(float(value)), 15) if math.isfinite(value) else _special(value)


def real_text(value: float) -> str:
    """Return a `float4` as PostgreSQL writes it."""
    if not math.isfinite(value):
        return _special(value)
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    return _shortest(next(text for text in texts if _is_single(float(text), single)), 6)


def _is_single(value: float, single: float) -> bool:
    """Return whether a number with the precision of `float4` is another one."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] == single)
    except OverflowError:
        return False


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shortest(text: str, most: int) -> str:
    """Return a number with the digits of a text. most: digits before the point from which on it has an exponent."""
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int), "it is finite"
    shown = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    if not shown:
        text = "0"
    elif not -4 < point <= most:
        rest = f".{shown[1:]}" if len(shown) > 1 else ""
        text = f"{shown[0]}{rest}e{'-' if point < 1 else '+'}{abs(point - 1):02d}"
    elif point <= 0:
        text = "0." + "0" * -point + shown
    else:
        text = shown.ljust(point, "0")
        text = text[:point] + (f".{text[point:]}" if len(text) > point else "")
    return f"{'-' if sign else ''}{text}"


def array_text(values: Sequence[Any], element: Callable[[Any], str]) -> str:
    """Return an array as PostgreSQL writes it. element: what writes one of its values."""
    parts: list[str] = []
    for value in values:
        if value is None:
            parts.append("NULL")
            continue
        text = element(value)
        if not text or text.upper() == "NULL" or any(character in _SPECIAL for character in text):
            text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        parts.append(text)
    return "{" + ",".join(parts) + "}"


def array_elements(text: str) -> list[str | None]:
    """Return the elements of an array that is written so; of what is none, itself as the only one."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return [text]
    text = text[1:-1]
    if not text:
        return []
    found: list[str | None] = []
    at = 0
    while at <= len(text):
        if text[at : at + 1] == '"':
            part, at = "", at + 1
            while at < len(text) and text[at] != '"':
                at += text[at] == "\\"
                part += text[at : at + 1]
                at += 1
            found.append(part)
            at = text.find(",", at)
        else:
            end = text.find(",", at)
            plain = text[at : end if end >= 0 else None].strip()
            found.append(None if plain.upper() == "NULL" else plain)
            at = end
        if at < 0:
            break
        at += 1
    return found
