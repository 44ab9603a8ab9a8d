"""Arguments of kernels: Arrow arrays and scalars, and their bridges to NumPy and to distinct values.

Contract of every kernel: at least one argument is an array, and all arrays have one length; scalars are literals or
computed from literals alone. No value raises an exception: a value without a result is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Datum: TypeAlias = "pa.Array | pa.Scalar"
Arguments: TypeAlias = tuple[Datum, ...]
Kernel: TypeAlias = Callable[[Arguments, pa.DataType], Datum]


def is_scalar(datum: Datum) -> bool:
    return isinstance(datum, pa.Scalar)


def length_of(arguments: Sequence[Datum]) -> int:
    """Return the number of rows of the first array among `arguments`."""
    return next(len(a) for a in arguments if not is_scalar(a))


def to_array(datum: Datum, length: int) -> pa.Array:
    """Return `datum` as one array of `length` rows."""
    if isinstance(datum, pa.ChunkedArray):
        return datum.combine_chunks() if datum.num_chunks != 1 else datum.chunk(0)
    if not is_scalar(datum):
        return datum
    return _repeated(datum, length) if datum.is_valid else pa.nulls(length, datum.type)


def _repeated(value: pa.Scalar, length: int) -> pa.Array:
    """Repeat a value like `pa.repeat`; filling memory is several times as fast for fixed-width types."""
    kind = value.type
    if not length:
        return pa.array([], kind)  # `pa.repeat` cannot do this with an array
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    if not plain or kind.bit_width > 64:
        return pa.repeat(value, length)
    word = np.frombuffer(pa.array([value], kind).buffers()[1], f"u{kind.bit_width // 8}", 1)
    filled = np.full(length, word[0])
    return pa.Array.from_buffers(kind, length, [None, pa.py_buffer(filled)])


def arrays(arguments: Sequence[Datum]) -> tuple[pa.Array, ...]:
    """Return all of `arguments` as arrays of one length."""
    length = length_of(arguments)
    return tuple(to_array(a, length) for a in arguments)


#: Length limit of computed texts, in bytes.
LONGEST_BYTES = 2**26


def held_bytes(texts: Datum) -> int:
    """Return an upper bound for the bytes of the longest of `texts`."""
    return len((texts.as_py() or "").encode()) if is_scalar(texts) else int(texts.nbytes)


def null(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, type_)


def zero(type_: pa.DataType) -> pa.Scalar:
    return pa.scalar(Decimal(0) if pa.types.is_decimal(type_) else 0, type_)


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Return the fixed-width values of `array` as a read-only view, arbitrary at NULL rows."""
    dtype = np.dtype(_NUMPY.get(array.type) or array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize)


_NUMPY: dict[pa.DataType, str] = {
    pa.date32(): "i4",
    pa.timestamp("us"): "i8",
    pa.timestamp("us", tz="UTC"): "i8",
    pa.duration("us"): "i8",
}


def from_numbers(values: npt.NDArray[np.generic], type_: pa.DataType, *like: Datum) -> pa.Array:
    """Return an array of `type_` over `values` without a copy, NULL where one of `like` is NULL."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return null_where_any(pa.Array.from_buffers(type_, len(values), [None, data]), *like)


def null_where_any(array: pa.Array, *like: Datum) -> pa.Array:
    """Return `array`, NULL where one of `like` is NULL."""
    for datum in like:
        if is_scalar(datum):
            if not datum.is_valid:
                return pa.nulls(len(array), array.type)
        elif datum.null_count:
            array = pc.if_else(datum.is_valid(), array, null(array.type))
    return array


def null_unless(condition: pa.Array | npt.NDArray[np.bool_], array: pa.Array) -> pa.Array:
    """Return `array`, NULL where `condition` does not hold."""
    if isinstance(condition, np.ndarray):
        if condition.all():
            return array
        condition = pa.array(condition)
    return pc.if_else(condition, array, null(array.type))


def choose(condition: pa.Array | npt.NDArray[np.bool_], yes: Datum, no: Datum) -> pa.Array:
    """Return `yes` where `condition` is TRUE, else `no` (also where it is NULL)."""
    if isinstance(condition, np.ndarray):
        condition = pa.array(condition)
    if condition.null_count:
        condition = pc.fill_null(condition, False)
    return pc.if_else(condition, yes, no)


def over_distinct(
    function: Callable[..., object], arguments: Sequence[Datum], type_: pa.DataType, null_in: bool = False
) -> pa.Array:
    """Apply `function` to the Python values of each distinct combination of `arguments`, and expand the results to the
    rows.

    For functions without a vector form. A NULL argument gives NULL without a call unless `null_in`; a ValueError,
    ArithmeticError or LookupError of `function` gives NULL.
    """
    code: npt.NDArray[np.int64] | None = None
    encoded: list[tuple[pa.Array, npt.NDArray[np.int64]] | pa.Scalar] = []
    for argument in arguments:
        if is_scalar(argument):
            encoded.append(argument)
            continue
        pairs = argument.dictionary_encode(null_encoding="encode")
        index = pairs.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        encoded.append((pairs.dictionary, index))
        if code is None:
            code = index
        else:
            # Renumbered after each column, so that the product of two sizes cannot overflow.
            code = np.unique(code, return_inverse=True)[1].reshape(-1) * max(1, len(pairs.dictionary)) + index
    assert code is not None
    _, first, where = np.unique(code, return_index=True, return_inverse=True)
    columns = [
        [e.as_py()] * len(first) if isinstance(e, pa.Scalar) else e[0].take(pa.array(e[1][first])).to_pylist()
        for e in encoded
    ]
    results = [_call(function, values, null_in) for values in zip(*columns, strict=True)]
    return pa.array(results, type_).take(pa.array(where.reshape(-1)))


def _call(function: Callable[..., object], values: tuple[object, ...], null_in: bool) -> object:
    if not null_in and any(v is None for v in values):
        return None
    try:
        return function(*values)
    except (ValueError, ArithmeticError, LookupError):
        return None
