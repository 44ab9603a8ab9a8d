"""What has been read of a source and is kept: the past of queries that begin later.

A history holds the accepted elements with all declared columns, in the order of arrival. Whether an element was late
has been decided when it arrived, so a query that begins later reads what one that was always there has read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import LastRows, Need
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import fingerprints


@dataclass
class History:
    """The elements of one source.

    Args:
        source: the declaration.
        retain: for how many ticks before the heartbeat elements of a stream are kept; None for ever. A relation keeps
            all its updates.
        dropped: the tick up to which elements have been dropped, None for none.
    """

    source: Source
    retain: int | None = None
    parts: list[Elements] = field(default_factory=list)
    dropped: int | None = None

    def add(self, elements: Elements) -> None:
        if len(elements):
            self.parts.append(elements)

    def forget(self, heartbeat: int) -> None:
        """Drop the elements of a stream that are older than `retain` at `heartbeat`."""
        if self.retain is None or not self.source.is_stream:
            return
        until = heartbeat - self.retain
        kept = [part.filter(part.ts > until) for part in self.parts]
        if any(len(part) < len(whole) for part, whole in zip(kept, self.parts, strict=True)):
            self.dropped = until
            self.parts = [part for part in kept if len(part)]

    def has(self, need: Need, tick: int) -> bool:
        """Return whether everything is kept that `need` names at the instant `tick`."""
        if self.dropped is None:
            return True
        return need.ticks is not None and not need.rows and tick - need.ticks >= self.dropped

    def since(self, need: Need, tick: int) -> list[Elements]:
        """Return what `need` names at the instant `tick`, and all elements after it."""
        if not self.parts or need.ticks is None:
            return list(self.parts)
        whole = concat(self.parts)
        begin = tick - need.ticks
        if not self.source.is_stream:
            return [_begun(whole, begin)]
        wanted = whole.ts > begin
        for last in need.rows:
            wanted[_last(whole, np.flatnonzero(whole.ts <= begin), last)] = True
        return [whole.filter(wanted)]


def _begun(updates: Elements, tick: int) -> Elements:
    """Return the updates of a relation in the order in which they apply, those up to `tick` as one change at `tick`."""
    order = np.argsort(np.maximum(updates.ts, tick), kind="stable")
    past = np.flatnonzero(updates.ts <= tick)
    order[: len(past)] = past[np.argsort(updates.ts[past], kind="stable")]
    ordered = updates.take(order)
    return Elements(ordered.columns, np.maximum(ordered.ts, tick), ordered.exp, ordered.sign)


def _last(elements: Elements, rows: Int64s, last: LastRows) -> Int64s:
    """Return which of `rows` are the last ones of their partition, in the order of (timestamp, arrival)."""
    backwards = rows[np.argsort(elements.ts[rows], kind="stable")][::-1]
    if not last.partition:
        return backwards[: last.count]
    chosen = pa.array(backwards)
    first, second = fingerprints([elements.columns[i].take(chosen) for i in last.partition], len(backwards))
    _, part = np.unique(np.rec.fromarrays([first, second]), return_inverse=True)
    order = np.argsort(part, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(part[order])) + 1]) if len(order) else np.zeros(0, np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return backwards[order[rank < last.count]]
