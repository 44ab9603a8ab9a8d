"""The rows of a result that are shown while it goes on: the newest ones of a stream, the content of a relation.

What is kept is bounded, however long the result goes on.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

#: Rows of a content that are kept, points of a line, and lines of a chart.
MOST_ROWS, MOST_POINTS, MOST_LINES = 100_000, 500, 10
#: Positions of the columns that answers have before those of their query.
_TIME, _OPERATION = 0, 1


@dataclass
class LatestRows:
    """What is known of a result.

    Args:
        is_relation: rows with the operation `-` remove others; otherwise only the newest rows are kept.
        has_operations: whether rows have an operation.
        rows: of a stream that are kept.
        value: the column of the chart; by default the first with numbers.
        by: the column whose values have a line each; by default the first with texts.
    """

    is_relation: bool
    has_operations: bool = True
    rows: int = 20
    value: str | None = None
    by: str | None = None
    columns: tuple[str, ...] = ()
    #: How many rows have come, and why some of them are not kept.
    count: int = 0
    lost: str = ""
    #: The number that is drawn, and whether what it is drawn against is an instant of the calendar.
    drawn: str = ""
    is_clock: bool = False
    lines: dict[str, deque[tuple[float, float]]] = field(default_factory=dict)
    _newest: deque[tuple[Any, ...]] = field(default_factory=deque)
    _content: dict[str, tuple[tuple[Any, ...], int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows: the instant, the operation where they have one, and the columns of the query. Rows of progress
        (`p`) are none."""
        names = batch.schema.names
        own = [i for i in range(len(names)) if not (self.has_operations and i == _OPERATION)]
        self.columns = tuple(names[i] for i in own)
        value, by = self._charted(batch.schema, own)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            operation = row[_OPERATION] if self.has_operations else "+"
            if operation not in ("+", "-"):
                continue
            self.count += 1
            self._keep(tuple(row[i] for i in own), operation)
            if operation == "+" and value is not None:
                self.drawn, self.is_clock = names[value], isinstance(row[_TIME], dt.datetime)
                self._draw(row[_TIME], row[value], "" if by is None else str(row[by]))

    @property
    def shown(self) -> Sequence[tuple[object, ...]]:
        """Return the rows to show, the newest of a stream first."""
        if not self.is_relation:
            return list(reversed(self._newest))
        found: list[tuple[object, ...]] = []
        for row, times in self._content.values():
            found += [row] * min(max(times, 0), self.rows - len(found))
            if len(found) >= self.rows:
                break
        return found

    @property
    def total(self) -> int:
        """Return how many rows there are to show: those of the content, or that have come."""
        return sum(max(0, times) for _, times in self._content.values()) if self.is_relation else self.count

    def _keep(self, row: tuple[Any, ...], operation: str) -> None:
        if not self.is_relation:
            self._newest.append(row)
            while len(self._newest) > self.rows:
                self._newest.popleft()
            return
        # Equal rows are one, whenever they came.
        key = repr(row[1:])
        before, times = self._content.pop(key, (row, 0))
        times += 1 if operation == "+" else -1
        if times:
            self._content[key] = (row if operation == "+" else before), times
        if len(self._content) > MOST_ROWS:
            self._content.pop(next(iter(self._content)))
            self.lost = f"the content has more than {MOST_ROWS:,} different rows, so some are missing here"

    def _charted(self, schema: pa.Schema, own: Sequence[int]) -> tuple[int | None, int | None]:
        """Return the positions of the columns of the chart, as far as the result has such ones."""
        of_query = own[1:]
        value = next((i for i in of_query if schema[i].name == self.value), None)
        by = next((i for i in of_query if schema[i].name == self.by), None)
        if value is None:
            value = next((i for i in of_query if is_number(schema[i].type)), None)
        if by is None:
            by = next((i for i in of_query if _is_text(schema[i].type)), None)
        return value, by

    def _draw(self, at: object, value: object, name: str) -> None:
        x, y = _number(at), _number(value)
        if x is None or y is None or (name not in self.lines and len(self.lines) >= MOST_LINES):
            return
        self.lines.setdefault(name, deque(maxlen=MOST_POINTS)).append((x, y))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _number(value: object) -> float | None:
    """Return a value as a finite number, an instant in seconds since 1970; None for what is none."""
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=value.tzinfo or dt.UTC).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < 1e300 else None
