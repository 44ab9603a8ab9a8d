"""json lines: one object per line, by Arrow's parser block by block; a block with a bad line is read line by line.

Contract: a line is rejected alone, with its number, when it is no JSON object or when a value is not of its column's
type (numbers for numbers, text for text, dates, timestamps; decimals may stand as either; base64 text for BINARY).
A missing key is NULL, other keys are ignored. A declared column whose spelling the first objects do not have is looked
up under their spelling, whatever its case.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from penstock.connectors.contract import Rejected, Split
from penstock.connectors.sources.formats import cells
from penstock.connectors.sources.formats.base import Chunk, FileFormat, Unfit, rejection, without
from penstock.connectors.sources.formats.lines import Block, blocks, end_of_lines

#: First lines of a file that are looked at to learn how its keys are spelled.
_SAMPLE = 100
_SPECIAL = frozenset({"NaN", "Infinity", "-Infinity"})

#: Two objects on one line, unless inside a text.
_DOUBLED = re.compile(rb"\}[ \t]*\{")

#: Declared position -> key in the file.
Keys = dict[int, str]


class _Number(str):
    """A number as it was written: converted like a cell of text, but told apart from a string."""


@dataclass
class JsonFormat(FileFormat):
    name: ClassVar[str] = "json"
    extensions: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    def fit(self, path: str) -> None:
        for block in blocks(path, end_of_lines):
            self._keys(path, block)
            return

    def chunks(self, split: Split, wanted: frozenset[int]) -> Iterator[Chunk]:
        keys: Keys | None = None
        for block in blocks(split.path, end_of_lines):
            if keys is None:
                keys = self._keys(split.path, block)
            yield self.parse(split.path, block, keys)

    def parse(self, path: str, block: Block, keys: Keys) -> Chunk:
        """The records of some lines that stand in `path`."""
        return self._fast(block, keys) or self._repair(path, block, keys)

    def _keys(self, path: str, block: Block) -> Keys:
        """Raises Unfit when the first objects have none of the declared columns, or not the timestamp."""
        placed = self.placed(path)
        found: dict[str, str] = {}
        lines = block.data.split(b"\n", _SAMPLE)[:_SAMPLE]
        parsed = [value for value in map(_parse, lines) if isinstance(value, dict)]
        for key in (key for value in parsed for key in value):
            found.setdefault(key.lower(), key)
        exact = {key for value in parsed for key in value}
        keys = {}
        for position, column in enumerate(self.source.columns):
            if column.name.lower() in found or position not in placed:
                spelled = column.name if column.name in exact else found.get(column.name.lower(), column.name)
                keys[position] = spelled
        if parsed:
            self._expect(keys, set(found))
        return keys

    def _expect(self, keys: Keys, found: set[str]) -> None:
        missing = [p for p, key in keys.items() if key.lower() not in found]
        needed = [p for p in (self.source.timestamp, self.source.operation) if p in missing]
        if needed or (keys and len(missing) == len(keys)):
            column = self.source.columns[(needed or missing)[0]]
            raise Unfit(f"no object has the key {column.name}", f"the file's keys: {', '.join(sorted(found)[:12])}")

    def _fast(self, block: Block, keys: Keys) -> Chunk | None:
        """All lines of a block; None when one of them is bad, or holds base64, which Arrow does not decode."""
        coded = any(pa.types.is_binary(self.source.columns[p].type) for p in keys)
        if not keys or coded or not _is_text(block.data):
            return None
        fields = [pa.field(key, self._parser_type(self.source.columns[p].type)) for p, key in keys.items()]
        try:
            table = arrow_json.read_json(
                pa.BufferReader(pa.py_buffer(block.data)),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(block.data) + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid:
            return None
        # Arrow reads on where one object follows another; here a line is a record.
        if _DOUBLED.search(block.data) or not _one_per_line(block, table.num_rows):
            return None
        columns = {}
        for position, values in zip(keys, table.columns, strict=True):
            values = pa.concat_arrays(values.chunks or [pa.array([], values.type)])
            columns[position] = cells.settled(values, self.source.columns[position].type)
            if columns[position] is None:
                return None
        return Chunk(columns, table.num_rows)

    def _parser_type(self, declared: pa.DataType) -> pa.DataType:
        return pa.string() if pa.types.is_temporal(declared) else declared

    def _repair(self, path: str, block: Block, keys: Keys) -> Chunk:
        """As `_fast`, line by line, without the bad ones."""
        lines = _lines(block)
        reasons: dict[int, str] = {}
        kept: list[int] = []
        texts: dict[int, list[str | bytes | None]] = {position: [] for position in keys}
        for index, (_, line) in enumerate(lines):
            row = self._row(line, keys)
            if isinstance(row, str):
                reasons[index] = row
                continue
            kept.append(index)
            for position, text in row.items():
                texts[position].append(text)
        columns = {}
        failed = np.zeros(len(kept), dtype=bool)
        for position, values in texts.items():
            column = self.source.columns[position]
            binary = pa.types.is_binary(column.type)
            converted = cells.convert(pa.array(values, pa.binary() if binary else pa.string()), column.type)
            columns[position] = converted.values
            for bad in np.flatnonzero(converted.failed & ~failed):
                reasons[kept[bad]] = cells.complaint(values[bad], column.type, column.name)
            failed |= converted.failed
        refused = tuple(self._reject(path, *lines[i], reasons[i]) for i in sorted(reasons))
        return Chunk(without(columns, failed), int((~failed).sum()), refused)

    def _row(self, line: bytes, keys: Keys) -> dict[int, str | bytes | None] | str:
        """The texts of one line's declared columns, or why it is rejected."""
        value = _parse(line)
        if isinstance(value, ValueError):
            return f"broken JSON: {value}"
        if not isinstance(value, dict):
            return "not a JSON object"
        row: dict[int, str | bytes | None] = {}
        for position, key in keys.items():
            column = self.source.columns[position]
            try:
                row[position] = _text(value.get(key), column.type)
            except ValueError:
                return cells.complaint(json.dumps(value[key]), column.type, column.name)
        return row

    def _reject(self, path: str, number: int, line: bytes, reason: str) -> Rejected:
        return rejection(path, number, line, reason)


