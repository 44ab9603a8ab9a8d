"""From the elements of an answer to the table that sinks write: `ts`, `op` for changes, the items (LANGUAGE 4.4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.query import Query
from penstock.physical.elements import Elements, concat, empty
from penstock.physical.operators.changes import in_order


def answer_table(query: Query, parts: Sequence[Elements]) -> pa.Table:
    """All of `parts` as one table in ts order, `-` before `+`, a tuple of multiplicity n as n rows."""
    events = in_order(concat(parts)) if parts else empty(query.root.schema.types)
    times = np.abs(events.signs)
    if not bool((times == 1).all()):
        events = events.take(np.repeat(np.arange(len(events)), times))
    schema = query.output_schema
    columns = [pa.array(events.ts).cast(schema.field(0).type), *([] if query.root.is_stream else [_ops(events)])]
    columns += [_exactly(c, f.type) for c, f in zip(events.columns, list(schema)[len(columns) :], strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _ops(events: Elements) -> pa.Array:
    codes = pa.array((events.signs < 0).astype(np.int8))
    return pa.DictionaryArray.from_arrays(codes, pa.array(["+", "-"])).cast(pa.string())


def _exactly(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
