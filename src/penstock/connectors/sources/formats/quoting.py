"""Where csv records begin and end when cells are quoted, exactly as Arrow's csv parser sees it.

A quote opens a quoted cell only at the beginning of a cell; inside, `""` is a quote and line ends are text; behind the
closing quote the rest of the cell is plain. As long as every quote is an opening, closing or doubled one ("tidy"),
counting quotes tells inside from outside, vectorised; else records are found one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock.connectors.sources.formats.lines import end_of_lines

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """The records of some text that are no empty lines.

    starts, ends: offsets in `data`, line ends left out; lines: the line each begins on; several: it runs over more than
    one line; doubtful: a quote in it looks as if nobody had closed it.
    """

    data: bytes
    starts: Places
    ends: Places
    lines: Places
    several: npt.NDArray[np.bool_]
    doubtful: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, index: int) -> bytes:
        return self.data[self.starts[index] : self.ends[index]]

    def line(self, index: int) -> int:
        return int(self.lines[index])


@dataclass(frozen=True)
class Quoting:
    """The delimiter and the quote (None: no cell is ever quoted)."""

    delimiter: str
    quote: str | None

    def end(self, data: bytes) -> int:
        """How many bytes are whole records, when more data follows; 0 when no record ends."""
        quote = self.quote.encode() if self.quote else b""
        if not quote or quote not in data:
            return end_of_lines(data)
        if not self.tidy(data):
            return self._end_one_by_one(data)
        inside = data.count(quote) % 2 == 1
        end = len(data)
        while (newline := data.rfind(b"\n", 0, end)) >= 0:
            # The newline is outside quotes iff an even number of quotes stands before it.
            inside ^= data.count(quote, newline, end) % 2 == 1
            if not inside:
                return newline + 1
            end = newline
        return 0

    def tidy(self, data: bytes) -> bool:
        """Whether every quote of `data`, which begins with a record, opens, closes or doubles; the last may be open."""
        places = self._quotes(data)
        if not len(places):
            return True
        view = np.frombuffer(data, dtype=np.uint8)
        neighbours = np.zeros(256, dtype=bool)
        neighbours[[ord(mark) for mark in (self.delimiter, "\n", "\r", self.quote or "")]] = True
        opening, closing = places[0::2], places[1::2]
        before, after = opening[opening > 0] - 1, closing[closing < len(view) - 1] + 1
        return bool(neighbours[view[before]].all() and neighbours[view[after]].all())

    def closed(self, data: bytes) -> bool:
        """Whether no quote of `data` (tidy) is left open."""
        return not self.quote or data.count(self.quote.encode()) % 2 == 0

    def records(self, data: bytes, line: int) -> Records:
        """The records of `data`, whose first byte stands on `line`."""
        stops = _line_ends(data)
        starts, ends = self._counted(data, stops) if self.tidy(data) else self._one_by_one(data)
        filled = ends > starts
        starts, ends = starts[filled], ends[filled]
        first, last = np.searchsorted(stops, starts), np.searchsorted(stops, ends)
        several = last > first
        doubtful = np.zeros(len(starts), dtype=bool)
        for index in np.flatnonzero(several):
            doubtful[index] = not self._closes(data[starts[index] : ends[index]], plain_tail=False)
        if len(starts) and not doubtful[-1]:
            doubtful[-1] = not self._closes(data[starts[-1] : ends[-1]], plain_tail=True)
        return Records(data, starts, ends, line + first, several, doubtful)

    def first(self, data: bytes, count: int) -> Iterator[bytes]:
        """The first `count` records that are no empty lines, without looking at the others."""
        for match in self._matches(data):
            if match[1] and count:
                count -= 1
                yield match[1]
            if not count:
                return

    def _quotes(self, data: bytes) -> Places:
        if not self.quote or self.quote.encode() not in data:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord(self.quote))

    def _counted(self, data: bytes, stops: Places) -> tuple[Places, Places]:
        """Starts and ends of the records of tidy data, whose lines end at `stops`."""
        stops = stops[np.searchsorted(self._quotes(data), stops) % 2 == 0]
        starts = np.concatenate(([0], stops + 1))
        ends = np.concatenate((stops, [len(data)]))
        # Of \r\n the stop is the \n.
        view = np.frombuffer(data, dtype=np.uint8)
        paired = (stops > 0) & (view[stops] == ord("\n")) & (view[stops - 1] == ord("\r"))
        ends[:-1] -= paired
        return starts, ends

    def _one_by_one(self, data: bytes) -> tuple[Places, Places]:
        spans = np.array([m.span(1) for m in self._matches(data)], dtype=np.int64).reshape(-1, 2)
        return spans[:, 0], spans[:, 1]

    def _end_one_by_one(self, data: bytes) -> int:
        ends = [m.end() for m in self._matches(data) if m[0] != m[1]]
        # A \r at the very end may be the first half of \r\n.
        return next((end for end in reversed(ends) if end < len(data) or data.endswith(b"\n")), 0)

    def _matches(self, data: bytes) -> Iterator[re.Match[bytes]]:
        for match in _record(self.delimiter, self.quote).finditer(data):
            yield match
            if match.end() >= len(data):
                return

    def _closes(self, record: bytes, plain_tail: bool) -> bool:
        return _closed_record(self.delimiter, self.quote, plain_tail).fullmatch(record) is not None


def _line_ends(data: bytes) -> Places:
    """Offsets of the last byte of every line end: \\n, \\r\\n or a \\r alone."""
    view = np.frombuffer(data, dtype=np.uint8)
    stops = view == ord("\n")
    if b"\r" in data:
        alone = view == ord("\r")
        alone[:-1] &= view[1:] != ord("\n")
        stops |= alone
    return np.flatnonzero(stops)


@lru_cache
def _record(delimiter: str, quote: str | None) -> re.Pattern[bytes]:
    """A record and its line end, told as Arrow's parser does; a quote may be open up to the end of the data."""
    cell = _cell(delimiter, quote, plain_tail=True, may_end_open=True)
    return re.compile(f"({cell}(?:{re.escape(delimiter)}{cell})*+)(?:\\r\\n|\\n|\\r|\\Z)".encode())


@lru_cache
def _closed_record(delimiter: str, quote: str | None, plain_tail: bool) -> re.Pattern[bytes]:
    """A record whose quotes are all closed, with plain text behind a closing quote only where `plain_tail` says so."""
    cell = _cell(delimiter, quote, plain_tail, may_end_open=False)
    return re.compile(f"{cell}(?:{re.escape(delimiter)}{cell})*+".encode())


def _cell(delimiter: str, quote: str | None, plain_tail: bool, may_end_open: bool) -> str:
    plain = f"[^{re.escape(delimiter)}\\r\\n]*+"
    if not quote:
        return plain
    q, tail, close = re.escape(quote), plain if plain_tail else "", "?+" if may_end_open else ""
    return f"(?:{q}(?:[^{q}]++|{q}{q})*+{q}{close}{tail}|(?!{q}){plain})"
