"""Values of `numeric` as texts, exact, with the digits behind the point that each of them has; and what is calculated
with them, as PostgreSQL does."""

from __future__ import annotations

import decimal
import re
from decimal import ROUND_05UP, ROUND_HALF_UP, Decimal

from penstock.pgwire.protocol.errors import WireError

#: Digits before and behind the point that a value may have.
_MOST_BEFORE, _MOST_BEHIND = 131_072, 16_383
#: The least number of digits of a quotient, and the most behind its point.
_LEAST_DIGITS, _MOST_OF_QUOTIENT = 16, 1_000
_EXACT = decimal.Context(
    prec=2 * (_MOST_BEFORE + _MOST_BEHIND), rounding=ROUND_HALF_UP, Emin=-999_999, Emax=999_999, traps=[]
)
_TEXT = re.compile(
    r"\s*(?:([+-]?)(?:(\d+\.?\d*|\.\d+)(?:e([+-]?\d+))?|(inf|infinity))|(nan))\s*", re.IGNORECASE | re.ASCII
)


def read_decimal(text: str) -> Decimal:
    """Return the value of a text. Raises WireError 22P02 for one that is no number, 22003 out of range."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise WireError("22P02", f"{text[:100]!r} is no number", code="P0203")
    if match[5]:
        return Decimal("NaN")
    if match[4]:
        return Decimal(f"{match[1]}Infinity")
    if match[3] and len(match[3]) > 8:
        raise _overflow()
    return _in_range(_EXACT.create_decimal(f"{match[1]}{match[2]}{'e' + match[3] if match[3] else ''}"))


def decimal_of_real(value: float, digits: int = 15) -> Decimal:
    """Return a floating point number as PostgreSQL casts it. digits: 6 for a `float4`."""
    return Decimal(value) if value != value or abs(value) == float("inf") else read_decimal(f"{value:.{digits}g}")


def decimal_text(value: Decimal) -> str:
    """Return a value as PostgreSQL writes it."""
    if not value.is_finite():
        return "NaN" if value.is_nan() else "Infinity" if value > 0 else "-Infinity"
    text = format(value, "f")
    return text[1:] if text.startswith("-") and not value else text


#: Digits of a scale in the text of a value, as letters: a capital is 1.
_SCALE_DIGITS = 14


def sorted_text(value: Decimal) -> str:
    """Return a value as DuckDB has it: a text. Compared without regard to the case of letters, such texts are equal and
    in order as the values are: NaN is equal to itself and behind all others. The letters at its end are the digits
    behind the point that the value is shown with."""
    scale = scale_of(value)
    letters = "".join("Z" if scale >> place & 1 else "z" for place in range(_SCALE_DIGITS))
    if not value.is_finite():
        return ("4" if value.is_nan() else "3" if value > 0 else "-") + letters
    if not value:
        return f"1.{letters}"
    sign, _, _ = value.as_tuple()
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    weight = value.adjusted() + _MOST_WEIGHT
    if sign:
        return f"0{2 * _MOST_WEIGHT - weight:06d}{digits.translate(_COMPLEMENT)}:{letters}"
    return f"2{weight:06d}{digits}.{letters}"


#: A weight of a digit that no value has, and what makes larger digits smaller.
_MOST_WEIGHT = 200_000
_COMPLEMENT = str.maketrans("0123456789", "9876543210")


def of_sorted_text(text: str) -> Decimal:
    """Return the value of a `sorted_text`."""
    body, letters = text[:-_SCALE_DIGITS], text[-_SCALE_DIGITS:]
    if (special := _SPECIAL.get(body)) is not None:
        return special
    scale = sum(1 << place for place, letter in enumerate(letters) if letter == "Z")
    if body == "1.":
        return Decimal(0).scaleb(-scale)
    weight, digits = int(body[1:7]), body[7:-1]
    if body[0] == "0":
        weight, digits = 2 * _MOST_WEIGHT - weight, "-" + digits.translate(_COMPLEMENT)
    value = Decimal(f"{digits}e{weight - _MOST_WEIGHT - len(digits.lstrip('-')) + 1}")
    return value.quantize(Decimal(1).scaleb(-scale), context=_EXACT)


_SPECIAL = {"4": Decimal("NaN"), "3": Decimal("Infinity"), "-": Decimal("-Infinity")}


def scale_of(value: Decimal) -> int:
    """Return the digits behind the point."""
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def rounded_decimal(value: Decimal, places: int, rounding: str = ROUND_HALF_UP) -> Decimal:
    """Return a value with so many digits behind the point, fewer than none for zeros before it."""
    if not value.is_finite():
        return value
    places = max(-2 * _MOST_BEFORE, min(_MOST_BEHIND, places))
    found = value.quantize(Decimal(1).scaleb(-places), rounding, _EXACT)
    return found.quantize(Decimal(1), context=_EXACT) if places < 0 else found


def with_modifier(value: Decimal, precision: int, scale: int) -> Decimal:
    """Return a value as one of `numeric(precision, scale)`. Raises WireError 22003."""
    if value.is_nan():
        return value
    found = rounded_decimal(value, scale)
    if not found.is_finite() or (found and found.adjusted() >= precision - scale):
        message = f"{decimal_text(value)[:100]} has more digits than numeric({precision},{scale})"
        raise WireError("22003", message, code="P0203")
    return found


def calculated_decimal(mark: str, left: Decimal, right: Decimal) -> Decimal:
    """Return what `+ - * / %` give. Raises WireError 22012, 22003."""
    if left.is_nan() or right.is_nan():
        return Decimal("NaN")
    if mark in "/%" and right.is_finite() and not right:
        raise WireError("22012", "division by zero", code="P0203")
    if mark == "/":
        return _quotient(left, right)
    if mark == "%":
        if left.is_infinite() or right.is_infinite():
            return Decimal("NaN") if left.is_infinite() else left
        found = _EXACT.remainder(left, right)
        return rounded_decimal(found, max(scale_of(left), scale_of(right)))
    call = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[mark]
    return _in_range(call(left, right))


def _quotient(left: Decimal, right: Decimal) -> Decimal:
    if left.is_infinite() or right.is_infinite():
        if left.is_infinite() and right.is_infinite():
            return Decimal("NaN")
        return _EXACT.divide(left, right) if left.is_infinite() else Decimal(0)
    scale = quotient_scale(left, right)
    digits = max(1, left.adjusted() - right.adjusted() + scale + 8)
    # What is cut off is known to be there or not, so that the second rounding is the only one.
    context = decimal.Context(prec=digits, rounding=ROUND_05UP, Emin=-999_999, Emax=999_999, traps=[])
    return _in_range(rounded_decimal(context.divide(left, right), scale))


def quotient_scale(left: Decimal, right: Decimal) -> int:
    """Return the digits behind the point of a quotient, from the weights of both in digits of base 10,000."""
    (weight, first), (by_weight, by_first) = _weight(left), _weight(right)
    weight = weight - by_weight - (first <= by_first)
    scale = max(_LEAST_DIGITS - 4 * weight, scale_of(left), scale_of(right), 0)
    return min(scale, _MOST_OF_QUOTIENT)


def _weight(value: Decimal) -> tuple[int, int]:
    """Return the weight of the first digit of base 10,000, and the digit."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    digits = value.as_tuple().digits
    count = value.adjusted() - 4 * weight + 1
    return weight, int("".join(map(str, digits[:count])).ljust(count, "0"))


def _in_range(value: Decimal) -> Decimal:
    if not value.is_finite():
        return value
    if value and value.adjusted() >= _MOST_BEFORE:
        raise _overflow()
    if scale_of(value) > _MOST_BEHIND:
        value = rounded_decimal(value, _MOST_BEHIND)
    # 1e3 is 1000.
    return value.quantize(Decimal(1), context=_EXACT) if value.as_tuple().exponent > 0 else value  # type: ignore[operator]  # finite, so a number


def _overflow() -> WireError:
    return WireError("22003", "a value is out of the range of numeric", code="P0203")
