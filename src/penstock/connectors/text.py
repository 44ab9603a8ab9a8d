"""Tables as csv and json text, built column by column: no value passes through Python.

Contract: timestamps are ISO-8601 in UTC (`2013-01-01T10:00:00Z`, six fractional digits only where there is a fraction),
dates ISO, decimals without an exponent. csv: NULL is an empty cell, the empty string `""`, other cells are quoted where
necessary; arrays and structs are JSON. The NULL of an only column is `""`, as most readers skip empty lines. json: one
object per line, NULL is `null`, bytes are base64, NaN and infinities are strings. The FILES source reads back equal
values. With `exact`, numbers that a double cannot hold (decimals, and integers beyond 2^53) are strings too, for
readers that know doubles alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.values.calendar import far_day, far_moment
from penstock.expressions.values.intervals import to_text

_BYTES = pa.large_binary()
#: `2013-01-01 10:00:00`: most columns have only such years and no fractions.
_PLAIN_LENGTH = 19
#: The first and last value in the years that Arrow writes, -32767 to 32767: days, and microseconds.
_NEAR_DAYS = (-12_687_428, 11_248_737)
_NEAR_MOMENTS = (-12_687_428 * 86_400_000_000, 11_248_738 * 86_400_000_000 - 1)
#: Integers up to here are exact as doubles.
_MOST_EXACT = 2**53
_UNSAFE = r'[",\r\n]|^$'


def csv_text(table: pa.Table, head: bool = True) -> pa.Buffer:
    """Return `table` as csv, with a header line where it is the `head` of a file."""
    names = [pa.array([name.encode()], _BYTES) for name in table.column_names]
    header = _joined([_quoted(name) for name in names], b",", b"")
    null = b'""' if table.num_columns == 1 else b""
    rows = [_joined([_csv_cell(c) for c in batch.columns], b",", null) for batch in table.to_batches()]
    return _lines([header, *rows] if head else rows)


def json_text(table: pa.Table, head: bool = True, exact: bool = False) -> pa.Buffer:
    """Return `table` as json lines; `head` makes no difference."""
    keys = _keys(table.column_names)
    return _lines([_json_rows(batch, keys, exact) for batch in table.to_batches()])


def _keys(names: list[str]) -> list[bytes]:
    keys = [json.dumps(name, ensure_ascii=False).encode() + b":" for name in names]
    return keys[:1] + [b"," + key for key in keys[1:]]


def _json_rows(batch: pa.RecordBatch, keys: list[bytes], exact: bool = False) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = [pa.scalar(b"{", _BYTES)]
    for key, column in zip(keys, batch.columns, strict=True):
        parts += [pa.scalar(key, _BYTES), pc.fill_null(_json_value(column, exact), pa.scalar(b"null", _BYTES))]
    return _joined([*parts, pa.scalar(b"}", _BYTES)], b"", b"")


def _csv_cell(values: pa.Array) -> pa.Array:
    text = plain(values)
    return _quoted(text) if _is_text(values.type) or pa.types.is_nested(values.type) else text


def _quoted(text: pa.Array) -> pa.Array:
    unsafe = pc.match_substring_regex(text, _UNSAFE)
    if not pc.any(unsafe).as_py():
        return text
    return pc.if_else(unsafe, _within(b'"', pc.replace_substring(text, b'"', b'""')), text)


def _json_value(values: pa.Array, exact: bool = False) -> pa.Array:
    """Return the JSON of each value, NULL for NULL."""
    type_ = values.type
    if pa.types.is_list(type_):
        members = pc.fill_null(_json_value(values.flatten(), exact), pa.scalar(b"null", _BYTES))
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
        joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, members), pa.scalar(b",", _BYTES))
        return pc.if_else(values.is_valid(), _enclosed(b"[", joined, b"]"), pa.scalar(None, _BYTES))
    if pa.types.is_struct(type_):
        names = [field.name for field in type_]
        rows = _json_rows(pa.RecordBatch.from_arrays(values.flatten(), names=names), _keys(names), exact)
        return pc.if_else(values.is_valid(), rows, pa.scalar(None, _BYTES))
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return _within(b'"', _each(values, base64.b64encode))
    text = plain(values)
    if pa.types.is_floating(type_):
        return pc.if_else(pc.is_finite(values), text, _within(b'"', text))
    if exact and pa.types.is_integer(type_):
        beyond = pc.or_(pc.greater(values, _MOST_EXACT), pc.less(values, -_MOST_EXACT))
        return pc.if_else(beyond, _within(b'"', text), text)
    if exact and pa.types.is_decimal(type_):
        return _within(b'"', text)
    if _is_text(type_):
        text = pc.replace_substring(pc.replace_substring(text, b"\\", b"\\\\"), b'"', b'\\"')
        if pc.any(pc.match_substring_regex(text, r"[\x00-\x1f]")).as_py():
            for code in range(32):
                text = pc.replace_substring(text, bytes([code]), json.dumps(chr(code))[1:-1].encode())
        return _within(b'"', text)
    return _within(b'"', text) if pa.types.is_temporal(type_) else text


def plain(values: pa.Array) -> pa.Array:
    """Return the text of each value, as bytes."""
    type_ = values.type
    if pa.types.is_nested(type_):
        return _json_value(values)
    if pa.types.is_timestamp(type_):
        text = _near_and_far(values.cast(pa.timestamp("us", "UTC")), _moments, _NEAR_MOMENTS)
        return (text if type_.tz else pc.utf8_rtrim(text, "Z")).cast(_BYTES)
    if pa.types.is_date32(type_):
        return _near_and_far(values, lambda days: days.cast(pa.large_string()), _NEAR_DAYS).cast(_BYTES)
    if pa.types.is_duration(type_):
        return to_text(values).cast(_BYTES)
    if pa.types.is_decimal(type_):
        return _decimals(values).cast(_BYTES)
    if pa.types.is_floating(type_):
        return _floats(values).cast(_BYTES)
    if _is_text(type_) or pa.types.is_null(type_):
        return values.cast(_BYTES)
    return values.cast(pa.large_string()).cast(_BYTES)


def _near_and_far(values: pa.Array, write_near: Callable[[pa.Array], pa.Array], bounds: tuple[int, int]) -> pa.Array:
    """Return dates or timestamps as text: by `write_near` in the years that Arrow writes, otherwise one by one."""
    numbers = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    far = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    if not pc.any(far).as_py():
        return write_near(values)
    write = far_day if pa.types.is_date32(values.type) else far_moment
    texts = [
        write(n) if out_of_range else None for n, out_of_range in zip(numbers.to_pylist(), far.to_pylist(), strict=True)
    ]
    return pc.coalesce(pa.array(texts, pa.large_string()), write_near(pc.if_else(far, None, values)))


def _moments(values: pa.Array) -> pa.Array:
    local = values.cast(pa.timestamp("us"))
    whole_seconds = pc.floor_temporal(local, unit="second")
    text = whole_seconds.cast(pa.timestamp("s")).cast(pa.large_string())
    fraction = pc.not_equal(whole_seconds, local)
    if pc.any(fraction).as_py():
        text = pc.if_else(fraction, local.cast(pa.large_string()), text)
    if pc.all(pc.equal(pc.binary_length(text), _PLAIN_LENGTH)).as_py() is not False:
        text = pc.binary_replace_slice(text, 10, 11, "T")
    else:
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(text, pa.scalar("Z", pa.large_string()), pa.scalar("", pa.large_string()))


def _floats(values: pa.Array) -> pa.Array:
    text = values.cast(pa.large_string())
    if pc.all(pc.is_finite(values)).as_py() is not False:
        return text
    text = pc.if_else(pc.is_nan(values), "NaN", text)
    text = pc.if_else(pc.equal(values, float("inf")), "Infinity", text)
    return pc.if_else(pc.equal(values, float("-inf")), "-Infinity", text)


def _decimals(values: pa.Array) -> pa.Array:
    text = values.cast(pa.large_string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    # Small values have an exponent: insert the point into the digits of the unscaled integer.
    scale = values.type.scale
    digits = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(values), values.buffers(), offset=values.offset, null_count=values.null_count
    ).cast(pa.large_string())
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "").cast(pa.large_string())
    padded = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    integer_part, fraction = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    point = pc.binary_join_element_wise(integer_part, fraction, pa.scalar(".", pa.large_string()))
    return pc.binary_join_element_wise(sign, point, pa.scalar("", pa.large_string()))


def _each(values: pa.Array, change: Callable[[bytes], bytes]) -> pa.Array:
    """Apply `change` to every distinct value, where Arrow has no kernel."""
    encoded = values.dictionary_encode()
    words = [None if word is None else change(word) for word in encoded.dictionary.to_pylist()]
    return pa.array(words, _BYTES).take(encoded.indices)


def _is_text(type_: pa.DataType) -> bool:
    strings = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    return bool(strings or pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _within(mark: bytes, text: pa.Array) -> pa.Array:
    return _enclosed(mark, text, mark)


def _enclosed(prefix: bytes, text: pa.Array, suffix: bytes) -> pa.Array:
    return pc.binary_join_element_wise(
        pa.scalar(prefix, _BYTES), text, pa.scalar(suffix, _BYTES), pa.scalar(b"", _BYTES)
    )


def _joined(parts: list[pa.Array | pa.Scalar], separator: bytes, null: bytes) -> pa.Array:
    return pc.binary_join_element_wise(
        *parts, pa.scalar(separator, _BYTES), null_handling="replace", null_replacement=null
    )


def _lines(rows: list[pa.Array]) -> pa.Buffer:
    """Concatenate all rows, each with a line end: the values buffer of one array."""
    end = pa.scalar(b"", _BYTES)
    terminated = [pc.binary_join_element_wise(part, end, pa.scalar(b"\n", _BYTES)) for part in rows if len(part)]
    if not terminated:
        return pa.py_buffer(b"")
    lines = pa.concat_arrays(terminated)
    return lines.buffers()[2] or pa.py_buffer(b"")
