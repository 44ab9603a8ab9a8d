"""Values of a result as PostgreSQL reads them, and the rows with values that it cannot hold.

Contract: what every server refuses is found for a whole column at once; what depends on the table (a shorter text, a
smaller NUMERIC, a CHECK) the server reports itself, row by row. Such a row is left out with its reason; the others are
written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.postgres import psycopg
from penstock.expressions.values.calendar import far_day, far_moment

if TYPE_CHECKING:
    from psycopg import Cursor

Positions = npt.NDArray[np.int64]
#: By position of a row, why it is left out.
Reasons = dict[int, str]

#: Classes of SQL states that a value of a row causes: data exceptions and limits of the server.
_VALUE_CLASSES = ("22", "54")
#: Violations that a row causes by itself: NOT NULL, FOREIGN KEY and CHECK.
_VALUE_STATES = ("23502", "23503", "23514")

_DAY = 86_400_000_000
#: 4714-11-24 BC, the first day of both types, and 5874897-12-31; a timestamp goes on until the year 294276, which is
#: beyond int64.
_FIRST_DAY, _LAST_DAY = -2_440_588, 2_145_031_948
#: 0001-01-01: years before it are written with BC.
_YEAR_ONE = -719_162
_QUOTED = re.compile(r'"([^"]*)"')


def readable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column in the form that PostgreSQL reads, where that is not the one of our csv."""
    if pa.types.is_duration(column.type):
        return pc.binary_join_element_wise(column.cast(pa.int64()).cast(pa.string()), "microseconds", " ")
    if pa.types.is_date(column.type):
        return _with_era(column, pa.int32(), _YEAR_ONE, far_day)
    if pa.types.is_timestamp(column.type):
        return _with_era(column, pa.int64(), _YEAR_ONE * _DAY, far_moment)
    return _hexed(column) if pa.types.is_binary(column.type) else column


def unholdable(table: pa.Table) -> Reasons:
    """The rows that no PostgreSQL server can hold, whatever the columns of its table."""
    reasons: Reasons = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        refused = _refused(column)
        if refused is not None:
            mask, reason = refused
            for position in np.flatnonzero(pc.fill_null(mask, False).to_numpy()).tolist():
                reasons.setdefault(position, f"{reason} in column {name}")
    return reasons


def put(cursor: Cursor, positions: Positions, write: Callable[[Positions], object], names: Sequence[str]) -> Reasons:
    """Write rows by `write`, in halves where the server refuses a value, and return the rows that it refuses alone.

    Args:
        positions: of the rows, in order.
        names: the columns, one of which the server may name.

    Raises:
        psycopg.Error: for what no single row causes.
    """
    if not len(positions):
        return {}
    try:
        with cursor.connection.transaction():
            write(positions)
        return {}
    except psycopg.Error as error:
        state = error.sqlstate or ""
        if not state.startswith(_VALUE_CLASSES) and state not in _VALUE_STATES:
            raise
        if len(positions) == 1:
            return {int(positions[0]): _reason(error, names)}
    middle = len(positions) // 2
    return put(cursor, positions[:middle], write, names) | put(cursor, positions[middle:], write, names)


def _reason(error: psycopg.Error, names: Sequence[str]) -> str:
    """The server's words in the form of other reasons: values in single quotes, then the column."""
    message = _QUOTED.sub(r"'\1'", " ".join((error.diag.message_primary or str(error)).split()))
    context = error.diag.context or ""
    column = error.diag.column_name or next((name for name in names if f" {name}:" in context), None)
    shown_message = message if len(message) <= 200 else message[:197] + "..."
    return shown_message if column is None or f"'{column}'" in message else f"{shown_message} in column {column}"


def _refused(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, str] | None:
    """Which values of a column are refused, and why; None where no value of its type is."""
    if pa.types.is_string(column.type):
        return pc.match_substring(column, "\0"), "the character U+0000"
    if pa.types.is_date(column.type):
        days = column.cast(pa.int32())
        return pc.or_(pc.less(days, _FIRST_DAY), pc.greater(days, _LAST_DAY)), "date beyond those of PostgreSQL"
    if pa.types.is_timestamp(column.type):
        return pc.less(column.cast(pa.int64()), _FIRST_DAY * _DAY), "timestamp beyond those of PostgreSQL"
    return None


def _with_era(
    column: pa.ChunkedArray, number: pa.DataType, first: int, write: Callable[[int], str]
) -> pa.ChunkedArray | pa.Array:
    """Dates or timestamps, as text where some are before the year 1, which is 1 BC there and has no year 0."""
    numbers = column.cast(number)
    early = pc.less(numbers, first)
    if not pc.any(early).as_py():
        return column
    texts = [
        None if value is None else write(value) if value >= first else _before_christ(write(value))
        for value in numbers.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _before_christ(text: str) -> str:
    """An ISO text of a year up to 0 with the year as it is counted before Christ."""
    year, month, day = text.rsplit("-", 2)
    return f"{1 - int(year):04d}-{month}-{day} BC"


def _hexed(column: pa.ChunkedArray) -> pa.Array:
    """Bytes as PostgreSQL reads them, `\\x...`, all at once."""
    values = column.combine_chunks().cast(pa.binary())
    values = pa.concat_arrays([values]) if values.offset else values
    size = len(values)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[: size + 1] if size else np.zeros(1, np.int32)
    data = values.buffers()[2]
    text = data.to_pybytes()[offsets[0] : offsets[-1]].hex().encode() if data is not None else b""
    starts = pa.py_buffer((2 * (offsets - offsets[0])).astype(np.int32))
    digits = pa.Array.from_buffers(pa.string(), size, [None, starts, pa.py_buffer(text)])
    return pc.if_else(values.is_valid(), pc.binary_join_element_wise("\\x", digits, ""), None)
