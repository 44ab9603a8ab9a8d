"""Text to typed columns, where rows that do not convert are reported instead of failing the whole column.

Contract: `convert` never raises for bad text. A text that Arrow's own typed csv or json parser accepts has the same
value here (so the fast and the slow way of reading a block agree); some more spellings are accepted, because SQL users
expect them: surrounding blanks, a leading `+`, `yes`/`no`, `2013-1-5`, a mixture of texts with and without zones, more
fractional digits than a type has (timestamps are cut to microseconds, decimals rounded half up), years before 0 and
beyond 9999, and of timestamps all that CAST reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.library.date_patterns import DatePattern
from penstock.expressions.values.calendar import day_of, moment_of
from penstock.expressions.values.shown import shown_value
from penstock.expressions.values.text_casts import string_to_timestamp
from penstock.types import TIMESTAMP

#: The spellings that Arrow's csv parser accepts as booleans; `convert` accepts them in any case.
TRUE_WORDS = ("true", "True", "TRUE", "t", "T", "yes", "Yes", "YES", "y", "Y", "1")
FALSE_WORDS = ("false", "False", "FALSE", "f", "F", "no", "No", "NO", "n", "N", "0")

_INTEGER = r"^[+-]?[0-9]+$"
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_FLOAT = r"(?i)^[+-]?([0-9]+\.?[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|inf|infinity|nan(\(\w*\))?)$"
_DAY = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME = (
    r"[T ]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?)?"
    r"( ?(UTC|GMT)|Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?"
)
#: 30 February, 31 April, 29 February outside of leap years, in a padded date.
_NO_DAY = (
    r"^[0-9]{4}-(02-3|(0[469]|11)-31)"
    r"|^([0-9]{2}([02468][1235679]|[13579][01345789])|([02468][1235679]|[13579][01345789])00)-02-29"
)
_ZONED = r"[T ][0-9].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"

#: A year that has a sign or more than four digits, or one before Christ as PostgreSQL writes it.
_FAR_YEAR = r"^([+-][0-9]{4,7}|[0-9]{5,7})-[0-9]{2}-[0-9]{2}|^[0-9]{4,7}-.* BC$"

Parse = Callable[[pa.Array], pa.Array]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Converted:
    """Converted values. `values`: one per text, NULL where the text was NULL or failed; `failed`: which rows did not
    convert.
    """

    values: pa.Array
    failed: Mask


@dataclass(frozen=True)
class Spelling:
    """How values are written as texts.

    Args:
        nulls: the texts (trimmed) that are NULL, of types other than text.
        timestamp: the pattern of timestamps, as that of TO_TIMESTAMP; empty for all that CAST reads.
    """

    nulls: tuple[str, ...] = ("",)
    timestamp: str = ""


USUAL = Spelling()


def convert(texts: pa.Array, type_: pa.DataType, spelling: Spelling = USUAL) -> Converted:
    """Convert `texts` (string or binary) to `type_`."""
    if pa.types.is_binary(type_):
        return Converted(texts.cast(type_), np.zeros(len(texts), dtype=bool))
    strings = _strings(texts)
    if not pa.types.is_string(type_):
        trimmed = pc.ascii_trim_whitespace(strings)
        strings = pc.if_else(pc.is_in(trimmed, value_set=pa.array(spelling.nulls, pa.string())), None, trimmed)
        values = _typed(strings, type_, spelling)
        undecoded = pc.and_(pc.is_valid(texts), pc.is_null(trimmed))
        return Converted(values, _mask(pc.or_(undecoded, _failed_values(strings, values))))
    return Converted(strings, _mask(_failed_values(texts, strings)))


def settled(values: pa.Array, type_: pa.DataType, spelling: Spelling = USUAL) -> pa.Array | None:
    """Convert what Arrow's typed parser read (text where it does not accept all spellings of `type_`) to `type_`; None
    when a value does not fit.
    """
    if values.type != type_:
        converted = convert(values, type_, spelling)
        return None if converted.failed.any() else converted.values
    if pa.types.is_decimal(type_):
        # Arrow's parsers accept decimals with more digits than the type.
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            return None
    return values


def kind(type_: pa.DataType) -> str:
    """Return the common word for a value of `type_`, for "bad number 'abc'"."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "number"
    if pa.types.is_boolean(type_):
        return "boolean"
    if pa.types.is_date(type_):
        return "date"
    return "timestamp" if pa.types.is_timestamp(type_) else "text"


