"""csv files: Arrow's typed parser block by block; a block with a bad record is parsed again as text, record by record.

Contract: a record is rejected alone, with its line, for too few or too many cells, for a cell that is not a value of
its declared type (also of a column that no query reads), and for a quote that is never closed (then its first line is
rejected and the lines after it are read as records). Unquoted empty cells and the `null` text are NULL; `""` is the
empty string for a text column, NULL for any other. Empty lines are not records.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv

from penstock.connectors.contract import Rejected, Split
from penstock.connectors.formats import cells
from penstock.connectors.formats.base import Chunk, FileFormat, Unfit, long_record, rejection, too_long, without
from penstock.connectors.formats.escapes import EscapedQuotes
from penstock.connectors.formats.keys import folded, unknown_name
from penstock.connectors.formats.lines import BOM, SAMPLE_BYTES, TextFile, text_file
from penstock.connectors.formats.quoting import LONG, OPEN, SOUND, Quoting, RecordBounds
from penstock.errors import counted

#: Records of a file without a header that are read to find its number of columns.
_SAMPLE = 100
#: Delimiters that a file may have in place of the declared one, for a hint.
_DELIMITERS = (",", ";", "\t", "|")
_FILLED = re.compile(rb"[^\r\n]")
_HEXADECIMAL = re.compile(rb"0[xX]")
_NOT_CLOSED = "a quoted cell that is not closed"


@dataclass(frozen=True)
class FileLayout:
    """The layout of a file's columns. `width`: cells per record; `places`: declared position -> cell."""

    width: int
    places: dict[int, int]


@dataclass(frozen=True)
class ParsedCells:
    """Records parsed by Arrow. `columns`: in the order of `FileLayout.places`."""

    columns: list[pa.Array]
    rows: int


