"""The types of PostgreSQL that columns of Arrow have on the wire."""

from __future__ import annotations

import pyarrow as pa

from penstock.pgwire.values.wire_types import WireType, type_of_oid, wire_type

_PLAIN = {
    pa.bool_(): "bool", pa.int8(): "int2", pa.int16(): "int2", pa.int32(): "int4", pa.int64(): "int8",
    pa.uint8(): "int2", pa.uint16(): "int4", pa.uint32(): "int8", pa.uint64(): "numeric",
    pa.float16(): "float4", pa.float32(): "float4", pa.float64(): "float8", pa.string(): "text",
    pa.large_string(): "text", pa.binary(): "bytea", pa.large_binary(): "bytea", pa.date32(): "date",
    pa.null(): "text",
}  # fmt: skip


def wire_type_of(arrow: pa.DataType) -> WireType:
    """Return the type in which the values of a column are sent; `text` for those that PostgreSQL lacks."""
    if (name := _PLAIN.get(arrow)) is not None:
        return wire_type(name)
    if pa.types.is_decimal(arrow):
        return wire_type("numeric")
    if pa.types.is_timestamp(arrow):
        return wire_type("timestamp" if arrow.tz is None else "timestamptz")
    if pa.types.is_duration(arrow):
        return wire_type("interval")
    if pa.types.is_list(arrow):
        element = wire_type_of(arrow.value_type)
        found = type_of_oid(element.array)
        return wire_type("_text") if found is None else found
    return wire_type("json") if pa.types.is_struct(arrow) else wire_type("text")


def modifier_of(arrow: pa.DataType) -> int:
    """Return the type modifier of a column: precision and scale of a decimal, otherwise -1."""
    return (arrow.precision << 16 | arrow.scale) + 4 if pa.types.is_decimal(arrow) else -1
