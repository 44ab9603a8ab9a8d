"""Record values as rows of the declared columns: json, avro, arrow, raw.

Contract: a decoder never raises for the contents of a value; a record that does not fit is rejected alone. json is
parsed like files of json lines. A value in arrow is a whole IPC stream of any number of rows. Avro records are decoded
one by one by fastavro.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.connectors.formats import casts, cells
from penstock.connectors.formats.base import (
    DAMAGE,
    TextOptions,
    one_line,
    record_bytes_option,
    timestamp_format_option,
)
from penstock.connectors.formats.columnar import check_buffers
from penstock.connectors.formats.json import JsonFormat
from penstock.connectors.formats.keys import folded, places
from penstock.connectors.formats.lines import BLOCK_BYTES, Block
from penstock.connectors.options import Option, Options, one_of
from penstock.connectors.secrets import secret, secret_options
from penstock.errors import PenstockError
from penstock.types import Field, Schema, type_name

SCHEMA = secret_options("schema", "the Avro schema", formats=("avro",))
WIRE = Option("wire", one_of("none", "confluent"), "what stands before a record in avro", "none")
RECORD_BYTES = record_bytes_option()
TIMESTAMP_FORMAT = timestamp_format_option(("json", "raw"))
#: The header of a record in Confluent's wire format: a zero and the four bytes of the schema's number.
WIRE_BYTES = 5

Int64s = npt.NDArray[np.int64]


@dataclass
class Decoded:
    """Decoded rows. `columns`: one array per value column; `origin`: the record of each row, ascending; `reasons`:
    record -> why it, or a row of it, is rejected.
    """

    columns: list[pa.Array]
    origin: Int64s
    reasons: dict[int, str] = field(default_factory=dict)


class Decoder(ABC):
    """Decode values. `columns`: the declared columns that values contain."""

    def __init__(self, owner: str, columns: tuple[Field, ...], options: Options) -> None:
        self.owner = owner
        self.columns = columns
        self.options = options

    def check(self) -> None:  # noqa: B027 - most formats have nothing to look at before the start
        """Check the declaration.

        Raises:
            PenstockError: P0402 or P0411, no value can fit it.
        """

    @abstractmethod
    def decode(self, values: pa.Array) -> Decoded:
        """Decode `values`: bytes, none of them NULL."""


class JsonDecoder(Decoder):
    def decode(self, values: pa.Array) -> Decoded:
        blank = pc.match_substring_regex(values, r"^\s*$").to_numpy(zero_copy_only=False)
        reasons = {int(i): "broken JSON: the value is empty" for i in np.flatnonzero(blank)}
        origin = np.flatnonzero(~blank)
        lines = values.take(pa.array(origin)) if reasons else values
        if pc.any(pc.match_substring_regex(lines, r"[\r\n]")).as_py():
            # Each record becomes one line: line ends between the tokens of a value are only blanks.
            lines = pc.replace_substring_regex(lines, r"[\r\n]", " ")
        keys = tuple(range(len(self.columns)))
        parts: list[list[pa.Array]] = []
        is_valid = np.ones(len(origin), dtype=bool)
        for start, block in _blocks(lines):
            chunk = self._format.parse("", block, keys)
            parts.append([chunk.columns[position] for position in keys])
            for rejected in chunk.rejected:
                row = start + (rejected.line or 1) - 1
                is_valid[row] = False
                reasons[int(origin[row])] = rejected.reason
        columns = [
            pa.concat_arrays([pa.array([], column.type), *(part[i] for part in parts)])
            for i, column in enumerate(self.columns)
        ]
        return Decoded(columns, origin[is_valid], reasons)

    @cached_property
    def _format(self) -> JsonFormat:
        # Longer records are rejected before; a line that replaces its line ends is not longer.
        written = self.options.optional(TIMESTAMP_FORMAT) or ""
        options = TextOptions(limit=self.options.value(RECORD_BYTES), timestamp_format=written)
        return JsonFormat(Source(self.owner, True, Schema(self.columns), "KAFKA"), options)


def _blocks(lines: pa.Array) -> Iterator[tuple[int, Block]]:
    """Yield `lines` in blocks, with the number of each block's first line."""
    ends = np.cumsum(pc.add(pc.binary_length(lines), 1).to_numpy(zero_copy_only=False))
    start = 0
    while start < len(lines):
        block_start = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, block_start + BLOCK_BYTES, side="right")))
        part = lines.slice(start, stop - start)
        joined = pc.binary_join_element_wise(part, pa.scalar(b"", part.type), pa.scalar(b"\n", part.type))
        offsets = np.frombuffer(joined.buffers()[1], np.int64, len(joined) + 1, joined.offset * 8)
        yield start, Block(joined.buffers()[2][int(offsets[0]) : int(offsets[-1])].to_pybytes(), 1)
        start = stop


