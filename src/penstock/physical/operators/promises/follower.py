"""The promises that an operator follows: thin rows of declared streams in, closings of values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from penstock.algebra.properties.promises import Clustered, Ordered, Punctuated
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.plan.promises.closings import ClosingBase, ClosingSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import ClusteredIndex, OrderedIndex, can_close, closing_index
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.physical.synopses.promises.punctuated_index import PunctuatedIndex

_NONE = np.empty(0, np.int64)
NO_ROWS: Mapping[int, Elements | None] = MappingProxyType({})


class FollowedPromise:
    """A promise with an index a base. It answers for instants of the round that has been advanced to.

    Args:
        closing: of a promise that closes values.
    """

    def __init__(self, closing: ClosingSpec) -> None:
        self.bases, self.text = closing.bases, closing.text
        self.indexes = [_index(base) for base in closing.bases]

    def until(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first closing of values from `ts` on, in every branch; END where it is not known yet."""
        return reduce(np.maximum, [index.until(columns, ts) for index in self.indexes])

    def can_close(self, columns: Sequence[pa.Array], length: int) -> Bools:
        """Return which values may be closed ever: none with a NULL or NaN, but by punctuations of other columns."""
        if isinstance(self.bases[0].promise, Punctuated):
            return np.ones(length, np.bool_)
        return can_close(columns, length)

    def since(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return a number for the time in which values are open at `ts`: the same for two instants between which the
        value is not closed, and another one after each closing."""
        # Until it is closed in every branch, one of them has BEGIN.
        return reduce(np.minimum, [index.since(columns, ts) for index in self.indexes])


def _index(base: ClosingBase) -> ClusteredIndex | OrderedIndex | PunctuatedIndex:
    promise = base.promise
    if isinstance(promise, Punctuated):
        return PunctuatedIndex(promise)
    assert isinstance(promise, Clustered | Ordered), "a reference closes no value"
    return closing_index(promise, base.types)


class ClosingFollower:
    """The promises of an operator, in one shard.

    State: an index a promise and base, N of every stream that is counted, thin rows and counts ahead of the heartbeat.

    Args:
        rows: how many of the first ports of the operator have rows of its own, which it passes on in `advance`.
    """

    def __init__(self, closings: Sequence[ClosingSpec], rows: int = 0) -> None:
        self.promises = [FollowedPromise(one) for one in closings]
        for one in self.promises:
            for index in one.indexes:
                if isinstance(index, ClusteredIndex):
                    index.closed = {one.text: 0}
        bases = [base for one in closings for base in one.bases]
        self._counts = {base.counts: ElementCounts() for base in bases if base.counts is not None}
        self._values = {base.values for base in bases if base.values is not None}
        thin = (port for port in sorted(self._values | self._counts.keys()) if port >= rows)
        self._early = {port: ReorderBuffer() for port in thin}

    def synopses(self) -> Mapping[str, Synopsis]:
        """Return the state, by names that are unique in the operator."""
        found: dict[str, Synopsis] = {f"thin{port}": buffer.queue for port, buffer in self._early.items()}
        found |= {f"count{port}": counts for port, counts in self._counts.items()}
        for number, one in enumerate(self.promises):
            found |= {f"closings{number}_{i}": index for i, index in enumerate(one.indexes)}
        return found

    def process(self, port: int, elements: Elements) -> None:
        """Accept thin rows or counts at a port of the operator; those of other ports are left out."""
        if port in self._early:
            self._early[port].add(elements)

    def advance(self, heartbeat: int, own: Mapping[int, Elements | None] = NO_ROWS) -> None:
        """Find the closings up to `heartbeat`. own: by port, rows of the operator up to there."""
        arrived = {**own, **{port: buffer.until(heartbeat) for port, buffer in self._early.items()}}
        times = {port: _NONE if rows is None else rows.ts for port, rows in arrived.items()}
        for port, counts in self._counts.items():
            if port in self._values:
                counts.advance(times[port])
            else:
                counts.take(arrived[port])
        unread = ElementCounts()
        for one in self.promises:
            for base, index in zip(one.bases, one.indexes, strict=True):
                assert base.values is not None, "values are closed by rows of their stream"
                rows = arrived[base.values]
                if rows is None:
                    columns = [pa.array([], kind) for kind in base.types]
                else:
                    columns = [rows.columns[place] for place in base.places]
                counts = unread if base.counts is None else self._counts[base.counts]
                index.advance(heartbeat, columns, times[base.values], counts)
                if isinstance(index, ClusteredIndex):
                    index.closed = {one.text: index.closed[one.text] + index.closings_of_round}
