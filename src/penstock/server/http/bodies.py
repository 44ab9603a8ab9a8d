"""Posted rows: bodies as NDJSON, CSV or an Arrow stream, to rows of a declared source.

Everything here may be written by an attacker. Bodies are bounded before and after decompression; Arrow data is
validated in full, and only plain arrays are accepted, since in others (dictionaries, run lengths, views, compressed
buffers) a few bytes may stand for any number of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.scans import OnError, Source
from penstock.connectors.contract import Rejected
from penstock.connectors.formats import cells
from penstock.connectors.formats.base import TextOptions, rejection, whole_file
from penstock.connectors.formats.csv import CsvFormat
from penstock.connectors.formats.json import JsonFormat
from penstock.connectors.formats.keys import folded, unknown_name
from penstock.control.row_changes import row_faults, without_faults
from penstock.redaction import redacted_text
from penstock.server.http.formats import BodyFormat, json_lines
from penstock.server.http.gate import too_large
from penstock.server.http.problems import Refused
from penstock.storage import storage
from penstock.temporary import removed_after
from penstock.types import type_name

_TEXTS: dict[BodyFormat, type[JsonFormat | CsvFormat]] = {BodyFormat.NDJSON: JsonFormat, BodyFormat.CSV: CsvFormat}


@dataclass(frozen=True)
class ParsedBody:
    """The rows of a body, with all declared columns, and its malformed records."""

    rows: pa.Table
    malformed: tuple[Rejected, ...] = ()


def posted_rows(body: bytes, form: BodyFormat, source: Source, limit: int, strict: bool = True) -> ParsedBody:
    """Return the rows of a body.

    Args:
        limit: largest number of bytes of an Arrow stream in memory.
        strict: names that are no column make a record malformed, or the body where they stand for all records; they
            are passed over otherwise.

    Raises:
        Refused: 400 where nothing of it is a record, or a record is malformed and the source is declared ON ERROR FAIL;
            413 beyond the limit.
    """
    if form is BodyFormat.ARROW:
        posted = ParsedBody(_declared(_arrow_table(body, limit), source, strict))
        posted = _without_faults(posted, source, range(1, posted.rows.num_rows + 1))
    else:
        written = TextOptions(timestamp_format=source.option("timestamp_format"))
        posted = _parsed(body, _TEXTS[form](source, written, strict=strict), source)
        posted = _without_faults(posted, source, _lines(body, form is BodyFormat.CSV, posted))
    if posted.malformed and (source.on_error is OnError.FAIL or not posted.rows.num_rows):
        first = posted.malformed[0]
        place = "" if first.line is None else f"record in line {first.line}: "
        message = f"{place}{redacted_text(first.reason)}"
        hint = f"{_form_hint(first.reason, body if form is BodyFormat.CSV else b'')}{_columns_hint(source)}"
        raise Refused(400, "P0803", f"no row was added: {message}", hint=hint)
    return posted


def _parsed(body: bytes, reader: JsonFormat | CsvFormat, source: Source) -> ParsedBody:
    """Read text with the reader of files, whose contract for records holds here too."""
    columns = tuple(range(len(source.columns)))
    batches: list[pa.RecordBatch] = []
    malformed: list[Rejected] = []
    with removed_after() as folder:
        path = Path(folder) / "body"
        storage().write(path, body, durable=False)
        for part in reader.read(whole_file(str(path)), columns):
            batches.append(part.batch)
            malformed += part.rejected
    return ParsedBody(pa.Table.from_batches(batches, _schema(source)), tuple(malformed))


def _without_faults(posted: ParsedBody, source: Source, lines: Sequence[int | None]) -> ParsedBody:
    """Return a body without the rows that would become dead letters; they are malformed records. lines: of rows."""
    faults = row_faults(source, posted.rows)
    if not faults:
        return posted
    rows = posted.rows
    names = [source.columns[i].name for i in (*source.time_columns, source.operation) if i is not None]
    malformed = [*posted.malformed]
    for row, reason in faults.items():
        # As results have it: instants may be beyond those of Python.
        shown = json_lines(rows.slice(row, 1)).decode().rstrip("\n")
        malformed.append(
            rejection("", lines[row], shown, f"{reason} (column {' or '.join(names)})" if names else reason)
        )
    malformed.sort(key=lambda one: one.line or 0)
    return ParsedBody(without_faults(rows, faults), tuple(malformed))


def _lines(body: bytes, header: bool, posted: ParsedBody) -> Sequence[int | None]:
    """Return the line of each row of a text; None for all where a record may have several lines."""
    lines = [number for number, line in enumerate(body.split(b"\n"), 1) if line.strip()][1 if header else 0 :]
    rejected = {one.line for one in posted.malformed}
    kept = [number for number in lines if number not in rejected]
    return kept if len(kept) == posted.rows.num_rows else [None] * posted.rows.num_rows


def _schema(source: Source) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in source.columns])


def _form_hint(reason: str, csv: bytes) -> str:
    """Return what to do about records of another form, in front of the columns. csv: the body, where it is csv."""
    head = csv.partition(b"\n")[0]
    if "has no column" in reason and csv:
        if head.count(b",") == 0 and any(mark in head for mark in (b";", b"\t", b"|")):
            return "cells stand between commas; "
        return "the first line names the columns; " if any(mark in head for mark in b"0123456789") else ""
    if "bad timestamp" in reason:
        return (
            "an instant is a text as '2024-03-01 09:00:00' in UTC, or with its offset as '2024-03-01 09:00:00+01:00'; "
        )
    if "bad text" in reason:
        return "texts are sent as UTF-8; " if csv else "texts stand in double quotes, and are sent as UTF-8; "
    return "a compressed body is sent with `Content-Encoding: gzip`; " if "compressed by gzip" in reason else ""


def _columns_hint(source: Source) -> str:
    return "columns: " + ", ".join(f"{column.name} {type_name(column.type)}" for column in source.columns)


# -- Arrow -----------------------------------------------------------------------------------------------------


def _arrow_table(body: bytes, limit: int) -> pa.Table:
    """Return the table of an Arrow IPC stream. Raises Refused."""
    try:
        for message in _messages(body):
            if _is_compressed(message):
                hint = "send it without; a whole body may be compressed with Content-Encoding: gzip"
                raise Refused(400, "P0803", "the Arrow stream has compressed buffers", hint=hint)
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            _check_plain(reader.schema)
            batches, size = [], 0
            for batch in reader:
                batch.validate(full=True)
                size += batch.nbytes
                if size > limit:
                    raise too_large(limit)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, struct.error, ValueError, OSError, OverflowError, MemoryError) as error:
        text = " ".join(str(error).split())[:200]
        other = "an Arrow file has the other format: pyarrow.ipc.new_stream writes a stream"
        raise Refused(
            400, "P0803", f"the body is no Arrow stream: {text}", hint=other if body[:6] == _FILE else None
        ) from None


#: How an Arrow file begins.
_FILE = b"ARROW1"


def _check_plain(schema: pa.Schema) -> None:
    if len(schema) > 10_000:
        raise Refused(400, "P0803", f"the Arrow stream has {len(schema):,} columns")
    # Names that are no UTF-8 fail here, and not where they are compared.
    for field in schema:
        if len(field.name) > 1_000:
            raise Refused(400, "P0803", "the Arrow stream has a column name of more than 1,000 characters")
        if not _is_plain(field.type):
            message = f"column {field.name[:200]!r} has the type {str(field.type)[:200]}, which cannot be posted"
            raise Refused(400, "P0803", message, hint="cast it to a plain type before it is sent")


def _is_plain(type_: pa.DataType) -> bool:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _is_plain(type_.value_type)
    if pa.types.is_struct(type_):
        return all(_is_plain(member.type) for member in type_)
    views = (pa.types.is_string_view(type_), pa.types.is_binary_view(type_))
    others = (pa.types.is_nested(type_), pa.types.is_dictionary(type_), pa.types.is_run_end_encoded(type_))
    return not (any(views) or any(others) or isinstance(type_, pa.BaseExtensionType) or pa.types.is_union(type_))


def _declared(table: pa.Table, source: Source, strict: bool) -> pa.Table:
    """Return a table with the declared columns, matched by name; a column that is left out is NULL."""
    found: dict[str, int] = {}
    known = {folded(column.name) for column in source.columns}
    for place, name in enumerate(table.column_names):
        if folded(name) not in known and strict:
            message = unknown_name(name, source.columns.names, source.name)
            raise Refused(400, "P0803", f"no row was added: {message}", hint=_columns_hint(source))
        if folded(name) in found and folded(name) in known:
            raise Refused(400, "P0803", f"the body has a column {name[:200]!r} twice", hint=_columns_hint(source))
        found[folded(name)] = place
    arrays = []
    for position, column in enumerate(source.columns):
        here = found.get(folded(column.name))
        if here is None:
            if position in (source.timestamp, source.operation):
                raise Refused(400, "P0803", f"the body lacks the column {column.name}", hint=_columns_hint(source))
            arrays.append(pa.chunked_array([pa.nulls(table.num_rows, column.type)]))
            continue
        try:
            arrays.append(_converted(table.column(here), column.type))
        except (pa.ArrowException, OverflowError, ValueError) as error:
            text = " ".join(str(error).split())[:200]
            message = f"column {column.name} cannot be cast to {type_name(column.type)}: {text}"
            raise Refused(400, "P0803", message, hint=_columns_hint(source)) from None
    return pa.table(arrays, schema=_schema(source))


def _converted(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return values in the declared type; texts are read as those of a csv file. Raises ValueError."""
    texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(type_):
        # Arrow requires room for the largest integer, whatever the values are.
        return values.cast(pa.decimal256(76, type_.scale)).cast(type_)
    if pa.types.is_integer(values.type) and pa.types.is_timestamp(type_):
        raise ValueError("whole numbers are no TIMESTAMP: convert them first, as in pandas.to_datetime(.., unit='s')")
    if not texts or pa.types.is_string(type_) or pa.types.is_binary(type_):
        return values.cast(type_)
    converted = cells.convert(values.cast(pa.string()).combine_chunks(), type_)
    if converted.failed.any():
        raise ValueError(f"{values[int(converted.failed.argmax())].as_py()!r} in row {converted.failed.argmax() + 1}")
    return pa.chunked_array([converted.values], type=type_)


