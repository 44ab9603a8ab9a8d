"""Operations on the bits of integers, and digests."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import (
    BIGINT,
    BINARY,
    INT,
    NULL,
    STRING,
    TEXTS_JOINED,
    cast_to,
    implicit,
    is_integer,
    misfit,
    wider_number,
)
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Expression
from penstock.expressions.values.datum import Arguments, Datum, Kernel, arrays, from_numbers, numbers, over_distinct

Typed = tuple[tuple[Expression, ...], pa.DataType]


def _integers(name: str, arguments: Sequence[Expression]) -> Typed:
    types = [a.type for a in arguments]
    if not all(is_integer(t) or t == NULL for t in types):
        texts = name == "&" and any(map(pa.types.is_string, types))
        raise misfit(name, types, TEXTS_JOINED if texts else None)
    common = INT if all(t == NULL for t in types) else next(t for t in types if t != NULL)
    for type_ in types:
        common = common if type_ == NULL else wider_number(common, type_)
    return tuple(cast_to(a, common) for a in arguments), common


def _shift_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    value = arguments[0]
    wide = value if value.type == BIGINT else implicit(value, INT, name)
    return (wide, implicit(arguments[1], INT, name)), wide.type


def _shift(direction: str) -> Kernel:
    """Return a shift as in Java: the count modulo the width; >>> fills with zeros."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        values, counts = arrays(arguments)
        data, by = numbers(values), numbers(counts) & (type_.bit_width - 1)
        if direction == "left":
            moved = np.left_shift(data, by)
        elif direction == "right":
            moved = np.right_shift(data, by)
        else:
            unsigned = np.dtype(f"u{data.dtype.itemsize}")
            moved = np.right_shift(data.view(unsigned), by.astype(unsigned)).view(data.dtype)
        return from_numbers(moved.astype(data.dtype), type_, values, counts)

    return run


def _binary(kernel: Callable[..., Datum]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return kernel(*arguments)

    return run


def _count_bits(arguments: Arguments, type_: pa.DataType) -> Datum:
    (values,) = arguments
    wide = numbers(values.cast(BIGINT)).view(np.uint64)
    return from_numbers(np.bitwise_count(wide).astype(np.int32), type_, values)


def _distinct(function: Callable[..., object]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return over_distinct(function, arguments, type_)

    return run


def _hex_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (value,) = arguments
    if value.type in (STRING, BINARY):
        return (cast_to(value, BINARY),), STRING
    return (implicit(value, BIGINT, name),), STRING


def _hex(value: int | bytes) -> str:
    return value.hex().upper() if isinstance(value, bytes) else f"{value & (2**64 - 1):X}"


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def _sha2(value: bytes, bits: int) -> str:
    return hashlib.new(
        {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}[bits], value
    ).hexdigest()


FUNCTIONS = (
    Function(
        "BIT_AND", "left, right", _integers, _binary(pc.bit_wise_and), "bits set in both", operator="left & right"
    ),
    Function(
        "BIT_OR", "left, right", _integers, _binary(pc.bit_wise_or), "bits set in one or both", operator="left | right"
    ),
    Function("BIT_XOR", "left, right", _integers, _binary(pc.bit_wise_xor), "bits set in one", operator="left ^ right"),
    Function("BIT_NOT", "value", _integers, _binary(pc.bit_wise_not), "every bit turned", operator="~value"),
    Function("BIT_COUNT", "value", takes(INT, BIGINT), _count_bits, "number of bits set"),
    Function("SHIFTLEFT", "value, count", _shift_rule, _shift("left"), "`value << count`"),
    Function("SHIFTRIGHT", "value, count", _shift_rule, _shift("right"), "`value >> count`, keeping the sign"),
    Function("SHIFTRIGHTUNSIGNED", "value, count", _shift_rule, _shift("unsigned"), "`value >>> count`"),
    Function("HEX", "value", _hex_rule, _distinct(_hex), "hexadecimal digits of an integer or of bytes"),
    Function("UNHEX", "string", takes(BINARY, STRING), _distinct(_unhex), "bytes of hexadecimal digits"),
    Function(
        "MD5", "bytes", takes(STRING, BINARY), _distinct(lambda v: hashlib.md5(v).hexdigest()), "MD5 digest in hex"
    ),
    Function(
        "SHA1",
        "bytes",
        takes(STRING, BINARY),
        _distinct(lambda v: hashlib.sha1(v).hexdigest()),
        "SHA-1 digest in hex",
        ("SHA",),
    ),
    Function("SHA2", "bytes, bits", takes(STRING, BINARY, INT), _distinct(_sha2), "SHA-2 digest of 224 to 512 bits"),
    Function("CRC32", "bytes", takes(BIGINT, BINARY), _distinct(zlib.crc32), "CRC-32 of bytes"),
    Function(
        "BASE64", "bytes", takes(STRING, BINARY), _distinct(lambda v: base64.b64encode(v).decode()), "bytes in base 64"
    ),
    Function("UNBASE64", "string", takes(BINARY, STRING), _distinct(base64.b64decode), "bytes of a text in base 64"),
)
