"""csv files: Arrow's typed parser block by block; a block with a bad record is read again as text, record by record.

Contract: a record is rejected alone, with its line, for cells too few or too many, for a cell that is no value of its
declared type (also of a column that nobody reads), and for a quote that is never closed (then its first line is
rejected and the lines after it are read as records). Unquoted empty cells and the `null` text are NULL; `""` is the
empty string for a text column, NULL for any other. Empty lines are no records.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from penstock.connectors.contract import Rejected, Split
from penstock.connectors.sources.formats import cells
from penstock.connectors.sources.formats.base import Chunk, FileFormat, Unfit, rejection, without
from penstock.connectors.sources.formats.lines import Block, blocks, count_lines
from penstock.connectors.sources.formats.quoting import Quoting, Records
from penstock.errors import counted

#: Records of a file without a header that are looked at to tell how many columns it has.
_SAMPLE = 100
_FILLED = re.compile(rb"[^\r\n]")
_NOT_CLOSED = "a quoted cell that is not closed"


@dataclass(frozen=True)
class Shape:
    """How a file's columns lie. width: cells per record; places: declared position -> cell."""

    width: int
    places: dict[int, int]


@dataclass(frozen=True)
class Cells:
    """What Arrow's parser made of some records. columns: in the order of `Shape.places`, without the ragged records;
    ragged: index among all records -> how many cells it has."""

    columns: list[pa.Array]
    rows: int
    ragged: dict[int, int]


