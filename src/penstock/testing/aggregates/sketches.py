"""Define the approximate aggregates over the Python values of one group, naively. Part of the oracle.

Sketches are dictionaries, hashes are computed with Python integers, and nothing of the engine's sketches is used but
the library that both take the estimate of registers from.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import datasketches
import pyarrow as pa

from penstock.expressions.nodes import AggregateCall, Literal
from penstock.testing.scalars.values import Row, key_of, order_key

_64 = (1 << 64) - 1
_EPOCH = dt.datetime(1970, 1, 1)
_MICRO = dt.timedelta(microseconds=1)


# -- hashes ------------------------------------------------------------------------------------------------------------


def _rotate(x: int, by: int) -> int:
    return ((x << by) | (x >> (64 - by))) & _64


def _mix(x: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = ((x ^ (x >> 33)) * factor) & _64
    return x ^ (x >> 33)


def murmur128(data: bytes, seed: int = 9001) -> tuple[int, int]:
    """Return MurmurHash3 x64-128 as it was published."""
    one, two, c1, c2 = seed, seed, 0x87C37B91114253D5, 0x4CF5AD432745937F
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        one ^= _rotate(k1 * c1 & _64, 31) * c2 & _64
        one = ((_rotate(one, 27) + two) * 5 + 0x52DCE729) & _64
        two ^= _rotate(k2 * c2 & _64, 33) * c1 & _64
        two = ((_rotate(two, 31) + one) * 5 + 0x38495AB5) & _64
    tail = data[whole:]
    if len(tail) > 8:
        two ^= _rotate(int.from_bytes(tail[8:], "little") * c2 & _64, 33) * c1 & _64
    if tail:
        one ^= _rotate(int.from_bytes(tail[:8], "little") * c1 & _64, 31) * c2 & _64
    one, two = one ^ len(data), two ^ len(data)
    one = (one + two) & _64
    two = (two + one) & _64
    one, two = _mix(one), _mix(two)
    one = (one + two) & _64
    return one, (two + one) & _64


def item_bytes(value: Any, type_: pa.DataType) -> bytes:
    """Return the bytes of a value that are hashed."""
    if isinstance(value, float):
        return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, Decimal):
        return int(value.scaleb(type_.scale)).to_bytes(16, "little", signed=True)
    return int(_whole(value)).to_bytes(8, "little", signed=True)


def _whole(value: Any) -> int:
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=None) - _EPOCH) // _MICRO
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, dt.timedelta):
        return value // _MICRO
    return int(value)


# -- HyperLogLog -------------------------------------------------------------------------------------------------------


def registers(values: Sequence[Row], types: Sequence[pa.DataType], lg: int) -> dict[int, int]:
    """Return the greatest rank by register of the hashes of `values`, tuples of columns with `types`."""
    found: dict[int, int] = {}
    for row in values:
        parts = [item_bytes(value, type_) for value, type_ in zip(row, types, strict=True)]
        data = parts[0] if len(parts) == 1 else b"".join(struct.pack("<QQ", *murmur128(part)) for part in parts)
        one, two = murmur128(data)
        rank = min(64 - two.bit_length(), 62) + 1
        register = one % 2**lg
        found[register] = max(found.get(register, 0), rank)
    return found


def hll_image(found: dict[int, int], lg: int) -> bytes:
    ranks = [found.get(register, 0) for register in range(2**lg)]
    counts = Counter(ranks)
    low = sum((Fraction(count, 2**rank) for rank, count in counts.items() if rank < 32), Fraction(0))
    high = sum((Fraction(count, 2**rank) for rank, count in counts.items() if rank >= 32), Fraction(0))
    head = struct.pack("<8Bddd2I", 10, 1, 7, lg, 0, 16, 0, 10, 0.0, float(low), float(high), ranks.count(0), 0)
    return head + bytes(ranks)


def hll_estimate(found: dict[int, int], lg: int) -> float:
    if not found:
        return 0.0
    return float(datasketches.hll_sketch.deserialize(hll_image(found, lg)).get_estimate())


def _count_distinct(call: AggregateCall, rows: list[Row]) -> int:
    last = call.arguments[-1]
    columns = call.arguments
    rsd = 0.01625
    if isinstance(last, Literal) and len(columns) > 1 and not pa.types.is_integer(last.type):
        columns, rsd = columns[:-1], float(last.value)
    lg = next(lg for lg in range(4, 22) if 1.04 / math.sqrt(2**lg) <= rsd)
    values = [row[: len(columns)] for row in rows]
    estimate: float = hll_estimate(registers(values, [c.type for c in columns], lg), lg)
    return math.floor(estimate + 0.5)


def _hll_sketch(call: AggregateCall, rows: list[Row]) -> bytes | None:
    lg = int(_constant(call, 1, 12))
    return hll_image(registers([row[:1] for row in rows], [call.arguments[0].type], lg), lg) if rows else None


def _hll_union(call: AggregateCall, rows: list[Row]) -> bytes | None:
    images = [image for (image,) in rows if _is_sketch(image)]
    if not images:
        return None
    lg = min(image[3] for image in images)
    found: dict[int, int] = {}
    for image in images:
        for register, rank in _coupons(image):
            found[register % 2**lg] = max(found.get(register % 2**lg, 0), rank)
    return hll_image(found, lg)


def _coupons(image: bytes) -> list[tuple[int, int]]:
    """Return (register, rank) of all registers of an image that are not empty."""
    sketch = datasketches.hll_sketch.deserialize(image)
    lg = sketch.lg_config_k
    full = datasketches.hll_sketch.deserialize(hll_image(dict.fromkeys(range(2**lg), 1), lg))
    union = datasketches.hll_union(lg)
    union.update(full)
    union.update(sketch)
    ranks = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_updatable()[40:]
    # In a union with `full` every register has rank 1 or more; the image of the sketch alone shows which have rank 1.
    union = datasketches.hll_union(lg)
    union.update(sketch)
    body = union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_updatable()
    if body[7] & 3 == 2:
        return [(register, rank) for register, rank in enumerate(body[40:]) if rank]
    start = 8 if body[7] & 3 == 0 else 12
    coupons = [c for (c,) in struct.iter_unpack("<I", body[start:]) if c]
    held = {c % 2**lg for c in coupons}
    return [(register, rank) for register, rank in enumerate(ranks) if register in held]


def _is_sketch(image: bytes) -> bool:
    try:
        datasketches.hll_sketch.deserialize(image)
    except Exception:
        return False
    return True


# -- quantiles ---------------------------------------------------------------------------------------------------------


def _ln(x: float) -> float:
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    series = 1.0 / 25.0
    for k in (23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        series = series * (s * s) + 1.0 / k
    return 2.0 * s * series + exponent * 0.6931471805599453


def _exp(x: float) -> float:
    whole = math.floor(x / 0.6931471805599453 + 0.5)
    r = (x - whole * 0.693147180369123816490) - whole * 1.90821492927058770002e-10
    series = 1.0
    for k in range(17, 0, -1):
        series = series * r / k + 1.0
    try:
        return math.ldexp(series, whole)
    except OverflowError:
        return math.inf


def _log_gamma(accuracy: float) -> float:
    inner = accuracy * (1.0 - 2.0**-18)
    return _ln((1.0 + inner) / (1.0 - inner))


def bucket(value: float, accuracy: float) -> tuple[float, float]:
    """Return the bucket of a number, in order: (part, index)."""
    if math.isnan(value):
        return 3, 0
    if math.isinf(value):
        return math.copysign(2, value), 0
    if value == 0:
        return 0, 0
    index = math.ceil(_ln(abs(value)) / _log_gamma(accuracy))
    return (1, index) if value > 0 else (-1, -index)


def bucket_value(found: tuple[float, float], accuracy: float) -> float:
    part, index = found
    if part in (3, 0):
        return math.nan if part else 0.0
    if abs(part) == 2:
        return math.copysign(math.inf, part)
    gamma = _log_gamma(accuracy)
    middle = _ln(2.0 / (_exp(gamma) + 1.0))
    size = _exp((index if part > 0 else -index) * gamma + middle)
    return math.copysign(min(size, 1.7976931348623157e308), part)


def _fraction(call: AggregateCall) -> Fraction:
    """Return q as it was written in decimals."""
    return Fraction(repr(_constant(call, 1, 0.5)))


def _quantile(call: AggregateCall, rows: list[Row]) -> float | None:
    if not rows:
        return None
    accuracy, side = _constant(call, 2, 0.01), _constant(call, 3, 0)
    buckets = sorted(bucket(row[0], accuracy) for row in rows)
    value = bucket_value(buckets[math.floor(_fraction(call) * (len(rows) - 1))], accuracy)
    if not side or not math.isfinite(value) or value == 0:
        return value
    outwards = 1.0 - accuracy if (value > 0) == (side > 0) else 1.0 + accuracy
    return math.nextafter(value / outwards, math.inf * side)


def _percentile(call: AggregateCall, rows: list[Row], panes: Sequence[Hashable]) -> Any:
    if not rows:
        return None
    accuracy, side = int(_constant(call, 2, 10_000)), int(_constant(call, 3, 0))
    by_pane: dict[Hashable, list[Any]] = {}
    for row, pane in zip(rows, panes, strict=True):
        by_pane.setdefault(pane, []).append(row[0])
    kept: list[tuple[Any, int]] = []
    for values in by_pane.values():
        values.sort(key=order_key)
        size = max(1, 2 * len(values) // accuracy)
        for at in range(0, len(values), size):
            block = values[at : at + size]
            kept.append((block[(len(block) - 1) // 2], len(block)))
    kept.sort(key=lambda pair: order_key(pair[0]))
    rank = max(1, math.ceil(_fraction(call) * len(rows))) + side * (len(rows) // accuracy)
    if not 1 <= rank <= len(rows):
        return None
    for value, weight in kept:
        rank -= weight
        if rank <= 0:
            return value
    raise AssertionError("a rank beyond all values")


def _top_of_lists(call: AggregateCall, rows: list[Row], panes: Sequence[Hashable]) -> Any:
    if not rows:
        return None
    k = int(_constant(call, 1, 1))
    capacity = int(_constant(call, 2, min(1_000_000, 10 * k)))
    shown: dict[Row, Any] = {}
    by_pane: dict[Hashable, dict[Row, int]] = {}
    for row, pane in zip(rows, panes, strict=True):
        key = key_of((row[0],))
        shown.setdefault(key, row[0])
        counts = by_pane.setdefault(pane, {})
        counts[key] = counts.get(key, 0) + 1

    def most(counts: dict[Row, int], number: int) -> list[Row]:
        return sorted(counts, key=lambda key: (-counts[key], order_key(shown[key])))[:number]

    recorded: dict[Row, int] = {}
    for counts in by_pane.values():
        for key in most(counts, capacity):
            recorded[key] = recorded.get(key, 0) + counts[key]
    return [{"value": shown[key], "count": recorded[key]} for key in most(recorded, k)]


# -- count-min ---------------------------------------------------------------------------------------------------------


def _java_random(seed: int, count: int) -> list[int]:
    state, drawn = (seed ^ 0x5DEECE66D) % 2**48, list[int]()
    while len(drawn) < count:
        state = (state * 0x5DEECE66D + 11) % 2**48
        if state >> 17 != 2**31 - 1:
            drawn.append(state >> 17)
    return drawn


def _signed(x: int, bits: int) -> int:
    half: int = 2 ** (bits - 1)
    return (x + half) % (2 * half) - half


def murmur32(data: bytes, seed: int) -> int:
    """Return the variant of MurmurHash3 x86-32 in Spark's sketches, which takes the last bytes one by one, signed."""

    def mixed(h: int, k: int) -> int:
        k = k * 0xCC9E2D51 % 2**32
        k = (k << 15 | k >> 17) % 2**32 * 0x1B873593 % 2**32
        h ^= k
        return ((h << 13 | h >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32

    h = seed % 2**32
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        h = mixed(h, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        h = mixed(h, _signed(byte, 8) % 2**32)
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    return _signed(h ^ h >> 16, 32)


def count_min_columns(item: Any, factors: Sequence[int], width: int) -> list[int]:
    """Return the column of an item in every row of a sketch."""
    if isinstance(item, int):
        products = [_signed(factor * item, 64) for factor in factors]
        return [(_signed(p + (p >> 32), 64) & 0x7FFFFFFF) % width for p in products]
    data = item.encode() if isinstance(item, str) else item
    one = murmur32(data, 0)
    two = murmur32(data, one)
    return [abs(_signed(one + row * two, 32)) % width for row in range(len(factors))]


def _count_min(call: AggregateCall, rows: list[Row]) -> bytes | None:
    if not rows:
        return None
    eps, confidence = _constant(call, 1, 0), _constant(call, 2, 0)
    width, depth = math.ceil(2 / eps), math.ceil(-math.log1p(-confidence) / math.log(2))
    factors = _java_random(int(_constant(call, 3, 0)), depth)
    counts: Counter[tuple[int, int]] = Counter()
    for row in rows:
        counts.update(enumerate(count_min_columns(row[0], factors, width)))
    table = [counts[row, column] for row in range(depth) for column in range(width)]
    return struct.pack(f">iqii{depth}q{depth * width}q", 1, len(rows), depth, width, *factors, *table)


def _constant(call: AggregateCall, position: int, default: float) -> float:
    if len(call.arguments) <= position:
        return default
    literal = call.arguments[position]
    assert isinstance(literal, Literal)
    return float(literal.value)


#: canonical name -> definition over the call and the tuples of its arguments without NULLs
SKETCHES: dict[str, Callable[[AggregateCall, list[Row]], Any]] = {
    "APPROX_COUNT_DISTINCT": _count_distinct,
    "APPROX_QUANTILE": _quantile,
    "APPROX_QUANTILE_BOUND": _quantile,
    "COUNT_MIN_SKETCH": _count_min,
    "HLL_SKETCH_AGG": _hll_sketch,
    "HLL_UNION_AGG": _hll_union,
}

#: canonical name -> the same, and the pane of each tuple
BY_PANES: dict[str, Callable[[AggregateCall, list[Row], Sequence[Hashable]], Any]] = {
    "APPROX_PERCENTILE": _percentile,
    "APPROX_TOP_K": _top_of_lists,
    "APPROX_PERCENTILE_BOUND": _percentile,
}
