"""The text of a script and positions in it. Offsets are characters, 0-based, end exclusive."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import PenstockError, Position


@dataclass(frozen=True)
class TextSpan:
    """A range of a script's text."""

    start: int
    end: int

    def to(self, other: TextSpan) -> TextSpan:
        """Return the span from the start of this one to the end of `other`."""
        return TextSpan(self.start, max(self.end, other.end))


@dataclass(frozen=True)
class SourceText:
    """The text of a script, and its file name."""

    text: str
    file: str | None = None

    @staticmethod
    def of(text: str, file: str | None = None) -> SourceText:
        """Return the text without the byte order mark with which some programs begin files."""
        return SourceText(text.removeprefix("\ufeff"), file)

    @cached_property
    def _lines(self) -> list[int]:
        """Return the offsets at which the lines begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def position(self, span: TextSpan) -> Position:
        offset = max(0, min(span.start, len(self.text)))
        line = bisect_right(self._lines, offset)
        start = self._lines[line - 1]
        end = self._lines[line] - 1 if line < len(self._lines) else len(self.text)
        return Position(line, offset - start + 1, self.text[start:end], max(1, span.end - span.start), self.file)

    def blank_before(self, span: TextSpan) -> str:
        """Return line breaks and spaces that have a text behind them begin in the line and column of `span`."""
        place = self.position(span)
        return "\n" * (place.line - 1) + " " * (place.column - 1)

    def slice(self, span: TextSpan) -> str:
        return self.text[span.start : span.end]

    def error(self, code: str, message: str, span: TextSpan, hint: str | None = None) -> PenstockError:
        return PenstockError(code, message, self.position(span), hint)
