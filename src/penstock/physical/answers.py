"""From the elements of an answer to the table that sinks write: `ts`, `op` for changes, the items (LANGUAGE 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.query import Query
from penstock.physical.elements import Elements, concat, empty
from penstock.physical.kernels import in_time
from penstock.physical.operators.changes import in_order

#: Rows of a stretch of one instant, on average, that are worth copying together.
_STRETCH = 64


def answer_table(query: Query, parts: Sequence[Elements]) -> pa.Table:
    """All of `parts` as one table in ts order, `-` before `+`, a tuple of multiplicity n as n rows."""
    events = (_laid_together(parts) or in_order(concat(parts))) if parts else empty(query.root.schema.types)
    if events.sign is not None and not bool(((times := np.abs(events.sign)) == 1).all()):
        events = events.take(np.repeat(np.arange(len(events)), times))
    schema = query.output_schema
    columns = [pa.array(events.ts).cast(schema.field(0).type), *([] if query.root.is_stream else [_ops(events)])]
    columns += [_exactly(c, f.type) for c, f in zip(events.columns, list(schema)[len(columns) :], strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _laid_together(parts: Sequence[Elements]) -> Elements | None:
    """`in_order` of all parts, where each is in order and has many rows an instant: copied by stretches of one instant,
    not row by row. None where that does not hold."""
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
    # Stable: at one instant the parts follow each other as they are given.
    return concat(sorted(stretches, key=lambda stretch: int(stretch.ts[0])))


def _ops(events: Elements) -> pa.Array:
    codes = pa.array((events.signs < 0).astype(np.int8))
    return pa.DictionaryArray.from_arrays(codes, pa.array(["+", "-"])).cast(pa.string())


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