@dataclass
class CsvFormat(FileFormat):
    """strict: a file with a column that is not declared does not fit."""

    name: ClassVar[str] = "csv"
    extensions: ClassVar[tuple[str, ...]] = (".csv", ".tsv", ".txt")

    strict: bool = False

    @property
    def quoting(self) -> Quoting:
        return Quoting(self.options.delimiter, self.options.quote)

    def fit(self, path: str) -> None:
        with text_file(path, verify=False, rewrite=self._rewrite()) as text:
            text.finish()
            self._open(path, text)

    def chunks(self, split: Split, needed: frozenset[int]) -> Iterator[Chunk]:
        with text_file(split.path, rewrite=self._rewrite()) as text:
            layout = self._open(split.path, text)
            while text.data or not text.ended:
                yield from self._parse_next(split.path, text, layout)
            text.finish()

    def _rewrite(self) -> Callable[[bytes], bytes] | None:
        """Return what doubles quotes that stand behind an escape; None where the file doubles them itself."""
        options = self.options
        if not options.escape or not options.quote or options.escape == options.quote:
            return None
        return EscapedQuotes(options.delimiter, options.quote, options.escape).rewritten

    def _parse_next(self, path: str, text: TextFile, layout: FileLayout) -> Iterator[Chunk]:
        """Yield the next records of a file; nothing where more of it must be read first to find the end of one."""
        end = self.quoting.end(text.data, text.ended)
        data = text.data[:end]
        chunk = self._parse_block(data, layout) if end else None
        if chunk is not None:
            yield chunk
            text.leave(data)
            end = 0
        elif text.data:
            records = self.quoting.records(text.data, layout.width, self.options.limit, text.ended)
            end = records.taken
            if end:
                yield self._parse_by_record(path, text.line, records, layout)
                text.take(end)
            elif len(text.data) > self.options.limit + 2:
                yield self._empty_chunk(layout, (long_record(path, text.line, text.data, self.options.limit),))
                text.take_line()
                end = 1
        if (chunk is not None or not end) and not text.ended:
            text.more()

    def _open(self, path: str, text: TextFile) -> FileLayout:
        """Return the layout of a file at whose beginning `text` is; its header is consumed. Raises Unfit."""
        folder_values = self.placed(path)
        if not self.options.header:
            file_positions = [p for p in range(len(self.source.columns)) if p not in folder_values]
            layout = FileLayout(len(file_positions), {p: i for i, p in enumerate(file_positions)})
            self._check_width(text, layout.width)
            return layout
        header = self._header(text)
        if header is None:
            return FileLayout(0, {})
        start = text.data.index(header)
        text.take(start)
        names, line = self._cells(header), text.line
        try:
            known = {folded(name) for name in self.source.columns.names} if self.strict else set()
            unknown = [name for name in names if self.strict and folded(name.strip()) not in known]
            if unknown:
                raise Unfit(unknown_name(unknown[0], self.source.columns.names, self.source.name))
            layout = FileLayout(len(names), self.match(names, folder_values))
        except Unfit as unfit:
            hint = self._hint(header, names) or unfit.hint
            raise Unfit(unfit.reason, hint, line, header.decode("utf-8", "backslashreplace")) from None
        # The remainder of the header's own line is its line end: an empty line, not a record.
        text.take(len(header))
        return layout

    def _header(self, text: TextFile) -> bytes | None:
        """Return the first record that is not an empty line."""
        while True:
            header = next(self.quoting.first(text.data, 1), None)
            is_complete = header is not None and text.data.index(header) + len(header) < len(text.data)
            if is_complete or text.ended or len(text.data) > self.options.limit:
                return header
            text.more()

    def _hint(self, header: bytes, names: list[str]) -> str | None:
        """Return the probable mistake when the header lacks declared columns."""
        for delimiter in _DELIMITERS:
            if delimiter != self.options.delimiter and len(names) == 1 and delimiter.encode() in header:
                declared_columns = self._count_declared(
                    replace(self, options=replace(self.options, delimiter=delimiter))._cells(header)
                )
                delimiter_text = "tab" if delimiter == "\t" else delimiter
                if declared_columns:
                    return f"the header is one column with the delimiter '{self.options.delimiter}'; \
write delimiter '{delimiter_text}'"
        if not self._count_declared(names) and len(names) >= len(self.source.columns):
            return f"if the first line is not a header, write header 'false'; it reads: {', '.join(names[:12])}"
        return None

    def _count_declared(self, names: list[str]) -> int:
        """Return how many of `names` are declared."""
        return sum(self.source.columns.index(name.strip()) is not None for name in names)

    def _check_width(self, text: TextFile, width: int) -> None:
        """Check the number of cells in the first records. Raises Unfit when none has `width` cells."""
        while not text.ended and len(text.data) < SAMPLE_BYTES:
            text.more()
        sample = list(self.quoting.first(text.data[:SAMPLE_BYTES], _SAMPLE))
        widths = [len(self._cells(record)) for record in sample]
        if sample and width not in widths:
            reason = f"the file has {counted(widths[0], 'column')}, {width} {'is' if width == 1 else 'are'} declared"
            hint = self._width_hint(sample[0], width) or (
                "a file without a header has exactly the declared columns, in their order; see header, delimiter"
            )
            raise Unfit(reason, hint, text.line, sample[0].decode("utf-8", "backslashreplace"))

    def _width_hint(self, record: bytes, width: int) -> str | None:
        for delimiter in _DELIMITERS:
            options = replace(self.options, delimiter=delimiter)
            if delimiter != self.options.delimiter and len(replace(self, options=options)._cells(record)) == width > 1:
                delimiter_text = "tab" if delimiter == chr(9) else delimiter
                return f"its records have as many cells as declared with delimiter '{delimiter_text}'"
        return None

    def _cells(self, record: bytes) -> list[str]:
        text = io.StringIO(record.decode("utf-8", "backslashreplace"), newline="")
        quote = self.options.quote
        if quote is None:
            reader = csv.reader(text, delimiter=self.options.delimiter, quoting=csv.QUOTE_NONE)
        else:
            reader = csv.reader(text, delimiter=self.options.delimiter, quotechar=quote)
        return next(reader, [])

    def _parse_block(self, data: bytes, layout: FileLayout) -> Chunk | None:
        """Return all records of a text that is tidy and closed, or None when one of them is bad."""
        if not _FILLED.search(data):
            return self._empty_chunk(layout)
        if len(data) > self.options.limit and self.quoting.longest(data) > self.options.limit:
            return None
        try:
            parsed_cells = self._parse_with_arrow(data, layout, typed=True)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            return None
        columns = {}
        for position, values in zip(layout.places, parsed_cells.columns, strict=True):
            columns[position] = cells.settled(values, self.source.columns[position].type, self.options.spelling)
            if columns[position] is None:
                return None
        return Chunk(columns, parsed_cells.rows)

    def _parse_by_record(self, path: str, line: int, records: RecordBounds, layout: FileLayout) -> Chunk:
        """Return the records, each checked alone.

        Args:
            path: the file.
            line: the line at which the records begin.
            records: their bounds.
            layout: of the file.
        """
        ragged = (records.faults == SOUND) & (records.cells != layout.width)
        faulty = np.flatnonzero(ragged | (records.faults != SOUND))
        reasons = {int(i): self._fault(records, int(i), layout) for i in faulty}
        intact = np.delete(np.arange(len(records)), faulty)
        columns = {}
        failed = np.zeros(len(intact), dtype=bool)
        parsed_cells = self._parse_with_arrow(_without(records, faulty), layout, typed=False)
        assert parsed_cells.rows == len(intact), "the parser finds other records"
        for position, texts in zip(layout.places, parsed_cells.columns, strict=True):
            column = self.source.columns[position]
            converted = self._convert(position, texts)
            columns[position] = converted.values
            for row in np.flatnonzero(converted.failed & ~failed):
                reasons[int(intact[row])] = cells.complaint(texts[int(row)].as_py(), column.type, column.name)
            failed |= converted.failed
        rejected = [self._reject(path, line, records, i, reasons[i]) for i in sorted(reasons)]
        return Chunk(without(columns, failed), int((~failed).sum()), tuple(rejected))

    def _reject(self, path: str, line: int, records: RecordBounds, index: int, reason: str) -> Rejected:
        line += int(records.lines[index])
        if records.faults[index] == LONG:
            return long_record(path, line, records.text(index), self.options.limit)
        return rejection(path, line, records.text(index), reason)

    def _fault(self, records: RecordBounds, index: int, layout: FileLayout) -> str:
        fault = records.faults[index]
        if fault == LONG:
            return too_long(self.options.limit)
        return _NOT_CLOSED if fault == OPEN else f"{records.cells[index]} cells, {layout.width} expected"

    def _convert(self, position: int, texts: pa.Array) -> cells.Converted:
        return cells.convert(texts, self.source.columns[position].type, self.options.spelling)

    def _empty_chunk(self, layout: FileLayout, rejected: tuple[Rejected, ...] = ()) -> Chunk:
        return Chunk({p: pa.array([], self.source.columns[p].type) for p in layout.places}, 0, rejected)

    def _parse_with_arrow(self, data: bytes, layout: FileLayout, typed: bool) -> ParsedCells:
        """Return the declared columns of `data`.

        Args:
            data: whole records.
            layout: of the file.
            typed: convert to declared types where Arrow's parser agrees with `cells`, else return text.

        Raises:
            ArrowInvalid: a record has another number of cells, or a cell does not convert.
        """
        if not _FILLED.search(data):
            return ParsedCells([pa.array([], pa.binary()) for _ in layout.places], 0)
        if data.startswith(BOM):
            # A mark at the beginning of a file has been skipped; Arrow's parser would skip this one too.
            data = b"\n" + data
        names = [str(i) for i in range(layout.width)]
        # Arrow's parser reads hexadecimal integers: a block with what may be one has its integers read as text.
        typed_integers = not _HEXADECIMAL.search(data)
        types = {
            names[i]: self._parser_type(self.source.columns[p].type, typed, typed_integers)
            for p, i in layout.places.items()
        }
        table = arrow_csv.read_csv(
            pa.BufferReader(pa.py_buffer(data)),
            # One thread: Spark has a task for every core.
            read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.options.delimiter,
                quote_char=self.options.quote or False,
                newlines_in_values=True,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                # The file has no declared column: the first one is read for the number of rows.
                include_columns=list(types) or names[:1],
                null_values=sorted({"", self.options.null}),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=list(cells.TRUE_WORDS),
                false_values=list(cells.FALSE_WORDS),
            ),
        )
        columns = [pa.concat_arrays(column.chunks or [pa.array([], column.type)]) for column in table.columns]
        return ParsedCells(columns[: len(types)], table.num_rows)

    def _parser_type(self, declared: pa.DataType, typed: bool, typed_integers: bool) -> pa.DataType:
        if not typed:
            return pa.binary()
        if pa.types.is_integer(declared) and not typed_integers:
            return pa.string()
        # Arrow requires that all or none of a column's timestamps have a zone.
        return pa.string() if pa.types.is_timestamp(declared) else declared


def _without(records: RecordBounds, faulty: npt.NDArray[np.int64]) -> bytes:
    """Return the text of the records except those at the positions `faulty`."""
    stops = [*records.starts[faulty].tolist(), records.taken]
    starts = [0, *records.after[faulty].tolist()]
    return b"".join(records.data[start:stop] for start, stop in zip(starts, stops, strict=True))
