"""Relation to stream: ISTREAM, DSTREAM and all changes, netted per instant (LANGUAGE 4.3, 4.4).

The output's ts is the instant of the change and its sign says whether tuples come (+) or go (-), and how many.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.algebra.r2s import StreamKind
from penstock.physical.elements import Bools, Elements, Int64s, concat, int64s, unnamed
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import argsort_time, group_codes, in_time, sum_by_code, with_time
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.pending import Early, EarlyOperator
from penstock.physical.plan import ChangesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues import make_queue
from penstock.types import END


class Changes(EarlyOperator):
    """State: elements ahead of the heartbeat, and the tuples whose going is still to be told (or, for ISTREAM, to be
    set against a coming)."""

    def __init__(self, spec: ChangesSpec) -> None:
        super().__init__(Early())
        self._spec = spec
        self._live = make_queue(spec.fifo, spec.listed)
        self._needs_ends = not (spec.netted and spec.kind is StreamKind.ISTREAM)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "live": self._live}

    def advance(self, moment: Moment) -> list[Elements]:
        if moment.start is None or moment.heartbeat < moment.start:
            self._early.hold()
            return []
        parts = [_goings(batch) for batch in self._live.pop_until(moment.heartbeat)]
        arrived = self._early.until(moment.heartbeat)
        at_start = arrived is not None and bool((arrived.ts < moment.start).any())
        if arrived is not None:
            arrived = from_start(arrived, moment.start)
            parts.append(_told_at(arrived, arrived.ts, arrived.signs))
            if self._needs_ends:
                parts += self._ends(arrived, moment.heartbeat)
        if not parts:
            return []
        events = concat(parts)
        if at_start or not self._spec.netted:
            events = net(events)
        return wanted(events, self._spec.kind)

    def _ends(self, arrived: Elements, heartbeat: int) -> list[Elements]:
        gone = arrived.exp <= heartbeat
        later = ~gone & (arrived.exp < END)
        if later.any():
            kept = arrived.filter(later)
            rows = [pa.array(kept.exp), pa.array(kept.signs), *kept.columns]
            self._live.push(unnamed(rows))
        ended = arrived.filter(gone)
        return [_told_at(ended, ended.exp, -ended.signs)] if len(ended) else []


def wanted(events: Elements, kind: StreamKind | None) -> list[Elements]:
    """What ISTREAM, DSTREAM or (None) all changes tell of netted `events`, in order."""
    signs = events.signs
    keep: Bools
    if kind is StreamKind.ISTREAM:
        keep = signs > 0
    elif kind is StreamKind.DSTREAM:
        keep = signs < 0
    else:
        keep = signs != 0
    chosen = events.filter(keep)
    if not len(chosen):
        return []
    if kind is not None:
        chosen = Elements(chosen.columns, chosen.ts, chosen.exp, np.abs(chosen.signs))
    return [in_order(chosen)]


def from_start(elements: Elements, start: int) -> Elements:
    """Time begins at `start`: what holds from before comes there, what has ended by then never was."""
    clipped = Elements(elements.columns, np.maximum(elements.ts, start), elements.exp, elements.sign)
    return clipped.filter(clipped.ts < clipped.exp)


def net(events: Elements) -> Elements:
    """One event per (tuple, instant) with the sum of the signs; none where it is 0."""
    first, second = fingerprints(events.columns, len(events))
    codes, heads = group_codes(*with_time(first, second, events.ts))
    sums = sum_by_code(codes, events.signs, len(heads))
    kept = sums != 0
    chosen = heads[kept]
    result = events.take(chosen)
    return Elements(result.columns, result.ts, result.exp, sums[kept])


def in_order(events: Elements) -> Elements:
    """By instant, goings before comings; otherwise in the order they have."""
    comes = events.signs > 0
    if comes.all():
        if in_time(events.ts):
            return events
        order = argsort_time(events.ts)
    else:
        goings, comings = np.flatnonzero(~comes), np.flatnonzero(comes)
        both = np.concatenate([goings, comings])
        order = both[argsort_time(events.ts[both])]
    return events.take(order)


def _goings(batch: pa.RecordBatch) -> Elements:
    arrays = batch.columns
    due = int64s(arrays[0])
    return Elements(tuple(arrays[2:]), due, np.full(len(due), END), -int64s(arrays[1]))


def _told_at(elements: Elements, ts: Int64s, sign: Int64s) -> Elements:
    return Elements(elements.columns, ts, np.full(len(ts), END), sign)
