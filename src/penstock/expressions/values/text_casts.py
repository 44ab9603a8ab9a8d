"""CAST from and to STRING.

Each function tries Arrow's own strict parser first and the lenient one only where that refuses.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.values import decimals, gregorian
from penstock.expressions.values.calendar import far_day, far_moment
from penstock.expressions.values.datum import choose, null_unless, numbers, over_distinct
from penstock.types import TIMESTAMP, WALL_CLOCK

_SPACE = "".join(chr(c) for c in range(33))
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_INTEGER = r"^[+-]?\d+(\.\d*)?$|^[+-]?\.\d+$"
_FLOAT = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?[df]?|nan|inf|infinity)$"
_DECIMAL = r"^[+-]?\d{1,37}(\.\d{0,37})?$|^[+-]?\.\d{1,37}$"
_DATE = r"^(?P<y>[+-]?\d{4,7})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})(?:[ T].*)?)?)?$"
_MOMENT = (
    r"^(?P<y>[+-]?\d{4,7})(?:-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2})"
    r"(?:[ T](?:(?P<h>\d{1,2})(?::(?P<i>\d{1,2})(?::(?P<s>\d{1,2})(?:\.(?P<f>\d{0,9}))?)?)?"
    r"(?P<z>\s*(?:Z|UTC|GMT|UT|(?:(?:UTC|GMT|UT)?(?P<zs>[+-])(?P<zh>\d{1,2})(?::?(?P<zm>\d{2}))?)))?)?)?)?)?$"
)
#: An offset at the end of a text that is a TIMESTAMP.
OFFSET_BEHIND = r"(?:Z|UTC|GMT|UT|[T ]\d{1,2}(?::\d{1,2}){0,2}(?:\.\d*)?\s*(?:UTC|GMT|UT)?[+-]\d{1,2}(?::?\d{2})?)\s*$"


def _trim(array: pa.Array) -> pa.Array:
    return pc.utf8_trim(array, _SPACE)


def string_to_integer(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse digits with a sign; decimals are cut off; NULL when out of range."""
    if not _contains(array, "x"):
        try:
            return array.cast(type_)
        except pa.ArrowInvalid:
            pass
    trimmed = _trim(array)
    plain = null_unless(pc.match_substring_regex(trimmed, _INTEGER), trimmed)
    whole = pc.replace_substring_regex(plain, r"^([+-]?)0*(\d*)(\.\d*)?$", r"\1\2")
    whole = choose(pc.is_in(whole, value_set=pa.array(["", "+", "-"])), pa.scalar("0"), whole)
    # Nineteen digits and a sign fit a decimal; longer ones are out of every range.
    short = null_unless(pc.less_equal(pc.utf8_length(whole), 20), whole)
    exact = short.cast(pa.decimal128(38, 0))
    limits = np.iinfo(type_.to_pandas_dtype())
    low, high = (pa.scalar(decimal.Decimal(int(v)), exact.type) for v in (limits.min, limits.max))
    fits = pc.and_(pc.less_equal(exact, high), pc.greater_equal(exact, low))
    return null_unless(fits, exact).cast(type_)


def _contains(array: pa.Array, letter: str) -> bool:
    return bool(pc.any(pc.match_substring(array, letter, ignore_case=True)).as_py())


