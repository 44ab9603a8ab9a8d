"""Bounds of csv records with quoted cells, exactly as Arrow's csv parser finds them.

A quote opens a quoted cell only at the beginning of a cell; inside, `""` is a quote and line ends are text; after the
closing quote the remainder of the cell is plain. As long as every quote is an opening, closing or doubled one ("tidy"),
counting quotes separates inside from outside, vectorised; otherwise records are found line by line (`records`).

The bounds of a record depend only on its own bytes and those after it, never on how the file is cut:
- A line whose quotes are all closed is a record.
- A line that leaves a quote open begins a record over several lines, if a later line closes it with nothing but a
  delimiter or a line end after each closing quote, if it then has the required number of cells, and if it is not longer
  than a record may be. Otherwise the quote is never closed: the line is bad, and the next one begins a record.

Lines are read from left to right. The end of an open quote is computed once for all lines that it spans (`_Open`), so
that searching for it takes time in proportion to the bytes, whatever they are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from penstock.connectors.formats.lines import end_of_lines

Places = npt.NDArray[np.int64]


#: Faults in the bounds of a record: none, a quote that is never closed, too many bytes.
SOUND, OPEN, LONG = 0, 1, 2


@dataclass(frozen=True)
class RecordBounds:
    """The records of a text that are not empty lines.

    `starts`, `ends`: offsets in `data`, without line ends; `after`: offset of the next record or line; `lines`: number
    of lines before each; `cells`: number of its cells; `faults`: one of SOUND, OPEN, LONG each; `taken`: number of
    bytes they cover, including blank lines.
    """

    data: bytes
    starts: Places
    ends: Places
    after: Places
    lines: Places
    cells: Places
    faults: npt.NDArray[np.int8]
    taken: int

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]


@dataclass(frozen=True)
class Quoting:
    """The delimiter and the quote (None: no cell is ever quoted)."""

    delimiter: str
    quote: str | None

    def end(self, data: bytes, ended: bool = False) -> int:
        """Return the number of bytes, from the beginning of a record, that are whole and tidy records.

        0 when none are, or when they must be read line by line. `ended`: no data follows.
        """
        quote = self.quote.encode() if self.quote else b""
        if not quote or quote not in data:
            return len(data) if ended else end_of_lines(data)
        if not self.tidy(data):
            return 0
        inside = data.count(quote) % 2 == 1
        if ended:
            return 0 if inside else len(data)
        end = len(data)
        while (newline := data.rfind(b"\n", 0, end)) >= 0:
            # The newline is outside quotes iff an even number of quotes precedes it.
            inside ^= data.count(quote, newline, end) % 2 == 1
            if not inside:
                return newline + 1
            end = newline
        return 0

    def tidy(self, data: bytes) -> bool:
        """Return whether every quote of `data`, which begins with a record, opens, closes or doubles; the last may be
        open.
        """
        quotes = self._quotes(data)
        if not len(quotes):
            return True
        view = np.frombuffer(data, dtype=np.uint8)
        neighbours = np.zeros(256, dtype=bool)
        neighbours[[ord(mark) for mark in (self.delimiter, "\n", "\r", self.quote or "")]] = True
        opening, closing = quotes[0::2], quotes[1::2]
        before_opening, after_closing = opening[opening > 0] - 1, closing[closing < len(view) - 1] + 1
        return bool(neighbours[view[before_opening]].all() and neighbours[view[after_closing]].all())

    def longest(self, data: bytes) -> int:
        """Return an upper bound for the length of the longest record of `data`, which is tidy and closed."""
        stops = _line_ends(data)
        outside = stops[np.searchsorted(self._quotes(data), stops) % 2 == 0]
        return int(np.diff(outside, prepend=-1, append=len(data)).max())

    def records(self, data: bytes, width: int, limit: int, ended: bool) -> RecordBounds:
        """Return the records of `data` whose end is known.

        Args:
            data: begins with a record.
            width: number of cells that a record over several lines must have.
            limit: largest number of bytes of a record.
            ended: no data follows.
        """
        return _Scan(self, _Lines.of(data, self, ended), width, limit, ended).records()

    def first(self, data: bytes, count: int) -> Iterator[bytes]:
        """Yield the first `count` records that are not empty lines, without reading the others."""
        for match in _record(self.delimiter, self.quote).finditer(data):
            if match[1] and count:
                count -= 1
                yield match[1]
            if not count or match.end() >= len(data):
                return

    def _quotes(self, data: bytes) -> Places:
        return _places(data, self.quote) if self.quote else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class _Lines:
    """The lines of a text that are certainly whole.

    `starts`, `ends`: without line ends; `after`: where the next line begins; `quoted`: which lines contain a quote.
    """

    data: bytes
    starts: Places
    ends: Places
    after: Places
    cells: Places
    quoted: list[int]

    @staticmethod
    def of(data: bytes, quoting: Quoting, ended: bool) -> _Lines:
        stops = _line_ends(data)
        if not ended and len(stops) and stops[-1] == len(data) - 1 and data.endswith(b"\r"):
            stops = stops[:-1]  # it may be the first half of \r\n
        after = stops + 1
        remainder = int(after[-1]) if len(after) else 0
        view = np.frombuffer(data, dtype=np.uint8)
        has_return = (stops > 0) & (view[stops] == ord("\n")) & (view[np.maximum(stops, 1) - 1] == ord("\r"))
        ends = stops - has_return
        if ended and remainder < len(data):
            after, ends = np.append(after, len(data)), np.append(ends, len(data))
        starts = np.concatenate((np.zeros(1, np.int64), after[:-1])) if len(after) else after
        cells = np.diff(np.searchsorted(_places(data, quoting.delimiter), after), prepend=0) + 1
        quoted = np.unique(np.searchsorted(after, quoting._quotes(data), side="right"))
        return _Lines(data, starts, ends, after, cells, quoted[quoted < len(after)].tolist())

    def __len__(self) -> int:
        return len(self.after)

    def text(self, line: int) -> bytes:
        return self.data[self.starts[line] : self.ends[line]]


@dataclass
class _Open:
    """A quote that is open at the beginning of the line `first`.

    `next_line`: lines before it have been read; `last`: the line in which the record ends, or in which a quote
    invalidates it; `cell_counts`: the cells up to each quoted line.
    """

    first: int
    next_line: int
    last: int | None = None
    sound: bool = False
    lines: list[int] = field(default_factory=list)
    cell_counts: list[int] = field(default_factory=lambda: [0])

    def covers(self, line: int) -> bool:
        """Return whether a quote open at the beginning of `line` is this one."""
        return self.first <= line <= (self.next_line if self.last is None else self.last)

    def cells_from(self, line: int) -> int:
        """Return the number of cells that begin in `line` or after it."""
        return self.cell_counts[-1] - self.cell_counts[bisect_left(self.lines, line)]


@dataclass
class _Scan:
    """Combine lines into records, from left to right."""

    quoting: Quoting
    lines: _Lines
    width: int
    limit: int
    ended: bool
    open: _Open | None = None

    def __post_init__(self) -> None:
        self._patterns = _patterns(self.quoting)

    def records(self) -> RecordBounds:
        lines = self.lines
        last, cells = np.arange(len(lines)), lines.cells.copy()
        begins = np.ones(len(lines), dtype=bool)
        faults = np.where(lines.ends - lines.starts > self.limit, LONG, SOUND).astype(np.int8)
        stop, end = len(lines), -1
        long_lines = set(np.flatnonzero(faults).tolist())
        for line in lines.quoted:
            if line <= end or line in long_lines:
                continue
            counted = self._cells_of_closed_line(line)
            if counted is not None:
                cells[line] = counted
                continue
            extent = self._record_over_lines(line)
            if extent is None:
                stop = line
                break
            end, cells[line] = extent
            last[line], begins[line + 1 : end + 1] = end, False
            faults[line] = OPEN if end == line else SOUND
        first_lines = np.flatnonzero(begins[:stop] & (lines.ends[last[:stop]] > lines.starts[:stop]))
        ends = last[first_lines]
        size = int(lines.after[stop - 1]) if stop else 0
        return RecordBounds(
            lines.data,
            lines.starts[first_lines],
            lines.ends[ends],
            lines.after[ends],
            first_lines,
            cells[first_lines],
            faults[first_lines],
            size,
        )

    def _cells_of_closed_line(self, line: int) -> int | None:
        """Return the number of cells of a line whose quotes are all closed; None for another."""
        text = self.lines.text(line)
        if self._patterns.closed.fullmatch(text) is None:
            return None
        return len(self._patterns.cell.findall(text))

    def _record_over_lines(self, line: int) -> tuple[int, int] | None:
        """Return the last line of the record that begins in `line`, and the number of its cells: the same line when its
        quote is not closed. None when that is not known yet.
        """
        patterns = self._patterns
        opening_line = patterns.opens.fullmatch(self.lines.text(line))
        if opening_line is None:
            return line, 0
        if self.open is None or not self.open.covers(line + 1):
            self.open = _Open(line + 1, line + 1)
        self._find_end(self.open, line)
        if self.open.last is None:
            # A record that has no end within the limit has none.
            is_too_long = len(self.lines.data) - int(self.lines.starts[line]) > self.limit + 2
            return (line, 0) if self.ended or is_too_long else None
        cells = len(patterns.before.findall(opening_line[1])) + 1 + self.open.cells_from(line + 1)
        is_record = self.open.sound and cells == self.width and self._length(line, self.open.last) <= self.limit
        return (self.open.last if is_record else line), cells

    def _find_end(self, opened: _Open, line: int) -> None:
        """Search for the end of an open quote, as far as a record that begins in `line` may reach."""
        quoted = self.lines.quoted
        index = bisect_left(quoted, opened.next_line)
        while opened.last is None and opened.next_line < len(self.lines):
            if self._exceeds_limit(opened, line):
                return
            quoted_line = quoted[index] if index < len(quoted) else len(self.lines)
            index += 1
            opened.next_line = min(quoted_line + 1, len(self.lines))
            if quoted_line < len(self.lines):
                self._read_quoted_line(opened, quoted_line)

    def _exceeds_limit(self, opened: _Open, line: int) -> bool:
        next_line = opened.next_line
        return next_line > line + 1 and self._length(line, next_line - 1) > self.limit

    def _read_quoted_line(self, opened: _Open, line: int) -> None:
        """Apply a line to the quote that is open at its beginning."""
        text, patterns = self.lines.text(line), self._patterns
        continuation = patterns.goes_on.fullmatch(text)
        ending = None if continuation else patterns.ends.fullmatch(text)
        opened.lines.append(line)
        if continuation:
            # Without a closing quote, or with one and another that opens.
            added_cells = 0 if continuation[1] is None else len(patterns.behind.findall(continuation[1])) + 1
            opened.cell_counts.append(opened.cell_counts[-1] + added_cells)
            return
        opened.last, opened.sound = line, ending is not None
        opened.cell_counts.append(opened.cell_counts[-1] + (len(patterns.behind.findall(ending[1])) if ending else 0))

    def _length(self, first: int, last: int) -> int:
        return int(self.lines.ends[last] - self.lines.starts[first])


def _places(data: bytes, mark: str) -> Places:
    if mark.encode() not in data:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord(mark))


def _line_ends(data: bytes) -> Places:
    """Return the offsets of the last byte of every line end: \\n, \\r\\n or a \\r alone."""
    view = np.frombuffer(data, dtype=np.uint8)
    stops = view == ord("\n")
    if b"\r" in data:
        lone_returns = view == ord("\r")
        lone_returns[:-1] &= view[1:] != ord("\n")
        stops |= lone_returns
    return np.flatnonzero(stops)


@lru_cache
def _record(delimiter: str, quote: str | None) -> re.Pattern[bytes]:
    """Match a record and its line end like Arrow's parser; a quote may be open up to the end of the data."""
    d, plain = re.escape(delimiter), _plain(delimiter)
    cell = plain
    if quote:
        q = re.escape(quote)
        cell = f"(?:{q}(?:[^{q}]++|{q}{q})*+{q}?+{plain}|(?!{q}){plain})"
    return re.compile(f"({cell}(?:{d}{cell})*+)(?:\\r\\n|\\n|\\r|\\Z)".encode())


