"""DDSketch: buckets whose limits grow by a constant factor γ, so that their middle is near every value in them.

Of a positive number x the bucket is the least i with γ^i ≥ x; negative numbers mirror that; zero, the infinities and
NaN have buckets of their own. There is no largest or smallest bucket, and none are put together. A cell is a bucket's
code, in the order of values. γ is (1 + b)/(1 - b) for a b that is smaller than the accuracy a by a part in 2**18: that
covers the rounding of the logarithm, so that the error is at most a.

Only +, -, *, / and scaling by powers of two are used, so that a bucket does not depend on the machine.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from penstock.compilation import loop

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

#: Added to the index of a bucket, so that those of positive numbers are positive.
OFFSET = 1 << 40
INFINITE, NAN = 1 << 60, 1 << 61
_SLACK = 1.0 - 2.0**-18
_LN2, _LN2_HIGH, _LN2_LOW = 0.6931471805599453, 0.693147180369123816490, 1.90821492927058770002e-10
_ROOT = 0.7071067811865476
#: What logarithms of values are taken to deviate by, where nothing is known of the values.
_SPREAD = 1.2


def log_gamma(accuracy: float) -> float:
    """Return ln γ."""
    inner = accuracy * _SLACK
    return float(_ln((1.0 + inner) / (1.0 - inner)))


def buckets(values: Float64s, accuracy: float) -> Int64s:
    """Return the code of the bucket of every value."""
    codes: Int64s = _buckets(values, log_gamma(accuracy))
    return codes


def values_of(codes: Int64s, accuracy: float) -> Float64s:
    """Return the value that stands for each bucket: 2·γ^i/(γ + 1)."""
    values: Float64s = _values(codes, log_gamma(accuracy))
    return values


def expected_buckets(rows: float, accuracy: float) -> float:
    """Return how many different buckets so many values are expected to fall into, their logarithms drawn from a normal
    distribution. Exponential, uniform and normal values, and log-normal ones with deviations of 0.5 to 2, fall into
    0.46 to 2.2 times as many (measured); values that are all near each other into fewer."""
    z, step = np.linspace(-8.0, 8.0, 321, retstep=True)
    width = log_gamma(accuracy) / _SPREAD
    chances = width * np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return min(rows, max(1.0, float(np.sum(-np.expm1(-rows * chances)) * step / width)))


@loop
def _ln(x: float) -> float:
    """Return the natural logarithm of a positive number, within two units of the last place or 2**-52."""
    mantissa, exponent = math.frexp(x)
    if mantissa < _ROOT:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = 1.0 / 25.0
    for k in range(23, 0, -2):
        series = series * z + 1.0 / k
    return 2.0 * s * series + exponent * _LN2


@loop
def _exp(x: float) -> float:
    whole = math.floor(x / _LN2 + 0.5)
    r = (x - whole * _LN2_HIGH) - whole * _LN2_LOW
    series = 1.0
    for k in range(17, 0, -1):
        series = series * r / k + 1.0
    # In two steps, so that a result below the least normal number is rounded once.
    if whole > 1000:
        return math.ldexp(series * 2.0**1000, int(whole) - 1000)
    return math.ldexp(series, int(whole))


@loop
def _buckets(values: Float64s, log_gamma: float) -> Int64s:
    codes = np.empty(values.shape[0], np.int64)
    for i in range(values.shape[0]):
        x = values[i]
        if x != x:
            codes[i] = NAN
        elif x == 0.0:
            codes[i] = 0
        elif math.isinf(x):
            codes[i] = INFINITE if x > 0.0 else -INFINITE
        else:
            code = OFFSET + np.int64(math.ceil(_ln(abs(x)) / log_gamma))
            codes[i] = code if x > 0.0 else -code
    return codes


@loop
def _values(codes: Int64s, log_gamma: float) -> Float64s:
    values = np.empty(codes.shape[0])
    middle = _ln(2.0 / (_exp(log_gamma) + 1.0))
    for i in range(codes.shape[0]):
        code = codes[i]
        size = abs(code)
        if code == NAN:
            values[i] = np.nan
        elif code == 0:
            values[i] = 0.0
        elif size == INFINITE:
            values[i] = np.inf if code > 0 else -np.inf
        else:
            near = min(_exp((size - OFFSET) * log_gamma + middle), 1.7976931348623157e308)
            values[i] = near if code > 0 else -near
    return values
