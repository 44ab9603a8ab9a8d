"""json lines: one object per line, by Arrow's parser block by block; a block with a bad line is read line by line. A
file that is one array is read as lines of its elements (`array_lines.py`).

Contract: a line is rejected alone, with its number, when it is not a JSON object, when a value is not of its column's
type (numbers for numbers, text for text, dates, timestamps; decimals may be either; base64 text for BINARY), when two
of its keys name one column (`keys.py`), and when it is longer than a record may be. A missing key is NULL, other keys
are ignored, or make a line rejected (`strict`). For a column of text an object or an array is its JSON text as it
stands in the record, without the blanks between its tokens. The result of a line depends on no other line.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from penstock.connectors.contract import Rejected, Split
from penstock.connectors.formats import cells
from penstock.connectors.formats.array_lines import ArrayCutter, places
from penstock.connectors.formats.base import (
    BrokenOff,
    Chunk,
    FileFormat,
    Unfit,
    long_record,
    rejection,
    too_long,
    without,
)
from penstock.connectors.formats.keys import folded, spellings, unknown_name
from penstock.connectors.formats.lines import (
    BOM,
    SAMPLE_BYTES,
    Block,
    TextFile,
    end_of_lines,
    longest_line,
    text_file,
)
from penstock.events import log_event, logger_of

_LOG = logger_of("connectors")
#: First lines of a file that are read to check whether its keys are the declared ones.
_SAMPLE = 100
_SPECIAL = frozenset({"NaN", "Infinity", "-Infinity"})
_WHOLE = re.compile(r"-?[0-9]+\Z")

#: Two objects on one line, of which the second may be `null`, unless inside a text.
_DOUBLED = re.compile(rb"\}[ \t]*[{n]")
#: A line that is `null`, which Arrow accepts as an object.
_NULL = re.compile(rb"[\n\r][ \t]*n")
#: A block that begins with `null`: Arrow's parser (26.0.1) ends the process.
_BEGINS_WITH_NULL = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*n")
#: A text, or the blanks between two tokens.
_TEXT_OR_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')
_BLANKS = re.compile(r"[ \t\r\n]*")

#: The declared positions that a file's objects contain.
Inside = tuple[int, ...]


class _Number(str):
    """A number as it was written: converted like a cell of text, but distinguished from a string."""


class _Object(list[tuple[str, object]]):
    """The members of an object, in order."""


@dataclass
class JsonFormat(FileFormat):
    """strict: a record with a key that is no column is rejected."""

    name: ClassVar[str] = "json"
    extensions: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    strict: bool = False

    #: Whether no block so far has other keys than the declared ones; it only decides how keys are looked up.
    _declared_only: bool = field(default=True, init=False, repr=False, compare=False)

    def fit(self, path: str) -> None:
        with text_file(path, verify=False) as text:
            text.finish()
            positions = self._file_positions(path, text)
            keys = {key for value in _first_objects(text.data) for key, _ in value}
        self._warn_of_keys(path, positions, keys)

    def _warn_of_keys(self, path: str, positions: Inside, keys: set[str]) -> None:
        """Warn of columns for which no object has a key, where there are keys that no column has: one may be meant for
        the other."""
        known = {folded(key) for key in keys}
        absent = [name for p in positions if folded(name := self.source.columns[p].name) not in known]
        declared = {folded(name) for name in self.source.columns.names}
        others = sorted(key for key in keys if folded(key) not in declared)
        if absent and others and known:
            columns, verb = ("column", "is") if len(absent) == 1 else ("columns", "are")
            message = (
                f"{self.source.name}: {columns} {', '.join(absent)} {verb} NULL: the first objects of {path} have no "
                f"such key; they have {', '.join(others[:12])}, which no column is called"
            )
            log_event(_LOG, logging.WARNING, "keys", message, source=self.source.name)

    def chunks(self, split: Split, needed: frozenset[int]) -> Iterator[Chunk]:
        limit = self.options.limit
        with text_file(split.path) as text:
            positions = self._file_positions(split.path, text)
            if _is_array(text.data):
                yield from self._array_chunks(split.path, text, positions)
                return
            while text.data or not text.ended:
                end = len(text.data) if text.ended else end_of_lines(text.data)
                if end:
                    yield self.parse(split.path, text.take(end), positions)
                elif len(text.data) > limit + 2:
                    yield self._long_record(split.path, text, positions)
                    text.take_line()
                if not text.ended:
                    text.more()
            text.finish()

    def _long_record(self, path: str, text: TextFile, positions: Inside) -> Chunk:
        """Return the record at the beginning of `text`, which is longer than a record may be."""
        record = text.data.lstrip()
        line = text.line + text.data.count(b"\n", 0, len(text.data) - len(record))
        rejected = long_record(path, line, record, self.options.limit)
        return Chunk({p: pa.array([], self.source.columns[p].type) for p in positions}, 0, (rejected,))

    def _array_chunks(self, path: str, text: TextFile, positions: Inside) -> Iterator[Chunk]:
        """Yield the elements of an array as records, each with the line of the file in which it begins."""
        cutter, lines = ArrayCutter(), b""
        while text.data or not text.ended:
            lines += cutter.lines(text.data[len(lines) :])
            end = len(lines) if text.ended and cutter.depth < 2 else lines.rfind(b"\n") + 1
            if end:
                yield self._elements(path, text.take(end), lines[:end], positions)
                lines = lines[end:]
            elif len(lines) > self.options.limit + 2:
                yield self._long_record(path, text, positions)
                lines = _without_element(text, cutter)
            elif text.ended:
                break
            if not text.ended:
                text.more()
        text.finish()
        if cutter.depth:
            raise BrokenOff("the array has no end", text.line)

    def _elements(self, path: str, block: Block, lines: bytes, positions: Inside) -> Chunk:
        """Return the elements of a part of an array. lines: these, one a line."""
        chunk = self.parse(path, Block(lines, 1), positions)
        if not chunk.rejected:
            return chunk
        found = places(lines, block.data, [one.line or 1 for one in chunk.rejected])
        moved = zip(chunk.rejected, found, strict=True)
        return replace(
            chunk, rejected=tuple(replace(one, line=block.line + n, record=one.record.strip()) for one, n in moved)
        )

    def parse(self, path: str, block: Block, positions: Inside) -> Chunk:
        """Return the records of some lines of `path`."""
        return self._parse_block(block, positions) or self._parse_by_line(path, block, positions)

    def _file_positions(self, path: str, text: TextFile) -> Inside:
        """Return the columns that the objects contain: all but those that only folder names have. Raises Unfit when the
        first objects have none of the declared columns, or not the timestamp.
        """
        while not text.ended and len(text.data) < SAMPLE_BYTES and text.data.count(b"\n") < _SAMPLE:
            text.more()
        folder_values = self.placed(path)
        lines = text.data[:SAMPLE_BYTES].splitlines()[:_SAMPLE]
        objects = _first_objects(text.data)
        keys = {folded(key) for value in objects for key, _ in value}
        positions = tuple(
            position
            for position, column in enumerate(self.source.columns)
            if position not in folder_values or folded(column.name) in keys
        )
        if not objects and len(lines) > 1 and lines[0].strip() == b"{":
            raise Unfit(
                "an object stands on several lines, and a line is read as one", "jq -c . file.json > lines.json"
            )
        if objects:
            self._check_keys(positions, keys)
        return positions

    def _check_keys(self, positions: Inside, keys: set[str]) -> None:
        if self.strict and keys - {folded(name) for name in self.source.columns.names}:
            return  # each record has the reason with its wrong key
        missing = [p for p in positions if folded(self.source.columns[p].name) not in keys]
        needed = self.needed_column({*missing})
        if needed is None and self.options.missing == "refuse" and missing:
            needed = missing[0]
        if needed is not None or (positions and len(missing) == len(positions)):
            column = self.source.columns[missing[0] if needed is None else needed]
            raise Unfit(f"no object has the key {column.name}", f"the file's keys: {', '.join(sorted(keys)[:12])}")

    def _parse_block(self, block: Block, positions: Inside) -> Chunk | None:
        """Return all lines of a block; None when one of them is bad or spells a key differently, and for base64, which
        Arrow does not decode.
        """
        has_binary = any(pa.types.is_binary(self.source.columns[p].type) for p in positions)
        if not positions or has_binary or _BEGINS_WITH_NULL.match(block.data):
            return None
        if not _is_plain(block.data, self.options.limit):
            return None
        table = self._table(block.data, positions)
        if table is None:
            return None
        # Arrow continues where one object follows another; here a line is a record.
        if _DOUBLED.search(block.data) or not _one_per_line(block, table.num_rows):
            return None
        columns: dict[int, pa.Array] = {}
        for position, values in zip(positions, table.columns, strict=True):
            values = pa.concat_arrays(values.chunks or [pa.array([], values.type)])
            settled_values = cells.settled(values, self.source.columns[position].type, self.options.spelling)
            if settled_values is None:
                return None
            columns[position] = settled_values
        if all(values.null_count for values in columns.values()) and _has_null(block.data):
            return None
        return Chunk(columns, table.num_rows)

    def _table(self, data: bytes, positions: Inside) -> pa.Table | None:
        """Return the objects of a block by Arrow's parser; None when it refuses one, or keys are spelled
        differently.
        """
        declared = [self.source.columns[p].name for p in positions]
        if self._declared_only:
            # Arrow refuses every key that is not spelled as declared, and stops at the first.
            table = self._read_table(data, positions, declared, "error")
            if table is not None:
                return table
        names = spellings(data, declared)
        table = (
            None if names is None else self._read_table(data, positions, names, "error" if self.strict else "ignore")
        )
        self._declared_only = self._declared_only and table is None
        return table

    def _read_table(self, data: bytes, positions: Inside, names: list[str], unexpected_keys: str) -> pa.Table | None:
        """Return Arrow's table of the keys `names`. `unexpected_keys`: Arrow's treatment of other keys."""
        types = [self._parser_type(self.source.columns[p].type) for p in positions]
        schema = pa.schema(list(zip(names, types, strict=True)))
        try:
            return arrow_json.read_json(
                pa.BufferReader(pa.py_buffer(data)),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior=unexpected_keys
                ),
            )
        except pa.ArrowInvalid:
            return None

    def _parser_type(self, declared: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_temporal(declared) else declared

    def _parse_by_line(self, path: str, block: Block, positions: Inside) -> Chunk:
        """Parse a block like `_fast`, line by line, without the bad ones."""
        lines = _lines(block)
        reasons: dict[int, str] = {}
        line_indices: list[int] = []
        texts: dict[int, list[str | bytes | None]] = {position: [] for position in positions}
        by_name = {folded(self.source.columns[p].name): p for p in positions}
        for index, (number, line) in enumerate(lines):
            row = self._row(line, by_name)
            if row is None:
                row = self._parse_deep_line(Block(line, number), positions)
            if isinstance(row, str):
                reasons[index] = row
                continue
            line_indices.append(index)
            for position, text in row.items():
                texts[position].append(text)
        columns = {}
        failed = np.zeros(len(line_indices), dtype=bool)
        for position, values in texts.items():
            column = self.source.columns[position]
            binary = pa.types.is_binary(column.type)
            converted = cells.convert(
                pa.array(values, pa.binary() if binary else pa.string()), column.type, self.options.spelling
            )
            columns[position] = converted.values
            for failed_row in np.flatnonzero(converted.failed & ~failed):
                reasons[line_indices[failed_row]] = cells.complaint(values[failed_row], column.type, column.name)
            failed |= converted.failed
        rejected = tuple(self._reject(path, *lines[i], reasons[i]) for i in sorted(reasons))
        return Chunk(without(columns, failed), int((~failed).sum()), rejected)

    def _row(self, line: bytes, by_name: Mapping[str, int]) -> dict[int, str | bytes | None] | str | None:
        """Return the texts of one line's declared columns, or why it is rejected; None for one that is nested too
        deeply for this parser. `by_name`: folded name -> declared position.
        """
        if len(line) > self.options.limit:
            return too_long(self.options.limit)
        value = _parse(line)
        if isinstance(value, RecursionError):
            return None
        if isinstance(value, ValueError):
            return f"broken JSON: {value}"
        if not isinstance(value, _Object):
            return "a JSON array, not a JSON object" if isinstance(value, list) else "not a JSON object"
        row: dict[int, str | bytes | None] = dict.fromkeys(by_name.values())
        key_of_position: dict[int, str] = {}
        for index, (key, member) in enumerate(value):
            position = by_name.get(key)
            position = by_name.get(folded(key)) if position is None else position
            if position is None and self.strict:
                return unknown_name(key, self.source.columns.names, self.source.name)
            if position is None:
                continue
            if position in key_of_position:
                return _ambiguous(key_of_position[position], key)
            key_of_position[position] = key
            column = self.source.columns[position]
            try:
                row[position] = _text(_as_written(line, index, member), column.type)
            except ValueError:
                return cells.complaint(_shown(_as_written(line, index, member)), column.type, column.name)
        return row

    def _parse_deep_line(self, block: Block, positions: Inside) -> dict[int, str | bytes | None] | str:
        """Parse a line like `_row` that is nested deeply: Arrow's parser skips keys that are not requested."""
        chunk = self._parse_block(block, positions)
        if chunk is None or chunk.rows != 1:
            return "nested too deeply" + (", or with a key that is no column" if self.strict else "")
        texts = {p: values.cast(pa.string()).to_pylist()[0] for p, values in chunk.columns.items()}
        return dict(texts)

    def _reject(self, path: str, number: int, line: bytes, reason: str) -> Rejected:
        if len(line) > self.options.limit:
            return long_record(path, number, line, self.options.limit)
        return rejection(path, number, line, reason)


