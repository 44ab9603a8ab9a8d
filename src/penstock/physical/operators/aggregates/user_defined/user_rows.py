"""The rows passed to user-defined aggregates: cut by group and instant, and sorted into a canonical order.

The order does not depend on how input or state is cut: by value, NULL last and NaN before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Int64s, concat_arrays, int64s
from penstock.physical.kernels.compiled import group_codes, sum_by_code
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.tables.objects import Key

_END = "end"


@dataclass(frozen=True)
class Segment:
    """The changes of one group at one instant: rows added (their column `end` is their expiration) and rows
    removed."""

    key: Key
    time: int
    added: pa.RecordBatch
    removed: pa.RecordBatch

    def by_end(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows added, by their expiration."""
        ends = int64s(self.added.column(0))
        for end in np.unique(ends).tolist():
            yield end, self.added.filter(pa.array(ends == end))


@dataclass
class Change:
    """base_changed: whether the built-in aggregates changed; then their row is `base` (None: the group is empty)."""

    base_changed: bool = False
    base: pa.RecordBatch | None = None
    segment: Segment | None = None


def segments(rows: list[pa.Array], strict: bool) -> list[Segment]:
    """Cut rows by group and instant. rows: group fingerprint (two columns), instant, weight, end, arguments. strict: a
    row may be added and retracted at one instant."""
    first, second, time, weight, end, *values = rows
    weights = int64s(weight)
    if strict:
        codes, heads = group_codes(*fingerprints([first, second, time, *values], len(first)))
        weights = sum_by_code(codes, weights, len(heads))
        kept = np.flatnonzero(weights)
        heads, weights = heads[kept], weights[kept]
    else:
        heads = np.arange(len(first))
    picked = np.repeat(heads, np.abs(weights))
    weights = np.repeat(weights, np.abs(weights))
    if not len(picked):
        return []
    first_half, second_half, when = (int64s(c)[picked] for c in (first, second, time))
    order = np.lexsort((weights, when, second_half, first_half))
    first_half, second_half, when, weights = first_half[order], second_half[order], when[order], weights[order]
    columns = [c.take(pa.array(picked[order])) for c in (end, *values)]
    whole = pa.RecordBatch.from_arrays(columns, names=[_END, *(f"v{i}" for i in range(len(values)))])
    steps = (first_half[1:] != first_half[:-1]) | (second_half[1:] != second_half[:-1]) | (when[1:] != when[:-1])
    bounds = [0, *(np.flatnonzero(steps) + 1).tolist(), len(first_half)]
    result = []
    for begin, stop in pairwise(bounds):
        middle = begin + int(np.searchsorted(weights[begin:stop], 0))
        key = (int(first_half[begin]), int(second_half[begin]))
        added, removed = whole.slice(middle, stop - middle), whole.slice(begin, middle - begin)
        result.append(Segment(key, int(when[begin]), added, removed))
    return result


def live_rows(live: pa.RecordBatch | None, segment: Segment) -> pa.RecordBatch:
    """Return `live` with the added and without the removed rows of `segment`."""
    parts = [*([] if live is None else [live]), segment.added, segment.removed]
    columns = [concat_arrays([p.column(i) for p in parts]) for i in range(len(parts[0].columns))]
    weights = np.ones(len(columns[0]), np.int64)
    if len(segment.removed):
        weights[len(weights) - len(segment.removed) :] = -1
        codes, heads = group_codes(*fingerprints(columns[1:], len(weights)))
        counts: Int64s = sum_by_code(codes, weights, len(heads))
        columns = [c.take(pa.array(np.repeat(heads, np.maximum(counts, 0)))) for c in columns]
    return pa.RecordBatch.from_arrays(columns, names=segment.added.schema.names)


def distinct_rows(values: Sequence[pa.Array]) -> list[pa.Array]:
    """Return `values` without duplicates."""
    _, heads = group_codes(*fingerprints(values, len(values[0])))
    return [v.take(pa.array(heads)) for v in values]


def canonical(values: Sequence[pa.Array]) -> list[pa.Array]:
    """Return `values` in the order that the module docstring defines."""
    table = pa.table({str(i): v for i, v in enumerate(values)})
    keys = [(f.name, "ascending", "at_end") for f in table.schema if not pa.types.is_null(f.type)]
    if not keys:
        return list(values)
    order = pc.sort_indices(table, sort_keys=keys)
    return [v.take(order) for v in values]
