"""Arrow tables drawn for people, on a terminal or in a page of HTML.

Contract: every value is shown completely, NULL differs from any text. A table is as wide as its values if it fits into
the terminal. Otherwise wide columns are folded; if even that is too narrow, the table is wider than the terminal.
Control characters are shown as escapes, so no value can control the terminal.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

import pyarrow as pa
from rich.cells import cell_len, chop_cells

from penstock.connectors.text import plain

#: Rows that are drawn as one table: columns are as wide as the widest value among them.
_ROWS = 10_000
#: Minimum width of a folded column, in cells.
_NARROWEST = 12
#: Cells beside each column, and one at the end: borders and padding.
_BESIDE, _END = 3, 1
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(10), *range(11, 32), *range(127, 160))}
#: What breaks a line or turns its direction, which would move the cells beside it.
_CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A))}

#: Above the head, beside its cells, below it, beside the cells of rows, below them.
_FRAME = ("┏━┳┓", "┃", "┡━╇┩", "│", "└─┴┘")
_PLAIN_FRAME = ("+-++", "|", "+-++", "|", "+-++")
_BOLD, _DIM, _END_OF_STYLE = "\x1b[1m", "\x1b[2m", "\x1b[0m"
_WORDS = re.compile(r" *[^ ]+ *| +")

Cells = list[list[str | None]]


def rendered(title: str, table: pa.Table, width: int | None = None) -> Iterator[str]:
    """Yield `table` as text, in pieces, each with its title.

    Args:
        width: cells of the terminal; by default those of standard output, or no limit where it is not a terminal.
    """
    limit = width if width is not None else _terminal_width()
    for start in range(0, table.num_rows, _ROWS):
        yield f"{shown(title)}\n{_drawn(table.slice(start, _ROWS), limit)}"


def drawn(table: pa.Table, width: int | None = None) -> Iterator[str]:
    """Yield `table` as text, in pieces, without a title; the head also where there are no rows. width: as above."""
    limit = width if width is not None else _terminal_width()
    for start in range(0, max(1, table.num_rows), _ROWS):
        yield _drawn(table.slice(start, _ROWS), limit)


def expanded(table: pa.Table) -> Iterator[str]:
    """Yield the rows of `table` as text, one below the other, each with a line for each of its values."""
    names = [shown(name) for name in table.column_names]
    widest = _width(names)
    bold, dim = (_BOLD, _DIM) if _is_coloured() else ("", "")
    for start in range(0, table.num_rows, _ROWS):
        for number, row in enumerate(zip(*_cells(table.slice(start, _ROWS)), strict=True), start + 1):
            yield f"{bold}row {number:,}{_END_OF_STYLE if bold else ''}\n"
            for name, cell in zip(names, row, strict=True):
                lines = ["NULL"] if cell is None else cell.split("\n")
                (head,) = _padded(name, widest, False, "")
                value = f"\n{' ' * widest}   ".join(lines)
                yield f"{head} | {dim}{value}{_END_OF_STYLE}\n" if cell is None and dim else f"{head} | {value}\n"


def html_table(table: pa.Table, rows: int) -> str:
    """Return the first `rows` rows of `table` as HTML, and the number of the others."""
    part = table.slice(0, rows)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.column_names)
    body = "".join(
        "<tr>" + "".join("<td><i>NULL</i></td>" if c is None else f"<td>{html.escape(c)}</td>" for c in row) + "</tr>"
        for row in zip(*_cells(part), strict=True)
    )
    hidden_rows = table.num_rows - part.num_rows
    remainder = f"<p>{hidden_rows:,} more row{'s' * (hidden_rows != 1)}</p>" if hidden_rows else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{remainder}"


def encodable(text: str, stream: TextIO) -> str:
    """Return `text` with what the encoding of `stream` lacks as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def shown(text: str) -> str:
    """Return `text` with its control characters as escapes; line ends stay."""
    return text.translate(_CONTROLS)


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if _is_terminal() else None


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _is_coloured() -> bool:
    return _is_terminal() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def _writes_frames() -> bool:
    """Return whether the encoding of standard output has the characters of lines."""
    encoding = getattr(sys.stdout, "encoding", None)
    return encoding is None or encoding.lower().replace("-", "").startswith("utf")


