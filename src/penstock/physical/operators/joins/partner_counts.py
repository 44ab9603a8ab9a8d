"""Which tuples have a partner: what anti-joins, marks and outer joins need beyond the pairs of a join.

`PartnerCounts` receives every tuple, and the same tuple once per partner. Equal tuples have the same partners, so two
numbers per distinct tuple suffice: the live copies, and the pairs. Copies without pairs have no partner. As in a
grouped aggregate the numbers change at the ends of validity intervals; between two changes one element is emitted, the
last one of a round without expiration. `StaticPartnerCounts` probes a static relation and has no state.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.errors import PenstockError
from penstock.expressions.evaluation.evaluate import mask
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.compiled import argsort_code_time, distinct_slots, group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.joins.growth import account
from penstock.physical.operators.joins.join import PROBES_AT_ONCE, StaticRows
from penstock.physical.operators.sets.tuple_counts import CountedOperator, TupleEvents
from penstock.physical.plan.joins.ranges import spans
from penstock.physical.plan.joins.specs import Keep, PartnerCountsSpec, StaticPartnerCountsSpec
from penstock.types import END


@loop
def _sweep(
    slots: Int64s,
    times: Int64s,
    ports: Int64s,
    weights: Int64s,
    order: Int64s,
    state: Int64s,
    out_event: Int64s,
    out_copies: Int64s,
    out_pairs: Int64s,
) -> int:
    """Apply events, sorted by (slot, time), to state[port, slot]; one output per (slot, time): an event of it,
    and the copies and pairs from then on. Return the number of outputs."""
    n = order.shape[0]
    i = 0
    k = 0
    while i < n:
        event = order[i]
        slot, time = slots[event], times[event]
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            event = order[i]
            state[ports[event], slot] += weights[event]
            i += 1
        out_event[k] = event
        out_copies[k], out_pairs[k] = state[0, slot], state[1, slot]
        k += 1
    return k


class PartnerCounts(CountedOperator):
    """State: per tuple, integer lanes [copies, pairs]; pending expirations; elements ahead of the heartbeat."""

    def __init__(self, spec: PartnerCountsSpec) -> None:
        super().__init__(spec.types, 2, ports=2, listed=spec.listed)
        self._spec = spec

    def advance(self, moment: Moment) -> list[Elements]:
        events = self._counted.events(moment.heartbeat)
        if events is None:
            return []
        result = self._changes(events, moment)
        self._counted.tuples.shrink()
        return result

    def _changes(self, events: TupleEvents, moment: Moment) -> list[Elements]:
        tuples = self._counted.tuples
        touched = distinct_slots(events.slots, tuples.count)
        old_copies, old_pairs = tuples.integers[:, touched]
        order = argsort_code_time(events.slots, events.times)
        event, copies, pairs = (np.empty(len(order), np.int64) for _ in range(3))
        event_columns = (events.slots, events.times, events.ports, events.weights)
        count = int(_sweep(*event_columns, order, tuples.integers, event, copies, pairs))
        tuples.touch(touched)
        event, copies, pairs = event[:count], copies[:count], pairs[:count]
        slots, times = events.slots[event], events.times[event]
        if self._spec.single:
            since = times if moment.start is None else np.maximum(times, moment.start)
            _check_single(self._spec, pairs > copies, since, pairs, copies)
        index = np.searchsorted(touched, slots)
        result: list[Elements] = []
        for matched in (False, True) if self._spec.keep is Keep.MARKED else (False,):
            now = np.where((pairs > 0) == matched, copies, 0)
            old = np.where((old_pairs > 0) == matched, old_copies, 0)[index]
            for emitted in self._emit(slots, times, now, old):
                if self._spec.keep is Keep.MARKED:
                    emitted = emitted.with_columns([*emitted.columns, pa.repeat(pa.scalar(matched), len(emitted))])
                result.append(emitted)
        return result

    def _emit(self, slots: Int64s, times: Int64s, now: Int64s, old: Int64s) -> list[Elements]:
        """Return elements for intervals of equal multiplicity, by (slot, time); old: the multiplicity emitted for the
        slot in earlier rounds."""
        leads = np.concatenate([[True], slots[1:] != slots[:-1]])
        before = np.where(leads, old, np.concatenate([[0], now[:-1]]))
        chosen = np.flatnonzero(now != before)
        if not len(chosen):
            return []
        slots, times, now, old = slots[chosen], times[chosen], now[chosen], old[chosen]
        same = slots[1:] == slots[:-1]
        ends = np.concatenate([np.where(same, times[1:], END), [END]])
        shown = np.flatnonzero(now)
        taken = np.flatnonzero(np.concatenate([[True], ~same]) & (old != 0))
        rows = np.concatenate([shown, taken])
        columns = tuple(self._counted.tuples.key_columns(slots[rows]))
        until = np.concatenate([ends[shown], np.full(len(taken), END)])
        return [Elements(columns, times[rows], until, np.concatenate([now[shown], -old[taken]]))]


class StaticPartnerCounts(Operator):
    """The same for a static relation held in memory. Pairs are formed in pieces, and only of tuples for which what the
    condition requires of them alone is TRUE; where a partner is anything with the same key, one row of each key is
    held."""

    def __init__(self, spec: StaticPartnerCountsSpec, table: Elements) -> None:
        self._spec = spec
        self._span, table_span = spans(spec.ranges)
        if spec.residual is None and not spec.single and spec.keep is not Keep.PADDED:
            table = _one_of_each(table, spec.table_key)
        self._rows = StaticRows(table, spec.table_key, table_span)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        result: list[Elements] = []
        for start in range(0, len(elements), PROBES_AT_ONCE):
            result += self._matched(elements.slice(start, min(start + PROBES_AT_ONCE, len(elements))))
        return result

    def _matched(self, elements: Elements) -> list[Elements]:
        spec = self._spec
        parts: list[Elements] = []
        counts = np.zeros(len(elements), np.int64)
        for rows, partners in self._pairs(elements):
            counts += np.bincount(rows, minlength=len(elements))
            if spec.keep is Keep.PADDED:
                pairs = elements.take(rows)
                parts.append(pairs.with_columns([*pairs.columns, *partners.columns]))
                account(parts[-1])
        if spec.single:
            _check_single(spec, counts > 1, elements.ts, counts, np.ones_like(counts))
        matched = counts > 0
        if spec.keep is Keep.MARKED:
            return [elements.with_columns([*elements.columns, pa.array(matched)])]
        if spec.keep is Keep.PADDED:
            lone = elements.filter(~matched)
            parts.append(lone.with_columns([*lone.columns, *(pa.nulls(len(lone), t) for t in spec.table_types)]))
        else:
            parts.append(elements.filter(matched == (spec.keep is Keep.MATCHED)))
        return [part for part in parts if len(part)]

    def _pairs(self, elements: Elements) -> Iterator[tuple[Int64s, Elements]]:
        """Yield (rows that have a partner, once per partner; the partners), in pieces."""
        spec, probing = self._spec, elements
        kept = np.arange(len(elements))
        if spec.alone is not None:
            kept = np.flatnonzero(mask(spec.alone, elements.columns, len(elements)))
            probing = elements.take(kept)
        for stored, probe, matching in self._rows.partners(probing, spec.key, self._span):
            other = stored.take(matching)
            if spec.residual is not None:
                agree = mask(spec.residual, (*probing.take(probe).columns, *other.columns), len(probe))
                probe, other = probe[agree], other.filter(agree)
            yield kept[probe], other


def _one_of_each(table: Elements, key: tuple[int, ...]) -> Elements:
    """Return a row of each key."""
    _, heads = group_codes(*fingerprints([table.columns[i] for i in key], len(table)))
    return table.take(heads)


def _check_single(
    spec: PartnerCountsSpec | StaticPartnerCountsSpec, wrong: Bools, times: Int64s, pairs: Int64s, copies: Int64s
) -> None:
    """Check that every tuple has at most one partner.

    Raises:
        PenstockError: P0612, for the first instant at which a tuple has more than one."""
    if wrong.any():
        first = np.flatnonzero(wrong)[np.argmin(times[wrong])]
        most, when = int(pairs[first] // copies[first]), spec.domain.show(int(times[first]))
        hint = "MAX or another aggregate makes one of them, IN (SELECT ..) takes any of them"
        raise PenstockError("P0612", f"{spec.single} has {most} rows at {when} where one is needed", hint=hint)
