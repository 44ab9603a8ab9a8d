"""Which entries elements make: of joins, of look-ups in tables, and of selections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra import (
    Algebra,
    PreferenceOrder,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    SummaryDefinition,
)
from penstock.algebra.nodes.base import is_static, operators
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.preferences import SummaryAhead
from penstock.expressions.draws import draws, universe
from penstock.expressions.nodes import Expression
from penstock.testing.definitions.base import Bag, Relation, World, denote, relation, values_of, windowed
from penstock.testing.definitions.nonretroactive import elements
from penstock.testing.definitions.results import Life, _lives
from penstock.testing.preferences.simulation import (
    REST,
    Partner,
    PreferredElement,
    PreferredSide,
    Simulation,
    WaitingEntry,
    arrays_of,
    whole_number,
)
from penstock.testing.preferences.summaries import NaiveSummary, SeenZone
from penstock.testing.scalars.values import Row, key_of, value_order
from penstock.types import END, Schema

#: An element with its place among those of its input.
_Placed = tuple[int, tuple[int, tuple[int, int], Row]]


class JoinSimulation(Simulation):
    partners_age = True

    def __init__(
        self, node: PreferringJoin, sides: list[PreferredSide], later: list[PreferredSide], final: int, shards: int
    ) -> None:
        super().__init__(node.preference, sides, final, shards)
        self.node, self.later = node, later

    def entries(self, x: PreferredElement) -> Iterator[WaitingEntry]:
        into = 1 - x.side
        side = self.sides[into]
        before = [
            y
            for y in side.arrived
            if y.order < x.order and y.start <= x.ts < y.end and y.passes and y.number is not None
        ]
        candidates = [y for y in before if self._equal(x, y)][::-1]
        zones: list[SeenZone] = []
        if side.summary is not None:
            zones = sorted(side.summary.probe(self._hash(x, into), x.ts), key=lambda zone: -zone.low)
        fed = self._fed_back(x)
        for zone in (*zones, None):
            own = [y for y in candidates if self._zone_of(y, zones) is zone]
            yield from self._entries_of(x, into, zone, own, fed)

    def _fed_back(self, x: PreferredElement) -> float | None:
        """Return the product of the P_i of streams that are joined later."""
        found: float | None = 1.0
        for one, side in zip(self.node.ahead, self.later, strict=True):
            keys = [pair[x.side] for pair in one.keys]
            value = _hash([(x.row, self.sides[x.side].schema)], keys, self.preference.seed)[0]
            zones = _summary_at(side, x.ts).probe(value, x.ts)
            count = sum(zone.estimate for zone in zones)
            share = count / sum(zone.elements for zone in zones) if zones else 0.0
            # Of what is not there, nothing is rare.
            absent = count < 1 and self.preference.order is PreferenceOrder.ASC
            found = None if absent else self.product(one.expressions, x.row, count, share, found)
        return found

    def _entries_of(
        self, x: PreferredElement, into: int, zone: SeenZone | None, own: list[PreferredElement], fed: float | None
    ) -> Iterator[WaitingEntry]:
        count, share = (0, 0.0) if zone is None else (zone.estimate, zone.estimate / zone.elements)
        low, stretch = (REST, None) if zone is None else (zone.low, zone.stretch)
        absent = zone is None and self.sides[into].summary is not None
        expressions = self.node.into[into]
        partners = [Partner(y.row, y.ts, y.end, y.order) for y in own]
        if self.node.reads_partner(into):
            for partner in partners:
                product = self.product(expressions, self._joined(x, partner.row), count, share, fed)
                columns = [whole_number(partner.ts), *arrays_of(partner.row, self.sides[into].schema)]
                entry = WaitingEntry(x, low, stretch, product, 0.0, [], True, absent, partner.ts, partner, True)
                yield self.raced(entry, columns, 1)
            return
        nothing = (None,) * len(self.sides[into].schema)
        product = self.product(expressions, self._joined(x, nothing), count, share, fed)
        entry = WaitingEntry(
            x,
            low,
            stretch,
            product,
            0.0,
            partners,
            False,
            absent,
            x.ts,
            None,
            bool(partners),
            estimate=None if zone is None else zone.estimate,
        )
        yield self.raced(entry, [whole_number(low)], 1 + count)

    def _zone_of(self, y: PreferredElement, zones: list[SeenZone]) -> SeenZone | None:
        return next((zone for zone in zones if y.number is not None and zone.holds(y.number)), None)

    def _hash(self, x: PreferredElement, into: int) -> int:
        """Return the hash of x's values of the columns that are summarised on the other side."""
        positions = [
            next(pair[x.side] for pair in self.node.equal if pair[into] == column)
            for column in self.sides[into].summarised
        ]
        return _hash([(x.row, self.sides[x.side].schema)], positions, self.preference.seed)[0]

    def _equal(self, x: PreferredElement, y: PreferredElement) -> bool:
        return key_of(tuple(x.row[p[x.side]] for p in self.node.equal)) == key_of(
            tuple(y.row[p[y.side]] for p in self.node.equal)
        )

    def _joined(self, x: PreferredElement, other: Row) -> Row:
        return x.row + other if x.side == 0 else other + x.row

    def row(self, x: PreferredElement, partner: Partner | None) -> tuple[Row, int] | None:
        assert partner is not None
        row = self._joined(x, partner.row)
        return (row, min(x.end, partner.end)) if _passes(self.node.residual, row) else None

    def granularity(self, entry: WaitingEntry, now: int) -> int:
        summary = self.sides[1 - entry.x.side].summary
        if summary is None:
            return 1
        return summary.definition.depth + 1 if entry.stretch is None else summary.granularity(entry.stretch, now)[0]


