"""RSTREAM: all of R(τ) at every evaluation instant (LANGUAGE 4.3).

Instants are the slide boundaries, all ticks (for relations that live only at arrivals), or a set told by further ports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, round_up
from penstock.physical.kernels import repeat
from penstock.physical.operators.changes import in_order, net
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.plan import RStreamSpec, StreamMode
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.held import Held
from penstock.physical.synopses.runs import cancel
from penstock.types import END


class RStream(Operator):
    """State: the elements that live on, and those ahead of the heartbeat; for mode `instants` the arrivals ahead."""

    def __init__(self, spec: RStreamSpec) -> None:
        self._spec = spec
        self._early = Early()
        self._arrivals = Early()
        self._held = Held()
        self._done: int | None = None

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "arrivals": self._arrivals.queue, "live": self._held}

    def marks(self) -> dict[str, Any]:
        return {"done": self._done}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        self._done = marks["done"]

    def process(self, port: int, elements: Elements) -> list[Elements]:
        (self._early if port == 0 else self._arrivals).add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        since = moment.start if self._done is None else self._done + 1
        if since is None or since > moment.heartbeat:
            self._early.hold()
            self._arrivals.hold()
            return []
        begins = self._done is None
        self._done = moment.heartbeat
        parts = [e for e in (self._held.elements, self._early.until(moment.heartbeat)) if e is not None and len(e)]
        relation = cancel(concat(parts)) if parts else None
        result = self._evaluate(relation, since, moment.heartbeat, begins)
        if relation is not None:
            # What ends with the next instant is kept where its end may be an instant of its own.
            kept = moment.heartbeat + (self._spec.mode is not StreamMode.INSTANTS)
            self._held.replace(relation.filter(relation.exp > kept))
        return result

    def _evaluate(self, relation: Elements | None, since: int, until: int, begins: bool) -> list[Elements]:
        spec = self._spec
        arrivals = self._arrivals.until(until) if spec.mode is StreamMode.INSTANTS else None
        if relation is None:
            return []
        low, high = np.maximum(relation.ts, since), np.minimum(relation.exp, until + 1)
        if spec.mode is StreamMode.INSTANTS:
            instants = self._instants(relation, arrivals, since, until, begins and not spec.begins)
            begin = np.searchsorted(instants, low)
            rows, offset = repeat(np.searchsorted(instants, high) - begin)
            return self._told(relation, rows, instants[begin[rows] + offset])
        step = spec.slide if spec.mode is StreamMode.BOUNDARIES else 1
        align = spec.align if spec.mode is StreamMode.BOUNDARIES else 0
        begin = round_up(low, step, align)
        if step == 1 and bool(np.all(high - low == 1)):
            return self._at_instants(relation, low)  # each lives for an instant: what is told is what there is
        rows, offset = repeat(-((begin - high) // step))
        return self._told(relation, rows, begin[rows] + step * offset)

    def _instants(
        self, relation: Elements, arrivals: Elements | None, since: int, until: int, begins: bool
    ) -> Int64s:  # fmt: skip
        """Arrivals, and every instant at which the relation as a bag changes. begins: at `since` it does not change,
        it begins."""
        signs = relation.signs
        ends = relation.exp < END
        # What was held before came before; in the first evaluation, what holds from the start comes at the start.
        old = relation.ts < since if self._held.elements is not None else np.zeros(len(relation), np.bool_)
        events = Elements(
            tuple(pa.concat_arrays([c, c.filter(pa.array(ends))]) for c in relation.columns),
            np.concatenate([np.maximum(relation.ts, since), relation.exp[ends]]),
            np.full(len(relation) + int(ends.sum()), END),
            np.concatenate([np.where(old, 0, signs), -signs[ends]]),
        )
        changed = net(events.filter(events.signs != 0)).ts
        changed = changed[changed > since] if begins else changed
        changed = changed if self._spec.changes else changed[:0]
        every = [changed] if arrivals is None else [changed, arrivals.ts]
        instants = np.unique(np.concatenate(every))
        return instants[(instants >= since) & (instants <= until)]

    def _told(self, relation: Elements, rows: Int64s, ts: Int64s) -> list[Elements]:
        if not len(rows):
            return []
        return self._at_instants(relation.take(rows), ts)

    def _at_instants(self, told: Elements, ts: Int64s) -> list[Elements]:
        """`told`, a row for each of the instants `ts`."""
        told = Elements(told.columns, ts, np.full(len(ts), END, np.int64), told.sign)
        if self._spec.strict:
            told = net(told)
        return [in_order(told)] if len(told) else []
