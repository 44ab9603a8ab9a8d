"""Preferences by their definition (`algebra/nodes/preferences.py`): entries worked on unit by unit, in each shard.

AUTO here keeps up: all work is granted at once.
"""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa

from penstock.algebra import (
    BudgetKind,
    PreferenceOrder,
)
from penstock.algebra.nodes.preference_clause import Preference, fade_factor
from penstock.expressions.draws import draws, exponential_draws
from penstock.expressions.nodes import Expression, with_estimates
from penstock.testing.aggregates.sketches import bucket
from penstock.testing.definitions.base import Bag, values_of
from penstock.testing.definitions.results import Life
from penstock.testing.preferences.summaries import NaiveSummary
from penstock.testing.scalars.values import Row
from penstock.types import Schema

# --- Figures of the work of a preference, by their definition (`monitoring/preference_metrics.py`).

#: Relative error of the buckets by which priorities are compared.
ACCURACY = 0.02


@dataclass
class NaiveFigures:
    """Figures of one shard.

    Args:
        priorities: buckets of those of all entries that had a place in the queue, ascending; the most preferred have
            the largest.
        delays: of each result, whether its entry is promising, None where it had no such place, and u - t in ticks.
        apart: |ts1 - ts2| of each result of two streams.
        rows: elements of all inputs without NULL in a key column.
        examined: pairs. missing: those of entries that expired, wait or were shed, as estimated; unknown: how many of
            these entries have no estimate. look_ups, found: entries in the queue without estimate that were looked up,
            and pairs of theirs that were examined.
    """

    priorities: list[tuple[float, float]] = field(default_factory=list)
    delays: list[tuple[bool | None, int]] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)
    rows: int = 0
    examined: int = 0
    missing: int = 0
    unknown: int = 0
    look_ups: int = 0
    found: int = 0

    def is_promising(self, priority: float) -> bool:
        """Add the priority of an entry; return whether its bucket is above that of the 0.9 quantile of those before."""
        before, found = self.priorities, bucket(priority, ACCURACY)
        above = bool(before) and found > before[9 * (len(before) - 1) // 10]
        bisect.insort(before, found)
        return above


def completeness(shards: Sequence[NaiveFigures]) -> float:
    """Return the part of all pairs that was examined, as estimated."""
    look_ups, found = sum(one.look_ups for one in shards), sum(one.found for one in shards)
    each = Fraction(found, look_ups) if look_ups else Fraction(1)
    examined = sum(one.examined for one in shards)
    whole = examined + sum(one.missing + one.unknown * each for one in shards)
    return float(Fraction(examined) / whole) if whole else 1.0


def exact_quantile(values: Sequence[int], share: Fraction) -> int | None:
    """Return a quantile, None of no values."""
    return sorted(values)[math.floor(share * (len(values) - 1))] if values else None


_LAST = math.inf
REST = -1


@dataclass(frozen=True)
class PreferredElement:
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
class WaitingEntry:
    """A piece of work. zone: for the draw and ties; stretch: of its zone, None in the rest and without a summary;
    product: of the P_i, None where it ranks last; left: candidates not examined yet, newest first.
    """

    x: PreferredElement
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
    #: Its pairs as a zone of a summary estimates them, None where nothing does; and those examined.
    estimate: int | None = None
    examined: int = 0
    promising: bool = False
    cost: int = 1
    drawn: int = 0


@dataclass
class EmittedResult:
    """A result that was emitted at `at`, of an entry made at `made`. cap: the least key that was shed since; best: the
    largest product of a threshold above its key and its weight, None before it counts; changes: (instant, best) at each
    change."""

    entry: WaitingEntry
    at: int
    end: int
    row: Row
    cap: float | None = None
    best: float | None = None
    changes: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Account:
    """Units. asked = done + waiting + expired + shed."""

    asked: int = 0
    done: int = 0
    waiting: int = 0
    expired: int = 0
    shed: int = 0


@dataclass
class PreferredSide:
    """One input. schema: of its tuples; keys: columns whose NULLs join nothing."""

    arrived: list[PreferredElement]
    schema: Schema
    keys: tuple[int, ...]
    summary: NaiveSummary | None = None
    summarised: tuple[int, ...] = ()
    hashes: dict[int, int] = field(default_factory=dict)


class Simulation:
    """The queue of one of `shards`. A subclass defines which entries an element makes."""

    def __init__(self, preference: Preference, sides: list[PreferredSide], final: int, shards: int) -> None:
        self.preference, self.sides, self.final, self.shards = preference, sides, final, shards
        self.waiting: list[WaitingEntry] = []
        self.emitted: list[Life] = []
        #: With records: what was emitted, and (instant, least key) of what was shed.
        self.results: list[EmittedResult] = []
        self.sheds: list[tuple[int, float]] = []
        self.account = Account()
        #: Entries, by what has become of them, and figures of results.
        self.entry_account = Account()
        self.figures = NaiveFigures()

    def entries(self, x: PreferredElement) -> Iterator[WaitingEntry]:
        raise AssertionError(f"{type(self).__name__} makes no entries")

    def row(self, x: PreferredElement, partner: Partner | None) -> tuple[Row, int] | None:
        """Return the row of a pair and its end; None where it does not pass."""
        raise AssertionError(f"{type(self).__name__} has no rows")

    def granularity(self, entry: WaitingEntry, now: int) -> int:
        raise AssertionError(f"{type(self).__name__} has no granularities")

    # --- time

    def run(self) -> list[Life]:
        arrivals = sorted((x for side in self.sides for x in side.arrived), key=lambda x: x.order)
        arrivals = [x for x in arrivals if x.ts <= self.final]
        at, last = 0, None
        budget = self.preference.budget
        timed = budget.kind is BudgetKind.PER_TIME
        rate = budget.rate(self.shards) if timed else Fraction(1)
        #: The number of the first slot whose unit has not been done.
        slot: Fraction | int = math.floor(arrivals[0].ts * rate) if arrivals else 0
        while True:
            busy = math.ceil(slot / rate) if timed and self.waiting else None
            coming = arrivals[at].ts if at < len(arrivals) else None
            known = [instant for instant in (busy, coming) if instant is not None]
            if not known or (now := min(known)) > self.final:
                break
            self._fade_at_multiples(last, now)
            last = now
            self._expire(now)
            if timed:
                # What accrued up to an instant is for what has waited before it.
                slot = self._work_in_slots(slot, rate, now)
            empty = not self.waiting
            some = [x for x in arrivals[at:] if x.ts == now]
            at += len(some)
            making = self._arrive(some)
            credit = math.inf if budget.kind is BudgetKind.AUTO else budget.units * len(making)
            if empty and not timed and not self.preference.records and self._work_at_once(making, now, credit):
                continue
            for x in making:
                self._enter(x)
            if timed:
                if empty:
                    slot = self._present_slot(slot, rate, now)
                slot = self._work_in_slots(slot, rate, now)
            else:
                done = self.account.done
                while self.waiting and credit >= 1:
                    credit -= self._unit(now)
                if self.preference.records and self.account.done > done:
                    self._meet_threshold(now)
            self._shed(now)
        self._fade_at_multiples(last, self.final)
        self._expire(self.final)
        self.account.waiting = sum(map(_units, self.waiting))
        self.entry_account.waiting = len(self.waiting)
        for entry in self.waiting:
            self._miss(entry)
        return self.emitted

    def _work_in_slots(self, slot: Fraction | int, rate: Fraction, now: int) -> Fraction | int:
        """Do the units of the slots that have begun by `now`, from number `slot` on, while entries wait; return the
        number of the next slot."""
        done = self.account.done
        while self.waiting and math.ceil(slot / rate) <= now:
            slot += self._unit(now)
        if self.preference.records and self.account.done > done:
            self._meet_threshold(now)
        return slot

    def _present_slot(self, slot: Fraction | int, rate: Fraction, now: int) -> Fraction | int:
        """Return the slot in which `now` lies, where that is behind the next one that is free: units for which nothing
        has waited are lost."""
        return max(slot, math.floor(now * rate))

    def _arrive(self, some: Sequence[PreferredElement]) -> list[PreferredElement]:
        """Take the elements of one instant; return those that make entries."""
        for x in some:
            self.figures.rows += x.number is not None
            side = self.sides[x.side]
            if side.summary is not None and x.number is not None and x.place in side.hashes:
                side.summary.arrive(x.ts, x.number, side.hashes[x.place])
        return [x for x in some if x.passes and x.number is not None]

    def _enter(self, x: PreferredElement) -> None:
        """Make the entries of an element."""
        for entry in self.entries(x):
            self.waiting.append(entry)
            self.account.asked += _units(entry)
            self.entry_account.asked += 1
            self._fade(entry, x.ts)
            entry.promising = self.figures.is_promising(self._priority(entry, x.ts))

    def _work_at_once(self, making: Sequence[PreferredElement], now: int, credit: float) -> bool:
        """Do all work of elements that come where nothing waits, as one entry each or one per candidate, where the
        credit covers it; return whether."""
        entries = look_ups = 0
        pairs: list[tuple[WaitingEntry, Partner | None]] = []
        for x in making:
            made = list(self.entries(x))
            looks_up = any(not entry.looked_up for entry in made)
            look_ups += looks_up
            entries += 1 if looks_up else len(made)
            for entry in made:
                pairs += [(entry, alive) for alive in (entry.left if looks_up else [entry.single])]
        units = look_ups + len(pairs)
        if units > credit:
            return False
        for account, count in ((self.account, units), (self.entry_account, entries)):
            account.asked, account.done = account.asked + count, account.done + count
        for entry, alive in pairs:
            self._examine(entry, alive, None, now)
        return True

    def _expire(self, now: int) -> None:
        for entry in list(self.waiting):
            partners = [entry.single] if entry.single is not None else entry.left
            dead = entry.had and all(partner.end <= now for partner in partners)
            if entry.x.end <= now or dead:
                self.waiting.remove(entry)
                self.account.expired += _units(entry)
                self.entry_account.expired += 1
                self._miss(entry)

    def _shed(self, now: int) -> None:
        self.waiting.sort(key=lambda entry: self._rank(entry, now))
        gone = self.waiting[self.preference.queue :]
        if gone:
            self.sheds.append((now, self._key(gone[0], now)))
        del self.waiting[self.preference.queue :]
        self.account.shed += sum(map(_units, gone))
        self.entry_account.shed += len(gone)
        for entry in gone:
            self._miss(entry)

    def _miss(self, entry: WaitingEntry) -> None:
        """Count the pairs of an entry that were not examined, as estimated."""
        if entry.single is not None:
            self.figures.missing += 1
        elif entry.looked_up:
            self.figures.missing += max(1, (entry.estimate or 0) - entry.examined)
        elif entry.estimate is None:
            self.figures.unknown += 1
        else:
            self.figures.missing += entry.estimate

    # --- work

    def _unit(self, now: int) -> int:
        """Do a unit of the first entry; return 0 where only candidates that have ended were left."""
        entry = min(self.waiting, key=lambda one: self._rank(one, now))
        if not entry.looked_up:
            entry.looked_up = True
            self.figures.look_ups += entry.estimate is None
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
            if done:
                self._examine(entry, alive, entry.promising, now)
            self.figures.found += done if entry.single is None and entry.had and entry.estimate is None else 0
            entry.examined += done
            entry.single = None
        self.account.done += done
        if entry.single is None and not any(partner.end > now for partner in entry.left):
            self.account.expired += len(entry.left)
            self.waiting.remove(entry)
            self.entry_account.done += 1
        return done

    def _examine(self, entry: WaitingEntry, alive: Partner | None, promising: bool | None, now: int) -> None:
        """Examine a pair, or an element by itself. promising: whether its entry is, None where that is not known."""
        self.figures.examined += 1
        found = self.row(entry.x, alive)
        if found is not None:
            self.emitted.append((now, found[1], found[0]))
            self.results.append(EmittedResult(entry, now, found[1], found[0]))
            self.figures.delays.append((promising, now - entry.x.ts))
            if len(self.sides) == 2 and alive is not None:
                self.figures.apart.append(abs(entry.x.ts - alive.ts))

    # --- thresholds

    def _meet_threshold(self, now: int) -> None:
        """Count what is below the threshold at the end of the work of an instant."""
        threshold = min((self._key(one, now) for one in self.waiting), default=None)
        for result in self.results:
            if result.end <= now:
                continue
            caps = [key for at, key in self.sheds if result.entry.x.ts <= at < now]
            least = min([*caps, *([] if threshold is None else [threshold])], default=None)
            weight = self._later_weight(result.entry, now)
            key = np.float64(result.entry.race) / np.float64(weight) if weight > 0 else np.float64(_LAST)
            if least is not None and not key < least:
                continue
            with np.errstate(all="ignore"):
                met = _LAST if least is None else float(np.float64(least) * weight)
            if result.best is None or met > result.best:
                result.best = met
                result.changes.append((now, met))

    def _later_weight(self, entry: WaitingEntry, now: int) -> float:
        """Return the weight of an entry at an instant, whether it waits or not."""
        preference = self.preference
        steps = 0
        if preference.fades and preference.per is None:
            steps = self.granularity(entry, now) - 1
        elif preference.fades and preference.per is not None:
            steps = (max(entry.x.ts, now // preference.per * preference.per) - entry.age_of) // preference.per
        factor = fade_factor(preference.fade, steps) if preference.fades else 1.0
        with np.errstate(all="ignore"):
            weight = float(np.float64(math.nan if entry.product is None else entry.product) * factor)
        return weight if weight > 0 else 0.0

    def recorded(self) -> list[Life]:
        """Return the lives of the results that count, with their inclusion records."""
        found: list[Life] = []
        for result in self.results:
            ends = [at for at, _ in result.changes[1:]] + [result.end]
            for (at, best), end in zip(result.changes, ends, strict=False):
                if at == end:
                    continue
                pi = -math.expm1(-best / result.entry.cost)
                found.append((at, end, (*result.row, struct.pack("<dqqq", pi, result.entry.drawn, 0, 0))))
        return found

    def _rank(self, entry: WaitingEntry, now: int) -> tuple[object, ...]:
        newness = entry.single.newness if entry.single is not None else ()
        return self._key(entry, now), entry.x.order, -entry.zone, tuple(-n for n in newness)

    def _priority(self, entry: WaitingEntry, now: int) -> float:
        """Return the priority of an entry, the most preferred the largest."""
        key = self._key(entry, now)
        if self.preference.order is not PreferenceOrder.WEIGHTED:
            return -key
        if entry.product is None:
            return -_LAST
        factor = fade_factor(self.preference.fade, entry.steps) if self.preference.fades else 1.0
        with np.errstate(all="ignore"):
            priority = float(np.float64(entry.product) * factor)
        return -_LAST if math.isnan(priority) else priority

    def _key(self, entry: WaitingEntry, now: int) -> float:
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

    def _fade(self, entry: WaitingEntry, instant: int) -> None:
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

    def product(
        self, expressions: Sequence[Expression], row: Row, count: int, share: float, found: float | None = 1.0
    ) -> float | None:
        """Return ΠP times `found`; None where one is NULL or NaN. row: the joined row, None for columns that are not
        read."""
        whole: Bag = [(*row, count, share)]
        if found is None:
            return None
        negative = self.preference.fades or self.preference.order is PreferenceOrder.WEIGHTED
        for expression in expressions:
            value = values_of(with_estimates(expression, len(row), len(row) + 1), whole)[0]
            if value is None or math.isnan(value):
                return None
            found *= 0.0 if negative and not value > 0 else float(value)
        return found

    def raced(self, entry: WaitingEntry, columns: list[pa.Array], cost: int) -> WaitingEntry:
        """Return an entry with its draw, and E·c. columns: what the draw depends on beside x."""
        if self.preference.order is not PreferenceOrder.WEIGHTED:
            return entry
        x = entry.x
        own = arrays_of(x.row, self.sides[x.side].schema)
        drawn = draws(self.preference.seed, self.preference.salt(x.side), np.array([x.ts], np.int64), [*own, *columns])
        entry.race, entry.cost = float(exponential_draws(drawn)[0]) * cost, cost
        entry.drawn = int(drawn.view(np.int64)[0])
        return entry


def _units(entry: WaitingEntry) -> int:
    if entry.single is not None:
        return 1
    return int(not entry.looked_up) + len(entry.left) + int(entry.looked_up and not entry.had)


def arrays_of(row: Row, schema: Schema) -> list[pa.Array]:
    return [pa.array([value], field.type) for value, field in zip(row, schema, strict=True)]


def whole_number(number: int) -> pa.Array:
    return pa.array([number], pa.int64())