def _objects(data: bytes) -> list[_Object]:
    """Return the objects among the first lines of a file."""
    lines = data[:SAMPLE_BYTES].splitlines()[:_SAMPLE]
    return [value for value in map(_parse, lines) if isinstance(value, _Object)]


def _first_objects(data: bytes) -> list[_Object]:
    """Return the objects among the first lines of a file that begins with `data`, or the first elements of an array."""
    return _objects(ArrayCutter().lines(data[:SAMPLE_BYTES]) if _is_array(data) else data)


def _is_array(data: bytes) -> bool:
    """Return whether a file that begins with `data` is one array, in one line or several; not one of lines of which the
    first is an array."""
    first = next((line for line in data[:SAMPLE_BYTES].splitlines() if line.strip()), b"")
    return first.lstrip().startswith(b"[") and (not _objects(data) or isinstance(_parse(first), ValueError))


def _without_element(text: TextFile, cutter: ArrayCutter) -> bytes:
    """Skip the element at the beginning, however long it is; return the lines of what is held behind it."""
    while True:
        text.leave(text.data)
        if text.ended:
            return b""
        text.more()
        lines = cutter.lines(text.data)
        if end := lines.find(b"\n") + 1:
            text.take(end)
            return lines[end:]


def _has_null(data: bytes) -> bool:
    """Return whether a line begins with `null`."""
    return data.lstrip(b" \t").startswith(b"n") or _NULL.search(data) is not None


