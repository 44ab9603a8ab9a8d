"""The kept input of a source: the past of queries that begin later.

A history holds the accepted elements with all declared columns, in the order of arrival. Whether an element was late
has been decided when it arrived, so a query that begins later reads what one that was always there has read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import Held, LastRows, Need, Ticks, most_rows
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.updates import paired_updates
from penstock.physical.plan.inputs import update_rule

#: The updates of a relation are folded when there are more old ones than this, and than twice those that were left.
_FEWEST = 256


@dataclass
class History:
    """The elements of one source.

    Args:
        source: the declaration.
        retain: for how many ticks before the heartbeat elements are kept; None for ever. Of a relation, the updates
            that make its content are kept beyond that.
        dropped: the largest tick of an element that has been dropped, of a relation the one up to which its updates
            have been folded; None for none.
    """

    source: Source
    retain: int | None = None
    parts: list[Elements] = field(default_factory=list)
    dropped: int | None = None
    #: The number of updates that the last folding left.
    _held: int = 0

    def add(self, elements: Elements) -> None:
        if len(elements):
            self.parts.append(elements)

    def forget(self, heartbeat: int) -> None:
        """Drop what is older than `retain` at `heartbeat`: elements of a stream, and updates of a relation that its
        content no longer shows."""
        if self.retain is None or heartbeat == NOTHING:
            return
        until = heartbeat - self.retain
        if self.source.is_stream:
            gone = [int(old.max()) for part in self.parts if len(old := part.ts[part.ts <= until])]
            if gone:
                self.dropped = max([*gone, NOTHING if self.dropped is None else self.dropped])
                kept_parts = [part.filter(part.ts > until) for part in self.parts]
                self.parts = [part for part in kept_parts if len(part)]
            return
        old_updates = sum(int(np.count_nonzero(part.ts <= until)) for part in self.parts)
        if old_updates <= max(_FEWEST, 2 * self._held):
            return
        kept = folded(self.source, concat(self.parts), until)
        self._held = int(np.count_nonzero(kept.ts <= until))
        if len(kept) < sum(map(len, self.parts)):
            self.dropped = until
            self.parts = [kept] if len(kept) else []

    def has(self, need: Need, tick: int) -> bool:
        """Return whether everything is kept that `need` names at the instant `tick`."""
        if self.dropped is None:
            return True
        if need.ticks is None or tick - need.ticks < self.dropped:
            return False
        count = most_rows(need)
        return not need.rows or (count is not None and len(self.held(tick - need.ticks)) >= count)

    def held(self, until: int) -> Ticks:
        """Return the ticks of the elements up to `until`, behind those that have been dropped."""
        if self.dropped is None or not self.parts:
            return np.empty(0, np.int64)
        ticks = np.concatenate([part.ts for part in self.parts])
        return ticks[(ticks > self.dropped) & (ticks <= until)]

    def since(self, need: Need, tick: int) -> list[Elements]:
        """Return what `need` names at the instant `tick`, and all elements after it."""
        if not self.parts or need.ticks is None:
            return list(self.parts)
        whole = concat(self.parts)
        begin = tick - need.ticks
        if not self.source.is_stream:
            return [_begun(whole, begin)]
        chosen = whole.ts > begin
        for last in need.rows:
            chosen[_last(whole, np.flatnonzero(whole.ts <= begin), last)] = True
        return [whole.filter(chosen)]


def final_elements(histories: Mapping[str, History], progress: Mapping[str, SourceProgress]) -> Held:
    """Return what is kept of sources and final: behind what has been dropped, up to their heartbeats."""
    return lambda name: histories[name].held(progress[name].heartbeat(histories[name].source.slack))


def folded(source: Source, updates: Elements, tick: int) -> Elements:
    """Return the updates of a relation without those up to `tick` that its content at `tick` does not show. Of a NON
    RETROACTIVE relation the last pair of updates of each deleted key remains, since the key may not come again."""
    past = np.flatnonzero(updates.ts <= tick)
    if not source.loses_rows or not len(past):
        return updates
    past = past[np.argsort(updates.ts[past], kind="stable")]
    value_columns = (i for i in range(len(updates.columns)) if i not in (source.timestamp, source.operation))
    key = [updates.columns[i].take(pa.array(past)) for i in source.primary_key or value_columns]
    rule, once = update_rule(source)
    signs = updates.signs[past]
    ended_by, applied = paired_updates(key, signs, rule, once)
    stays = applied & (signs > 0) & (ended_by < 0)
    if once:
        # Such a key is deleted once.
        ended = np.flatnonzero(ended_by >= 0)
        stays[ended] = stays[ended_by[ended]] = True
    later = np.flatnonzero(updates.ts > tick)
    return updates.take(np.sort(np.concatenate([past[stays], later])))


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
        return backwards[: last.kept(len(backwards))]
    positions = pa.array(backwards)
    first, second = fingerprints([elements.columns[i].take(positions) for i in last.partition], len(backwards))
    _, partition = np.unique(np.rec.fromarrays([first, second]), return_inverse=True)
    order = np.argsort(partition, kind="stable")
    starts = (
        np.concatenate([[0], np.flatnonzero(np.diff(partition[order])) + 1]) if len(order) else np.zeros(0, np.int64)
    )
    sizes = np.diff(np.append(starts, len(order)))
    kept_counts = np.array([last.kept(size) for size in sizes.tolist()], np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    return backwards[order[rank < np.repeat(kept_counts, sizes)]]
