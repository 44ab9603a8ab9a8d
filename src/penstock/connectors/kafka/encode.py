"""Rows of a result as records: json, avro, arrow, raw.

Contract: json and raw values and all keys and headers are written like csv and json results (`connectors/text.py`). An
arrow value is an IPC stream of many rows, at most about `ARROW_BYTES`; the others hold one row. Without a schema from
the user, avro has one derived from the result's columns, every field nullable.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.kafka.client import BOOTSTRAP, PATIENCE_OPTION, PREFIX, TOPIC
from penstock.connectors.kafka.decode import FORMAT, SCHEMA, avro_schema
from penstock.connectors.options import TEXT, Option, Options, OptionTable, whole
from penstock.connectors.text import json_text, plain
from penstock.errors import PenstockError, nearest
from penstock.types import type_name

#: Half of a broker's default limit for one record.
ARROW_BYTES = 512 * 2**10

_SCHEMA_ID = Option("schema_id", whole(), "number of the schema in Confluent's wire format", formats=("avro",))
_KEY = Option("key", TEXT, "columns of the result, with commas, that are the key of a record")
_HEADERS = Option("headers", TEXT, "columns of the result, with commas, that are headers of a record")
#: The options of the sink.
OPTIONS = OptionTable((BOOTSTRAP, TOPIC, FORMAT, *SCHEMA, _SCHEMA_ID, _KEY, _HEADERS, PATIENCE_OPTION), PREFIX)

#: Key, value, headers.
Message = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@dataclass(frozen=True)
class Encoder:
    """Encode rows.

    `key`, `headers`: the columns written there in addition to the value, or for raw instead of it; `value`: the column
    that is the value in raw; `schema`: avro's, parsed; `wire`: the header of an avro record.
    """

    format: str
    key: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    value: str = ""
    schema: Any = None
    wire: bytes = b""

    def messages(self, table: pa.Table) -> Iterator[Message]:
        table = table.combine_chunks()
        if self.format == "arrow":
            yield from ((None, stream, []) for stream in _streams(table))
            return
        headers = [(name, _plain(table, name)) for name in self.headers]
        for row, (key, value) in enumerate(zip(self._keys(table), self._values(table), strict=True)):
            yield key, value, [(name, texts[row]) for name, texts in headers]

    def _keys(self, table: pa.Table) -> list[bytes | None]:
        if not self.key:
            return [None] * len(table)
        return _plain(table, self.key[0]) if len(self.key) == 1 else [*_lines(table.select(self.key))]

    def _values(self, table: pa.Table) -> list[bytes | None]:
        if self.format == "json":
            return [*_lines(table)]
        if self.format == "raw":
            return _plain(table, self.value)
        import fastavro

        encoded: list[bytes | None] = []
        for row in _avro_values(table).to_pylist():
            out = io.BytesIO()
            out.write(self.wire)
            fastavro.schemaless_writer(out, self.schema, row)
            encoded.append(out.getvalue())
        return encoded


def _avro_values(table: pa.Table) -> pa.Table:
    """Return `table` with days and microseconds as numbers, as Avro stores them: Python's own types end with year
    9999.
    """
    numbers = {pa.types.is_date32: pa.int32(), pa.types.is_timestamp: pa.int64()}
    columns = [
        next((column.cast(type_) for fits, type_ in numbers.items() if fits(column.type)), column)
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def encoder(query: Query, types: dict[str, pa.DataType], options: Options) -> Encoder:
    """Return the encoder of a query's result, whose columns have `types`.

    Raises:
        PenstockError: P0208.
    """
    format_ = options.needed(FORMAT)
    key, headers = (_columns(options, name, types) for name in (_KEY, _HEADERS))
    if format_ == "arrow" and (key or headers):
        raise PenstockError("P0208", f"{options.owner}: a value in arrow holds many rows, it has no key and no headers")
    options.check_format(OPTIONS, format_)
    if format_ == "raw":
        value_columns = [
            name for name in list(types)[1 if query.root.is_stream else 2 :] if name not in (*key, *headers)
        ]
        if len(value_columns) != 1:
            message = (
                f"{options.owner}: format raw writes one column, these remain for the value: {', '.join(value_columns)}"
            )
            raise PenstockError("P0208", message, hint="send the others as key or headers")
        return Encoder(format_, key, headers, value_columns[0])
    if format_ == "avro":
        schema = avro_schema(options) if any(map(options.has, SCHEMA)) else _schema(query.name, types, options)
        number = options.optional(_SCHEMA_ID)
        wire = b"" if number is None else b"\0" + number.to_bytes(4, "big")
        return Encoder(format_, key, headers, schema=schema, wire=wire)
    return Encoder(format_, key, headers)


def _columns(options: Options, option: Option[str], types: dict[str, pa.DataType]) -> tuple[str, ...]:
    """Return the result's columns that an option names."""
    by_lower_name = {name.lower(): name for name in types}
    names: list[str] = []
    for part in filter(None, (p.strip() for p in options.text(option).split(","))):
        if part.lower() not in by_lower_name:
            message = f"{options.owner}: option {option.name} names no column of the result: {part}"
            raise PenstockError("P0208", message, hint=nearest(part, types))
        names.append(by_lower_name[part.lower()])
    return tuple(names)


def _plain(table: pa.Table, name: str) -> list[bytes | None]:
    column = table.column(name)
    values = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    encoded: list[bytes | None] = (values if pa.types.is_binary(values.type) else plain(values)).to_pylist()
    return encoded


def _lines(table: pa.Table) -> list[bytes]:
    text: bytes = json_text(table).to_pybytes()
    return text.split(b"\n")[:-1]


def _streams(table: pa.Table) -> Iterator[bytes]:
    rows = max(1, len(table) * ARROW_BYTES // max(table.nbytes, 1))
    for start in range(0, len(table), rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, rows))
        yield sink.getvalue().to_pybytes()


def _schema(query: str, types: dict[str, pa.DataType], options: Options) -> Any:
    import fastavro

    fields = [{"name": name, "type": ["null", _avro(name, type_, options)]} for name, type_ in types.items()]
    record_name = re.sub(r"^(?=\d)|\W", "_", query)
    try:
        return fastavro.parse_schema({"type": "record", "name": record_name, "fields": fields})
    except Exception as error:  # a column's name that is invalid in Avro
        message = f"{options.owner}: the result's columns have no Avro schema: {error}"
        raise PenstockError("P0208", message, hint="name the columns with letters, digits and _") from None


def _avro(name: str, type_: pa.DataType, options: Options) -> Any:
    if pa.types.is_decimal(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pa.types.is_timestamp(type_):
        return {"type": "long", "logicalType": "timestamp-micros" if type_.tz else "local-timestamp-micros"}
    if pa.types.is_integer(type_):
        return "long" if type_.bit_width == 64 else "int"
    plain_types = {
        pa.bool_(): "boolean",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
    }
    if type_ not in plain_types:
        message = f"{options.owner}: avro writes no {type_name(type_)}, the type of column {name}"
        raise PenstockError("P0208", message, hint="CAST it AS STRING" if pa.types.is_duration(type_) else None)
    return plain_types[type_]
