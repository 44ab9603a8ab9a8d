"""HASH and XXHASH64 against their definitions, a value at a time; `values_of_spark.txt` has what Spark answers."""

from __future__ import annotations

import datetime as dt
import random
import struct
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.expressions.calls.functions import build_call
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.nodes import Column
from penstock.testing.aggregates.sketches import murmur32

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _left(value: int, by: int) -> int:
    value %= 2**64
    return (value << by | value >> (64 - by)) % 2**64


def xxh64(data: bytes, seed: int) -> int:
    """Return XXH64 as it was published, signed."""
    seed, at = seed % 2**64, 0
    if len(data) >= 32:
        parts = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while len(data) - at >= 32:
            words = struct.unpack_from("<4Q", data, at)
            parts = [_left(part + word * _P2, 31) * _P1 for part, word in zip(parts, words, strict=True)]
            at += 32
        h = sum(_left(part, by) for part, by in zip(parts, (1, 7, 12, 18), strict=True))
        for part in parts:
            h = (h ^ _left(part * _P2, 31) * _P1 % 2**64) * _P1 + _P4
            h %= 2**64
    else:
        h = seed + _P5
    h += len(data)
    while len(data) - at >= 8:
        (word,) = struct.unpack_from("<Q", data, at)
        h, at = _left(h % 2**64 ^ _left(word * _P2, 31) * _P1 % 2**64, 27) * _P1 + _P4, at + 8
    if len(data) - at >= 4:
        (word,) = struct.unpack_from("<I", data, at)
        h, at = _left(h % 2**64 ^ word * _P1 % 2**64, 23) * _P2 + _P3, at + 4
    for byte in data[at:]:
        h = _left(h % 2**64 ^ byte * _P5 % 2**64, 11) * _P1
    h %= 2**64
    h = (h ^ h >> 33) * _P2 % 2**64
    h = (h ^ h >> 29) * _P3 % 2**64
    h ^= h >> 32
    return h - 2**64 if h >= 2**63 else h


def _bytes(value: Any, type_: pa.DataType) -> bytes:
    if pa.types.is_decimal(type_):
        unscaled = int(value.scaleb(type_.scale, Context(prec=40)))
        if type_.precision <= 18:
            return struct.pack("<q", unscaled)
        length = next(n for n in range(1, 17) if -(2 ** (8 * n - 1)) <= unscaled < 2 ** (8 * n - 1))
        return unscaled.to_bytes(length, "big", signed=True)
    if isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    if isinstance(value, float):
        value = value + 0.0 if value == value else float("nan")
        return struct.pack("<f" if type_ == pa.float32() else "<d", value)
    number = pa.scalar(value, type_)
    if pa.types.is_temporal(type_):
        number = number.cast(pa.int32() if type_ == pa.date32() else pa.int64())
    return struct.pack("<q" if type_.bit_width == 64 else "<i", int(number.as_py()))


def _hash(name: str, value: Any, type_: pa.DataType, seed: int) -> int:
    if value is None:
        return seed
    if pa.types.is_list(type_):
        for part in value:
            seed = _hash(name, part, type_.value_type, seed)
        return seed
    return (murmur32 if name == "HASH" else xxh64)(_bytes(value, type_), seed)


def test_xxh64_is_that_of_its_published_vectors() -> None:
    assert xxh64(b"", 0) % 2**64 == 0xEF46DB3751D8E999
    assert xxh64(b"a", 0) % 2**64 == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc", 0) % 2**64 == 0x44BC2CF5AD770999


def test_hashes_are_those_of_the_reference_of_spark() -> None:
    columns = [pa.array(["Spark"]), pa.array([[123]], pa.list_(pa.int32())), pa.array([2], pa.int32())]
    for name, expected in (("HASH", -1321691492), ("XXHASH64", 5602566077635097486)):
        call = build_call(name, [Column(one.type, i) for i, one in enumerate(columns)])
        assert evaluate(call, columns, 1).to_pylist() == [expected]


_TYPES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.int8(): (0, 1, -1, 127, -128),
    pa.int16(): (0, -32768, 32767),
    pa.int32(): (0, 7, 2**31 - 1, -(2**31)),
    pa.int64(): (0, 7, 2**63 - 1, -(2**63)),
    pa.bool_(): (True, False),
    pa.float32(): (0.0, -0.0, 1.5, float("nan"), float("inf")),
    pa.float64(): (0.0, -0.0, 1.5, float("nan"), float("-inf"), 5e-324),
    pa.string(): ("", "a", "äb", "abcd", "x" * 31, "y" * 32, "z" * 45, "日本語" * 30),
    pa.binary(): (b"", b"\x00\xff\x80", bytes(range(200, 256)) * 2),
    pa.date32(): (dt.date(2024, 2, 29), dt.date(1969, 12, 31)),
    pa.timestamp("us", tz="UTC"): (dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)),
    pa.timestamp("us"): (dt.datetime(2024, 2, 29, 12),),
    pa.duration("us"): (dt.timedelta(days=-1, microseconds=1),),
    pa.decimal128(18, 2): (Decimal("-12.34"), Decimal("9999999999999999.99"), Decimal(0)),
    pa.decimal128(38, 0): tuple(map(Decimal, (0, 1, -1, 127, 128, -128, -129, 255, 256, 10**38 - 1, 1 - 10**38))),
    pa.list_(pa.int32()): ([], [1, None, 2], [None], list(range(20))),
    pa.list_(pa.string()): ([], ["a", "", None, "bc"]),
    pa.null(): (),
}


@pytest.mark.parametrize("name", ["HASH", "XXHASH64"])
def test_hashes_are_those_of_the_definitions(name: str) -> None:
    draw = random.Random(5)
    for type_, values in _TYPES.items():
        array = pa.array([*values, None, *values], type_)
        for part in (array, array.slice(1), array.slice(2, 3), array.slice(0, 0)):
            found = evaluate(build_call(name, [Column(type_, 0)]), [part], len(part)).to_pylist()
            assert found == [_hash(name, value, type_, 42) for value in part.to_pylist()], (type_, part)
    for _ in range(20):
        types = draw.choices(list(_TYPES), k=draw.randint(2, 5))
        columns = [pa.array([draw.choice([*_TYPES[t], None]) for _ in range(9)], t) for t in types]
        call = build_call(name, [Column(t, i) for i, t in enumerate(types)])
        found = evaluate(call, columns, 9).to_pylist()
        for row, value in enumerate(found):
            seed = 42
            for column, type_ in zip(columns, types, strict=True):
                seed = _hash(name, column[row].as_py(), type_, seed)
            assert value == seed, (types, row)
