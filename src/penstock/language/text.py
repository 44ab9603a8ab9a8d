"""The text of a script and positions in it. Offsets are characters, 0-based, end exclusive."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, fields, is_dataclass
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


def fields_compared(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields by which values of a class are compared: of the tree of a statement, all but
    positions. None for a class that is no dataclass."""
    try:
        return _FIELDS[kind]
    except KeyError:
        names = tuple(f.name for f in fields(kind) if f.compare) if is_dataclass(kind) else None
        return _FIELDS.setdefault(kind, names)


#: Classes of values without parts, as most fields of a tree have.
LEAVES = {str, int, bool, type(None), TextSpan}

#: By class: every walk over the tree of a statement looks it up at every node.
_FIELDS: dict[type, tuple[str, ...] | None] = {}


@dataclass(frozen=True)
class SourceText:
    """The text of a script, and its file name.

    Args:
        values: what is read in place of each `$1`, by its place and in order; empty where the values are not known
            yet, None where `$1` is no part of the language.
    """

    text: str
    file: str | None = None
    values: tuple[tuple[TextSpan, str], ...] | None = None

    @staticmethod
    def of(text: str, file: str | None = None, parameters: bool = False) -> SourceText:
        """Return the text without the byte order mark with which some programs begin files. parameters: whether `$1`
        stands for a value."""
        return SourceText(text.removeprefix("\ufeff"), file, () if parameters else None)

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
        """Return the text of a place, with its values."""
        values = self.values or ()
        parts: list[str] = []
        at = span.start
        for place, text in values[bisect_left(values, span.start, key=lambda value: value[0].start) :]:
            if place.end > span.end:
                break
            parts += [self.text[at : place.start], text]
            at = place.end
        return "".join([*parts, self.text[at : span.end]])

    def error(self, code: str, message: str, span: TextSpan, hint: str | None = None) -> PenstockError:
        return PenstockError(code, message, self.position(span), hint)