@dataclass(frozen=True)
class _Patterns:
    """Regular expressions over single lines. A strict cell has nothing after its closing quote."""

    delimiter: str
    quote: str

    @cached_property
    def closed(self) -> re.Pattern[bytes]:
        """Match a line whose quotes are all closed; plain text may follow a closing quote."""
        return self._compile(f"{self._lenient}(?:{self._d}{self._lenient})*+")

    @cached_property
    def cell(self) -> re.Pattern[bytes]:
        """Match one cell of a closed line."""
        return self._compile(f"(?:\\A|{self._d}){self._lenient}")

    @cached_property
    def opens(self) -> re.Pattern[bytes]:
        """Match strict cells, then one whose quote stays open."""
        return self._compile(f"((?:{self._strict}{self._d})*+){self._q}{self._inside}")

    @cached_property
    def goes_on(self) -> re.Pattern[bytes]:
        """Match a line that begins and ends within quotes."""
        between = f"{self._q}((?:{self._d}{self._strict})*?){self._d}{self._q}{self._inside}"
        return self._compile(f"{self._inside}(?:{between})?+")

    @cached_property
    def ends(self) -> re.Pattern[bytes]:
        """Match a line that begins within quotes, closes them, and ends a record."""
        return self._compile(f"{self._inside}{self._q}((?:{self._d}{self._strict})*+)")

    @cached_property
    def before(self) -> re.Pattern[bytes]:
        """Match one strict cell and the delimiter after it."""
        return self._compile(f"{self._strict}{self._d}")

    @cached_property
    def behind(self) -> re.Pattern[bytes]:
        """Match one strict cell and the delimiter before it."""
        return self._compile(f"{self._d}{self._strict}")

    @property
    def _d(self) -> str:
        return re.escape(self.delimiter)

    @property
    def _q(self) -> str:
        return re.escape(self.quote)

    @property
    def _inside(self) -> str:
        return f"(?:[^{self._q}]++|{self._q}{self._q})*+"

    @property
    def _strict(self) -> str:
        return f"(?:{self._q}{self._inside}{self._q}(?!{self._q})|(?!{self._q}){_plain(self.delimiter)})"

    @property
    def _lenient(self) -> str:
        plain = _plain(self.delimiter)
        return f"(?:{self._q}{self._inside}{self._q}{plain}|(?!{self._q}){plain})"

    def _compile(self, pattern: str) -> re.Pattern[bytes]:
        return re.compile(pattern.encode())


@lru_cache
def _patterns(quoting: Quoting) -> _Patterns:
    return _Patterns(quoting.delimiter, quoting.quote or "")


def _plain(delimiter: str) -> str:
    return f"[^{re.escape(delimiter)}\\r\\n]*+"