def _one_per_line(block: Block, objects: int) -> bool:
    """Whether every line that is not blank is one of the `objects`, no line being two of them."""
    ends = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
    return objects == ends or objects == len(_lines(block))


def _lines(block: Block) -> list[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers."""
    return [(block.line + i, line) for i, line in enumerate(block.data.splitlines()) if line.strip()]


def _parse(line: bytes) -> Any:
    """The JSON value of a line, its numbers as `_Number`; the ValueError when it has none."""
    try:
        return json.loads(line.decode("utf-8"), parse_int=_Number, parse_float=_Number)
    except UnicodeDecodeError:
        return ValueError("not UTF-8")
    except json.JSONDecodeError as error:
        return ValueError(f"{error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:
        return ValueError(str(error))


def _text(value: Any, type_: pa.DataType) -> str | bytes | None:
    """A JSON value as the text of a cell. Raises ValueError when it is no value of `type_`."""
    if value is None:
        return None
    kind = cells.kind(type_)
    if isinstance(value, bool):
        if kind == "boolean":
            return "true" if value else "false"
    elif isinstance(value, float):
        # json reads NaN, Infinity and -Infinity as floats; every other number is a _Number.
        if pa.types.is_floating(type_):
            return repr(value)
    elif isinstance(value, _Number):
        if kind == "number":
            return str(value)
    elif isinstance(value, str):
        if pa.types.is_binary(type_):
            return base64.b64decode(value, validate=True)
        if pa.types.is_decimal(type_) or (pa.types.is_floating(type_) and value in _SPECIAL):
            return value
        if kind in ("text", "date", "timestamp"):
            value.encode("utf-8")
            return value
    raise ValueError


def _is_text(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode("utf-8") is not None)
    except UnicodeDecodeError:
        return False