class ElementSimulation(Simulation):
    """One entry per element of a stream. Its estimates are those of its own zone."""

    def __init__(
        self, node: PreferringSelection | PreferringLookUp, side: PreferredSide, final: int, shards: int
    ) -> None:
        super().__init__(node.preference, [side], final, shards)
        self.expressions = node.expressions

    def own_zone(self, x: PreferredElement) -> tuple[int, float]:
        """Return count and share of x's values in its own zone."""
        side = self.sides[0]
        if side.summary is None or x.place not in side.hashes:
            return 0, 0.0
        zones = side.summary.probe(side.hashes[x.place], x.ts)
        found = next((zone for zone in zones if x.number is not None and zone.holds(x.number)), None)
        return (0, 0.0) if found is None else (found.estimate, found.estimate / found.elements)

    def granularity(self, entry: WaitingEntry, now: int) -> int:
        summary = self.sides[0].summary
        return 1 if summary is None else summary.granularity(entry.x.ts // summary.definition.granularity, now)[0]


class SelectionSimulation(ElementSimulation):
    def __init__(self, node: PreferringSelection, side: PreferredSide, final: int, shards: int) -> None:
        super().__init__(node, side, final, shards)
        self.condition = node.condition

    def entries(self, x: PreferredElement) -> Iterator[WaitingEntry]:
        count, share = self.own_zone(x)
        absent = self.sides[0].summary is not None and count < 1
        product = self.product(self.expressions, x.row, count, share)
        entry = WaitingEntry(x, REST, None, product, 0.0, [], True, absent, x.ts)
        yield self.raced(entry, [whole_number(REST)], 1)

    def row(self, x: PreferredElement, partner: Partner | None) -> tuple[Row, int] | None:
        return (x.row, x.end) if _passes(self.condition, x.row) else None


class LookUpSimulation(ElementSimulation):
    def __init__(
        self, node: PreferringLookUp, side: PreferredSide, table: Callable[[int], Bag], final: int, shards: int
    ) -> None:
        super().__init__(node, side, final, shards)
        self.node, self.table = node, table

    def entries(self, x: PreferredElement) -> Iterator[WaitingEntry]:
        schema = self.node.right.schema
        found = [
            row
            for row in self.table(x.ts)
            if all(row[j] is not None and key_of((x.row[i],)) == key_of((row[j],)) for i, j in self.node.equal)
        ]
        columns = [pa.array([row[i] for row in found], f.type) for i, f in enumerate(schema)]
        drawn = draws(0, "", np.zeros(len(found), np.int64), columns).tolist()
        ordered = [row for _, row in sorted(zip(drawn, found, strict=True), key=lambda one: one[0])]
        partners = [Partner(row, 0, END, (-place,)) for place, row in enumerate(ordered)]
        count, share = self.own_zone(x)
        absent = self.sides[0].summary is not None and count < 1
        if self.node.reads_partner:
            for partner in partners:
                product = self.product(self.expressions, x.row + partner.row, count, share)
                # The age is that of x.
                aged = Partner(partner.row, x.ts, END, partner.newness)
                entry = WaitingEntry(x, REST, None, product, 0.0, [], True, absent, x.ts, aged, True)
                yield self.raced(entry, [whole_number(0), *arrays_of(partner.row, schema)], 1)
            return
        product = self.product(self.expressions, x.row + (None,) * len(schema), count, share)
        entry = WaitingEntry(x, REST, None, product, 0.0, partners, False, absent, x.ts, None, bool(partners))
        yield self.raced(entry, [whole_number(REST)], 1)

    def row(self, x: PreferredElement, partner: Partner | None) -> tuple[Row, int] | None:
        assert partner is not None
        row = x.row + partner.row
        return (row, x.end) if _passes(self.node.residual, row) else None


# --- inputs


def _passes(condition: Expression | None, row: Row) -> bool:
    return condition is None or values_of(condition, [row])[0] is True


def _hash(rows: Sequence[tuple[Row, Schema]], positions: Sequence[int], seed: int) -> list[int]:
    columns = [pa.array([row[i] for row, _ in rows], rows[0][1][i].type) for i in positions] if rows else []
    return [int(h) for h in universe(seed, columns, len(rows), "/summary")]


def _elements(node: Algebra, key: tuple[int, ...], world: World) -> dict[int, list[_Placed]]:
    """Return the elements of an input by shard, each with its place among all. key: columns by which rows are
    divided."""
    # Under SLIDE an element arrives at the boundary at which it begins, and not at all where it ends there.
    begun = [(start, (start, end), row) for _, (start, end), row in elements(node, world) if start < end]
    found = sorted(begun, key=lambda one: one[0])
    if any(isinstance(one, PreferringJoin | PreferringLookUp) for one in operators(node)):
        found = sorted(begun, key=lambda one: (one[0], value_order(one[2]), one[1]))
    if world.shards is None:
        return {0: list(enumerate(found))}
    if not key:
        return {shard: [] if shard else list(enumerate(found)) for shard in range(world.shards.count)}
    columns = [pa.array([row[i] for _, _, row in found], node.schema[i].type) for i in key]
    parts: dict[int, list[_Placed]] = {shard: [] for shard in range(world.shards.count)}
    for placed, shard in zip(enumerate(found), world.shards.of(columns, len(found)), strict=True):
        parts[shard].append(placed)
    return parts


def _side(
    node: Algebra,
    number: int,
    keys: tuple[int, ...],
    condition: Expression | None,
    summary: SummaryDefinition | None,
    summarised: tuple[int, ...],
    seed: int,
    found: list[_Placed],
) -> PreferredSide:
    arrived: list[PreferredElement] = []
    count = 0
    for place, (ts, (start, end), row) in found:
        joins = all(row[i] is not None for i in keys)
        passes = _passes(condition, row)
        arrived.append(PreferredElement(ts, number, place, start, end, row, count if joins else None, passes))
        count += joins
    side = PreferredSide(arrived, node.schema, keys, NaiveSummary(summary) if summary else None, summarised)
    known = [x for x in arrived if all(x.row[i] is not None for i in summarised)] if summary else []
    hashes = _hash([(x.row, node.schema) for x in known], summarised, seed)
    side.hashes = {x.place: h for x, h in zip(known, hashes, strict=True)}
    return side


def simulate(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> list[Simulation]:
    """Return the simulations of a preference, one for each shard, which have run."""
    made = list(_simulations(node, world, 1 if world.shards is None else world.shards.count))
    for one in made:
        one.run()
    return made


def _simulations(
    node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World, shards: int
) -> Iterator[Simulation]:
    seed = node.preference.seed
    if isinstance(node, PreferringJoin):
        inputs, spread = (node.left, node.right), node.sharding
        parts = [_elements(inputs[n], _keys(spread, n), world) for n in (0, 1)]
        ahead = [
            _elements(one, _in_order_of(spread, of), world) for one, of in zip(node.later, node.ahead, strict=True)
        ]
        for shard in range(shards):
            sides = [
                _side(
                    inputs[n],
                    n,
                    _keys(node.equal, n),
                    node.filters[n],
                    node.summaries[n],
                    node.summarised[n],
                    seed,
                    parts[n][shard],
                )
                for n in (0, 1)
            ]
            later = [
                _side(stream, 0, one.summarised, None, one.summary, one.summarised, seed, part[shard])
                for stream, one, part in zip(node.later, node.ahead, ahead, strict=True)
            ]
            yield JoinSimulation(node, sides, later, world.final, shards)
        return
    below = node.inputs[0]
    every = tuple(range(len(below.schema)))
    own = node.sharding if isinstance(node, PreferringLookUp) else node.summarised or every
    divided = _elements(below, own, world)
    for shard in range(shards):
        keys = _keys(node.equal, 0) if isinstance(node, PreferringLookUp) else ()
        side = _side(below, 0, keys, node.filter, node.summary, node.summarised, seed, divided[shard])
        if isinstance(node, PreferringLookUp):
            yield LookUpSimulation(node, side, _table(node, world), world.final, shards)
        else:
            yield SelectionSimulation(node, side, world.final, shards)


def _table(node: PreferringLookUp, world: World) -> Callable[[int], Bag]:
    """Return by instant the rows of the relation that elements look up."""
    table, static = relation(node.right, world), is_static(node.right)
    return lambda ts: table.at(0 if static else ts)


def _in_order_of(spread: Pairs, ahead: SummaryAhead) -> tuple[int, ...]:
    """Return the summarised columns in the order in which rows of the join are divided by their values."""
    return tuple(ahead.summarised[ahead.keys.index(pair)] for pair in spread)


def _summary_at(side: PreferredSide, now: int) -> NaiveSummary:
    """Return the summary of what has arrived up to an instant."""
    assert side.summary is not None
    found = NaiveSummary(side.summary.definition)
    for one in side.arrived:
        if one.ts <= now and one.number is not None and one.place in side.hashes:
            found.arrive(one.ts, one.number, side.hashes[one.place])
    return found


def _keys(equal: Pairs, side: int) -> tuple[int, ...]:
    return tuple(pair[side] for pair in equal)


def _relation(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> Relation:
    return windowed([(start, (start, end), row) for start, end, row in _emitted(node, world)])


def _emitted(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> list[Life]:
    simulations = simulate(node, world)
    if node.preference.records:
        return [life for one in simulations for life in one.recorded()]
    return [life for one in simulations for life in one.emitted]


for kind in (PreferringJoin, PreferringLookUp, PreferringSelection):
    denote.register(kind, _relation)
    _lives.register(kind, _emitted)
