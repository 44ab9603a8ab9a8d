"""Rows as JSON, NDJSON, CSV and an Arrow stream, and the choice between them.

A number in JSON is always one that every reader takes for the same double. Other numbers are texts: integers beyond
2^53, decimals, NaN and infinities. Timestamps are ISO-8601 in UTC, bytes are base64. `columns` of a JSON document has
the types of the columns; Arrow has the types themselves.
"""

from __future__ import annotations

import enum
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.connectors.text import csv_text, json_text
from penstock.errors import nearest
from penstock.server.http.problems import Refused
from penstock.types import type_name


class BodyFormat(enum.StrEnum):
    """The formats of rows; the value is the name that `format=` takes."""

    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"
    SSE = "sse"

    @property
    def media(self) -> str:
        return _MEDIA[self]


_MEDIA = {
    BodyFormat.JSON: "application/json",
    BodyFormat.NDJSON: "application/x-ndjson",
    BodyFormat.CSV: "text/csv; charset=utf-8",
    BodyFormat.ARROW: "application/vnd.apache.arrow.stream",
    BodyFormat.SSE: "text/event-stream",
}
#: Other names of the media types.
_OTHERS = {
    "application/ndjson": BodyFormat.NDJSON,
    "application/jsonl": BodyFormat.NDJSON,
    "application/x-apache-arrow-stream": BodyFormat.ARROW,
}
#: Bytes of rows in memory that are written at once.
_PIECE_BYTES = 2**20
_BY_MEDIA = {media.partition(";")[0]: form for form, media in _MEDIA.items()} | _OTHERS


def media_of(forms: Sequence[BodyFormat]) -> dict[str, Any]:
    """Return the media types of formats, as an OpenAPI document lists them."""
    return {form.media.partition(";")[0]: {"schema": {"type": "string"}} for form in forms}


def media_format(content_type: str) -> BodyFormat | None:
    """Return the format of a media type, None for another one."""
    return _BY_MEDIA.get(content_type.partition(";")[0].strip().lower())


def chosen(accept: str | None, offered: Sequence[BodyFormat]) -> BodyFormat:
    """Return the format that an Accept header prefers among those offered; the first of them without a header.

    Raises:
        Refused: 406 where it accepts none of them.
    """
    if not accept or not accept.strip():
        return offered[0]
    best: tuple[float, int, BodyFormat] | None = None
    for range_, quality in _accepted(accept):
        for place, form in enumerate(offered):
            if quality > 0 and _covers(range_, form) and (best is None or (quality, -place) > best[:2]):
                best = (quality, -place, form)
    if best is None:
        known = ", ".join(form.media.partition(";")[0] for form in offered)
        raise Refused(406, "P0803", f"no answer of the type {accept[:200]!r} can be had", hint=f"offered: {known}")
    return best[2]


def _accepted(accept: str) -> Iterator[tuple[str, float]]:
    for part in accept.split(","):
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        yield media, quality


def _covers(range_: str, form: BodyFormat) -> bool:
    media = form.media.partition(";")[0]
    return range_ in ("*/*", media) or range_ == media.split("/")[0] + "/*" or _OTHERS.get(range_) is form


def named(text: str, offered: Sequence[BodyFormat]) -> BodyFormat:
    """Return the format that `format=` names. Raises Refused for another."""
    names = [form.value for form in offered]
    if text.lower() not in names:
        raise Refused(400, "P0803", f"there is no format {text[:100]!r} here", hint=nearest(text[:100], names))
    return BodyFormat(text.lower())


def columns_document(schema: pa.Schema) -> list[dict[str, str]]:
    """Return the columns of rows as JSON values."""
    return [{"name": field.name, "type": type_name(field.type)} for field in schema]


def json_lines(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as JSON objects, one a line."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    content: bytes = json_text(table, exact=True).to_pybytes()
    return content


def json_array(rows: pa.Table | pa.RecordBatch) -> bytes:
    """Return rows as a JSON array of objects."""
    return b"[" + b",".join(json_lines(rows).split(b"\n")[:-1]) + b"]"


def csv_lines(rows: pa.Table | pa.RecordBatch, head: bool) -> bytes:
    """Return rows as CSV, with a header line where it is the `head`."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    content: bytes = csv_text(table, head).to_pybytes()
    return content


class ArrowWriter:
    """Writes an Arrow IPC stream piece by piece; a cursor goes into the metadata of its batch."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def head(self) -> bytes:
        return self._taken()

    def batch(self, rows: pa.RecordBatch, cursor: str = "") -> bytes:
        self._writer.write_batch(rows, custom_metadata={"cursor": cursor} if cursor else None)
        return self._taken()

    def error(self, document: bytes, schema: pa.Schema) -> bytes:
        """Write an error as the metadata of a batch without rows."""
        empty = pa.RecordBatch.from_pylist([], schema)
        self._writer.write_batch(empty, custom_metadata={"error": document})
        return self._taken()

    def end(self) -> bytes:
        self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        content = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return content


def pieces(table: pa.Table, form: BodyFormat) -> Iterator[bytes]:
    """Yield all rows of a table as a body in one of the formats, JSON as an array, in pieces of bounded size."""
    batches = [batch for batch in table.to_batches(max_chunksize=_rows_of_a_piece(table)) if batch.num_rows]
    if form is BodyFormat.JSON:
        yield b"["
        for place, batch in enumerate(batches):
            yield (b"," if place else b"") + json_array(batch)[1:-1]
        yield b"]"
    elif form is BodyFormat.NDJSON:
        yield from map(json_lines, batches)
    elif form is BodyFormat.CSV:
        yield csv_lines(table.schema.empty_table(), head=True)
        yield from (csv_lines(batch, head=False) for batch in batches)
    else:
        writer = ArrowWriter(table.schema)
        yield writer.head()
        yield from map(writer.batch, batches)
        yield writer.end()


def fits_a_piece(table: pa.Table) -> bool:
    """Return whether the rows of a table are one piece."""
    return int(table.num_rows) <= _rows_of_a_piece(table)


def _rows_of_a_piece(table: pa.Table) -> int:
    return max(1, _PIECE_BYTES * table.num_rows // max(table.nbytes, _PIECE_BYTES)) if table.num_rows else 1


def dumped(value: object) -> bytes:
    """Return a JSON value as bytes; lone surrogates become escapes."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")
