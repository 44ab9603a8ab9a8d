"""The text of a script and places in it. Offsets are characters, 0-based, end exclusive."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PenstockError, Position


@dataclass(frozen=True)
class Span:
    """A stretch of a script's text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """From the start of this one to the end of `other`."""
        return Span(self.start, max(self.end, other.end))


@dataclass(frozen=True)
class SourceText:
    """A script as it was written, and the file it came from."""

    text: str
    file: str | None = None

    def position(self, span: Span) -> Position:
        return Position.at(self.text, span.start, span.end - span.start, self.file)

    def slice(self, span: Span) -> str:
        return self.text[span.start : span.end]

    def error(self, code: str, message: str, span: Span, hint: str | None = None) -> PenstockError:
        return PenstockError(code, message, self.position(span), hint)