def complaint(text: object, type_: pa.DataType, column: str) -> str:
    """Return the reason why a cell was rejected."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    value_text = shown_value(text)
    value_text = value_text if len(value_text) <= 80 else value_text[:77] + "..."
    return f"bad {kind(type_)} '{value_text}' in column {column}"


def attempt_cast(values: pa.Array, type_: pa.DataType) -> Converted:
    """Cast `values` to `type_`; rows that do not fit (an overflow, bytes that are not UTF-8) fail alone."""
    cast = _attempt(values, type_, lambda part: part.cast(type_))
    return Converted(cast, _mask(_failed_values(values, cast)))


def _typed(strings: pa.Array, type_: pa.DataType, spelling: Spelling) -> pa.Array:
    if pa.types.is_boolean(type_):
        return _booleans(strings)
    if pa.types.is_timestamp(type_):
        if spelling.timestamp:
            return DatePattern.of(spelling.timestamp).parse(strings, type_)
        near_values = _attempt(strings, type_, _timestamps, _moments)
        return _as_cast(strings, _with_far_years(strings, near_values, pa.int64(), moment_of))
    if pa.types.is_date(type_):
        near_values = _attempt(strings, type_, lambda part: _padded(part).cast(type_), _days)
        return _with_far_years(strings, near_values, pa.int32(), day_of)
    if pa.types.is_decimal(type_):
        return _attempt(strings, type_, lambda part: _decimals(part, type_), _keep_matching(_DECIMAL))
    if pa.types.is_integer(type_):
        in_range = partial(_in_range, type_=type_)
        return _attempt(strings, type_, lambda part: _digits(part).cast(type_), in_range)
    return _attempt(strings, type_, lambda part: part.cast(type_), _keep_matching(_FLOAT))


def _with_far_years(
    texts: pa.Array, values: pa.Array, number: pa.DataType, read: Callable[[str], int | None]
) -> pa.Array:
    """`values` with the dates or timestamps of years before 0 and beyond 9999, which Arrow does not read."""
    if values.null_count == texts.null_count:
        return values
    is_far = pc.and_(_failed_values(texts, values), pc.fill_null(pc.match_substring_regex(texts, _FAR_YEAR), False))
    far_values = pa.array([read(text) for text in texts.filter(is_far).to_pylist()], number)
    return pc.replace_with_mask(values.cast(number), is_far, far_values).cast(values.type)


def _as_cast(texts: pa.Array, values: pa.Array) -> pa.Array:
    """Return timestamps with those that CAST reads beside."""
    if values.null_count == texts.null_count:
        return values
    is_left = _failed_values(texts, values)
    return pc.replace_with_mask(values, is_left, string_to_timestamp(texts.filter(is_left), values.type))


def _attempt(texts: pa.Array, type_: pa.DataType, parse: Parse, sift: Parse | None = None) -> pa.Array:
    """Return `parse(texts)` with NULL where it fails: first on all, then without those that `sift` leaves out, then in
    halves.

    Failing is slow: `sift` should leave out all texts that fail, except rare ones.
    """
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        return _parse_by_halves(texts if sift is None else sift(texts), type_, parse)


def _strings(texts: pa.Array) -> pa.Array:
    """Decode bytes as text, NULL where they are not UTF-8."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if text is None else _decoded(text) for text in texts.to_pylist()], pa.string())


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _keep_matching(pattern: str) -> Parse:
    """Return a function that leaves out the texts that do not match."""
    return lambda texts: pc.if_else(pc.match_substring_regex(texts, pattern), texts, None)


def _days(texts: pa.Array) -> pa.Array:
    """Leave out texts that are not dates."""
    return _valid_dates(texts, f"{_DAY}$")


def _moments(texts: pa.Array) -> pa.Array:
    """Leave out texts that are not timestamps."""
    return _valid_dates(texts, f"{_DAY}({_TIME})?$")


