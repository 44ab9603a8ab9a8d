"""From the elements of an answer to the table that sinks write: `ts`, `op` for changes, the items [semantics 4.4]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.physical.elements import Elements, concat, empty
from penstock.physical.kernels.arrival_order import argsort_values
from penstock.physical.kernels.compiled import in_time
from penstock.physical.operators.streams.changes import in_order

#: Minimum average number of rows per instant for copying contiguous ranges.
_STRETCH = 64

#: Up to this many rows a column of operations is made value by value.
_FEW = 64
#: Maximum number of rows of an answer chunk, and of one whose rows may be long.
ROWS, LONG_ROWS = 2**20, 2**16


class AnswerChunk(Protocol):
    """Elements that may not be in memory yet. `low`: the smallest of their timestamps; `rows`: their number."""

    @property
    def low(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def take(self) -> Callable[[], Elements]:
        """Return the elements."""


def answer_tables(query: Query, pieces: Sequence[AnswerChunk]) -> Iterator[pa.Table]:
    """Yield `answer_table` of all `pieces` in tables of limited size, at least one, independent of how the pieces were
    cut.

    Chunks are loaded only when their time range is reached, and released once they are written.
    """
    schema = query.output_schema
    rows = LONG_ROWS if any(_may_be_long(type_) for type_ in schema.types) else ROWS
    waiting: list[pa.Table] = []
    held = 0
    for table in _by_time(query, schema, pieces, rows):
        waiting.append(table)
        held += table.num_rows
        if held > rows:
            whole = pa.concat_tables(waiting)
            # The last one is held back until it is known whether more follows.
            starts = range(0, held - rows, rows)
            yield from (whole.slice(start, rows) for start in starts)
            waiting = [whole.slice(starts[-1] + rows)]
            held = waiting[0].num_rows
    yield pa.concat_tables(waiting) if waiting else _answer_table(query, schema, [])


def _by_time(query: Query, schema: pa.Schema, pieces: Sequence[AnswerChunk], rows: int) -> Iterator[pa.Table]:
    """Yield tables in order of time, each of about `rows` rows."""
    order = sorted(range(len(pieces)), key=lambda i: pieces[i].low)
    open_: dict[int, Elements] = {}
    held, enough = 0, rows
    for k, number in enumerate(order):
        open_[number] = pieces[number].take()
        held += pieces[number].rows
        last = k + 1 == len(order)
        if held < enough and not last:
            continue
        # Everything before the first chunk that has not been loaded; rows of one instant stay together.
        due = open_ if last else {i: _before(e, pieces[order[k + 1]].low) for i, e in open_.items()}
        if any(len(e) for e in due.values()):
            yield _answer_table(query, schema, [due[i] for i in sorted(due) if len(due[i])])
        if not last:
            open_ = {i: _from(e, pieces[order[k + 1]].low) for i, e in open_.items()}
            open_ = {i: e for i, e in open_.items() if len(e)}
            held = sum(map(len, open_.values()))
            # Where pieces overlap in time, they are not searched again for each new one.
            enough = max(rows, 2 * held)


def _before(elements: Elements, tick: int) -> Elements:
    if in_time(elements.ts):
        return elements.slice(0, int(np.searchsorted(elements.ts, tick)))
    return elements.filter(elements.ts < tick)


def _from(elements: Elements, tick: int) -> Elements:
    if in_time(elements.ts):
        return elements.slice(int(np.searchsorted(elements.ts, tick)), len(elements))
    return elements.filter(elements.ts >= tick)


def _may_be_long(type_: pa.DataType) -> bool:
    """Return whether a value of the type may have any number of bytes."""
    return width(type_) is None


def width(type_: pa.DataType) -> int | None:
    """Return the bits of a value, None where values differ in size."""
    try:
        return int(type_.bit_width)
    except ValueError:
        return None


def content_bytes(table: pa.Table) -> int:
    """Return the bytes of the values of `table`, independent of its memory layout and its chunks."""
    return sum(column_bytes(chunk) for column in table.columns for chunk in column.chunks)


def column_bytes(array: pa.Array) -> int:
    """Return the bytes of the values of a column."""
    bits = width(array.type)
    if bits is not None:
        return len(array) * bits // 8
    if pa.types.is_null(array.type):
        return 0
    if pa.types.is_string(array.type) and not array.null_count:
        start, stop = array.offset, array.offset + len(array)
        offsets = np.frombuffer(array.buffers()[1], np.int32)
        return 4 * len(array) + int(offsets[stop]) - int(offsets[start]) if len(array) else 0
    if pa.types.is_struct(array.type):
        return sum(map(column_bytes, array.flatten()))
    if pa.types.is_list(array.type):
        return 4 * len(array) + column_bytes(array.flatten())
    return 4 * len(array) + int(pc.sum(pc.binary_length(array)).as_py() or 0)


def answer_table(query: Query, parts: Sequence[Elements]) -> pa.Table:
    """Return all of `parts` as one table in ts order, `-` before `+`, a tuple of multiplicity n as n rows."""
    return _answer_table(query, query.output_schema, parts)


def _answer_table(query: Query, schema: pa.Schema, parts: Sequence[Elements]) -> pa.Table:
    events = (_laid_together(parts) or in_order(concat(parts))) if parts else empty(query.root.schema.types)
    if isinstance(query.root, RelationToStream) and query.root.by_values:
        events = events.take(argsort_values(events))
    if events.sign is not None and not bool(((times := np.abs(events.sign)) == 1).all()):
        events = events.take(np.repeat(np.arange(len(events)), times))
    columns = [_exactly(pa.array(events.ts), schema.field(0).type), *([] if query.root.is_stream else [_ops(events)])]
    columns += [_exactly(c, f.type) for c, f in zip(events.columns, list(schema)[len(columns) :], strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _laid_together(parts: Sequence[Elements]) -> Elements | None:
    """Return `in_order` of all parts, if each is in order and has many rows per instant: copied by ranges of one
    instant instead of row by row. None where that does not hold.
    """
    if any(part.sign is not None or not in_time(part.ts) for part in parts):
        return None
    if len(parts) == 1:
        return parts[0]
    starts = [np.flatnonzero(np.concatenate([[True], p.ts[1:] != p.ts[:-1]])) for p in parts if len(p)]
    if sum(map(len, starts)) * _STRETCH > sum(map(len, parts)):
        return None
    stretches = []
    for part, own in zip([p for p in parts if len(p)], starts, strict=True):
        stops = np.append(own[1:], len(part))
        stretches += [part.slice(start, stop) for start, stop in zip(own.tolist(), stops.tolist(), strict=True)]
    # Stable: at one instant the parts follow each other in their given order.
    return concat(sorted(stretches, key=lambda stretch: int(stretch.ts[0])))


def _ops(events: Elements) -> pa.Array:
    if len(events) <= _FEW:
        # A call of a kernel takes longer.
        return pa.array(["-" if sign < 0 else "+" for sign in events.signs.tolist()], pa.string())
    characters = np.where(events.signs < 0, np.uint8(ord("-")), np.uint8(ord("+")))
    offsets = pa.py_buffer(np.arange(len(events) + 1, dtype=np.int32))
    return pa.StringArray.from_buffers(len(events), offsets, pa.py_buffer(characters))


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
