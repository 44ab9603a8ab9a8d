"""Answers as tables of HTML, as the last line of a cell shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.notebook.result_view import cell_of, text_of

T = TypeVar("T")

#: Rows of an answer that are shown.
SHOWN_ROWS = 50


class Listed(list[T]):
    """A list that a notebook shows as a table. columns: by their names, what they have of each."""

    def __init__(self, items: Iterable[T], columns: Mapping[str, Callable[[T], object]]) -> None:
        super().__init__(items)
        self._columns = columns

    def _repr_html_(self) -> str:
        rows = [[read(one) for read in self._columns.values()] for one in self[:SHOWN_ROWS]]
        return table_of(list(self._columns), rows, len(self))


def table_of(names: Sequence[str], rows: Sequence[Sequence[object]], total: int, note: str = "") -> str:
    """Return rows as a table. total: how many there are; note: the text below it."""
    head = "".join(f"<th>{text_of(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell_of(value)}</td>' for value in row)}</tr>" for row in rows)
    hidden = total - len(rows)
    count = f"{total:,} row{'s' * (total != 1)}{f', {hidden:,} of them are not shown' if hidden else ''}"
    below = f"{count}, {note}" if note else count
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{text_of(below)}</p></div>"


def arrow_table_of(table: pa.Table, note: str = "") -> str:
    """Return an Arrow table as a table."""
    part = table.slice(0, SHOWN_ROWS)
    rows = list(zip(*(column.to_pylist() for column in part.columns), strict=True))
    return table_of(table.column_names, rows, table.num_rows, note)