def _valid_dates(texts: pa.Array, pattern: str) -> pa.Array:
    """Leave out texts that do not match, and days that their month does not have."""
    padded = _padded(texts)
    matches = pc.match_substring_regex(padded, pattern)
    return pc.if_else(pc.and_(matches, pc.invert(pc.match_substring_regex(padded, _NO_DAY))), texts, None)


def _parse_by_halves(texts: pa.Array, type_: pa.DataType, parse: Parse) -> pa.Array:
    try:
        return parse(texts)
    except pa.ArrowInvalid:
        if len(texts) <= 1:
            return pa.nulls(len(texts), type_)
    middle = len(texts) // 2
    return pa.concat_arrays(
        [_parse_by_halves(texts[:middle], type_, parse), _parse_by_halves(texts[middle:], type_, parse)]
    )


def _timestamps(texts: pa.Array) -> pa.Array:
    naive, zoned = pa.timestamp("us"), TIMESTAMP
    # A cast that fails is slow (it formats an error for every row): the first value decides which one to try.
    first = texts[pc.index(texts.is_valid(), True).as_py()].as_py() if texts.null_count < len(texts) else ""
    try:
        return texts.cast(zoned if re.search(_ZONED, first) else naive).cast(zoned)
    except pa.ArrowInvalid:
        pass
    texts = pc.replace_substring_regex(_padded(texts), r" ?(UTC|GMT)$", "Z")
    texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    has_zone = pc.match_substring_regex(texts, _ZONED)
    with_zone = pc.if_else(has_zone, texts, None).cast(zoned)
    without = pc.if_else(has_zone, None, texts).cast(naive).cast(zoned)
    return pc.coalesce(with_zone, without)


def _padded(texts: pa.Array) -> pa.Array:
    """Pad month and day of dates to two digits."""
    texts = pc.replace_substring_regex(texts, r"^([0-9]{4})-([0-9])-", r"\1-0\2-")
    return pc.replace_substring_regex(texts, r"^([0-9]{4}-[0-9]{2})-([0-9])($|[T ])", r"\1-0\2\3")


def _in_range(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Leave out texts that are not whole numbers, and those outside the range of `type_`, judged by their digits."""
    whole = _keep_matching(_INTEGER)(texts)
    largest = str(2 ** (type_.bit_width - 1) - 1)
    smallest = largest[:-1] + str(int(largest[-1]) + 1)
    digits = pc.replace_substring_regex(whole, r"^[+-]?0*", "")
    bound = pc.if_else(pc.starts_with(whole, "-"), smallest, largest)
    count = pc.utf8_length(digits)
    fits = pc.or_(pc.less(count, len(largest)), pc.and_(pc.equal(count, len(largest)), pc.less_equal(digits, bound)))
    return pc.if_else(fits, whole, None)


def _digits(texts: pa.Array) -> pa.Array:
    """Remove a leading `+`, which Arrow does not read, and leave out hexadecimal numbers, which it reads."""
    texts = pc.replace_substring_regex(texts, r"^\+([0-9])", r"\1")
    hexadecimal = pc.match_substring_regex(texts, "^-?0[xX]")
    return pc.if_else(hexadecimal, None, texts) if pc.any(hexadecimal).as_py() else texts


def _decimals(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        wide = texts.cast(pa.decimal256(76, 38))
        rounded = pc.round(wide, ndigits=type_.scale, round_mode="half_towards_infinity")
        digits = "9" * (type_.precision - type_.scale) + "." + "9" * type_.scale
        largest = pa.scalar(Decimal(digits if digits != "." else "0"), rounded.type)
        return pc.if_else(pc.less_equal(pc.abs(rounded), largest), rounded, None).cast(type_)


def _booleans(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    true = pc.is_in(lower, value_set=pa.array(sorted({w.lower() for w in TRUE_WORDS})))
    false = pc.is_in(lower, value_set=pa.array(sorted({w.lower() for w in FALSE_WORDS})))
    return pc.if_else(pc.or_(true, false), true, None)


def _failed_values(source: pa.Array, converted: pa.Array) -> pa.Array:
    return pc.and_(pc.is_valid(source), pc.is_null(converted))


def _mask(flags: pa.Array) -> Mask:
    mask: Mask = flags.to_numpy(zero_copy_only=False)
    return mask
