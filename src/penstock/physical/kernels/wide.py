"""Numbers of up to 95 bits as two int64: value = high * 2**32 + low, both of which add up without carrying.

A *normal* pair has 0 ≤ low < 2**32. Sums of fewer than 2**31 normal pairs fit.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, int64s

_LOW = np.int64(0xFFFFFFFF)
_SHIFT = np.int64(32)


@nb.njit(inline="always")
def normal(high: int, low: int) -> tuple[int, int]:
    """Return the normal pair of the same value."""
    return high + (low >> 32), low & 0xFFFFFFFF


@nb.njit(inline="always")
def is_greater(high: int, low: int, other_high: int, other_low: int) -> bool:
    """Return whether a pair is greater than another; neither need be normal."""
    high, low = normal(high, low)
    other_high, other_low = normal(other_high, other_low)
    return high > other_high or (high == other_high and low > other_low)


@nb.njit
def share_of(high: int, low: int, numerator: int, denominator: int) -> tuple[int, int]:
    """Return ⌊value * numerator / denominator⌋ of a value ≥ 0; both below 2**31."""
    high, low = normal(high, low)
    least = low * numerator
    middle = (high & 0xFFFFFFFF) * numerator + (least >> 32)
    most = (high >> 32) * numerator + (middle >> 32)
    rest = most % denominator
    most //= denominator
    value = (rest << 32) | (middle & 0xFFFFFFFF)
    middle, rest = value // denominator, value % denominator
    value = (rest << 32) | (least & 0xFFFFFFFF)
    return (most << 32) + middle, value // denominator


def split(values: pa.Array) -> tuple[Int64s, Int64s]:
    """Return the normal pairs of BIGINTs or DECIMALs (in units of their last decimal); those of NULL are 0."""
    if pa.types.is_decimal(values.type):
        words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
        low, high = words[::2], words[1::2]
        pair = (high << _SHIFT) | ((low >> _SHIFT) & _LOW), low & _LOW
    else:
        numbers = int64s(values.fill_null(0))
        pair = numbers >> _SHIFT, numbers & _LOW
    if values.null_count and pa.types.is_decimal(values.type):
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(valid, pair[0], 0), np.where(valid, pair[1], 0)
    return pair


def joined(high: Int64s, low: Int64s, type_: pa.DataType) -> pa.Array:
    """Return pairs, not necessarily normal, as BIGINT (wrapping) or DECIMAL; NULL where it has too many digits."""
    high, low = high + (low >> _SHIFT), low & _LOW
    if not pa.types.is_decimal(type_):
        return pa.array((high << _SHIFT) | low, type_)
    words = np.empty((len(high), 2), np.int64)
    words[:, 0], words[:, 1] = (high << _SHIFT) | low, high >> _SHIFT
    limit = 10**type_.precision
    most, rest = limit >> 32, limit & int(_LOW)
    fits = np.ones(len(high), np.bool_)
    if most < 2**63:
        fits = (high < most) | ((high == most) & (low < rest))
    valid = None if fits.all() else pa.array(fits).buffers()[1]
    return pa.Array.from_buffers(type_, len(high), [valid, pa.py_buffer(words.tobytes())])