class RawDecoder(Decoder):
    def decode(self, values: pa.Array) -> Decoded:
        (column,) = self.columns
        spelling = cells.Spelling(timestamp=self.options.optional(TIMESTAMP_FORMAT) or "")
        converted = cells.convert(values, column.type, spelling)
        rejected_rows = np.flatnonzero(converted.failed)
        reasons = {int(i): cells.complaint(values[int(i)].as_py(), column.type, column.name) for i in rejected_rows}
        valid_rows = np.flatnonzero(~converted.failed)
        return Decoded([converted.values.take(pa.array(valid_rows))], valid_rows, reasons)


def _checked(reader: pa.RecordBatchStreamReader) -> pa.Table:
    """Return all rows of a stream. Raises one of DAMAGE."""
    batches = list(reader)
    for batch in batches:
        check_buffers(batch)
    return pa.Table.from_batches(batches, reader.schema)


class ArrowDecoder(Decoder):
    def decode(self, values: pa.Array) -> Decoded:
        parts: list[list[pa.Array]] = [[pa.array([], column.type)] for column in self.columns]
        origin: list[Int64s] = []
        reasons: dict[int, str] = {}
        for record, value in enumerate(values):
            try:
                table = _checked(pa.ipc.open_stream(value.as_buffer())).combine_chunks()
            except DAMAGE as error:
                reasons[record] = f"not a readable Arrow stream: {one_line(error)}"
                continue
            fitted = self._fitted_columns(table)
            if isinstance(fitted, str):
                reasons[record] = fitted
                continue
            for part, column in zip(parts, fitted, strict=True):
                part.append(column)
            origin.append(np.full(table.num_rows, record, np.int64))
        columns = [pa.concat_arrays(part) for part in parts]
        return Decoded(columns, np.concatenate([np.zeros(0, np.int64), *origin]), reasons)

    def _fitted_columns(self, table: pa.Table) -> list[pa.Array] | str:
        """Return the declared columns of a value, or why they are missing. A value is accepted or rejected as a
        whole.
        """
        positions = places(table.column_names)
        fitted: list[pa.Array] = []
        for column in self.columns:
            matches = positions.get(folded(column.name), [])
            if len(matches) != 1:
                return f"column {column.name} {'occurs twice' if matches else 'is missing'}"
            chunked = table.column(matches[0])
            stored = pa.concat_arrays([pa.array([], chunked.type), *chunked.chunks])
            if casts.misfit(stored.type, column.type):
                return f"column {column.name} is {type_name(stored.type)} and declared {type_name(column.type)}"
            converted = casts.fit(stored, column.type)
            if converted.failed.any():
                failed_value = stored[int(np.flatnonzero(converted.failed)[0])]
                return cells.complaint(failed_value, column.type, column.name)
            fitted.append(converted.values)
        return fitted