def _one_per_line(block: Block, objects: int) -> bool:
    """Return whether every line that is not blank is one of the `objects`, no line being two of them."""
    ends = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
    return objects == ends or objects == len(_lines(block))


def _lines(block: Block) -> list[tuple[int, bytes]]:
    """Return the lines that are not blank, with their numbers."""
    return [(block.line + i, line) for i, line in enumerate(block.data.splitlines()) if line.strip()]


def _parse(line: bytes) -> object:
    """Return the JSON value of a line, its numbers as `_Number`, its objects as `_Object`; the error when it is not
    JSON.
    """
    try:
        return json.loads(line.decode("utf-8"), parse_int=_Number, parse_float=_Number, object_pairs_hook=_Object)
    except UnicodeDecodeError:
        return ValueError("not UTF-8")
    except json.JSONDecodeError as error:
        return ValueError(f"{error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return error


class _JsonText(str):
    """The JSON text of an object or array."""


def _as_written(line: bytes, index: int, member: object) -> object:
    """Return the value of a line's member; of an object or array its text without the blanks between tokens."""
    if not isinstance(member, list):
        return member
    text, decoder = line.decode("utf-8"), json.JSONDecoder()
    at = text.index("{") + 1
    for _ in range(index + 1):
        at = _skip_blanks(text, at)
        at = _skip_blanks(text, decoder.raw_decode(text, at)[1]) + 1
        start = _skip_blanks(text, at)
        at = _skip_blanks(text, decoder.raw_decode(text, start)[1]) + 1
    written = text[start : at - 1]
    return _JsonText(_TEXT_OR_BLANKS.sub(lambda match: match[1] or "", written))


def _skip_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _ambiguous(first: str, second: str) -> str:
    if first == second:
        return f"the key {first} occurs twice"
    return f"the keys {first} and {second} are one column"


def _shown(value: object) -> str:
    return str(value) if isinstance(value, _Number | _JsonText) else json.dumps(value)


def _text(value: object, type_: pa.DataType) -> str | bytes | None:
    """Return a JSON value as the text of a cell. Raises ValueError when it is not a value of `type_`."""
    if value is None:
        return None
    kind = cells.kind(type_)
    if isinstance(value, bool):
        if kind == "boolean":
            return "true" if value else "false"
    elif isinstance(value, float):
        # The parser reads NaN, Infinity and -Infinity as floats; every other number is a _Number.
        if pa.types.is_floating(type_):
            return repr(value)
    elif isinstance(value, _Number):
        if kind == "number":
            return str(value)
    elif isinstance(value, _JsonText):
        if pa.types.is_string(type_):
            return str(value)
    elif isinstance(value, str):
        return _text_of_text(value, kind, type_)
    raise ValueError


def _text_of_text(value: str, kind: str, type_: pa.DataType) -> str | bytes:
    if pa.types.is_binary(type_):
        return base64.b64decode(value, validate=True)
    if pa.types.is_decimal(type_) or (pa.types.is_floating(type_) and value in _SPECIAL):
        return value
    if pa.types.is_int64(type_) and _WHOLE.match(value):
        # As results in json have those beyond 2^53.
        return value
    if kind in ("text", "date", "timestamp"):
        value.encode("utf-8")
        return value
    raise ValueError


def _is_plain(data: bytes, limit: int) -> bool:
    """Return whether Arrow reads a block exactly like the line reader.

    It does not for bytes that are not UTF-8, line ends without \\n, lines that are too long, and a byte order mark in
    the middle of a file.
    """
    if b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return False
    if data.startswith(BOM):
        return False
    if len(data) > limit and longest_line(data) > limit:
        return False
    return _is_text(data)


def _is_text(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode("utf-8") is not None)
    except UnicodeDecodeError:
        return False
