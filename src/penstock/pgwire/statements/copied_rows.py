"""The rows of COPY FROM STDIN: what the client has sent, as text or as CSV, to rows of a declared source.

All of it is read before any row is added, and the first malformed line refuses all: COPY adds everything or nothing,
also where the source is declared ON ERROR SKIP.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from penstock.algebra.nodes.scans import Source
from penstock.connectors.formats import cells
from penstock.connectors.formats.keys import folded
from penstock.errors import nearest
from penstock.pgwire.protocol.errors import BAD_TEXT, WireError, unsupported
from penstock.pgwire.statements.clauses import CopyFrom
from penstock.pgwire.statements.parameters import read_value
from penstock.pgwire.values.wire_types import wire_type
from penstock.types import type_name

_MALFORMED, _BAD_VALUE, _NULL = "22P04", "22P02", "23502"
_LARGEST_BLOCK = (1 << 31) - 1
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_SIMPLE = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_EMPTY_LINE = re.compile(rb"(?:\A|\n)\r?\n")


@dataclass(frozen=True)
class CopyTarget:
    """Where the rows of a COPY go. positions: of the columns that a line has; most: bytes of all lines."""

    copy: CopyFrom
    source: Source
    positions: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class _Cells:
    """The cells of lines. columns: texts or bytes, NULL where a line has NULL; line_of: returns the line, from 1, of a
    row, from 0."""

    columns: list[pa.Array]
    line_of: Callable[[int], int]


def copy_target(copy: CopyFrom, source: Source, most: int) -> CopyTarget:
    """Raises WireError: 42703 for an unknown column, 42701 for one that is named twice, 23502 where the timestamp or
    the operation is left out, 0A000 for a column whose values COPY does not read."""
    places = {folded(one.name): position for position, one in enumerate(source.columns)}
    positions: list[int] = []
    for name in source.columns.names if copy.columns is None else copy.columns:
        position = places.get(folded(name))
        if position is None:
            hint = nearest(name, source.columns.names)
            raise WireError("42703", f"{source.name} has no column {name[:200]}", hint, code="P0202")
        if position in positions:
            raise WireError("42701", f"the column {name[:200]} is named twice", code="P0205")
        positions.append(position)
    for needed in (source.timestamp, source.operation):
        if needed is not None and needed not in positions:
            message = f"the column {source.columns[needed].name} of {source.name} is left out"
            raise WireError(_NULL, message, "each row needs a value of it", code="P0209")
    for position in positions:
        column = source.columns[position]
        if pa.types.is_nested(column.type) or (pa.types.is_temporal(column.type) and _is_length(column.type)):
            message = f"COPY FROM does not read the column {column.name}, {type_name(column.type)}"
            raise unsupported(message, "name the other columns, or POST the rows as NDJSON over HTTP")
    return CopyTarget(copy, source, tuple(positions), most)


def copied_table(target: CopyTarget, data: bytes) -> pa.Table:
    """Return the rows of what a client has sent, with all declared columns; those that are not named are NULL.

    Raises:
        WireError: with the number of the line: 22P04 for one that has other columns or no end, 22P02 for a value that
            does not fit, 22021 for bytes that are no text, 23502 for NULL in the timestamp or the operation.
    """
    _check_text(data)
    found = _csv_cells(target, data) if target.copy.form == "csv" else _text_cells(target, data)
    source = target.source
    count = len(found.columns[0])
    arrays = [pa.nulls(count, column.type) for column in source.columns]
    for position, texts in zip(target.positions, found.columns, strict=True):
        column = source.columns[position]
        try:
            arrays[position] = _converted(texts, column.type, column.name, found.line_of)
        except WireError as error:
            if str(texts[0].as_py()).lower() == column.name.lower():
                error.hint = "line 1 holds the names of the columns: WITH (FORMAT csv, HEADER) leaves it out"
            elif pa.types.is_timestamp(column.type):
                error.hint = "an instant is 2024-03-01 09:00:00 in UTC, or with its offset as 2024-03-01 09:00:00+01"
            raise
        if position in (source.timestamp, source.operation) and arrays[position].null_count:
            row = int(np.flatnonzero(arrays[position].is_null().to_numpy(zero_copy_only=False))[0])
            raise _wrong(_NULL, found.line_of(row), f"column {column.name} is NULL")
    return pa.Table.from_arrays(arrays, schema=pa.schema([pa.field(one.name, one.type) for one in source.columns]))


def _is_length(type_: pa.DataType) -> bool:
    return not (pa.types.is_timestamp(type_) or pa.types.is_date(type_))


def _wrong(state: str, line: int, reason: str) -> WireError:
    return WireError(state, f"COPY added no row: line {line}: {reason}")


def _check_text(data: bytes) -> None:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(BAD_TEXT, data.count(b"\n", 0, error.start) + 1, "it is not UTF-8") from None
    if (nul := data.find(b"\0")) >= 0:
        raise _wrong(BAD_TEXT, data.count(b"\n", 0, nul) + 1, "a text has no character with the code 0")


def _converted(texts: pa.Array, type_: pa.DataType, name: str, line_of: Callable[[int], int]) -> pa.Array:
    """Return cells as values of a column. Raises WireError 22P02."""
    if pa.types.is_binary(type_):
        return pa.array([_bytes(one, row, name, line_of) for row, one in enumerate(texts.to_pylist())], type_)
    converted = cells.convert(texts, type_, cells.Spelling(()))
    if converted.failed.any():
        row = int(np.flatnonzero(converted.failed)[0])
        raise _wrong(_BAD_VALUE, line_of(row), cells.complaint(texts[row].as_py(), type_, name))
    return converted.values


def _bytes(text: str | bytes | None, row: int, name: str, line_of: Callable[[int], int]) -> object:
    """Return the bytes that a text of PostgreSQL stands for, such as `\\x01ff`."""
    raw = text.encode() if isinstance(text, str) else text
    try:
        return read_value(raw, wire_type("bytea"), False, 1)
    except WireError:
        raise _wrong(_BAD_VALUE, line_of(row), f"bad bytes in column {name}") from None


# -- csv -------------------------------------------------------------------------------------------------------


def _csv_cells(target: CopyTarget, data: bytes) -> _Cells:
    copy = target.copy
    if data.endswith((b"\n\\.", b"\n\\.\n", b"\n\\.\r\n")) or data.strip() == b"\\.":
        # Older clients send the mark of the end.
        data = data[: data.rindex(b"\\.")]
    if data.count(b'"') % 2:
        raise _wrong(_MALFORMED, data.count(b"\n") + 1, "a quote has no end")
    width, lines = len(target.positions), data

    def rows() -> Iterator[tuple[int, list[str]]]:
        """Yield each row with the line where it begins."""
        reader = csv.reader(io.StringIO(lines.decode("utf-8"), newline=""), delimiter=copy.delimiter)
        before = 0
        for row in reader:
            yield before + 1, row
            before = reader.line_num

    def line_of(row: int) -> int:
        try:
            return next(islice(rows(), row + copy.header, None))[0]
        except csv.Error:
            return row + copy.header + 1

    if copy.header:
        _, header = next(rows(), (1, []))
        _check_header(target, header)
        data = _behind_header(data)
    if not data:
        return _Cells([pa.array([], pa.string())] * width, line_of)
    wrong: list[arrow_csv.InvalidRow] = []

    def refused(row: arrow_csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    names = [str(number) for number in range(width)]
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(data),
            arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=min(len(data) + 1, _LARGEST_BLOCK)),
            arrow_csv.ParseOptions(
                delimiter=copy.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=False,
                invalid_row_handler=refused,
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[copy.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise WireError(_MALFORMED, f"COPY added no row: {text}") from None
    if wrong or (width > 1 and _EMPTY_LINE.search(data)):
        # Arrow reads an empty line as a row of NULL.
        try:
            for line, row in islice(rows(), int(copy.header), None):
                if len(row) != width:
                    raise _wrong_width(line, max(1, len(row)), width)
        except csv.Error as error:
            raise WireError(_MALFORMED, f"COPY added no row: {error}") from None
    if wrong:
        raise WireError(_MALFORMED, f"COPY added no row: a line has {wrong[0].actual_columns} columns, not {width}")
    return _Cells([column.combine_chunks() for column in table.columns], line_of)


def _behind_header(data: bytes) -> bytes:
    """Return what follows the first line; a line feed in quotes does not end it."""
    at, quotes = data.find(b"\n"), data.count(b'"', 0, max(0, data.find(b"\n")))
    while at >= 0 and quotes % 2:
        following = data.find(b"\n", at + 1)
        quotes += data.count(b'"', at, max(at, following))
        at = following
    return data[at + 1 :] if at >= 0 else b""


def _check_header(target: CopyTarget, header: list[str]) -> None:
    """Raises WireError 22P04 for a header that has other names, with HEADER MATCH."""
    names = [target.source.columns[position].name for position in target.positions]
    if target.copy.matches and list(map(folded, header)) != list(map(folded, names)):
        shown = ", ".join(header)[:200]
        raise _wrong(_MALFORMED, 1, f"the header has {shown}, and the columns are {', '.join(names)}"[:1_000])


# -- text ------------------------------------------------------------------------------------------------------


def _text_cells(target: CopyTarget, data: bytes) -> _Cells:
    copy, width = target.copy, len(target.positions)
    null = copy.null.encode()
    lines: list[int] = []
    columns: list[list[bytes | None]] = [[] for _ in range(width)]
    header = copy.header
    for line, raw in _text_lines(data, copy.delimiter.encode()):
        fields = [None if one == null else _unescaped(one, line) if b"\\" in one else one for one in raw]
        if header:
            header = False
            _check_header(target, [(one or b"").decode("utf-8", "replace") for one in fields])
            continue
        if len(fields) != width:
            wrong = _wrong_width(line, len(fields), width)
            if len(fields) == 1 and b"," in raw[0] and copy.delimiter == "\t":
                wrong.hint = (
                    "cells stand between tabs; WITH (FORMAT csv, HEADER) reads commas, and leaves a first line out"
                )
            raise wrong
        lines.append(line)
        for column, field in zip(columns, fields, strict=True):
            column.append(field)
    return _Cells([pa.array(column, pa.binary()) for column in columns], lines.__getitem__)


def _text_lines(data: bytes, delimiter: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the number of each line, from 1, and its fields as they are written. Raises WireError 22P04."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    has_returns = bool(lines) and lines[0].endswith(b"\r")
    split = re.compile(
        rb"((?:[^\\" + re.escape(delimiter) + rb"]|\\.)*+)(?:" + re.escape(delimiter) + rb"|\Z)", re.DOTALL
    )
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        at += 1
        if _continues(line):
            # A backslash before a line feed makes it a character of a value.
            parts = [line]
            while _continues(parts[-1]):
                if at == len(lines):
                    raise _wrong(_MALFORMED, number, "it ends with a backslash")
                parts.append(lines[at])
                at += 1
            line = b"\n".join(parts)
        if has_returns and not line.endswith(b"\r") and at < len(lines):
            raise _wrong(_MALFORMED, number, "it ends without the carriage return that the first line has")
        line = line[:-1] if has_returns and line.endswith(b"\r") else line
        if line == b"\\.":
            return
        if b"\r" in line:
            raise _wrong(_MALFORMED, number, "it has a carriage return, which is written \\r")
        if b"\\" not in line:
            yield number, line.split(delimiter)
            continue
        fields: list[bytes] = []
        place = 0
        while place <= len(line):
            match = split.match(line, place)
            assert match is not None, "each backslash has a character behind it"
            fields.append(match[1])
            place = match.end() if match.end() > match.end(1) else len(line) + 1
        yield number, fields


def _continues(line: bytes) -> bool:
    """Return whether a line ends with a backslash that is not escaped itself."""
    return line.endswith(b"\\") and bool((len(line) - len(line.rstrip(b"\\"))) % 2)


def _unescaped(field: bytes, line: int) -> bytes:
    """Return the bytes that a field stands for. Raises WireError 22021."""

    def character(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, other = match.groups()
        if other is not None:
            return _SIMPLE.get(other, other)
        return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 255])

    found = _ESCAPE.sub(character, field)
    if b"\0" in found:
        raise _wrong(BAD_TEXT, line, "a text has no character with the code 0")
    return found


def _wrong_width(line: int, actual: int, width: int) -> WireError:
    return _wrong(_MALFORMED, line, f"it has {actual} columns, {width} are expected")
