"""Quotes and comments in a text: where they open and close, and where the statements between them end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

#: What opens quotes or a comment; an `r` before a string makes a backslash in it an ordinary character.
_OPENS = re.compile(r"""--|/\*|\b[rR]?'|\b[rR]?"|'|"|`""")
_OPENS_OR_ENDS = re.compile(rf"{_OPENS.pattern}|;")
_CLOSES = {
    "--": re.compile(r"[^\n]*"),
    "'": re.compile(r"(?:[^'\\]|\\.|'')*+'", re.DOTALL),
    '"': re.compile(r'(?:[^"\\]|\\.|"")*+"', re.DOTALL),
    "`": re.compile(r"(?:[^`]|``)*+`", re.DOTALL),
    "r'": re.compile(r"[^']*+'", re.DOTALL),
    'r"': re.compile(r'[^"]*+"', re.DOTALL),
}
_COMMENT = re.compile(r"/\*|\*/")


class Quoted(NamedTuple):
    """Quotes or a comment. mark: what opens them, such as `'` or `--`; start, end: of all of it; end is None where
    nothing closes them."""

    mark: str
    start: int
    end: int | None


def quoted_parts(text: str) -> Iterator[Quoted]:
    """Yield the quotes and comments of `text`; the last one may be open."""
    at = 0
    while (opened := _OPENS.search(text, at)) is not None:
        part = _part(text, opened)
        yield part
        if part.end is None:
            return
        at = part.end


def statement_end(text: str, start: int = 0) -> int | None:
    """Return the position behind the first semicolon from `start` on that is in no quotes and no comment."""
    at = start
    while (found := _OPENS_OR_ENDS.search(text, at)) is not None:
        if found[0] == ";":
            return found.end()
        part = _part(text, found)
        if part.end is None:
            return None
        at = part.end
    return None


def is_blank(text: str) -> bool:
    """Return whether `text` holds nothing but comments, space and semicolons."""
    rest, at = [], 0
    for part in quoted_parts(text):
        if part.mark not in ("--", "/*") or part.end is None:
            return False
        rest.append(text[at : part.start])
        at = part.end
    return not "".join([*rest, text[at:]]).replace(";", "").strip()


def _part(text: str, opened: re.Match[str]) -> Quoted:
    mark = opened[0].lower()
    end = _end_of_comment(text, opened.end()) if mark == "/*" else _end_of(_CLOSES[mark], text, opened.end())
    return Quoted(mark, opened.start(), end)


def _end_of(closing: re.Pattern[str], text: str, start: int) -> int | None:
    found = closing.match(text, start)
    return None if found is None else found.end()


def _end_of_comment(text: str, start: int) -> int | None:
    """Return the position after the comment whose inside begins at `start`; nested comments end by themselves."""
    depth = 1
    for mark in _COMMENT.finditer(text, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
