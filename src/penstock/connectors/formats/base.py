"""The base of all file formats: check a file against the declaration, cut it into splits, read a split.

Contract: a format yields `Chunk`s, the declared columns that the file contains; this base adds the columns in hive
style folder names (`year=2013/`), orders and names them, limits batches to `BATCH_ROWS`, and turns every failure of a
file into a `Rejected`. So `read` never raises for a file's contents: a file that does not fit is one rejected record, a
truncated one keeps what was read.

All declared columns of text formats are converted, also those that no query reads: whether a record is malformed must
not depend on which columns a query reads.
"""

from __future__ import annotations

import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, Rejected, SkippedRecords, Split
from penstock.connectors.formats import cells
from penstock.connectors.formats.keys import folded, places
from penstock.connectors.options import Option, ValueType, whole
from penstock.errors import PenstockError
from penstock.expressions.library.date_patterns import DatePattern
from penstock.expressions.nodes import Expression

BATCH_ROWS = 256 * 1024
RECORD_SHOWN = 1_000
_MOST_RECORD_BYTES = 2**30
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TextOptions:
    """How text formats are written. `null`: the text that is NULL in addition to the empty cell; `quote`: None for no
    quoting; `escape`: what stands before a quote in a quoted cell, empty where quotes are doubled; `limit`: the largest
    number of bytes of a record; `missing`: what happens to a file that lacks a declared column, `null`, `refuse`, or
    empty for what is usual for the format; `timestamp_format`: the pattern of timestamps, empty for the usual ones.
    """

    header: bool = True
    delimiter: str = ","
    quote: str | None = '"'
    null: str = ""
    limit: int = 64 * 2**20
    timestamp_format: str = ""
    missing: str = ""
    escape: str = ""

    @property
    def spelling(self) -> cells.Spelling:
        """Return how values other than texts are written."""
        return cells.Spelling(("", self.null), self.timestamp_format)


@dataclass(frozen=True)
class Chunk:
    """Some records: declared position -> its typed values, all `rows` long, and the records among them that failed."""

    columns: Mapping[int, pa.Array]
    rows: int
    rejected: tuple[Rejected, ...] = ()


@dataclass
class Unfit(Exception):
    """A file whose columns are not the declared ones. `record`: the header or first record, where there is one."""

    reason: str
    hint: str | None = None
    line: int | None = None
    record: str = ""


@dataclass
class BrokenOff(Exception):
    """The remainder of a file cannot be read, from `line` on in formats with lines."""

    reason: str
    line: int | None = None


#: Exceptions that reading a damaged file raises in libraries.
DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeError, OverflowError)


