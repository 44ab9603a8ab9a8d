"""Lengths of time as text: `INTERVAL '1 02:03:04.5' DAY TO SECOND`, as in Spark.

Contract: `from_text` is the inverse of `to_text`, over all of int64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import DURATION, STRING
from penstock.expressions.values.datum import from_numbers, null_unless, numbers

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_FORM = (
    r"^(?i:\s*(?:INTERVAL\s*)?'?(?P<sign>[+-]?)(?P<days>\d{1,9}) (?P<hours>\d{1,2}):(?P<minutes>\d{1,2}):"
    r"(?P<seconds>\d{1,2})(?:\.(?P<fraction>\d{1,6}))?'?(?:\s*DAY\s+TO\s+SECOND)?\s*)$"
)


def to_text(array: pa.Array) -> pa.Array:
    """Return the text of each length of time, NULL for NULL."""
    ticks = numbers(array)
    negative = ticks < 0
    # The absolute value of the smallest int64 is not an int64.
    size = np.where(negative, -(ticks.astype(np.uint64)), ticks.astype(np.uint64))
    days, rest = np.divmod(size, np.uint64(_DAY))
    seconds, micros = np.divmod(rest, np.uint64(_SECOND))
    fraction = pc.utf8_rtrim(_padded(micros, 6), "0")
    point = pc.if_else(pc.equal(fraction, ""), "", ".")
    clock = [_padded(part, 2) for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)]
    sign = pc.if_else(pa.array(negative), "-", "")
    parts = ["INTERVAL '", sign, _padded(days, 1), " ", clock[0], ":", clock[1], ":", clock[2], point, fraction]
    made = pc.binary_join_element_wise(*parts, "' DAY TO SECOND", "")
    return pc.if_else(array.is_valid(), made, pa.scalar(None, STRING))


def _padded(values: npt.NDArray[np.uint64], width: int) -> pa.Array:
    return pc.utf8_lpad(pa.array(values.astype(np.int64)).cast(STRING), width, "0")


def from_text(texts: pa.Array) -> pa.Array:
    """Parse texts as lengths of time, NULL where one is invalid or beyond int64 microseconds."""
    found = pc.extract_regex(texts, _FORM)
    sign, *parts, fraction = found.flatten()
    days, hours, minutes, seconds = (_number(part) for part in parts)
    micros = _number(pc.utf8_rpad(fraction, 6, "0"))
    within = (hours < 24) & (minutes < 60) & (seconds < 60)
    clock = (hours * 3600 + minutes * 60 + seconds) * _SECOND + micros
    negative = pc.fill_null(pc.equal(sign, "-"), False).to_numpy(zero_copy_only=False)
    size = days.astype(np.uint64) * np.uint64(_DAY) + clock.astype(np.uint64)
    within &= size <= np.where(negative, np.uint64(2**63), np.uint64(2**63 - 1))
    ticks = np.where(negative, -size, size).view(np.int64)
    return null_unless(within, from_numbers(ticks, DURATION, found))


def _number(digits: pa.Array) -> npt.NDArray[np.int64]:
    written = pc.fill_null(pc.if_else(pc.equal(digits, ""), "0", digits), "0")
    whole: npt.NDArray[np.int64] = written.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return whole
