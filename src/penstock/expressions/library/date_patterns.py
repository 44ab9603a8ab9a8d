"""Java's patterns of dates (yyyy-MM-dd HH:mm:ss.SSS), formatted and parsed by vector kernels.

Supported letters: y (u), M (L), d, D, H, h, m, s, S, a, E, Q (formatting only: D, E, Q), texts in quotes. A pattern
with another letter is refused when the query is bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import DATE
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.values import gregorian
from penstock.expressions.values.datum import choose, from_numbers, null_unless, numbers
from penstock.types import TIMESTAMP

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_TOKENS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_LETTERS = "yuMLdDHhmsSaEQ"
_READABLE = "yuMLdHhmsSa"


@dataclass(frozen=True)
class Token:
    """`letter` repeated `width` times, or a fixed `text` when letter is ''."""

    letter: str
    width: int
    text: str = ""


@dataclass(frozen=True)
class DatePattern:
    """A pattern cut into tokens."""

    tokens: tuple[Token, ...]

    @staticmethod
    @lru_cache(maxsize=256)
    def of(text: str) -> DatePattern:
        """Parse a pattern. Raises ValueError for an unsupported letter."""
        tokens: list[Token] = []
        position = 0
        while position < len(text):
            match = _TOKENS.match(text, position)
            if match is None:
                raise ValueError("a quote that does not end")
            position = match.end()
            letter = match[2]
            if letter is None:
                fixed = match[0] if match[1] is None else match[1].replace("''", "'") or "'"
                tokens.append(Token("", 0, fixed))
            elif letter in _LETTERS:
                tokens.append(Token(letter, len(match[0])))
            else:
                raise ValueError(f"the letter {letter}")
        return DatePattern(tuple(tokens))

    @staticmethod
    def find(text: str | None) -> DatePattern | None:
        """Return the pattern in a row's text, None if it is invalid."""
        try:
            return None if text is None else DatePattern.of(text)
        except ValueError:
            return None

    def format(self, values: pa.Array) -> pa.Array:
        """Format DATE or TIMESTAMP values as text."""
        if not self.tokens:
            return pc.if_else(pc.is_valid(values), "", pa.scalar(None, pa.string()))
        pieces = [pa.scalar(t.text) if not t.letter else _write(t, values) for t in self.tokens]
        if all(isinstance(p, pa.Scalar) for p in pieces):
            fixed = pa.scalar("".join(t.text for t in self.tokens))
            return pc.if_else(pc.is_valid(values), fixed, pa.scalar(None, pa.string()))
        return pc.binary_join_element_wise(*pieces, "")

    def parse(self, texts: pa.Array, type_: pa.DataType) -> pa.Array:
        """Parse text to DATE, TIMESTAMP or (BIGINT) seconds since 1970; NULL where it does not match, is not a valid
        time, or is beyond the range of `type_`.
        """
        if not all(t.letter in _READABLE for t in self.tokens):
            return pa.nulls(len(texts), type_)
        if not any(t.letter for t in self.tokens):
            return pa.nulls(len(texts), type_)
        following = (*self.tokens, Token("", 0))[1:]
        expression = "".join(
            f"(?P<p{i}>{_regex(token, after)})" if token.letter else re.escape(token.text)
            for i, (token, after) in enumerate(zip(self.tokens, following, strict=True))
        )
        parts = pc.extract_regex(texts, rf"^(?i:{expression})$")
        fields: dict[str, npt.NDArray[np.int64]] = {}
        for index, token in enumerate(self.tokens):
            if token.letter:
                key, number = _read(token, pc.struct_field(parts, f"p{index}"))
                fields[key] = number
        return _moment(fields, parts, type_)


#: What a pattern consists of.
_SHOWN = f"as in 'yyyy-MM-dd HH:mm:ss'; known letters: {_LETTERS}"


def checked_pattern(name: str, argument: Expression) -> None:
    """Check a literal pattern.

    Raises:
        PenstockError: P0203, `argument` is a literal that is not a pattern.
    """
    if isinstance(argument, Literal) and isinstance(argument.value, str):
        try:
            DatePattern.of(argument.value)
        except ValueError as error:
            raise PenstockError("P0203", f"{name}: the pattern {argument.value!r} has {error}", hint=_SHOWN) from None


