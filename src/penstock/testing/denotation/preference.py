"""Preferences by their definition (`algebra/nodes/preferences.py`): entries worked on unit by unit, in one shard.

AUTO here keeps up: all work is granted at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa

from penstock.algebra import (
    Algebra,
    BudgetKind,
    PreferenceOrder,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    SummaryDefinition,
)
from penstock.algebra.nodes.base import is_static
from penstock.algebra.nodes.join import Pairs
from penstock.algebra.nodes.preferences import Preference, fade_factor
from penstock.expressions.draws import draws, exponential_draws, universe
from penstock.expressions.nodes import Expression, with_estimates
from penstock.testing.approximation.summaries import NaiveSummary, SeenZone
from penstock.testing.denotation.base import Bag, Relation, World, denote, relation, values_of, windowed
from penstock.testing.denotation.nonretroactive import elements
from penstock.testing.denotation.results import Life, _lives
from penstock.testing.values import Row, key_of
from penstock.types import END, Schema

_LAST = math.inf
_REST = -1


@dataclass(frozen=True)
class Arrived:
    """An element of a side. number: its arrival number there, None where a key column is NULL."""

    ts: int
    side: int
    place: int
    start: int
    end: int
    row: Row
    number: int | None
    passes: bool

    @property
    def order(self) -> tuple[int, int, int]:
        return self.ts, self.side, self.place


@dataclass(frozen=True)
class Partner:
    """A candidate: its row, timestamp and end. newness: larger ones are examined first."""

    row: Row
    ts: int
    end: int
    newness: tuple[int, ...]


@dataclass
class Entry:
    """A piece of work. zone: for the draw and ties; stretch: of its zone, None in the rest and without a summary;
    product: of the P_i, None where it ranks last; left: candidates not examined yet, newest first.
    """

    x: Arrived
    zone: int
    stretch: int | None
    product: float | None
    race: float
    left: list[Partner]
    looked_up: bool
    absent: bool
    age_of: int
    single: Partner | None = None
    #: Without partners it lives as long as x.
    had: bool = False
    steps: int = 0


@dataclass
class Account:
    """Units. asked = done + waiting + expired + shed."""

    asked: int = 0
    done: int = 0
    waiting: int = 0
    expired: int = 0
    shed: int = 0


@dataclass
class Side:
    """One input. schema: of its tuples; keys: columns whose NULLs join nothing."""

    arrived: list[Arrived]
    schema: Schema
    keys: tuple[int, ...]
    summary: NaiveSummary | None = None
    summarised: tuple[int, ...] = ()
    hashes: dict[int, int] = field(default_factory=dict)


class Simulation:
    """The queue of one shard. A subclass says which entries an element makes."""

    def __init__(self, preference: Preference, sides: list[Side], final: int) -> None:
        self.preference, self.sides, self.final = preference, sides, final
        self.waiting: list[Entry] = []
        self.emitted: list[Life] = []
        self.account = Account()

    def entries(self, x: Arrived) -> Iterator[Entry]:
        raise AssertionError(f"{type(self).__name__} makes no entries")

    def row(self, x: Arrived, partner: Partner | None) -> tuple[Row, int] | None:
        """Return the row of a pair and its end; None where it does not pass."""
        raise AssertionError(f"{type(self).__name__} has no rows")

    def granularity(self, entry: Entry, now: int) -> int:
        raise AssertionError(f"{type(self).__name__} has no granularities")

    # --- time

    def run(self) -> list[Life]:
        arrivals = sorted((x for side in self.sides for x in side.arrived), key=lambda x: x.order)
        arrivals = [x for x in arrivals if x.ts <= self.final]
        at, free, since, last = 0, Fraction(0), 0, None
        budget = self.preference.budget
        timed = budget.kind is BudgetKind.PER_TIME
        while True:
            busy = math.ceil(max(free, Fraction(since))) if timed and self.waiting else None
            coming = arrivals[at].ts if at < len(arrivals) else None
            known = [instant for instant in (busy, coming) if instant is not None]
            if not known or (now := min(known)) > self.final:
                break
            self._fade_at_multiples(last, now)
            last = now
            self._expire(now)
            empty = not self.waiting
            some = [x for x in arrivals[at:] if x.ts == now]
            at += len(some)
            made = self._arrive(some)
            if empty and self.waiting:
                since = now
            if timed:
                while self.waiting and math.ceil(begin := max(free, Fraction(since))) <= now:
                    if self._unit(now):
                        free = begin + 1 / budget.rate(1)
            else:
                credit = math.inf if budget.kind is BudgetKind.AUTO else budget.units * made
                while self.waiting and credit >= 1:
                    credit -= self._unit(now)
            self._shed(now)
        self._fade_at_multiples(last, self.final)
        self._expire(self.final)
        self.account.waiting = sum(map(_units, self.waiting))
        return self.emitted

    def _arrive(self, some: Sequence[Arrived]) -> int:
        """Take the elements of one instant; return how many make entries."""
        for x in some:
            side = self.sides[x.side]
            if side.summary is not None and x.number is not None and x.place in side.hashes:
                side.summary.arrive(x.ts, x.number, side.hashes[x.place])
        making = [x for x in some if x.passes and x.number is not None]
        for x in making:
            for entry in self.entries(x):
                self.waiting.append(entry)
                self.account.asked += _units(entry)
                self._fade(entry, x.ts)
        return len(making)

    def _expire(self, now: int) -> None:
        for entry in list(self.waiting):
            partners = [entry.single] if entry.single is not None else entry.left
            dead = entry.had and all(partner.end <= now for partner in partners)
            if entry.x.end <= now or dead:
                self.waiting.remove(entry)
                self.account.expired += _units(entry)

    def _shed(self, now: int) -> None:
        self.waiting.sort(key=lambda entry: self._rank(entry, now))
        gone = self.waiting[self.preference.queue :]
        del self.waiting[self.preference.queue :]
        self.account.shed += sum(map(_units, gone))

    # --- work

    def _unit(self, now: int) -> int:
        """Do a unit of the first entry; return 0 where only candidates that have ended were left."""
        entry = min(self.waiting, key=lambda one: self._rank(one, now))
        if not entry.looked_up:
            entry.looked_up = True
            done = 1
        else:
            alive = entry.single
            while alive is None and entry.left:
                partner = entry.left.pop(0)
                if partner.end > now:
                    alive = partner
                else:
                    self.account.expired += 1
            done = int(alive is not None or not entry.had)
            found = self.row(entry.x, alive) if done else None
            if found is not None:
                self.emitted.append((now, found[1], found[0]))
            entry.single = None
        self.account.done += done
        if entry.single is None and not any(partner.end > now for partner in entry.left):
            self.account.expired += len(entry.left)
            self.waiting.remove(entry)
        return done

    def _rank(self, entry: Entry, now: int) -> tuple[object, ...]:
        newness = entry.single.newness if entry.single is not None else ()
        return self._key(entry, now), entry.x.order, -entry.zone, tuple(-n for n in newness)

    def _key(self, entry: Entry, now: int) -> float:
        preference = self.preference
        if entry.product is None or (entry.absent and preference.order is PreferenceOrder.ASC):
            return _LAST
        if preference.fades and preference.per is None:
            entry.steps = self.granularity(entry, now) - 1
        factor = fade_factor(preference.fade, entry.steps) if preference.fades else 1.0
        with np.errstate(all="ignore"):
            product = np.float64(entry.product)
            if preference.order is PreferenceOrder.ASC:
                key = product / np.float64(factor)
            elif preference.order is PreferenceOrder.DESC:
                key = -(product * factor)
            else:
                weight = product * factor
                key = np.float64(entry.race) / weight if weight > 0 else np.float64(_LAST)
        return _LAST if math.isnan(key) else float(key)

    # --- fading by age

    def _fade_at_multiples(self, last: int | None, now: int) -> None:
        """Make keys anew at the last multiple of PER after `last`, up to `now`."""
        per = self.preference.per
        if per is None or not self.preference.fades or last is None or (multiple := now // per * per) <= last:
            return
        for entry in self.waiting:
            self._fade(entry, multiple)

    def _fade(self, entry: Entry, instant: int) -> None:
        if (per := self.preference.per) is None:
            return
        newest = entry.age_of
        if entry.single is not None:
            newest = entry.single.ts
        elif entry.had and self.partners_age:
            newest = next((p.ts for p in entry.left if p.end > instant), entry.x.ts)
        entry.steps = (instant - newest) // per

    partners_age = False

    # --- priorities

    def product(self, expressions: Sequence[Expression], row: Row, count: int, share: float) -> float | None:
        """Return ΠP; None where one is NULL or NaN. row: the joined row, None for columns that are not read."""
        whole: Bag = [(*row, count, share)]
        found = 1.0
        negative = self.preference.fades or self.preference.order is PreferenceOrder.WEIGHTED
        for expression in expressions:
            value = values_of(with_estimates(expression, len(row), len(row) + 1), whole)[0]
            if value is None or math.isnan(value):
                return None
            found *= 0.0 if negative and not value > 0 else float(value)
        return found

    def race(self, x: Arrived, columns: list[pa.Array], cost: int) -> float:
        """Return E·c of an entry. columns: what its draw depends on beside x."""
        if self.preference.order is not PreferenceOrder.WEIGHTED:
            return 0.0
        own = _arrays(x.row, self.sides[x.side].schema)
        salt = f"/preference/{self.preference.query}/{x.side}"
        drawn = draws(self.preference.seed, salt, np.array([x.ts], np.int64), [*own, *columns])
        return float(exponential_draws(drawn)[0]) * cost


def _units(entry: Entry) -> int:
    if entry.single is not None:
        return 1
    return int(not entry.looked_up) + len(entry.left) + int(entry.looked_up and not entry.had)


def _arrays(row: Row, schema: Schema) -> list[pa.Array]:
    return [pa.array([value], field.type) for value, field in zip(row, schema, strict=True)]


def _whole(number: int) -> pa.Array:
    return pa.array([number], pa.int64())


class JoinSimulation(Simulation):
    partners_age = True

    def __init__(self, node: PreferringJoin, sides: list[Side], final: int) -> None:
        super().__init__(node.preference, sides, final)
        self.node = node

    def entries(self, x: Arrived) -> Iterator[Entry]:
        into = 1 - x.side
        side = self.sides[into]
        before = [
            y for y in side.arrived
            if y.order < x.order and y.start <= x.ts < y.end and y.passes and y.number is not None
        ]  # fmt: skip
        candidates = [y for y in before if self._equal(x, y)][::-1]
        zones: list[SeenZone] = []
        if side.summary is not None:
            zones = sorted(side.summary.probe(self._hash(x, into), x.ts), key=lambda zone: -zone.low)
        for zone in (*zones, None):
            own = [y for y in candidates if self._zone_of(y, zones) is zone]
            yield from self._entries_of(x, into, zone, own)

    def _entries_of(self, x: Arrived, into: int, zone: SeenZone | None, own: list[Arrived]) -> Iterator[Entry]:
        count, share = (0, 0.0) if zone is None else (zone.estimate, zone.estimate / zone.elements)
        low, stretch = (_REST, None) if zone is None else (zone.low, zone.stretch)
        absent = zone is None and self.sides[into].summary is not None
        expressions = self.node.into[into]
        partners = [Partner(y.row, y.ts, y.end, y.order) for y in own]
        if self.node.reads_partner(into):
            for partner in partners:
                product = self.product(expressions, self._joined(x, partner.row), count, share)
                columns = [_whole(partner.ts), *_arrays(partner.row, self.sides[into].schema)]
                race = self.race(x, columns, 1)
                yield Entry(x, low, stretch, product, race, [], True, absent, partner.ts, partner, True)
            return
        nothing = (None,) * len(self.sides[into].schema)
        product = self.product(expressions, self._joined(x, nothing), count, share)
        race = self.race(x, [_whole(low)], 1 + count)
        yield Entry(x, low, stretch, product, race, partners, False, absent, x.ts, None, bool(partners))

    def _zone_of(self, y: Arrived, zones: list[SeenZone]) -> SeenZone | None:
        return next((zone for zone in zones if y.number is not None and zone.holds(y.number)), None)

    def _hash(self, x: Arrived, into: int) -> int:
        """Return the hash of x's values of the columns that are summarised on the other side."""
        positions = [
            next(pair[x.side] for pair in self.node.equal if pair[into] == column)
            for column in self.sides[into].summarised
        ]
        return _hash([(x.row, self.sides[x.side].schema)], positions, self.preference.seed)[0]

    def _equal(self, x: Arrived, y: Arrived) -> bool:
        return key_of(tuple(x.row[p[x.side]] for p in self.node.equal)) == key_of(
            tuple(y.row[p[y.side]] for p in self.node.equal)
        )

    def _joined(self, x: Arrived, other: Row) -> Row:
        return x.row + other if x.side == 0 else other + x.row

    def row(self, x: Arrived, partner: Partner | None) -> tuple[Row, int] | None:
        assert partner is not None
        row = self._joined(x, partner.row)
        return (row, min(x.end, partner.end)) if _passes(self.node.residual, row) else None

    def granularity(self, entry: Entry, now: int) -> int:
        summary = self.sides[1 - entry.x.side].summary
        if summary is None:
            return 1
        return summary.definition.depth + 1 if entry.stretch is None else summary.granularity(entry.stretch, now)[0]