class AvroDecoder(Decoder):
    def check(self) -> None:
        names = [f["name"] for f in self._schema["fields"]]
        positions = places(names)
        for column in self.columns:
            matches = positions.get(folded(column.name), [])
            if len(matches) != 1:
                mismatch = f"two fields {column.name}" if matches else f"no field {column.name}"
                message = f"{self.owner}: the Avro schema has {mismatch}"
                raise PenstockError("P0402", message, hint=f"its fields: {', '.join(names[:12])}")

    def decode(self, values: pa.Array) -> Decoded:
        rows: list[dict[str, object]] = []
        origin: list[int] = []
        reasons: dict[int, str] = {}
        for record, value in enumerate(values.to_pylist()):
            try:
                rows.append(self._row(value))
                origin.append(record)
            except Exception as error:  # foreign bytes can raise any exception
                reasons[record] = f"not a record of the Avro schema: {one_line(error)}"
        names = {folded(f["name"]): f["name"] for f in self._schema["fields"]}
        failed = np.zeros(len(rows), dtype=bool)
        columns: list[pa.Array] = []
        for column in self.columns:
            column_values = [row[names[folded(column.name)]] for row in rows]
            array, misfits = _array(column_values, column)
            for row in misfits:
                reasons[origin[row]] = cells.complaint(column_values[row], column.type, column.name)
                failed[row] = True
            columns.append(array)
        valid_rows = np.flatnonzero(~failed)
        return Decoded([c.take(pa.array(valid_rows)) for c in columns], np.array(origin, np.int64)[valid_rows], reasons)

    def _row(self, value: bytes) -> dict[str, object]:
        import fastavro

        start = WIRE_BYTES if self.options.value(WIRE) == "confluent" else 0
        if start and value[:1] != b"\0":
            raise ValueError("it does not begin with Confluent's wire header")
        stream = io.BytesIO(value)
        stream.seek(start)
        row: dict[str, object] = fastavro.schemaless_reader(stream, self._schema, None)  # type: ignore[assignment]  # the schema is that of a record
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes too many")
        return row

    @cached_property
    def _schema(self) -> Any:
        return avro_schema(self.options)


def _array(values: list[object], column: Field) -> tuple[pa.Array, list[int]]:
    """Return the values of one column, NULL where they do not fit, and the positions that do not."""
    try:
        return pa.array(values, column.type), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    fitted: list[object] = []
    misfits: list[int] = []
    for row, value in enumerate(values):
        try:
            fitted.append(pa.scalar(value, column.type).as_py())
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fitted.append(None)
            misfits.append(row)
    return pa.array(fitted, column.type), misfits


def avro_schema(options: Options) -> Any:
    """Return the schema in the option `schema` or `schema_file`.

    Raises:
        PenstockError: P0208, P0409 or P0411.
    """
    try:
        import fastavro
    except ImportError:
        raise PenstockError("P0411", "avro needs the package fastavro", hint="install penstock[kafka]") from None
    text = secret(options, SCHEMA[0].name) or options.needed(SCHEMA[0])
    try:
        schema = fastavro.parse_schema(json.loads(text))
    except Exception as error:  # fastavro's errors have no common class
        message = f"{options.owner}: option schema is not an Avro schema: {one_line(error)}"
        raise PenstockError("P0208", message) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise PenstockError("P0208", f"{options.owner}: option schema is not an Avro schema of a record")
    return schema


def convert(values: pa.Array, column: Field) -> cells.Converted:
    """Convert bytes to a column: text is read as in csv files, except that an empty text stays empty."""
    return cells.convert(values, column.type)


_DECODERS: dict[str, type[Decoder]] = {
    "json": JsonDecoder,
    "avro": AvroDecoder,
    "arrow": ArrowDecoder,
    "raw": RawDecoder,
}
FORMAT = Option("format", one_of(*_DECODERS), "what a record holds", required=True)


def decoder(source: Source, columns: tuple[Field, ...], options: Options) -> Decoder:
    """Return the decoder of a declaration whose values contain `columns`.

    Raises:
        PenstockError: P0208.
    """
    kind = options.needed(FORMAT)
    if kind == "raw" and len(columns) != 1:
        names = ", ".join(c.name for c in columns) or "none"
        message = f"{options.owner}: format raw fills one column, these remain for the value: {names}"
        raise PenstockError("P0208", message, hint="name the columns of key, partition, offset, timestamp, headers")
    if not columns and kind != "raw":
        raise PenstockError("P0208", f"{options.owner}: no column is left for the value")
    return _DECODERS[kind](f"source {source.name}", columns, options)