@dataclass
class FileFormat(ABC):
    """Read files of one format for one declaration. Cheap and picklable: nothing is held open. `predicate`: as in
    the connector.
    """

    name: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]]

    source: Source
    options: TextOptions = field(default_factory=TextOptions)
    predicate: Expression | None = None

    @abstractmethod
    def fit(self, path: str) -> None:
        """Check that the columns of a file fit. Raises Unfit when they do not, one of DAMAGE when it cannot be read."""

    @abstractmethod
    def chunks(self, split: Split, needed: frozenset[int]) -> Iterator[Chunk]:
        """Yield the records of `split` with at least those declared columns of `needed` that the file itself contains.

        Raises Unfit, BrokenOff or one of DAMAGE.
        """

    def ranges(self, path: str) -> list[Split]:
        """Return the splits of a file that fits; the whole file where the format has no parts."""
        return [whole_file(path)]

    def check(self, path: str) -> None:
        """Check the columns of `path`.

        Raises:
            PenstockError: P0402, they do not fit the declaration; a damaged file raises one of DAMAGE.
        """
        try:
            self.fit(path)
            self.placed(path)
        except Unfit as unfit:
            message = f"source {self.source.name}: {path}: {unfit.reason}"
            raise PenstockError("P0402", message, hint=unfit.hint) from None
        except BrokenOff as broken:
            raise OSError(broken.reason) from None

    def splits(self, path: str) -> list[Split]:
        """Return the splits of `path`. A file that cannot be opened in this format is one split, whose `read` reports
        the reason.
        """
        try:
            return self.ranges(path)
        except (Unfit, *DAMAGE):
            return [whole_file(path)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """Yield records under the contract of `SourceConnector.read`."""
        for part in self._parts(split, columns):
            if isinstance(part, SkippedRecords):
                empty = [pa.array([], self.source.columns[c].type) for c in columns]
                yield ParsedRecords(self.batch(empty, columns, 0), skipped=part)
            else:
                yield from self._read(part, columns)

    def sifted(self, split: Split, columns: tuple[int, ...]) -> Iterator[Split | SkippedRecords]:
        """Yield the parts of `split` in order, some of them skipped as `predicate` allows. May raise like `chunks`.

        Only a format that can tell that unread records are well formed can skip any.
        """
        yield split

    def skipped(
        self, part: Split, rows: int | None = None, low: int | None = None, high: int | None = None
    ) -> SkippedRecords:
        """Return `part`, which has no rows that a query reads, as skipped records."""
        return SkippedRecords(rows, low, high, partial(replace(self, predicate=None).read, part))

    def _parts(self, split: Split, columns: tuple[int, ...]) -> list[Split | SkippedRecords]:
        """Return the parts of a split; a file that cannot be sifted is read, which reports the reason."""
        if self.predicate is None:
            return [split]
        try:
            return list(self.sifted(split, columns))
        except (Unfit, BrokenOff, *DAMAGE):
            return [split]

    def _read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        try:
            folder_values = self.placed(split.path)
            for chunk in self.chunks(split, frozenset(columns)):
                yield from self._in_batches(chunk, folder_values, columns)
        except Unfit as unfit:
            yield self._rejected_file(split, columns, unfit.reason, unfit.line, unfit.record)
        except BrokenOff as broken:
            yield self._rejected_file(split, columns, broken.reason, broken.line)
        except DAMAGE as error:
            yield self._rejected_file(split, columns, f"not a readable {self.name} file: {one_line(error)}")

    def placed(self, path: str) -> dict[int, pa.Scalar]:
        """Return the declared columns in the folder names of `path`: position -> value. Raises Unfit for an invalid
        value.
        """
        folder_values: dict[int, pa.Scalar] = {}
        for part in Path(path).parts[:-1]:
            key, equals, text = part.partition("=")
            position = self.source.columns.index(key) if equals else None
            if position is None:
                continue
            text = urllib.parse.unquote(text)
            column = self.source.columns[position]
            texts = pa.array([None if text == _HIVE_NULL else text], pa.string())
            converted = cells.convert(texts, column.type)
            if converted.failed[0]:
                raise Unfit(f"the folder {part} holds a {cells.complaint(text, column.type, column.name)}")
            folder_values[position] = converted.values[0]
        return folder_values

    def match(self, names: list[str], placed: Mapping[int, pa.Scalar]) -> dict[int, int]:
        """Match columns by name: declared position -> position in the file.

        A column that both the file and a folder name have is read from the file. Raises Unfit for a missing or
        ambiguous column.
        """
        indices_by_name = places(name.strip() for name in names)
        positions_in_file: dict[int, int] = {}
        for position, column in enumerate(self.source.columns):
            indices = indices_by_name.get(folded(column.name), [])
            if len(indices) > 1:
                raise Unfit(
                    f"column {column.name} stands {len(indices)} times in the file", "each column needs a unique name"
                )
            if indices:
                positions_in_file[position] = indices[0]
            elif position not in placed and self.options.missing != "null":
                names_shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                raise Unfit(f"column {column.name} is missing", f"the file's columns: {names_shown}")
        needed = self.needed_column({*range(len(self.source.columns))} - {*positions_in_file, *placed})
        if needed is not None:
            raise Unfit(f"column {self.source.columns[needed].name} is missing", "no file may lack it")
        return positions_in_file

    def needed_column(self, missing: Set[int]) -> int | None:
        """Return the position of a column among those that a file lacks without which none of its records is one; None
        where there is none. missing: their positions."""
        source = self.source
        time = source.time_columns
        ways = [(source.operation,), *((key,) for key in source.primary_key), time, tuple(range(len(source.columns)))]
        # A timestamp may be computed from some of its columns.
        return next((way[0] for way in ways if way and way != (None,) and {*way} <= missing), None)

    def _in_batches(
        self, chunk: Chunk, folder_values: Mapping[int, pa.Scalar], columns: tuple[int, ...]
    ) -> Iterator[ParsedRecords]:
        file_columns = chunk.columns
        arrays = {
            c: file_columns[c] if c in file_columns else self._constant(c, folder_values, chunk.rows)
            for c in set(columns)
        }
        rejected = chunk.rejected
        for start in range(0, max(chunk.rows, 1), BATCH_ROWS):
            rows = min(BATCH_ROWS, chunk.rows - start)
            yield ParsedRecords(self.batch([arrays[c].slice(start, rows) for c in columns], columns, rows), rejected)
            rejected = ()

    def _constant(self, position: int, folder_values: Mapping[int, pa.Scalar], rows: int) -> pa.Array:
        """Return the values of a column that a file does not have: that of its folder, or NULL."""
        value = folder_values.get(position)
        return constant(pa.scalar(None, self.source.columns[position].type) if value is None else value, rows)

    def batch(self, arrays: list[pa.Array], columns: tuple[int, ...], rows: int) -> pa.RecordBatch:
        """Return a batch of declared columns, with the right number of rows also when no column is requested."""
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])
        fields = [pa.field(self.source.columns[c].name, self.source.columns[c].type) for c in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _rejected_file(
        self, split: Split, columns: tuple[int, ...], reason: str, line: int | None = None, record: str = ""
    ) -> ParsedRecords:
        empty = [pa.array([], self.source.columns[c].type) for c in columns]
        return ParsedRecords(self.batch(empty, columns, 0), (rejection(split.path, line, record, reason),))


def whole_file(path: str) -> Split:
    """Return one split of the whole file. Raises OSError."""
    return Split(path, bytes=Path(path).stat().st_size)


def rejection(path: str, line: int | None, record: bytes | str, reason: str) -> Rejected:
    """Return a rejected record, its text cut and made printable."""
    if isinstance(record, bytes):
        record = record[: RECORD_SHOWN * 4].decode("utf-8", "backslashreplace")
    return Rejected(path, line, record.rstrip("\r\n")[:RECORD_SHOWN], reason)


def record_bytes_option(formats: tuple[str, ...] = ()) -> Option[int]:
    """Return the option that bounds a record, of connectors whose records have these formats; empty for any."""
    doc = "bytes of a record; a longer one is a dead letter"
    return Option("max_record_bytes", whole(1, _MOST_RECORD_BYTES), doc, str(TextOptions().limit), formats=formats)


def _pattern(text: str) -> str:
    try:
        DatePattern.of(text)
    except ValueError as error:
        raise ValueError(f"a pattern as 'yyyy/MM/dd HH:mm:ss', and this has {error}") from None
    return text


def timestamp_format_option(formats: tuple[str, ...] = ()) -> Option[str]:
    """Return the option of how timestamps are written, of connectors whose records have these formats."""
    doc = "the pattern of timestamps, as `yyyy/MM/dd HH:mm:ss`, in UTC; without it they are what CAST reads"
    return Option("timestamp_format", ValueType("pattern", _pattern, str, names_nothing=True), doc, formats=formats)


def too_long(limit: int) -> str:
    """Return the reason for rejecting a record that is longer than the limit."""
    return f"longer than {limit} bytes, the max_record_bytes of this source"


def long_record(path: str, line: int, record: bytes, limit: int) -> Rejected:
    """Return a record that is too long, of which at least `limit` bytes are known."""
    return rejection(path, line, record[:limit], too_long(limit))


def one_line(error: BaseException) -> str:
    """Return a library's message on one line, shortened."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def constant(value: pa.Scalar, rows: int) -> pa.Array:
    """Return `value` repeated `rows` times."""
    return pa.nulls(rows, value.type) if not value.is_valid else pa.repeat(value, rows)


def without(columns: Mapping[int, pa.Array], failed: cells.Mask) -> dict[int, pa.Array]:
    """Return `columns` without the rows that failed."""
    remaining = pa.array(np.flatnonzero(~failed))
    return {position: values.take(remaining) for position, values in columns.items()}