def string_to_float(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse like Java's parseDouble: exponents, NaN, Infinity, a trailing d or f."""
    try:
        return array.cast(type_)
    except pa.ArrowInvalid:
        pass
    trimmed = _trim(array)
    plain = null_unless(pc.match_substring_regex(trimmed, _FLOAT), trimmed)
    bare = pc.replace_substring_regex(plain, r"^\+?(.*?[\d.])[dDfF]$|^\+(.*)$", r"\1\2")
    return bare.cast(type_)


def string_to_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    trimmed = _trim(array)
    if pc.all(pc.match_substring_regex(trimmed, _DECIMAL)).as_py() is not False:
        try:
            return decimals.rescale(trimmed.cast(pa.decimal256(75, 37)), type_)
        except pa.ArrowInvalid:
            pass
    return over_distinct(lambda v: _parse_decimal(v, type_), [trimmed], type_)


def _parse_decimal(text: str, type_: pa.DataType) -> decimal.Decimal | None:
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", text, re.ASCII):
        return None
    return decimals.exact(decimal.Decimal(text), type_)


def string_to_boolean(array: pa.Array, type_: pa.DataType) -> pa.Array:
    folded = pc.utf8_lower(_trim(array))
    known = pc.is_in(folded, value_set=pa.array(_TRUE + _FALSE))
    return null_unless(known, pc.is_in(folded, value_set=pa.array(_TRUE)))


def string_to_date(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse yyyy, yyyy-m, yyyy-m-d, and anything after a blank or T."""
    try:
        return array.cast(type_)
    except pa.ArrowInvalid:
        pass
    parts = pc.extract_regex(_trim(array), _DATE)
    days, exists = _days(parts)
    return null_unless(exists, gregorian.dates(days, parts))


def string_to_timestamp(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse ISO-8601 with blank or T, any parts omitted from the right, UTC unless an offset is written."""
    for parser in (WALL_CLOCK, TIMESTAMP):
        try:
            return array.cast(parser).view(TIMESTAMP)
        except pa.ArrowInvalid:
            continue
    read = _read_moments(array)
    return read.ticks(read.wall_clock - read.offset, type_)


def string_to_wall_clock(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse what `string_to_timestamp` parses, as it is written: an offset has no effect, as in Spark."""
    try:
        return array.cast(type_)
    except pa.ArrowInvalid:
        read = _read_moments(array)
        return read.ticks(read.wall_clock, type_)


class _Moments(NamedTuple):
    """What texts say: the time that is written and its offset from UTC, in seconds since 1970, and microseconds."""

    parts: pa.Array
    wall_clock: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    micros: npt.NDArray[np.int64]
    fits: npt.NDArray[np.bool_]

    def ticks(self, seconds: npt.NDArray[np.int64], type_: pa.DataType) -> pa.Array:
        return null_unless(self.fits, gregorian.scaled(seconds, gregorian.SECOND, self.micros, type_, self.parts))


def _read_moments(array: pa.Array) -> _Moments:
    parts = pc.extract_regex(_trim(array), _MOMENT)
    days, fits = _days(parts)
    hour, minute, second = (_number(parts, name, 0) for name in "his")
    zone_hour, zone_minute = _number(parts, "zh", 0), _number(parts, "zm", 0)
    fits &= (hour < 24) & (minute < 60) & (second < 60) & (zone_hour <= 18) & (zone_minute < 60)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.struct_field(parts, "f"), 6, "0"), 0, 6)
    micros = numbers(pc.fill_null(fraction, "0").cast(pa.int64()))
    west = numbers(pc.fill_null(pc.equal(pc.struct_field(parts, "zs"), "-"), False).cast(pa.int8()))
    offset = (zone_hour * 60 + zone_minute) * np.where(west == 1, -60, 60)
    return _Moments(parts, days * 86_400 + hour * 3_600 + minute * 60 + second, offset, micros, fits)


def _days(parts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    year, month, day = _number(parts, "y", 1970), _number(parts, "m", 1), _number(parts, "d", 1)
    return gregorian.days_from(year, month, day)


def _number(parts: pa.Array, name: str, missing: int) -> npt.NDArray[np.int64]:
    texts = pc.struct_field(parts, name)
    texts = choose(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return numbers(pc.utf8_ltrim(pc.fill_null(texts, str(missing)), "+").cast(pa.int64()))


def float_to_string(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Format as Java does doubles: always with a decimal point, with an exponent outside [1e-3, 1e7)."""
    texts = array.cast(pa.string())
    values = np.abs(numbers(array))
    plain = ((values >= 1e-3) & (values < 1e7)) | (values == 0)
    whole = pc.invert(pc.match_substring(texts, "."))
    pointed = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if plain.all():
        return pointed
    spread = null_unless(pa.array(~plain), texts)
    return choose(plain, pointed, over_distinct(_java, [spread], pa.string()))


def _java(text: str) -> str:
    value = float(text)
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = decimal.Decimal(text).as_tuple()
    figures = "".join(map(str, digits)).rstrip("0")
    power = int(exponent) + len(digits) - 1
    return f"{'-' * sign}{figures[0]}.{figures[1:] or '0'}E{power}"


#: What Arrow writes of a date or timestamp in a year beyond 16 bits.
_OUT_OF_RANGE = "<value out of range"


def date_to_string(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Format as yyyy-MM-dd, the year with a sign before 0 and as many digits as it needs."""
    return _with_far(array.cast(pa.string()), array.view(pa.int32()), far_day)


def timestamp_to_string(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Format as yyyy-MM-dd HH:mm:ss, with a fraction without trailing zeros when there is one."""
    texts = array.view(WALL_CLOCK).cast(pa.string())
    texts = _with_far(texts, array.view(pa.int64()), lambda t: far_moment(t).replace("T", " ").removesuffix("Z"))
    return pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$|\.0+$", r"\1")


def _with_far(texts: pa.Array, units: pa.Array, write: Callable[[int], str]) -> pa.Array:
    """Return `texts` with those replaced that Arrow could not write; `units`: the values as integers."""
    far = pc.starts_with(texts, _OUT_OF_RANGE)
    if not pc.any(far).as_py():
        return texts
    found = [write(unit) for unit in units.filter(far).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(far, False), pa.array(found, pa.string()))
