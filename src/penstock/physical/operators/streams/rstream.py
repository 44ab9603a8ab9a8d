"""RSTREAM: all of R(τ) at every evaluation instant [semantics 4.3].

Instants are the slide boundaries, all ticks (for relations that are non-empty only at arrivals), or the arrivals at
further ports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels import boundary_pieces as spans
from penstock.physical.kernels.boundary_pieces import pieces, spread
from penstock.physical.kernels.ticks import boundary_number
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.streams.changes import in_order, net
from penstock.physical.plan.streams import RStreamSpec, StreamMode
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.sorted_runs import cancel
from penstock.physical.synopses.tables.materialized import MaterializedElements
from penstock.storage.documents import Document, optional_integer
from penstock.types import END


class RStream(Operator):
    """State: the live elements, and those ahead of the heartbeat; for mode `instants` also the arrivals ahead of it."""

    def __init__(self, spec: RStreamSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()
        self._arrivals = ReorderBuffer()
        self._held = MaterializedElements()
        self._done: int | None = None

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "arrivals": self._arrivals.queue, "live": self._held}

    def marks(self) -> Document:
        return {"done": self._done}

    def restore_marks(self, marks: Document) -> None:
        self._done = optional_integer(marks, "done")

    def process(self, port: int, elements: Elements) -> list[Elements]:
        (self._early if port == 0 else self._arrivals).add(elements)
        return []

    def portion(self, moment: Moment, rows: int) -> int:
        since = moment.start if self._done is None else self._done + 1
        heartbeat = moment.heartbeat
        if since is None or since > heartbeat:
            return heartbeat
        arrived = self._early.until(heartbeat)
        parts = [e for e in (self._held.elements, arrived) if e is not None and len(e)]
        if not parts:
            return heartbeat
        relation = concat(parts)
        if arrived is not None:
            relation = cancel(relation)
            self._held.replace(relation)
        spec = self._spec
        low, high = np.maximum(relation.ts, since), np.minimum(relation.exp, heartbeat + 1)
        if spec.mode is StreamMode.INSTANTS:
            arrivals = self._arrivals.until(heartbeat)
            if arrivals is not None:
                self._arrivals.add(arrivals)
            instants = self._instants(relation, arrivals, since, heartbeat, self._done is None)
            first, stop = np.searchsorted(instants, low), np.searchsorted(instants, high)
        else:
            step, align = (spec.slide, spec.align) if spec.mode is StreamMode.BOUNDARIES else (1, 0)
            first, stop = boundary_number(low, step, align), boundary_number(high, step, align)
        end = next(pieces(first, stop, rows), (0, None))[1]
        if end is None or end >= stop.max():
            return heartbeat
        # Until just before the first instant that is left over.
        return int(instants[end] if spec.mode is StreamMode.INSTANTS else align + step * end) - 1

    def advance(self, moment: Moment) -> Iterator[Elements]:
        yield from self._advance(moment)
        if moment.open and not self._spec.waits and moment.start is not None and moment.frontier >= moment.start:
            yield from self._at_frontier(moment.frontier)

    def _at_frontier(self, frontier: int) -> list[Elements]:
        """Emit the elements valid at the frontier only. Each is emitted once; elements of the frontier that arrive
        later are emitted in addition."""
        ready = self._early.until(frontier)
        if ready is None:
            return []
        alone = (ready.ts == frontier) & (ready.exp == frontier + 1)
        self._early.add(ready.filter(~alone))
        self._early.hold()
        emitted = ready.filter(alone)
        return self._at_instants(emitted, emitted.ts) if len(emitted) else []

    def _advance(self, moment: Moment) -> Iterator[Elements]:
        since = moment.start if self._done is None else self._done + 1
        if since is None or since > moment.heartbeat:
            self._early.hold()
            self._arrivals.hold()
            return
        begins = self._done is None
        self._done = moment.heartbeat
        parts = [e for e in (self._held.elements, self._early.until(moment.heartbeat)) if e is not None and len(e)]
        relation = cancel(concat(parts)) if parts else None
        yield from self._evaluate(relation, since, moment.heartbeat, begins)
        if relation is not None:
            # Elements that expire at the next instant are kept if their expiration may be an evaluation instant.
            kept = moment.heartbeat + (self._spec.mode is not StreamMode.INSTANTS)
            self._held.replace(relation.filter(relation.exp > kept))

    def _evaluate(self, relation: Elements | None, since: int, until: int, begins: bool) -> Iterator[Elements]:
        """Emit R(τ) at the instants from `since` to `until`, ordered by instant, in batches."""
        spec = self._spec
        arrivals = self._arrivals.until(until) if spec.mode is StreamMode.INSTANTS else None
        if relation is None:
            return
        ahead = relation.ts > until
        relation = relation.filter(~ahead) if ahead.any() else relation
        low, high = np.maximum(relation.ts, since), np.minimum(relation.exp, until + 1)
        if spec.mode is StreamMode.INSTANTS:
            instants = self._instants(relation, arrivals, since, until, begins)
            first, stop = np.searchsorted(instants, low), np.searchsorted(instants, high)
            for begin, end in pieces(first, stop, spans.PIECE):
                rows, boundaries = spread(first, stop, begin, end)
                yield from self._emit(relation, rows, instants[boundaries])
            return
        step = spec.slide if spec.mode is StreamMode.BOUNDARIES else 1
        align = spec.align if spec.mode is StreamMode.BOUNDARIES else 0
        if step == 1 and bool(np.all(high - low == 1)):
            yield from self._at_instants(relation, low)  # each element is valid at one instant: emit it as it is
            return
        first, stop = boundary_number(low, step, align), boundary_number(high, step, align)
        for begin, end in pieces(first, stop, spans.PIECE):
            rows, numbers = spread(first, stop, begin, end)
            yield from self._emit(relation, rows, align + step * numbers)

    def _instants(self, relation: Elements, arrivals: Elements | None, since: int, until: int, begins: bool) -> Int64s:
        """Return the arrivals, and every instant at which the relation as a bag changes. begins: `since` is the first
        instant, which counts as a change only under `spec.begins`."""
        signs = relation.signs
        ends = relation.exp < END
        # In the first evaluation, elements valid from before `since` are inserted at `since`; later ones were inserted
        # before it.
        known = not begins and self._held.elements is not None
        old = relation.ts < since if known else np.zeros(len(relation), np.bool_)
        events = Elements(
            tuple(pa.concat_arrays([c, c.filter(pa.array(ends))]) for c in relation.columns),
            np.concatenate([np.maximum(relation.ts, since), relation.exp[ends]]),
            np.full(len(relation) + int(ends.sum()), END),
            np.concatenate([np.where(old, 0, signs), -signs[ends]]),
        )
        changed = net(events.filter(events.signs != 0)).ts
        changed = changed[changed > since] if begins and not self._spec.begins else changed
        changed = changed if self._spec.changes else changed[:0]
        every = [changed] if arrivals is None else [changed, arrivals.ts]
        instants = np.unique(np.concatenate(every))
        return instants[(instants >= since) & (instants <= until)]

    def _emit(self, relation: Elements, rows: Int64s, ts: Int64s) -> list[Elements]:
        if not len(rows):
            return []
        return self._at_instants(relation.take(rows), ts)

    def _at_instants(self, elements: Elements, ts: Int64s) -> list[Elements]:
        """Return `elements` with the instants `ts`, one per row, as their ts."""
        emitted = Elements(elements.columns, ts, np.full(len(ts), END, np.int64), elements.sign)
        if self._spec.strict and emitted.sign is not None and bool((emitted.sign < 0).any()):
            # Where nothing is retracted, netting would only count equal rows together.
            emitted = net(emitted)
        return [in_order(emitted)] if len(emitted) else []
