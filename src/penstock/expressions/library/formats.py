"""FORMAT_STRING: values put into a text at its directives, as Java's Formatter has them, which Spark calls."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.coercion import (
    BOOLEAN,
    INT,
    NULL,
    STRING,
    implicit,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
    misfit,
)
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import LONGEST_BYTES, Arguments, Datum, is_scalar, over_distinct
from penstock.types import type_name

_DIRECTIVE = re.compile(
    r"%(?:(?P<index>[1-9]\d*)\$)?(?P<flags>[-#+ 0,(<]*)(?P<width>[1-9]\d*)?(?:\.(?P<precision>\d+))?"
    r"(?P<letter>[a-zA-Z%])"
)
#: By letter in lower case, the flags that it takes.
_FLAGS = {
    "s": "-",
    "b": "-",
    "c": "-",
    "d": "-+ 0,(",
    "x": "-#0",
    "o": "-#0",
    "f": "-#+ 0,(",
    "e": "-#+ 0(",
    "g": "-+ 0,(",
}
_CAPITALS = "SBCXEG"
#: The longest width and precision, so that no row exhausts the machine.
_WIDEST = 2**20
_HINT = "directives are %s, %b, %c, %d, %x, %o, %f, %e, %g, %n and %%, as in FORMAT_STRING('%05d: %.2f', n, x)"


@dataclass(frozen=True)
class _Directive:
    """One directive. argument: the position of its value, None for %n and %%; letter: in lower case."""

    letter: str
    argument: int | None
    flags: str
    width: int
    precision: int | None
    capitals: bool

    def takes(self, type_: pa.DataType) -> bool:
        if type_ == NULL or self.letter in "sb":
            return True
        if self.letter in "fge":
            return is_float(type_) or is_decimal(type_)
        return is_integer(type_) and not (self.letter == "c" and type_.bit_width > INT.bit_width)


def _parsed(text: str) -> list[str | _Directive]:
    """Return the parts of a format. Raises ValueError with what is wrong."""
    parts: list[str | _Directive] = []
    end, ordinary, last = 0, 0, -1
    for found in re.finditer("%", text):
        if found.start() < end:
            continue
        parts.append(text[end : found.start()])
        match = _DIRECTIVE.match(text, found.start())
        if match is None:
            raise ValueError(f"{text[found.start() : found.start() + 8]!r} begins no directive")
        end = match.end()
        made = _made(match, ordinary, last)
        if made.argument is not None:
            last = made.argument
            ordinary += match["index"] is None and "<" not in match["flags"]
        parts.append(made)
    return [*parts, text[end:]]


def _made(match: re.Match[str], ordinary: int, last: int) -> _Directive:
    """Return a directive. ordinary: the position of the next value; last: that of the one before."""
    letter, flags, shown = match["letter"], match["flags"], match[0]
    width, precision = int(match["width"] or 0), None if match["precision"] is None else int(match["precision"])
    capitals = letter in _CAPITALS
    letter = letter.lower() if capitals else letter
    if max(width, precision or 0) > _WIDEST:
        raise ValueError(f"{shown} is wider than {_WIDEST:,} characters")
    if letter in "n%":
        if flags.strip("-") or precision is not None or (flags and not width) or (letter == "n" and width):
            raise ValueError(f"{shown} takes a width alone" if letter == "%" else f"{shown} takes nothing")
        return _Directive(letter, None, flags, width, None, False)
    if letter not in _FLAGS:
        raise ValueError(f"{shown} is no directive")
    relative = "<" in flags
    flags = flags.replace("<", "")
    if len(set(flags)) < len(flags) or not set(flags) <= set(_FLAGS[letter]) or {"+", " "} <= set(flags):
        raise ValueError(f"{shown} has flags that do not go together")
    if ("-" in flags or "0" in flags) and (not width or {"-", "0"} <= set(flags)):
        raise ValueError(f"{shown} has no width" if not width else f"{shown} has flags that do not go together")
    if precision is not None and letter in "cdxo":
        raise ValueError(f"{shown} takes no precision")
    if relative and last < 0:
        raise ValueError(f"{shown} has no value before it")
    argument = last if relative else int(match["index"]) - 1 if match["index"] else ordinary
    return _Directive(letter, argument, flags, width, precision, capitals)


def _rule(name: str, arguments: Sequence[Expression]) -> tuple[tuple[Expression, ...], pa.DataType]:
    format_, *values = arguments
    unfit = [value.type for value in values if not (is_numeric(value.type) or value.type in (BOOLEAN, STRING, NULL))]
    if unfit:
        # Spark shows the number of days of a date, and of microseconds of a time.
        raise misfit(
            name, unfit[:1], "DATE_FORMAT(time, 'yyyy-MM-dd HH:mm:ss'), or a CAST to STRING, makes a text of it"
        )
    if isinstance(format_, Literal) and isinstance(format_.value, str):
        try:
            directives = [part for part in _parsed(format_.value) if isinstance(part, _Directive)]
        except ValueError as error:
            raise PenstockError("P0203", f"{name}: {error}", hint=_HINT) from None
        for one in directives:
            if one.argument is None:
                continue
            if one.argument >= len(values):
                raise PenstockError(
                    "P0203", f"{name}: there is no value {one.argument + 1} for %{one.letter}", hint=_HINT
                )
            if not one.takes(type_ := values[one.argument].type):
                hint = "%s takes any value; a CAST makes another type of it"
                raise PenstockError("P0203", f"{name}: %{one.letter} does not take {type_name(type_)}", hint=hint)
    return (implicit(format_, STRING, name), *values), STRING


def _kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    format_, *values = arguments
    types = [value.type for value in values]
    known: dict[str, list[str | _Directive]] = {}

    def run(text: str | None, *given: object) -> str | None:
        if text is None:
            return None
        if text not in known:
            known[text] = _parsed(text)
        shown: list[str] = []
        size = 0
        for part in known[text]:
            shown.append(part if isinstance(part, str) else _shown(part, types, given))
            size += len(shown[-1].encode())
            if size > LONGEST_BYTES:
                raise ValueError("a text that is too long")
        return "".join(shown)

    # Behind each value its text, which %s shows.
    both = [one for value in values for one in (value, _texts(value))]
    return over_distinct(run, [format_, *both], type_, null_in=True)


def _texts(value: Datum) -> Datum:
    if value.type == NULL:
        return pa.scalar(None, STRING) if is_scalar(value) else pa.nulls(len(value), STRING)
    return convert(pa.array([value], value.type), STRING)[0] if is_scalar(value) else convert(value, STRING)


def _shown(directive: _Directive, types: Sequence[pa.DataType], given: Sequence[object]) -> str:
    """Return the text of one directive. given: each value, followed by its text."""
    if directive.argument is None:
        return "\n" if directive.letter == "n" else _justified(directive, "%")
    type_, value, text = types[directive.argument], *given[2 * directive.argument : 2 * directive.argument + 2]
    if not directive.takes(type_):
        raise ValueError("a value of another type")
    shown = _body(directive, type_, value, text)
    return _justified(directive, shown.upper() if directive.capitals else shown)


def _body(directive: _Directive, type_: pa.DataType, value: object, text: object) -> str:
    letter = directive.letter
    if letter == "b":
        shown = ("true" if value else "false") if type_ == BOOLEAN else "false" if value is None else "true"
        return shown[: directive.precision]
    if value is None or letter == "s":
        return str("null" if value is None else text)[: directive.precision]
    if letter == "c":
        return chr(int(str(value)))
    if letter in "xo":
        assert isinstance(value, int)
        digits = f"{value % 2**type_.bit_width:{letter}}"
        sign = "" if "#" not in directive.flags else "0x" if letter == "x" else "0"
        return sign + _padded(directive, digits, len(sign))
    if letter == "d":
        assert isinstance(value, int)
        return _signed(directive, value < 0, str(abs(value)))
    assert isinstance(value, float | Decimal)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else _signed(directive, value < 0, "Infinity", is_number=False)
    # Of a double the digits that it is shown with are rounded, not its binary value.
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    return _signed(directive, exact.is_signed() and (exact != 0 or is_float(type_)), _decimal(directive, abs(exact)))


def _decimal(directive: _Directive, value: Decimal) -> str:
    """Return the digits of a number that is not negative."""
    letter, precision = directive.letter, 6 if directive.precision is None else directive.precision
    with localcontext(prec=_WIDEST + 2_000, rounding=ROUND_HALF_UP) as context:
        context.Emax, context.Emin = 10**6 * 8, -(10**6) * 8
        if letter == "g":
            precision = precision or 1
            rounded = value and _rounded(value, precision)
            is_plain = value == 0 or Decimal("0.0001") <= rounded < Decimal(10) ** precision
            letter = "f" if is_plain else "e"
            precision -= 1 + (rounded.adjusted() if is_plain and value else 0)
        point = "." if "#" in directive.flags and not precision else ""
        if letter == "f":
            return f"{value.quantize(Decimal(1).scaleb(-precision)):f}{point}"
        rounded = _rounded(value, precision + 1) if value else value
        exponent = rounded.adjusted() if value else 0
        digits = rounded.scaleb(-exponent).quantize(Decimal(1).scaleb(-precision))
        return f"{digits:f}{point}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"


def _rounded(value: Decimal, digits: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(value.adjusted() - digits + 1))


def _signed(directive: _Directive, negative: bool, digits: str, is_number: bool = True) -> str:
    flags = directive.flags
    if "," in flags and is_number:
        whole, point, rest = digits.partition(".")
        digits = f"{int(whole):,}{point}{rest}"
    bracketed = negative and "(" in flags
    sign = ("(" if bracketed else "-") if negative else "+" if "+" in flags else " " if " " in flags else ""
    if is_number:
        digits = _padded(directive, digits, len(sign) + bracketed)
    return f"{sign}{digits}{')' if bracketed else ''}"


def _padded(directive: _Directive, digits: str, beside: int) -> str:
    """Return digits with zeros before them up to the width. beside: the characters around them."""
    return digits.rjust(directive.width - beside, "0") if "0" in directive.flags else digits


def _justified(directive: _Directive, text: str) -> str:
    return text.ljust(directive.width) if "-" in directive.flags else text.rjust(directive.width)


FUNCTIONS = (
    Function(
        "FORMAT_STRING",
        "format [, value, ...]",
        _rule,
        _kernel,
        "the text with the values at its directives, as in `FORMAT_STRING('%s: %05d %.2f', a, b, c)`; `%s` shows a"
        " value as CAST to STRING does, NULL is shown as `null`; NULL for values that do not fit a computed format",
        aliases=("PRINTF",),
    ),
)