class ElementSimulation(Simulation):
    """One entry per element of a stream. Its estimates are those of its own zone."""

    def __init__(self, node: PreferringSelection | PreferringLookUp, side: Side, final: int) -> None:
        super().__init__(node.preference, [side], final)
        self.expressions = node.expressions

    def own_zone(self, x: Arrived) -> tuple[int, float]:
        """Return count and share of x's values in its own zone."""
        side = self.sides[0]
        if side.summary is None or x.place not in side.hashes:
            return 0, 0.0
        zones = side.summary.probe(side.hashes[x.place], x.ts)
        found = next((zone for zone in zones if x.number is not None and zone.holds(x.number)), None)
        return (0, 0.0) if found is None else (found.estimate, found.estimate / found.elements)

    def granularity(self, entry: Entry, now: int) -> int:
        summary = self.sides[0].summary
        return 1 if summary is None else summary.granularity(entry.x.ts // summary.definition.granularity, now)[0]


class SelectionSimulation(ElementSimulation):
    def __init__(self, node: PreferringSelection, side: Side, final: int) -> None:
        super().__init__(node, side, final)
        self.condition = node.condition

    def entries(self, x: Arrived) -> Iterator[Entry]:
        count, share = self.own_zone(x)
        absent = self.sides[0].summary is not None and count < 1
        product = self.product(self.expressions, x.row, count, share)
        race = self.race(x, [_whole(_REST)], 1)
        yield Entry(x, _REST, None, product, race, [], True, absent, x.ts)

    def row(self, x: Arrived, partner: Partner | None) -> tuple[Row, int] | None:
        return (x.row, x.end) if _passes(self.condition, x.row) else None


class LookUpSimulation(ElementSimulation):
    def __init__(self, node: PreferringLookUp, side: Side, table: Callable[[int], Bag], final: int) -> None:
        super().__init__(node, side, final)
        self.node, self.table = node, table

    def entries(self, x: Arrived) -> Iterator[Entry]:
        schema = self.node.right.schema
        found = [
            row for row in self.table(x.ts)
            if all(row[j] is not None and key_of((x.row[i],)) == key_of((row[j],)) for i, j in self.node.equal)
        ]  # fmt: skip
        columns = [pa.array([row[i] for row in found], f.type) for i, f in enumerate(schema)]
        drawn = draws(0, "", np.zeros(len(found), np.int64), columns).tolist()
        ordered = [row for _, row in sorted(zip(drawn, found, strict=True), key=lambda one: one[0])]
        partners = [Partner(row, 0, END, (-place,)) for place, row in enumerate(ordered)]
        count, share = self.own_zone(x)
        absent = self.sides[0].summary is not None and count < 1
        if self.node.reads_partner:
            for partner in partners:
                product = self.product(self.expressions, x.row + partner.row, count, share)
                race = self.race(x, [_whole(0), *_arrays(partner.row, schema)], 1)
                # The age is that of x.
                aged = Partner(partner.row, x.ts, END, partner.newness)
                yield Entry(x, _REST, None, product, race, [], True, absent, x.ts, aged, True)
            return
        product = self.product(self.expressions, x.row + (None,) * len(schema), count, share)
        race = self.race(x, [_whole(_REST)], 1)
        yield Entry(x, _REST, None, product, race, partners, False, absent, x.ts, None, bool(partners))

    def row(self, x: Arrived, partner: Partner | None) -> tuple[Row, int] | None:
        assert partner is not None
        row = x.row + partner.row
        return (row, x.end) if _passes(self.node.residual, row) else None


# --- inputs


def _passes(condition: Expression | None, row: Row) -> bool:
    return condition is None or values_of(condition, [row])[0] is True


def _hash(rows: Sequence[tuple[Row, Schema]], positions: Sequence[int], seed: int) -> list[int]:
    columns = [pa.array([row[i] for row, _ in rows], rows[0][1][i].type) for i in positions] if rows else []
    return [int(h) for h in universe(seed, columns, len(rows), "/summary")]


def _side(
    node: Algebra, number: int, keys: tuple[int, ...], condition: Expression | None,
    summary: SummaryDefinition | None, summarised: tuple[int, ...], seed: int, world: World,
) -> Side:  # fmt: skip
    found = sorted(elements(node, world), key=lambda one: one[0])
    arrived: list[Arrived] = []
    count = 0
    for place, (ts, (start, end), row) in enumerate(found):
        joins = all(row[i] is not None for i in keys)
        passes = _passes(condition, row)
        arrived.append(Arrived(ts, number, place, start, end, row, count if joins else None, passes))
        count += joins
    side = Side(arrived, node.schema, keys, NaiveSummary(summary) if summary else None, summarised)
    known = [x for x in arrived if all(x.row[i] is not None for i in summarised)] if summary else []
    hashes = _hash([(x.row, node.schema) for x in known], summarised, seed)
    side.hashes = {x.place: h for x, h in zip(known, hashes, strict=True)}
    return side


def simulate(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> Simulation:
    """Return the simulation of a preference, which has run."""
    seed = node.preference.seed
    made: Simulation
    if isinstance(node, PreferringJoin):
        inputs = (node.left, node.right)
        sides = [
            _side(
                inputs[n], n, _keys(node.equal, n), node.filters[n], node.summaries[n], node.summarised[n], seed, world,
            )
            for n in (0, 1)
        ]  # fmt: skip
        made = JoinSimulation(node, sides, world.final)
    elif isinstance(node, PreferringLookUp):
        side = _side(node.left, 0, _keys(node.equal, 0), node.filter, node.summary, node.summarised, seed, world)
        table, static = relation(node.right, world), is_static(node.right)
        made = LookUpSimulation(node, side, lambda ts: table.at(0 if static else ts), world.final)
    else:
        side = _side(node.input, 0, (), node.filter, node.summary, node.summarised, seed, world)
        made = SelectionSimulation(node, side, world.final)
    made.run()
    return made


def _keys(equal: Pairs, side: int) -> tuple[int, ...]:
    return tuple(pair[side] for pair in equal)


def _relation(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> Relation:
    return windowed([(start, (start, end), row) for start, end, row in simulate(node, world).emitted])


def _emitted(node: PreferringJoin | PreferringLookUp | PreferringSelection, world: World) -> list[Life]:
    return simulate(node, world).emitted


for kind in (PreferringJoin, PreferringLookUp, PreferringSelection):
    denote.register(kind, _relation)
    _lives.register(kind, _emitted)