@dataclass
class CsvFormat(FileFormat):
    name: ClassVar[str] = "csv"
    extensions: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".txt")

    @property
    def quoting(self) -> Quoting:
        return Quoting(self.options.delimiter, self.options.quote)

    def fit(self, path: str) -> None:
        for block in blocks(path, self.quoting.end):
            self._open(path, block)
            return

    def chunks(self, split: Split, wanted: frozenset[int]) -> Iterator[Chunk]:
        shape: Shape | None = None
        for block in blocks(split.path, self.quoting.end):
            if shape is None:
                shape, block = self._open(split.path, block)
            rest: Block | None = block
            while rest is not None:
                chunk, rest = self._parse(split.path, rest, shape)
                yield chunk

    def _open(self, path: str, block: Block) -> tuple[Shape, Block]:
        """The shape of the file whose first block is given, and that block without the header. Raises Unfit."""
        placed = self.placed(path)
        if not self.options.header:
            inside = [p for p in range(len(self.source.columns)) if p not in placed]
            shape = Shape(len(inside), {p: i for i, p in enumerate(inside)})
            self._expect_width(block, shape.width)
            return shape, block
        first = next(self.quoting.first(block.data, 1), None)
        if first is None:
            return Shape(0, {}), Block(b"", block.line)
        names = self._cells(first)
        start = block.data.index(first)
        line = block.line + count_lines(block.data[:start])
        try:
            shape = Shape(len(names), self.match(names, placed))
        except Unfit as unfit:
            unfit.line, unfit.record = line, first.decode("utf-8", "backslashreplace")
            raise
        # What remains of the header's own line is its line end: an empty line, no record.
        return shape, Block(block.data[start + len(first) :], line + count_lines(first))

    def _expect_width(self, block: Block, width: int) -> None:
        """Raises Unfit when none of the first records has `width` cells."""
        sample = list(self.quoting.first(block.data, _SAMPLE))
        widths = [len(self._cells(record)) for record in sample]
        if sample and width not in widths:
            reason = f"the file has {counted(widths[0], 'column')}, {width} {'is' if width == 1 else 'are'} declared"
            hint = "a file without a header has exactly the declared columns, in their order; see header, delimiter"
            raise Unfit(reason, hint, block.line, sample[0].decode("utf-8", "backslashreplace"))

    def _cells(self, record: bytes) -> list[str]:
        text = io.StringIO(record.decode("utf-8", "backslashreplace"), newline="")
        quote = self.options.quote
        if quote is None:
            reader = csv.reader(text, delimiter=self.options.delimiter, quoting=csv.QUOTE_NONE)
        else:
            reader = csv.reader(text, delimiter=self.options.delimiter, quotechar=quote)
        return next(reader, [])

    def _parse(self, path: str, block: Block, shape: Shape) -> tuple[Chunk, Block | None]:
        """The first records of a block, and what is left of it: nothing, unless a quote was not closed."""
        chunk = self._fast(block, shape)
        return (chunk, None) if chunk is not None else self._repair(path, block, shape)

    def _fast(self, block: Block, shape: Shape) -> Chunk | None:
        """All records of a block, or None when one of them is bad."""
        if not _FILLED.search(block.data):
            return self._nothing(shape)
        if not (self.quoting.tidy(block.data) and self.quoting.closed(block.data)):
            return None
        try:
            parsed = self._arrow(block.data, shape, typed=True)
        except pa.ArrowInvalid:
            return None
        columns = {}
        for position, values in zip(shape.places, parsed.columns, strict=True):
            columns[position] = cells.settled(values, self.source.columns[position].type, ("", self.options.null))
            if columns[position] is None:
                return None
        return None if parsed.ragged else Chunk(columns, parsed.rows)

    def _repair(self, path: str, block: Block, shape: Shape) -> tuple[Chunk, Block | None]:
        """As `_parse`, with a look at every record."""
        records = self.quoting.records(block.data, block.line)
        parsed = self._arrow(block.data, shape, typed=False)
        ragged = np.zeros(len(records), dtype=bool)
        ragged[list(parsed.ragged)] = True
        # A record over several lines that does not fit swallowed the lines after its first one: give them back.
        swallowing = np.flatnonzero(records.doubtful | (records.several & ragged))
        if not len(swallowing):
            return self._sift(path, records, parsed, shape), None
        index = int(swallowing[0])
        before = Block(block.data[: records.starts[index]], block.line)
        chunk = self._parse(path, before, shape)[0]
        line = records.text(index).splitlines(keepends=True)[0]
        refused = rejection(path, records.line(index), line, _NOT_CLOSED)
        rest = Block(block.data[records.starts[index] + len(line) :], records.line(index) + count_lines(line))
        return Chunk(chunk.columns, chunk.rows, (*chunk.rejected, refused)), rest

    def _sift(self, path: str, records: Records, parsed: Cells, shape: Shape) -> Chunk:
        """`parsed`, the text of `records`, converted column by column; records that fail are rejected."""
        reasons = {i: f"{count} cells, {shape.width} expected" for i, count in parsed.ragged.items()}
        kept = np.delete(np.arange(len(records)), list(parsed.ragged))
        columns = {}
        failed = np.zeros(parsed.rows, dtype=bool)
        for position, texts in zip(shape.places, parsed.columns, strict=True):
            column = self.source.columns[position]
            converted = self._convert(position, texts)
            columns[position] = converted.values
            for row in np.flatnonzero(converted.failed & ~failed):
                reasons[int(kept[row])] = cells.complaint(texts[int(row)].as_py(), column.type, column.name)
            failed |= converted.failed
        refused = [rejection(path, records.line(i), records.text(i), reasons[i]) for i in sorted(reasons)]
        return Chunk(without(columns, failed), int((~failed).sum()), tuple(refused))

    def _convert(self, position: int, texts: pa.Array) -> cells.Converted:
        return cells.convert(texts, self.source.columns[position].type, ("", self.options.null))

    def _nothing(self, shape: Shape, rejected: tuple[Rejected, ...] = ()) -> Chunk:
        return Chunk({p: pa.array([], self.source.columns[p].type) for p in shape.places}, 0, rejected)

    def _arrow(self, data: bytes, shape: Shape, typed: bool) -> Cells:
        """The declared columns of `data`. typed: as declared where Arrow's parser means what `cells` means,
        else as text. Raises ArrowInvalid for a cell that does not convert."""
        ragged: dict[int, int] = {}

        def skip(row: arrow_csv.InvalidRow) -> str:
            ragged[row.number - 1] = row.actual_columns
            return "skip"

        names = [str(i) for i in range(shape.width)]
        types = {names[i]: self._parser_type(self.source.columns[p].type, typed) for p, i in shape.places.items()}
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            # One thread: only then are ragged records numbered; Spark has a task for every core.
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.options.delimiter,
                quote_char=self.options.quote or False,
                newlines_in_values=True,
                invalid_row_handler=skip,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                # No declared column in the file: the first one is read for the number of rows.
                include_columns=list(types) or names[:1],
                null_values=sorted({"", self.options.null}),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=list(cells.TRUE_WORDS),
                false_values=list(cells.FALSE_WORDS),
            ),
        )
        columns = [pa.concat_arrays(column.chunks or [pa.array([], column.type)]) for column in table.columns]
        return Cells(columns[: len(types)], table.num_rows, ragged)

    def _parser_type(self, declared: pa.DataType, typed: bool) -> pa.DataType:
        if not typed:
            return pa.binary()
        # Arrow wants either all or none of a column's timestamps with a zone.
        return pa.string() if pa.types.is_timestamp(declared) else declared
