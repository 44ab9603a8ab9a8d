"""The entries that elements make in one direction: their number ranges, priorities and draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.preference_clause import Preference, PreferenceOrder
from penstock.arrays import Float64s, Int64s, Records
from penstock.compilation import loop
from penstock.expressions.draws import draws, exponential_draws
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.nodes import Expression, with_estimates
from penstock.physical.elements import Bools, Elements
from penstock.physical.synopses.preferences.layout import ENTRY, ONE_UNIT, REST, SPAN_BITS, WHOLE
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.preferences.waiting_entries import NewEntries
from penstock.physical.synopses.summaries.stream_summary import ZoneEstimates


@dataclass(frozen=True)
class MakingElements:
    """Elements of one side that make entries.

    Args:
        elements: in order.
        numbers: their arrival numbers.
        starts: of each, the newest element of the other side before it with an equal key, -1 for none.
        bounds: of each, the number of elements of the other side before it.
        orders: their places among all elements, times two, plus the side; empty where no order is needed.
    """

    elements: Elements
    numbers: Int64s
    starts: Int64s
    bounds: Int64s
    orders: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class _PairZones:
    """The zone of the partner of each pair; in_rest: whether it lies in none."""

    stretch: Int64s
    estimates: Int64s
    sizes: Int64s
    in_rest: Bools


@dataclass(frozen=True)
class Direction:
    """How elements of `side` make entries.

    Args:
        preference: of the query.
        side: 0 for the left input.
        expressions: the P_i over the joined row.
        types: by side, of the columns; none of the other side for a selection.
        summary: whether zones are known.
        single: one entry of one unit per candidate.
        alone: a selection: an entry is one unit, without candidates.
        own_zone: the zone of an entry is the one in which its element lies.
        eager: entries end with the last of their candidates from the beginning.
    """

    preference: Preference
    side: int
    expressions: tuple[Expression, ...]
    types: tuple[tuple[pa.DataType, ...], tuple[pa.DataType, ...]]
    summary: bool
    single: bool
    alone: bool
    own_zone: bool
    eager: bool

    def entries(
        self, made: MakingElements, others: NumberedElements, zones: ZoneEstimates | None, fed_back: Float64s
    ) -> NewEntries:
        """Return the entries of elements, ordered by element.

        Args:
            zones: by element, those with an estimate of at least 1.
            fed_back: of each element, what streams that are joined later multiply its priorities by.
        """
        if self.single:
            return self._single(made, others, zones, fed_back)
        count = len(made.elements)
        every, none = np.arange(count), np.zeros(count, np.int64)
        if zones is None or self.own_zone:
            stretch, estimates, sizes = self._own_zones(made, zones)
            rows = self._rows(made, every, stretch, none, made.bounds)
            self._rank(made, every, fed_back, rows, estimates, sizes, None, every < 0, none - 1)
            return NewEntries(rows)
        zoned = len(zones.event)
        events = np.concatenate([zones.event, every])
        low = np.concatenate([zones.low, none])
        high = np.concatenate([np.minimum(zones.high, made.bounds[zones.event]), made.bounds])
        stretch = np.concatenate([zones.stretch, np.full(count, REST)])
        estimates = np.concatenate([zones.estimate, none])
        sizes = np.concatenate([zones.elements, none])
        rows = self._rows(made, events, stretch, low, high)
        left_out = np.bincount(zones.event, minlength=count)
        first = np.cumsum(left_out) - left_out
        rows["spans"][zoned:] = np.where(left_out > 0, first << SPAN_BITS | left_out, 0)
        if not self.eager:
            newest, ends = high[:zoned] - 1 - others.base, rows["ends"][:zoned]
            ends[:] = np.minimum(ends, np.where(newest >= 0, others.table["exp"][np.maximum(newest, 0)], ends))
        is_rest = stretch == REST
        self._rank(made, events, fed_back, rows, estimates, sizes, None, is_rest, np.where(is_rest, -1, low))
        order = np.argsort(rows["order"], kind="stable")
        return NewEntries(rows.take(order), np.column_stack([zones.low, zones.high]))

    def _own_zones(self, made: MakingElements, zones: ZoneEstimates | None) -> tuple[Int64s, Int64s, Int64s]:
        """Return by element (stretch, estimate, elements) of the zone in which it lies."""
        count = len(made.elements)
        stretch, estimates, sizes = np.full(count, WHOLE), np.zeros(count, np.int64), np.zeros(count, np.int64)
        if zones is not None:
            numbers = made.numbers[zones.event]
            inside = (zones.low <= numbers) & (numbers < zones.high)
            events = zones.event[inside]
            stretch[:] = REST
            stretch[events], estimates[events] = zones.stretch[inside], zones.estimate[inside]
            sizes[events] = zones.elements[inside]
        return stretch, estimates, sizes

    def _single(
        self, made: MakingElements, others: NumberedElements, zones: ZoneEstimates | None, fed_back: Float64s
    ) -> NewEntries:
        which, partners = others.alive_from(made.starts, made.elements.ts)
        none = np.zeros(len(which), np.int64)
        zone = self._zones_of_pairs(made, which, partners, zones)
        rows = self._rows(made, which, zone.stretch, partners, partners + 1)
        rows["cursor"] = partners
        other = others.rows_of(partners) if len(partners) else None
        self._rank(made, which, fed_back, rows, zone.estimates, zone.sizes, other, zone.in_rest, none - 1)
        return NewEntries(rows)

    def _zones_of_pairs(
        self, made: MakingElements, which: Int64s, partners: Int64s, zones: ZoneEstimates | None
    ) -> _PairZones:
        """Return what is known of each pair as an entry: pairs are element `which` of those made and a partner's
        number."""
        none = np.zeros(len(which), np.int64)
        stretch, in_rest = np.full(len(which), WHOLE), np.zeros(len(which), np.bool_)
        if self.own_zone:
            stretch, estimates, sizes = (values[which] for values in self._own_zones(made, zones))
            return _PairZones(stretch, estimates, sizes, in_rest)
        if zones is None:
            return _PairZones(stretch, none, none, in_rest)
        found = zones_of_pairs(which, partners, zones)
        known, estimates, sizes = found >= 0, none, none.copy()
        stretch[:] = REST
        stretch[known] = zones.stretch[found[known]]
        estimates[known] = zones.estimate[found[known]]
        sizes[known] = zones.elements[found[known]]
        return _PairZones(stretch, estimates, sizes, ~known)

    def _rows(self, made: MakingElements, events: Int64s, stretch: Int64s, low: Int64s, high: Int64s) -> Records:
        found = np.zeros(len(events), ENTRY)
        found["x"], found["order"] = made.numbers[events], made.orders[events]
        found["low"], found["high"], found["cursor"] = low, high, made.starts[events]
        found["ends"], found["made"] = made.elements.exp[events], made.elements.ts[events]
        found["stretch"] = stretch
        if self.single or self.alone:
            found["stage"] = ONE_UNIT
        if self.alone:
            found["cursor"] = -1
        return found

    def _rank(
        self,
        made: MakingElements,
        events: Int64s,
        fed_back: Float64s,
        rows: Records,
        estimates: Int64s,
        sizes: Int64s,
        partners: Elements | None,
        rest: Bools,
        zones: Int64s,
    ) -> None:
        """Set what keys are made of. rows: of the entries; sizes: elements of the zones; partners: of entries of one
        candidate each."""
        if not len(events):
            return
        x = made.elements.take(events)
        rows["product"] = self._bases(x, fed_back[events], estimates, sizes, partners, rest)
        rows["cost"] = 1.0 if self.single or self.own_zone or self.alone else 1.0 + estimates
        if self.preference.order is PreferenceOrder.WEIGHTED:
            name = self.preference.salt(self.side)
            at = None if partners is None else np.zeros_like(partners.ts) if self.own_zone else partners.ts
            others = [pa.array(zones)] if partners is None else [pa.array(at), *partners.columns]
            drawn = draws(self.preference.seed, name, np.ascontiguousarray(x.ts), [*x.columns, *others])
            rows["race"] = exponential_draws(drawn) * rows["cost"]
            if self.preference.records:
                rows["whole_cost"], rows["drawn"] = rows["cost"], drawn.view(np.int64)
                rows["since"] = x.ts if partners is None or self.own_zone else partners.ts

    def _bases(
        self, x: Elements, fed_back: Float64s, estimates: Int64s, sizes: Int64s, partners: Elements | None, rest: Bools
    ) -> Float64s:
        """Return the products of the P_i; of entries that ASC puts last, infinity. rest: outside of all zones."""
        found = self._products(x, fed_back, estimates, sizes, partners)
        if self.preference.order is PreferenceOrder.ASC and self.summary:
            found[rest | (estimates < 1) if self.own_zone else rest] = np.inf
        return found

    def _products(
        self, x: Elements, fed_back: Float64s, estimates: Int64s, sizes: Int64s, partners: Elements | None
    ) -> Float64s:
        """Return the products of the P_i and what is fed back; NaN where one is NULL or NaN."""
        count = len(x)
        other_types = self.types[1 - self.side]
        other = [pa.nulls(count, kind) for kind in other_types] if partners is None else list(partners.columns)
        row = [*other, *x.columns] if self.side else [*x.columns, *other]
        return products_of(self.preference, self.expressions, row, estimates, sizes, fed_back)


def products_of(
    preference: Preference,
    expressions: Sequence[Expression],
    row: Sequence[pa.Array],
    estimates: Int64s,
    sizes: Int64s,
    product: Float64s,
) -> Float64s:
    """Return `product` times the P_i over rows; NaN where one is NULL or NaN. sizes: elements that estimates are shares
    of."""
    width, count = len(row), len(estimates)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(sizes > 0, estimates / np.maximum(sizes, 1), 0.0)
    given = [*row, pa.array(estimates), pa.array(shares)]
    never_negative = preference.order is PreferenceOrder.WEIGHTED or preference.fades
    for expression in expressions:
        values = evaluate(with_estimates(expression, width, width + 1), given, count)
        factors = np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        if never_negative:
            factors = np.where(factors < 0, 0.0, factors)
        with np.errstate(over="ignore", invalid="ignore"):
            product = product * factors
    return product


def zones_of_pairs(which: Int64s, partners: Int64s, zones: ZoneEstimates) -> Int64s:
    """Return for each pair the row of `zones` in which its partner lies, -1 for none. which: the elements that asked,
    ascending."""
    found = np.empty(len(which), np.int64)
    _zones_of(which, partners, zones.event, zones.low, zones.high, found)
    return found


@loop
def _zones_of(which: Int64s, numbers: Int64s, events: Int64s, lows: Int64s, highs: Int64s, found: Int64s) -> None:
    """Find for each element the zone of an event in which it is, -1 for none. which, events: ascending."""
    first = 0
    for k in range(which.shape[0]):
        while first < events.shape[0] and events[first] < which[k]:
            first += 1
        found[k] = -1
        row = first
        while row < events.shape[0] and events[row] == which[k]:
            if lows[row] <= numbers[k] < highs[row]:
                found[k] = row
                break
            row += 1
