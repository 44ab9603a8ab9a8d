"""Relation to stream: ISTREAM, DSTREAM and all changes, netted per instant [semantics 4.3, 4.4].

The output's ts is the instant of the change; its sign is positive for insertions and negative for deletions, and its
size is the number of copies.

ISTREAM of a relation without negative tuples does not wait for an instant to be complete. The deletions at the frontier
are known by then, and a further copy inserted there is either emitted as well or cancels one of those deletions: the
deletions that are not cancelled yet are kept for the next round.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, starmap
from operator import le

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.r2s import StreamKind
from penstock.physical.elements import Bools, Elements, Int64s, concat, int64s, unnamed
from penstock.physical.kernels.compiled import (
    argsort_code_time,
    argsort_time,
    group_codes,
    in_time,
    sum_by_code,
    with_time,
)
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import JointAdvance, Moment
from penstock.physical.operators.base.owned_rows import OwnedRows
from penstock.physical.operators.base.reorder_buffer import JointInput, ReorderBuffer, ReorderingOperator
from penstock.physical.plan.streams import ChangesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import make_queue
from penstock.types import END

#: Up to this many rows it is cheaper to look whether they are in order than to sort them.
_FEW = 64


class Changes(ReorderingOperator):
    """State: elements ahead of the heartbeat, and the tuples with a pending deletion (which is emitted or, for ISTREAM,
    netted against an insertion)."""

    def __init__(self, spec: ChangesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        self._live = make_queue(spec.fifo, spec.listed)
        self._needs_ends = not (spec.netted and spec.kind is StreamKind.ISTREAM)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "live": self._live}

    def advance(self, moment: Moment) -> list[Elements]:
        until = moment.heartbeat if self._spec.waits else moment.frontier
        if moment.start is None or until < moment.start:
            self._early.hold()
            return []
        parts = [_pending_deletions(batch) for batch in self._live.pop_until(until)]
        arrived = self._early.until(until)
        at_start = arrived is not None and bool((arrived.ts < moment.start).any())
        if arrived is not None:
            arrived = from_start(arrived, moment.start)
            parts.append(_with_ts_and_sign(arrived, arrived.ts, arrived.signs))
            if self._needs_ends:
                parts += self._ends(arrived, until)
        if not parts:
            return []
        events = concat(parts)
        if at_start or not self._spec.netted:
            events = net(events)
        if until > moment.heartbeat:
            self._early.add(events.filter((events.ts == until) & (events.signs < 0)))
            self._early.hold()
        return of_kind(events, self._spec.kind)

    def joint_key(self) -> Hashable | None:
        # Where tuples end by themselves their ends are to be kept.
        spec = self._spec
        return (spec.kind, spec.types, spec.netted, spec.fifo) if spec.taken_back and spec.waits else None

    @staticmethod
    def advance_jointly(operators: Sequence[Changes], moments: Sequence[Moment]) -> JointAdvance:
        """Net the changes of several queries at once."""
        spec, heartbeat = operators[0]._spec, moments[0].heartbeat
        begun = {i: at.start for i, at in enumerate(moments) if at.start is not None and at.start <= heartbeat}
        which = [i for i in begun if not operators[i]._live.rows]
        starts = np.array([begun.get(i, 0) for i in range(len(operators))], np.int64)
        came = JointInput(which, [one._early for one in operators], heartbeat)
        emitted: list[Elements] = []
        if came.due is not None:
            events = came.due
            if bool((events.rows.exp < END).any()):
                return JointAdvance({}, lambda: None)
            rows, start = events.rows, starts[events.owners]
            if not spec.netted or bool((rows.ts < start).any()):
                events = _jointly_netted(OwnedRows(replace(rows, ts=np.maximum(rows.ts, start)), events.owners))
            emitted = _jointly_of_kind(events, spec.kind).split(len(operators))
        made = {i: [rows] for i, rows in enumerate(emitted) if len(rows)}
        return JointAdvance({i: [] for i in which} | made, came.accept)

    def _ends(self, arrived: Elements, until: int) -> list[Elements]:
        expired = arrived.exp <= until
        later = ~expired & (arrived.exp < END)
        if later.any():
            kept = arrived.filter(later)
            rows = [pa.array(kept.exp), pa.array(kept.signs), *kept.columns]
            self._live.push(unnamed(rows))
        ended = arrived.filter(expired)
        return [_with_ts_and_sign(ended, ended.exp, -ended.signs)] if len(ended) else []


def of_kind(events: Elements, kind: StreamKind | None) -> list[Elements]:
    """Return the part of netted `events` that ISTREAM, DSTREAM or (None) all changes emit, in order."""
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
    """Cut `elements` at `start`, where time begins: an earlier ts becomes `start`, and elements that ended by then are
    dropped."""
    clipped = Elements(elements.columns, np.maximum(elements.ts, start), elements.exp, elements.sign)
    return clipped.filter(clipped.ts < clipped.exp)


def net(events: Elements) -> Elements:
    """Return one event per (tuple, instant) with the sum of the signs; none where it is 0."""
    first, second = fingerprints(events.columns, len(events))
    codes, heads = group_codes(*with_time(first, second, events.ts))
    sums = sum_by_code(codes, events.signs, len(heads))
    kept = sums != 0
    chosen = heads[kept]
    result = events.take(chosen)
    return Elements(result.columns, result.ts, result.exp, sums[kept])


def _jointly_netted(events: OwnedRows) -> OwnedRows:
    """Do the same as `net` for each of several queries."""
    rows = events.rows
    first, second = events.fingerprints(range(len(rows.columns)))
    codes, heads = group_codes(*with_time(first, second, rows.ts))
    sums = sum_by_code(codes, rows.signs, len(heads))
    kept = np.flatnonzero(sums)
    chosen = events.take(heads[kept])
    return OwnedRows(replace(chosen.rows, sign=sums[kept]), chosen.owners)


def _jointly_of_kind(events: OwnedRows, kind: StreamKind | None) -> OwnedRows:
    """Do the same as `of_kind` for each of several queries, in order of these."""
    signs = events.rows.signs
    if kind is not None:
        events = events.take(np.flatnonzero(signs > 0 if kind is StreamKind.ISTREAM else signs < 0))
        events = OwnedRows(replace(events.rows, sign=np.abs(events.rows.signs)), events.owners)
    rows = events.rows
    comes = rows.signs > 0
    both = np.concatenate([np.flatnonzero(~comes), np.flatnonzero(comes)])
    sorted_ = events.take(both[argsort_code_time(events.owners[both], rows.ts[both])])
    return OwnedRows(replace(sorted_.rows, sign=sorted_.rows.signs), sorted_.owners)


def in_order(events: Elements) -> Elements:
    """Sort by instant, deletions before insertions; otherwise keep the order."""
    comes = events.signs > 0
    if len(events) <= _FEW and all(starmap(le, pairwise(zip(events.ts.tolist(), comes.tolist(), strict=True)))):
        return events
    if comes.all():
        if in_time(events.ts):
            return events
        order = argsort_time(events.ts)
    elif in_time(events.ts) and not ((events.ts[1:] == events.ts[:-1]) & comes[:-1] & ~comes[1:]).any():
        return events
    else:
        goings, comings = np.flatnonzero(~comes), np.flatnonzero(comes)
        both = np.concatenate([goings, comings])
        order = both[argsort_time(events.ts[both])]
    return events.take(order)


def _pending_deletions(batch: pa.RecordBatch) -> Elements:
    arrays = batch.columns
    due = int64s(arrays[0])
    return Elements(tuple(arrays[2:]), due, np.full(len(due), END), -int64s(arrays[1]))


def _with_ts_and_sign(elements: Elements, ts: Int64s, sign: Int64s) -> Elements:
    return Elements(elements.columns, ts, np.full(len(ts), END), sign)