def _write(token: Token, values: pa.Array) -> pa.Array:
    letter, width = token.letter, token.width
    if letter in "ML" and width >= 3:
        return _named(_MONTHS, gregorian.field(values, "month"), width, 1)
    if letter == "E":
        return _named(_DAYS, gregorian.field(values, "day of week"), width, 0)
    if letter == "a":
        afternoon = pc.greater_equal(gregorian.field(values, "hour"), 12)
        return _named(("AM", "PM"), afternoon.cast(pa.int64()), 4, 0)
    if letter == "S":
        micros = from_numbers(gregorian.clock_of(values) % 1_000_000, pa.int64(), values)
        digits = pc.utf8_lpad(micros.cast(pa.string()), 6, "0")
        return pc.utf8_slice_codeunits(pc.utf8_rpad(digits, width, "0"), 0, width)
    number = gregorian.field(values, _FIELDS[letter])
    if letter == "h":
        number = from_numbers((numbers(number) + 11) % 12 + 1, number.type, number)
    if letter in "yu":
        return _write_year(number, width)
    return pc.utf8_lpad(number.cast(pa.string()), width, "0")


def _write_year(number: pa.Array, width: int) -> pa.Array:
    """Write a year, its sign before the digits; its last two digits, without a sign, where `width` is 2."""
    size = pc.abs(number)
    if width == 2:
        size = from_numbers(numbers(size) % 100, size.type, size)
    digits = pc.utf8_lpad(size.cast(pa.string()), width, "0")
    if width == 2 or not pc.any(pc.less(number, 0)).as_py():
        return digits
    return pc.if_else(pc.less(number, 0), pc.binary_join_element_wise("-", digits, ""), digits)


_FIELDS = {
    "y": "year",
    "u": "year",
    "M": "month",
    "L": "month",
    "d": "day",
    "D": "day of year",
    "H": "hour",
    "h": "hour",
    "m": "minute",
    "s": "second",
    "Q": "quarter",
}


def _named(names: tuple[str, ...], number: pa.Array, width: int, first: int) -> pa.Array:
    texts = pa.array([n if width >= 4 else n[:3] for n in names])
    return texts.take(pc.subtract(number, first))


def _regex(token: Token, following: Token) -> str:
    letter, width = token.letter, token.width
    if letter in "ML" and width >= 3:
        return "|".join(n if width >= 4 else n[:3] for n in _MONTHS)
    if letter == "a":
        return "AM|PM"
    if letter == "S":
        return rf"\d{{{width}}}" if width <= 9 else r"\d{9}"
    if letter in "yu" and width != 2 and not following.letter:
        # Years before 0 and beyond 9999, where a fixed text shows where their digits end.
        return rf"-?\d{{{width},7}}" if width <= 7 else rf"-?\d{{{width}}}"
    if letter in "yu" and width == 1:
        return r"\d{1,4}"
    return rf"\d{{{width}}}" if width > 1 else r"\d{1,2}"


def _read(token: Token, texts: pa.Array) -> tuple[str, npt.NDArray[np.int64]]:
    """Return (which field, its value in each row, 1 where there is none)."""
    letter, width = token.letter, token.width
    if letter in "ML" and width >= 3:
        names = pa.array([(n if width >= 4 else n[:3]).lower() for n in _MONTHS])
        return "month", numbers(pc.fill_null(pc.index_in(pc.utf8_lower(texts), names), 0)).astype(np.int64) + 1
    if letter == "a":
        return "half", numbers(pc.fill_null(pc.equal(pc.utf8_lower(texts), "pm"), False).cast(pa.int64()))
    if letter == "S":
        texts = pc.utf8_slice_codeunits(pc.utf8_rpad(texts, 6, "0"), 0, 6)
    filled = choose(pc.equal(texts, ""), pa.scalar("1"), texts)
    value = numbers(pc.fill_null(filled, "1").cast(pa.int64()))
    if letter in "yu" and width == 2:
        value = value + 2000
    key = {"y": "year", "u": "year", "M": "month", "L": "month", "d": "day", "H": "hour", "h": "hour12"}.get(letter)
    return key or {"m": "minute", "s": "second", "S": "micro"}[letter], value


def _moment(fields: dict[str, npt.NDArray[np.int64]], parts: pa.Array, type_: pa.DataType) -> pa.Array:
    zeros = np.zeros(len(parts), np.int64)
    year, month, day = fields.get("year", zeros + 1970), fields.get("month", zeros + 1), fields.get("day", zeros + 1)
    days, fits = gregorian.days_from(year, month, day)
    hour, minute, second = (fields.get(k, zeros) for k in ("hour", "minute", "second"))
    if "hour12" in fields:
        fits &= (fields["hour12"] >= 1) & (fields["hour12"] <= 12)
        hour = fields["hour12"] % 12 + 12 * fields.get("half", zeros)
    fits &= (hour < 24) & (minute < 60) & (second < 60)
    if type_ == DATE:
        return null_unless(fits, gregorian.dates(days, parts))
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    if type_ == TIMESTAMP:
        micros = fields.get("micro", zeros)
        return null_unless(fits, gregorian.scaled(seconds, gregorian.SECOND, micros, TIMESTAMP, parts))
    return null_unless(fits, from_numbers(seconds, type_, parts))