_CONTINUES = 0xFFFFFFFF
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2


def _messages(body: bytes) -> Iterator[bytes]:
    """Yield the metadata of the messages of an Arrow IPC stream."""
    at = 0
    while at + 4 <= len(body):
        (length,) = struct.unpack_from("<I", body, at)
        at += 4
        if length == _CONTINUES:
            (length,) = struct.unpack_from("<I", body, at)
            at += 4
        if length == 0:
            return
        metadata = body[at : at + length]
        if len(metadata) < length:
            raise ValueError("it is cut off")
        yield metadata
        place = _field(metadata, _root(metadata), 3)
        size = 0 if place is None else struct.unpack_from("<q", metadata, place)[0]
        if size < 0:
            raise ValueError("a message of negative length")
        at += length + size


def _is_compressed(metadata: bytes) -> bool:
    """Return whether the buffers of a message are compressed: whether its RecordBatch has the member `compression`."""
    message = _root(metadata)
    kind = _field(metadata, message, 1)
    header = _field(metadata, message, 2)
    if kind is None or header is None or metadata[kind] not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return False
    table = _referred(metadata, header)
    if metadata[kind] == _DICTIONARY_BATCH:
        data = _field(metadata, table, 1)
        if data is None:
            return False
        table = _referred(metadata, data)
    return _field(metadata, table, 3) is not None


def _root(buffer: bytes) -> int:
    return _referred(buffer, 0)


def _referred(buffer: bytes, place: int) -> int:
    """Return the place of a table of a FlatBuffer that the offset at `place` refers to."""
    target = place + int(struct.unpack_from("<I", buffer, place)[0])
    if target >= len(buffer):
        raise ValueError("an offset beyond its end")
    return target


def _field(buffer: bytes, table: int, number: int) -> int | None:
    """Return the place of a member of a table of a FlatBuffer; None where it is left out."""
    vtable = table - struct.unpack_from("<i", buffer, table)[0]
    if not 0 <= vtable < len(buffer):
        raise ValueError("an offset beyond its end")
    (size,) = struct.unpack_from("<H", buffer, vtable)
    entry = 4 + 2 * number
    if entry + 2 > size:
        return None
    (offset,) = struct.unpack_from("<H", buffer, vtable + entry)
    if offset and table + offset >= len(buffer):
        raise ValueError("an offset beyond its end")
    return table + offset if offset else None