def _drawn(table: pa.Table, limit: int | None) -> str:
    names, columns = [shown(name) for name in table.column_names], _cells(table)
    natural = [_width([name, *cells]) for name, cells in zip(names, columns, strict=True)]
    widths = natural if limit is None else fitted(natural, limit - _BESIDE * len(natural) - _END)
    rights = [_is_number(kind) for kind in table.schema.types]
    bold, dim = (_BOLD, _DIM) if _is_coloured() else ("", "")
    top, head, below, body, bottom = _FRAME if _writes_frames() else _PLAIN_FRAME
    heads, padded = [], []
    for name, cells, width, right in zip(names, columns, widths, rights, strict=True):
        heads.append(_padded(name, width, right, bold))
        padded.append([_padded("NULL" if c is None else c, width, right, dim if c is None else "") for c in cells])
    lines = [_rule(top, widths), *_row(heads, widths, head), _rule(below, widths)]
    for row in zip(*padded, strict=True):
        lines += _row(row, widths, body)
    return "\n".join([*lines, _rule(bottom, widths), ""])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _row(cells: Sequence[list[str]], widths: Sequence[int], bar: str) -> Iterator[str]:
    """Yield the lines of a row: as many as its highest cell has."""
    separator = f" {bar} "
    for number in range(max(len(cell) for cell in cells)):
        parts = (cell[number] if number < len(cell) else " " * width for cell, width in zip(cells, widths, strict=True))
        yield f"{bar} {separator.join(parts)} {bar}"


def _rule(marks: str, widths: Sequence[int]) -> str:
    left, line, between, right = tuple(marks)
    return left + between.join(line * (width + 2) for width in widths) + right


def _padded(cell: str, width: int, right: bool, style: str) -> list[str]:
    """Return the lines of a cell, each `width` cells wide."""
    padded_lines = []
    for line in folded(cell, width):
        space = " " * (width - (len(line) if line.isascii() else cell_len(line)))
        text = f"{style}{line}{_END_OF_STYLE}" if style else line
        padded_lines.append(space + text if right else text + space)
    return padded_lines


def folded(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` cells, broken between words where possible."""
    if text.isascii() and len(text) <= width and "\n" not in text:
        return [text]
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in _WORDS.findall(paragraph) if cell_len(paragraph) > width else [paragraph]:
            if line and cell_len(line + word.rstrip(" ")) > width:
                lines.append(line.rstrip(" "))
                line = ""
            line += word
            if cell_len(line.rstrip(" ")) > width:
                *full_lines, line = chop_cells(line, width)
                lines += full_lines
        lines.append(line.rstrip(" ") if cell_len(line) > width else line)
    return lines


def fitted(natural: Sequence[int], room: int) -> list[int]:
    """Return widths of columns whose values need `natural` cells, in `room` cells if possible.

    The widest columns are narrowed, all to the same width, but none below a legible minimum.
    """
    if sum(natural) <= room:
        return list(natural)
    widest, remaining = 0, room
    for index, width in enumerate(sorted(natural)):
        share = remaining // (len(natural) - index)
        if width > share:
            widest = share
            break
        remaining -= width
    return [min(width, max(widest, _NARROWEST)) for width in natural]


def _cells(table: pa.Table) -> Cells:
    return [[_text(cell) for chunk in c.chunks for cell in plain(chunk).to_pylist()] for c in table.columns]


def _text(cell: bytes | None) -> str | None:
    return None if cell is None else shown(cell.decode("utf-8", "backslashreplace"))


def _width(cells: Sequence[str | None]) -> int:
    lines = (line for cell in cells for line in ("NULL" if cell is None else cell).split("\n"))
    return max(1, *(cell_len(line) for line in lines))
