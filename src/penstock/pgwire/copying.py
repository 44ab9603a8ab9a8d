"""The rows of COPY TO STDOUT, as text, as CSV and in binary."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.pgwire.protocol import messages
from penstock.pgwire.replies import RowColumn
from penstock.pgwire.statements.clauses import Copy
from penstock.pgwire.values.encoding import encoded

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_ESCAPES = {b"\\": b"\\\\", b"\b": b"\\b", b"\f": b"\\f", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\v": b"\\v"}


def head(copy: Copy, columns: Sequence[RowColumn]) -> bytes:
    """Return what comes before the rows."""
    found = messages.copy_out(len(columns), copy.form == "binary")
    if copy.header:
        line = copy.delimiter.encode().join(_field(copy, one.name.encode()) for one in columns)
        found += messages.message("d", line + b"\n")
    return found


def rows(copy: Copy, batch: pa.RecordBatch, columns: Sequence[RowColumn], is_first: bool) -> Iterator[bytes]:
    """Yield the message of each row. is_first: whether they are the first ones: in binary the message of the first row
    begins with the signature, as PostgreSQL sends it and some clients expect."""
    binary = copy.form == "binary"
    before = _SIGNATURE if is_first else b""
    encodings = [encoded(values, one.type, binary) for values, one in zip(batch.columns, columns, strict=True)]
    delimiter, null = copy.delimiter.encode(), copy.null.encode()
    for row in zip(*encodings, strict=True):
        if binary:
            parts = [b"\xff\xff\xff\xff" if one is None else struct.pack("!I", len(one)) + one for one in row]
            yield messages.message("d", before + struct.pack("!H", len(parts)) + b"".join(parts))
            before = b""
        else:
            fields = (null if one is None else _field(copy, one) for one in row)
            yield messages.message("d", delimiter.join(fields) + b"\n")


def tail(copy: Copy, is_empty: bool) -> bytes:
    """Return what comes behind the rows. is_empty: whether there were none."""
    end = messages.message("d", (_SIGNATURE if is_empty else b"") + b"\xff\xff") if copy.form == "binary" else b""
    return end + messages.COPY_DONE


def _field(copy: Copy, value: bytes) -> bytes:
    if copy.form == "csv":
        special = (copy.delimiter.encode(), b'"', b"\n", b"\r")
        if value == copy.null.encode() or value == b"\\." or any(one in value for one in special):
            return b'"' + value.replace(b'"', b'""') + b'"'
        return value
    for character, escape in _ESCAPES.items():
        if character in value:
            value = value.replace(character, escape)
    delimiter = copy.delimiter.encode()
    return value if delimiter == b"\t" else value.replace(delimiter, b"\\" + delimiter)
