"""Random tuples for the tests of load shedding, and the machine beside the definition."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Records
from penstock.shedding.contract import Shedding
from penstock.shedding.policies import POLICIES
from penstock.shedding.shedder import ArrivingTuples, Shedder
from penstock.testing.approximation.shedding import NaiveShedding, salted

_LIVES = (5, 15, 40, 10**6)


@dataclass(frozen=True)
class SheddingCase:
    """One budget and what arrives. rows: (slot, rank, begin, end, ts, clock, expires, weight)."""

    shedding: Shedding
    budget: int
    rows: tuple[tuple[int, ...], ...]

    def machine(self) -> Shedder:
        return Shedder(self.shedding, self.budget)

    def naive(self) -> NaiveShedding:
        made = self.shedding
        return NaiveShedding(
            made.policy.name, self.budget, made.least_length, made.ordered, made.compact, made.seed, made.sample
        )

    def arrivals(self, start: int = 0, stop: int | None = None) -> ArrivingTuples:
        columns = np.array(self.rows, np.int64).reshape(len(self.rows), 8).T
        return ArrivingTuples(*columns).part(start, len(self.rows) if stop is None else stop)


def random_case(seed: int, policy: str | None = None, size: int = 60, sample: float | None = None) -> SheddingCase:
    """Return a case: one line of time, periods of one length, granules, or any periods."""
    draw = random.Random(seed)
    name = policy or draw.choice(list(POLICIES))
    ordered, kind = draw.random() < 0.6, draw.choice(["line", "for", "granule", "any"])
    share = draw.choice([0, 0.3]) if sample is None else sample
    shedding = Shedding(
        POLICIES[name], draw.choice([0, 0, 3, 6, 12]), ordered, draw.random() < 0.7, draw.randrange(3), share
    )
    keys, life, length = draw.choice([1, 2, 5]), draw.choice(_LIVES), draw.choice([1, 3, 10])
    ranks = [salted(key, 1) for key in range(keys)]
    rows, ts, reached, slot = [], 0, 0, 0
    for _ in range(size):
        ts += draw.choice([0, 1, 1, 2, 5])
        slot = draw.randrange(keys) if kind != "line" or draw.random() > 0.7 else slot
        begin = ts
        if kind == "line":
            ts = begin = max(ts, reached) if draw.random() < 0.2 else reached
            end = reached = begin + draw.randrange(1, 6)
        elif kind == "for":
            end = begin + length
        elif kind == "granule":
            begin = ts // 3 * 3
            end = begin + 3
        else:
            begin = ts if ordered else draw.randrange(-5, 60)
            end = begin + draw.randrange(1, 15)
        expires = ts + (life if kind != "any" or draw.random() < 0.8 else draw.randrange(1, life + 1))
        weight = draw.choice([1, 1, 2]) if kind == "any" else 1
        rows.append((slot, ranks[slot], begin, end, ts, ts, expires, weight))
    return SheddingCase(shedding, draw.choice([1, 2, 3, 5, 8, 13, 20, 100]), tuple(rows))


def check_case(case: SheddingCase, seed: int, changes: float = 0.0) -> int:
    """Run the machine, cut and restored at random places, beside the definition; return the number of drops.

    changes: how often a threshold falls and the budget changes at a cut.
    """
    draw = random.Random(seed)
    machine, naive = case.machine(), case.naive()
    cuts = sorted({0, len(case.rows), *(draw.randrange(len(case.rows)) for _ in range(4))})
    total = 0
    for start, stop in itertools.pairwise(cuts):
        if draw.random() < 0.3:
            restored = case.machine()
            restored.restore(machine.saved())
            machine = restored
        found, expected = [], []
        if stop < len(case.rows) and draw.random() < changes:
            # What a run has decided, at the first arrival of a round.
            ts, clock = case.rows[start][4:6]
            threshold, budget = draw.choice([rank for _, rank, *_ in case.rows]), draw.choice([0, 1, 4, 10, 30])
            machine.set_budget(budget)
            naive.budget = budget
            found += machine.refuse(threshold, clock, ts)["number"].tolist()
            expected += [t.number for t in naive.refuse(threshold, clock)]
        step = draw.choice([1, stop - start])
        for k in range(start, stop, step):
            found += machine.arrive(case.arrivals(k, min(stop, k + step))).drops["number"].tolist()
            assert machine.held <= naive.budget
        for _, rank, begin, end, ts, clock, expires, weight in case.rows[start:stop]:
            dropped = naive.arrive(rank, (begin, end), ts, expires, clock, weight)
            expected += [t.number for t in dropped]
        assert found == expected
        assert sorted(machine.rows()["number"].tolist()) == sorted(t.number for t in naive.held)
        assert sorted(machine.sample_rows()["number"].tolist()) == sorted(t.number for t in naive.sampled)
        assert (machine.extraneous, machine.vanished) == (naive.extraneous, naive.vanished)
        total += len(found)
    return total


def periods(rows: Records) -> list[tuple[int, tuple[int, int]]]:
    """Return entries as (value, period)."""
    return [(rank, (begin, end)) for rank, begin, end in rows[["rank", "begin", "end"]].tolist()]
