"""Arithmetic as PostgreSQL has it: SQLite's divides by 0, leaves the range of a type, and has no NaN."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from typing import Any

from penstock.server.pgwire.catalog.numeric_casts import (
    INTEGERS,
    REALS,
    Number,
    as_float,
    as_number,
    out_of_range,
    to_single,
)
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.decimals import (
    calculated_decimal,
    decimal_of,
    decimal_text,
    order_of,
    rounded_decimal,
)


def _divided_by_zero() -> WireError:
    return WireError("22012", "division by zero", code="P0203")


def _quotient(left: float, right: float) -> float:
    if right == 0:
        if math.isnan(left):
            return left
        raise _divided_by_zero()
    return left / right


def _rest(left: float, right: float) -> float:
    if right == 0 and not math.isnan(left):
        raise _divided_by_zero()
    return math.nan if math.isnan(left) or math.isinf(left) or math.isnan(right) else math.fmod(left, right)


def _whole_quotient(left: int, right: int) -> int:
    if right == 0:
        raise _divided_by_zero()
    # Towards 0, as in C.
    return -(-left // right) if (left < 0) != (right < 0) else left // right


def _whole_rest(left: int, right: int) -> int:
    return left - right * _whole_quotient(left, right)


_REAL: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _quotient,
    "%": _rest,
}
_WHOLE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _whole_quotient,
    "%": _whole_rest,
}


_WAYS = {"ceil": ROUND_CEILING, "ceiling": ROUND_CEILING, "floor": ROUND_FLOOR, "trunc": ROUND_DOWN}


def calculated(mark: str, type_: str, left: Number | None, right: Number | None) -> int | float | str | None:
    """Return what an operation of two numbers gives. type_: of the result."""
    if left is None or right is None:
        return None
    if type_ == "numeric":
        return decimal_text(calculated_decimal(mark, decimal_of(left), decimal_of(right)))
    if type_ in REALS:
        a, b = as_float(left), as_float(right)
        try:
            found = _REAL[mark](a, b)
        except OverflowError:
            found = math.inf
        is_lost = mark in "*/" and not found and a and ((math.isfinite(b) and b) or (mark == "/" and not math.isinf(b)))
        if is_lost or (math.isinf(found) and not math.isinf(a) and not math.isinf(b)):
            raise out_of_range(f"{a!r} {mark} {b!r}", type_)
        return to_single(as_number(found)) if type_ == "float4" else as_number(found)
    number = _WHOLE[mark](int(left), int(right))
    least, most = INTEGERS[type_]
    if not least <= number <= most:
        raise out_of_range(str(number), type_)
    return number


def negated(value: Number | None, type_: str) -> int | float | str | None:
    """Return a number with the other sign."""
    if value is None:
        return None
    if type_ == "numeric":
        return decimal_text(decimal_of(value).copy_negate())
    return as_number(-as_float(value)) if type_ in REALS else calculated("-", type_, 0, value)


def rounded(value: Number | None, type_: str, way: str, digits: int | None = 0) -> int | float | str | None:
    """Return a number with so many digits behind the point. way: the function; the type of `round` decides how it
    rounds what is in the middle."""
    if value is None or digits is None:
        return None
    if type_ == "numeric":
        # Which is exact: the digits before the point are kept.
        rounding = _WAYS.get(way, ROUND_HALF_UP)
        return decimal_text(rounded_decimal(decimal_of(value), max(-2_000, min(2_000, int(digits))), rounding))
    if isinstance(value, str) or math.isinf(value):
        return value
    rounding = _WAYS.get(way, ROUND_HALF_EVEN)
    places = max(-400, min(400, int(digits)))
    number = Decimal(repr(value))
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and -exponent <= places:
        return value
    return float(number.quantize(Decimal(1).scaleb(-places), rounding))


def absolute(value: Number | None, type_: str) -> int | float | str | None:
    """Return a number without its sign."""
    if value is not None and type_ == "numeric":
        return decimal_text(decimal_of(value).copy_abs())
    if value is None or type_ in REALS:
        return None if value is None else as_number(abs(as_float(value)))
    return negated(value, type_) if int(value) < 0 else value


class WindowedSum(ABC):
    """SQLite's interface of a sum from which rows are removed again."""

    def __init__(self) -> None:
        self.count = 0
        self._special: dict[str, int] = {}

    def step(self, value: Any) -> None:
        self._count_in(value, 1)

    def inverse(self, value: Any) -> None:
        self._count_in(value, -1)

    def _count_in(self, value: Any, by: int) -> None:
        if value is not None:
            self.count += by
            self._add(value, by)

    @abstractmethod
    def _add(self, value: Any, by: int) -> None:
        """Add a value, or with `by` of -1 take it away."""

    def _add_special(self, name: str, by: int) -> None:
        """Count a value that cannot be taken away from a sum."""
        self._special[name] = self._special.get(name, 0) + by

    @abstractmethod
    def value(self) -> float | str | None:
        """Return the answer."""

    def finalize(self) -> float | str | None:
        return self.value()


class RealSum(WindowedSum):
    """SUM of numbers that may be none or endless; also over windows."""

    def __init__(self) -> None:
        super().__init__()
        self._finite = 0.0

    def _add(self, value: Any, by: int) -> None:
        number = as_float(value)
        if math.isfinite(number):
            self._finite += by * number
        else:
            self._add_special(str(number), by)

    def total(self) -> float | None:
        """Return the sum; None of nothing."""
        if not self.count:
            return None
        return sum((float(name) for name, count in self._special.items() if count), self._finite)

    def value(self) -> float | str | None:
        total = self.total()
        return None if total is None else as_number(total)


class RealAverage(RealSum):
    """AVG of such numbers."""

    def value(self) -> float | str | None:
        total = self.total()
        return None if total is None else as_number(total / self.count)


class DecimalSum(WindowedSum):
    """SUM of `numeric` and of whole numbers that may leave their range; also over windows."""

    def __init__(self) -> None:
        super().__init__()
        self._finite = Decimal(0)

    def _add(self, value: Any, by: int) -> None:
        number = decimal_of(value)
        if number.is_finite():
            self._finite = calculated_decimal("+" if by > 0 else "-", self._finite, number)
        else:
            self._add_special(decimal_text(number), by)

    def total(self) -> Decimal | None:
        """Return the sum; None of nothing."""
        if not self.count:
            return None
        found = self._finite
        for name, count in self._special.items():
            found = calculated_decimal("+", found, Decimal(name)) if count else found
        return found

    def value(self) -> str | None:
        total = self.total()
        return None if total is None else decimal_text(total)


class DecimalAverage(DecimalSum):
    """AVG of such numbers."""

    def value(self) -> str | None:
        total = self.total()
        return None if total is None else decimal_text(calculated_decimal("/", total, Decimal(self.count)))


def _first_decimal(call: Callable[..., Decimal]) -> Callable[..., str | None]:
    """Return `greatest` or `least` of decimals."""

    def apply(*values: Any) -> str | None:
        known = [decimal_of(value) for value in values if value is not None]
        return decimal_text(call(known, key=order_of)) if known else None

    return apply


#: What the translation calls, by name: the type of its result and what carries it out.
ARITHMETIC: dict[str, tuple[str, Callable[..., Any]]] = {
    "pg_calculated": ("", calculated),
    "pg_negated": ("", negated),
    "pg_rounded": ("", rounded),
    "pg_absolute": ("", absolute),
    "pg_greatest": ("numeric", _first_decimal(max)),
    "pg_least": ("numeric", _first_decimal(min)),
}
