"""What every file format does: check a file against the declaration, cut it into splits, read a split.

Contract: a format yields `Chunk`s, the declared columns it found in the file; this base adds the columns that a hive
style folder name gives (`year=2013/`), orders and names them, keeps batches at most `BATCH_ROWS` long, and turns every
way a file can fail into a `Rejected`. So `read` never raises for what a file contains: a file that does not fit
rejects itself, one that breaks off keeps what was read.

All declared columns are converted, also those nobody asked for, where the format holds text: whether a record is
malformed must not depend on which columns a query happens to read.
"""

from __future__ import annotations

import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, PassedOver, Rejected, Split
from penstock.connectors.options import Options
from penstock.connectors.sources.formats import cells
from penstock.connectors.sources.formats.keys import folded, places
from penstock.errors import PenstockError
from penstock.expressions.nodes import Expression

BATCH_ROWS = 256 * 1024
RECORD_SHOWN = 1_000
_MOST_RECORD_BYTES = 2**30
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class TextOptions:
    """How text formats are written. null: the text that is NULL beside the empty cell; quote: None for no quoting;
    limit: the most bytes of a record."""

    header: bool = True
    delimiter: str = ","
    quote: str | None = '"'
    null: str = ""
    limit: int = 64 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Some records: declared position -> its typed values, all `rows` long, and the records among them that failed."""

    columns: Mapping[int, pa.Array]
    rows: int
    rejected: tuple[Rejected, ...] = ()


@dataclass
class Unfit(Exception):
    """A file whose columns are not those declared. record: the header or first record, where there is one."""

    reason: str
    hint: str | None = None
    line: int | None = None
    record: str = ""


@dataclass
class BrokenOff(Exception):
    """The rest of a file cannot be read, from `line` on where lines count."""

    reason: str
    line: int | None = None


#: What reading a damaged file raises below us.
DAMAGE = (pa.ArrowException, OSError, EOFError, UnicodeError, OverflowError)


@dataclass
class FileFormat(ABC):
    """Reads files of one format for one declaration. Cheap and picklable: it holds nothing open. wanted: as the
    connector's."""

    name: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]]

    source: Source
    options: TextOptions = field(default_factory=TextOptions)
    wanted: Expression | None = None

    @abstractmethod
    def fit(self, path: str) -> None:
        """Raises Unfit when the columns do not fit, one of DAMAGE when the file cannot be read."""

    @abstractmethod
    def chunks(self, split: Split, wanted: frozenset[int]) -> Iterator[Chunk]:
        """The records of `split` with at least the declared columns `wanted` that the file itself holds.
        Raises Unfit, BrokenOff or one of DAMAGE."""

    def ranges(self, path: str) -> list[Split]:
        """The splits of a file that fits; the whole file where the format has no parts."""
        return [whole(path)]

    def check(self, path: str) -> None:
        """Raises PenstockError P0402 when the columns of `path` do not fit the declaration, else one of DAMAGE."""
        try:
            self.fit(path)
            self.placed(path)
        except Unfit as unfit:
            message = f"source {self.source.name}: {path}: {unfit.reason}"
            raise PenstockError("P0402", message, hint=unfit.hint) from None
        except BrokenOff as broken:
            raise OSError(broken.reason) from None

    def splits(self, path: str) -> list[Split]:
        """The pieces of `path`. A file that cannot be opened as this format is one split, whose `read` says why."""
        try:
            return self.ranges(path)
        except (Unfit, *DAMAGE):
            return [whole(path)]

    def read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        """The contract of `SourceConnector.read`."""
        for part in self._parts(split, columns):
            if isinstance(part, PassedOver):
                empty = [pa.array([], self.source.columns[c].type) for c in columns]
                yield ParsedRecords(self.batch(empty, columns, 0), passed=part)
            else:
                yield from self._read(part, columns)

    def sifted(self, split: Split, columns: tuple[int, ...]) -> Iterator[Split | PassedOver]:
        """The parts of `split` in order, some passed over as `wanted` allows. May raise as `chunks` does. Only a
        format that knows of records it has not read that they are well formed can pass over any."""
        yield split

    def passed(
        self, part: Split, rows: int | None = None, low: int | None = None, high: int | None = None
    ) -> PassedOver:
        """`part`, which holds no row that is wanted."""
        return PassedOver(rows, low, high, partial(replace(self, wanted=None).read, part))

    def _parts(self, split: Split, columns: tuple[int, ...]) -> list[Split | PassedOver]:
        """A file that cannot be sifted is read, which says why."""
        if self.wanted is None:
            return [split]
        try:
            return list(self.sifted(split, columns))
        except (Unfit, BrokenOff, *DAMAGE):
            return [split]

    def _read(self, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        try:
            placed = self.placed(split.path)
            for chunk in self.chunks(split, frozenset(columns)):
                yield from self._cut(chunk, placed, columns)
        except Unfit as unfit:
            yield self._refused(split, columns, unfit.reason, unfit.line, unfit.record)
        except BrokenOff as broken:
            yield self._refused(split, columns, broken.reason, broken.line)
        except DAMAGE as error:
            yield self._refused(split, columns, f"not a readable {self.name} file: {one_line(error)}")

    def placed(self, path: str) -> dict[int, pa.Scalar]:
        """Declared columns that the folder names of `path` give: position -> value. Raises Unfit for a bad value."""
        found: dict[int, pa.Scalar] = {}
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
            found[position] = converted.values[0]
        return found

    def match(self, names: list[str], placed: Mapping[int, pa.Scalar]) -> dict[int, int]:
        """Declared position -> position in the file, by name. Raises Unfit for a missing or ambiguous column. A column
        that both the file and a folder name give is taken from the file."""
        where = places(name.strip() for name in names)
        found: dict[int, int] = {}
        for position, column in enumerate(self.source.columns):
            here = where.get(folded(column.name), [])
            if len(here) > 1:
                raise Unfit(
                    f"column {column.name} stands {len(here)} times in the file", "a column needs a name of its own"
                )
            if here:
                found[position] = here[0]
            elif position not in placed:
                known = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
                raise Unfit(f"column {column.name} is missing", f"the file's columns: {known}")
        return found

    def _cut(self, chunk: Chunk, placed: Mapping[int, pa.Scalar], columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
        inside = chunk.columns
        arrays = {c: inside[c] if c in inside else constant(placed[c], chunk.rows) for c in set(columns)}
        rejected = chunk.rejected
        for start in range(0, max(chunk.rows, 1), BATCH_ROWS):
            rows = min(BATCH_ROWS, chunk.rows - start)
            yield ParsedRecords(self.batch([arrays[c].slice(start, rows) for c in columns], columns, rows), rejected)
            rejected = ()

    def batch(self, arrays: list[pa.Array], columns: tuple[int, ...], rows: int) -> pa.RecordBatch:
        """A batch of declared columns; it knows its number of rows also when no column is asked for."""
        if not columns:
            return pa.RecordBatch.from_arrays([pa.nulls(rows)], names=["none"]).select([])
        fields = [pa.field(self.source.columns[c].name, self.source.columns[c].type) for c in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _refused(
        self, split: Split, columns: tuple[int, ...], reason: str, line: int | None = None, record: str = ""
    ) -> ParsedRecords:
        empty = [pa.array([], self.source.columns[c].type) for c in columns]
        return ParsedRecords(self.batch(empty, columns, 0), (rejection(split.path, line, record, reason),))


def whole(path: str) -> Split:
    """One split of the whole file. Raises OSError."""
    return Split(path, bytes=Path(path).stat().st_size)


def rejection(path: str, line: int | None, record: bytes | str, reason: str) -> Rejected:
    """A rejected record, its text cut and made printable."""
    if isinstance(record, bytes):
        record = record[: RECORD_SHOWN * 4].decode("utf-8", "backslashreplace")
    return Rejected(path, line, record.rstrip("\r\n")[:RECORD_SHOWN], reason)


def record_limit(options: Options) -> int:
    """The most bytes of a record, by the option `max_record_bytes`. Raises PenstockError P0208."""
    limit = options.count("max_record_bytes", TextOptions().limit)
    if not 1 <= limit <= _MOST_RECORD_BYTES:
        message = f"{options.owner}: option max_record_bytes cannot be '{limit}': it is 1 to {_MOST_RECORD_BYTES}"
        raise PenstockError("P0208", message)
    return limit


def too_long(limit: int) -> str:
    """The reason why a record is rejected that is longer than records may be."""
    return f"longer than {limit} bytes, the max_record_bytes of this source"


def long_record(path: str, line: int, record: bytes, limit: int) -> Rejected:
    """A record that is too long, of which at least `limit` bytes are known."""
    return rejection(path, line, record[:limit], too_long(limit))


def one_line(error: BaseException) -> str:
    """What a library said, on one line and not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def constant(value: pa.Scalar, rows: int) -> pa.Array:
    """`value`, `rows` times."""
    return pa.nulls(rows, value.type) if not value.is_valid else pa.repeat(value, rows)


def without(columns: Mapping[int, pa.Array], failed: cells.Mask) -> dict[int, pa.Array]:
    """`columns` without the rows that failed."""
    kept = pa.array(np.flatnonzero(~failed))
    return {position: values.take(kept) for position, values in columns.items()}
