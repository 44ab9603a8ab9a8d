"""The compiled queue of preferences does, unit by unit, what a plain list does."""

from __future__ import annotations

import random
from collections import defaultdict
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from naive_preference_queue import NaiveElement, NaiveEntry, NaiveQueue

from penstock.physical.elements import Elements
from penstock.physical.synopses.preferences.layout import (
    ASC,
    DESC,
    ENTRY,
    LOOKED_UP,
    ONE_UNIT,
    PARAMETERS,
    PER_TIME,
    PER_TUPLE,
    REST,
    SPAN_BITS,
    WAITS_LOOK_UP,
    WEIGHTED,
    WHOLE,
)
from penstock.physical.synopses.preferences.machine import granularity
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.preferences.waiting_entries import EntryInstants, NewEntries, WaitingEntries

RATE, DEPTH = 2, 3
assert LOOKED_UP == 1


class Twin:
    """A compiled queue and a plain one, which get the same elements."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.zones = rng.random() < 0.5
        self.single = not self.zones and rng.random() < 0.3
        self.parameters = np.zeros(1, PARAMETERS)
        p = self.parameters[0]
        p["direction"] = rng.choice([DESC, ASC, WEIGHTED])
        p["budget"] = rng.choice([PER_TUPLE, PER_TIME])
        p["grant"], p["ticks"] = rng.choice([(1, 1), (2, 1), (1, 3), (2, 3), (7, 5)])
        if p["budget"] == PER_TUPLE:
            p["grant"], p["ticks"] = rng.choice([1, 2, 5]), 1
        p["eager"], p["queue"] = 1, rng.choice([3, 10, 1000])
        p["by_age"] = rng.random() < 0.5
        if rng.random() < 0.7:
            p["every"] = rng.choice([(2, 2), (3, 5)]) if not p["by_age"] else (4, 4)
        p["rates"], p["depths"] = RATE, DEPTH
        p["fade"] = rng.choice([0.8, 0.5])
        self.lengths = [rng.choice([4, 11, 30]) for _ in range(2)]
        rate = Fraction(int(p["grant"]), int(p["ticks"])) if p["budget"] == PER_TIME else None
        self.plain = NaiveQueue(
            int(p["direction"]),
            float(p["fade"]),
            tuple(p["every"].tolist()),
            bool(p["by_age"]),
            int(p["grant"]),
            rate,
            int(p["queue"]),
            DEPTH,
            lambda stretch, now: granularity(stretch, now, RATE, DEPTH),
        )
        self.new_queue()
        self.elements: list[list[NaiveElement]] = [[], []]
        self.order = 0
        self.results: list[tuple[int, ...]] = []

    def new_queue(self) -> None:
        self.sides = tuple(NumberedElements([0], lambda e: np.asarray(e.columns[0].is_valid())) for _ in range(2))
        self.queue = WaitingEntries(self.parameters, self.sides)  # type: ignore[arg-type]

    def reload(self) -> None:
        saved = [one.snapshot() for one in (*self.sides, self.queue)]
        self.new_queue()
        for one, (manifest, chunks) in zip((*self.sides, self.queue), saved, strict=True):
            one.restore(manifest, dict(chunks))

    def round(self, arrivals: list[tuple[int, int, int | None]], heartbeat: int) -> None:
        """arrivals: (ts, side, key), ordered by (ts, side)."""
        fresh: list[tuple[int, int, NaiveElement]] = []
        for ts, side, key in arrivals:
            found = NaiveElement(side, len(self.elements[side]), self.order, ts, ts + self.lengths[side], key)
            fresh.append((side, len(self.elements[1 - side]), found))
            self.elements[side].append(found)
            self.order += 1
        self.left_out: list[tuple[int, int]] = []
        words = []
        for side in range(2):
            mine = [e for s, _, e in fresh if s == side]
            added = Elements(
                (pa.array([e.key for e in mine], pa.int64()),),
                np.array([e.ts for e in mine], np.int64), np.array([e.exp for e in mine], np.int64),
            )  # fmt: skip
            words.append(self.sides[side].add(added))
        at_words = [0, 0]
        by_instant: dict[int, list[tuple[np.void, NaiveEntry]]] = defaultdict(list)
        paying: dict[int, int] = defaultdict(int)
        for side, bound, e in fresh:
            word = words[side][at_words[side]]
            at_words[side] += 1
            paying[e.ts] += e.key is not None
            if e.key is not None:
                others = self.sides[1 - side]
                start = int(others.newest_before(word[None, :], np.array([bound], np.int64))[0])
                by_instant[e.ts] += self._entries(e, bound, start)
            else:
                by_instant[e.ts] += []
        instants = sorted(by_instant)
        rows = [one for at in instants for one in by_instant[at]]
        counts = [len(by_instant[at]) for at in instants]
        given = EntryInstants(
            np.array(instants, np.int64),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.array([paying[at] for at in instants], np.int64),
        )
        new = NewEntries(
            np.array([r[0] for r in rows], ENTRY),
            np.array(self.left_out, np.int64).reshape(-1, 2),
        )
        for done in self.queue.run(given, new, heartbeat):
            self.results += done.rows[["side", "x", "partner", "at"]].tolist()
        self.queue.expire(heartbeat + 1)
        for side in self.sides:
            side.expire(heartbeat + 1)
        for at in instants:
            self.plain.between(at - 1)
            self.plain.instant(at, [entry for _, entry in by_instant[at]], paying[at])
        self.plain.between(heartbeat)
        self.plain.begin(heartbeat + 1) if not self.parameters["every"][0, 0] else None

    def _entries(self, x: NaiveElement, bound: int, start: int) -> list[tuple[np.void, NaiveEntry]]:
        rng = self.rng
        equal = [c for c in reversed(self.elements[1 - x.side][:bound]) if c.key == x.key and c.exp > x.ts]
        made = []
        parts: list[tuple[int, int, int, int, list[NaiveElement]]] = []
        if self.single:
            parts = [(WHOLE, c.number, 0, 0, [c]) for c in equal]
        elif self.zones:
            cuts = sorted({rng.randrange(bound + 1) for _ in range(3)}) if bound else []
            zones = [(a, b) for a, b in pairwise(cuts) if rng.random() < 0.6]
            for a, b in zones:
                stretch = self.elements[1 - x.side][a].ts // int(self.parameters["every"][0, 1 - x.side] or 1)
                parts.append((stretch, a, b, 0, [c for c in equal if a <= c.number < b]))
            rest = [c for c in equal if not any(a <= c.number < b for a, b in zones)]
            spans = len(self.left_out) << SPAN_BITS | len(zones)
            self.left_out += zones
            parts.append((REST, 0, bound, spans, rest))
        else:
            parts = [(WHOLE, 0, bound, 0, equal)]
        for stretch, low, high, spans, left in parts:
            base = rng.choice([0.0, 1.0, 2.5, 2.5, -1.0, float("nan"), float("inf")])
            cost = rng.choice([1.0, 4.0])
            race = rng.random() * cost
            row = np.zeros(1, ENTRY)[0]
            row["x"], row["order"], row["low"], row["high"] = x.number, 2 * x.order + x.side, low, high
            row["cursor"] = low if self.single else start
            row["stretch"], row["spans"], row["made"] = stretch, spans, x.ts
            row["stage"] = ONE_UNIT if self.single else WAITS_LOOK_UP
            row["product"], row["race"], row["cost"] = base, race, cost
            newness = -1 if stretch == REST else low
            zone = None if stretch == WHOLE else -1 if stretch == REST else stretch
            entry = NaiveEntry(x, list(left), int(self.single), base, race, newness, zone, bool(left))
            made.append((row, entry))
        return made

    def check(self) -> None:
        assert self.results == self.plain.results
        waiting = self.queue.number("waiting")
        assert self.queue.number("done") == self.plain.counts["done"]
        assert self.queue.number("shed") == self.plain.counts["shed"]
        assert self.queue.number("units_done") == self.plain.counts["units"]
        accounted = sum(map(self.queue.number, ("done", "expired", "shed"))) + waiting
        assert self.queue.number("made_entries") == accounted


@pytest.mark.spread(6)
@pytest.mark.parametrize("seed", range(300))
def test_units_are_done_in_the_same_order_as_by_a_plain_list(seed: int) -> None:
    rng = random.Random(seed)
    twin = Twin(rng)
    now = rng.randrange(20)
    for _ in range(rng.randrange(1, 12)):
        arrivals = []
        for _ in range(rng.choice([0, 1, 3, 12])):
            now += rng.choice([0, 0, 1, 1, 2, 6])
            arrivals.append((now, rng.randrange(2), rng.choice([1, 1, 1, 2, 2, 3, None])))
        now += rng.choice([0, 1, 5, 40])
        twin.round(sorted(arrivals, key=lambda a: a[:2]), now)
        now += 1
        if rng.random() < 0.3:
            twin.reload()
        twin.check()
    twin.round([], now + 100)
    twin.check()
    assert twin.queue.number("waiting") == 0


def test_that_the_cases_reach_what_matters() -> None:
    """Results, expirations and drops all occur in the cases above, and instants whose work is done at once."""
    totals, at_once = np.zeros(3, np.int64), 0
    for seed in range(40):
        rng = random.Random(seed)
        twin = Twin(rng)
        arrivals = sorted((rng.randrange(40), rng.randrange(2), rng.randrange(3)) for _ in range(60))
        twin.round(arrivals, 100)
        totals += [len(twin.results), twin.queue.number("expired"), twin.queue.number("shed")]
        at_once += twin.plain.counts["at once"]
    assert (totals > 50).all() and at_once > 20, (totals, at_once)
