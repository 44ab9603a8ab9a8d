"""The join with a NON RETROACTIVE relation: elements meet it as of when they came, and are gone `[golab 3.3.1]`.

Where they may be taken back (row windows), what each distinct element gave is kept until the last of its copies has
ended, so that it takes back that, whatever the relation has become.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, int64s
from penstock.physical.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels import group_codes, sum_by_code, with_time
from penstock.physical.nrr_plan import NRRJoinSpec
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.join import PROBES_AT_ONCE, combine, keyed
from penstock.physical.operators.pending import Early
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.runs import Runs, probe_run
from penstock.types import BEGIN


class Stamp(Operator):
    """Elements with their ts as a last column."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [elements.with_columns([*elements.columns, pa.array(elements.ts)])]


def make_nrr_join(spec: NRRJoinSpec) -> Operator:
    return StrictNRRJoin(spec) if spec.strict else NRRJoin(spec)


class NRRJoin(Operator):
    """State: the relation's rows as long as an element may still ask for them, and elements ahead of the heartbeat.
    Where it is told how long that is, it is told anew in every round.

    Without a column that tells when they came, port 0 brings elements whose ts is their timestamp, before any SLIDE
    rounds it."""

    def __init__(self, spec: NRRJoinSpec) -> None:
        self._spec = spec
        self._early = Early()
        self._relation = Runs(spec.right_key, strict=True)
        self._updates: list[Elements] = []
        #: Up to when nothing asks any more, where that is told.
        self._asked = BEGIN

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "relation": self._relation}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 2:
            self._asked = max(self._asked, int(elements.ts.max()))
            return []
        key = self._spec.left_key if port == 0 else self._spec.right_key
        elements = elements.filter(keyed(elements, key))
        if port == 0:
            self._early.add(elements)
        elif len(elements):
            self._updates.append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        if self._updates:
            self._relation.add(concat(self._updates))
            self._updates = []
        arrived = self._early.until(moment.heartbeat)
        result = [] if arrived is None else self._meet(arrived, moment)
        self._relation.expire(self._asked if self._spec.announced else moment.heartbeat - self._spec.behind)
        return result

    def _meet(self, arrived: Elements, moment: Moment) -> list[Elements]:
        return self._join(arrived)

    def _join(self, elements: Elements) -> list[Elements]:
        """The elements with their partners; their own validity stays."""
        result: list[Elements] = []
        first, second = fingerprints([elements.columns[i] for i in self._spec.left_key], len(elements))
        # An element asks for one instant, however long it lives.
        at = elements.ts if self._spec.came is None else int64s(elements.columns[self._spec.came])
        asking = Elements((), at, at + 1)
        for start in range(0, len(elements), PROBES_AT_ONCE):
            stop = min(start + PROBES_AT_ONCE, len(elements))
            part = elements.slice(start, stop)
            probe, partners = _held(self._relation, asking.slice(start, stop), first[start:stop], second[start:stop])
            if len(probe):
                mine = part.take(probe)
                always = Elements(partners.columns, mine.ts, mine.exp)
                result += combine(mine, always, self._spec.residual)
        return result


class StrictNRRJoin(NRRJoin):
    """Further state: the elements that live, and what each distinct one of them gave; elements that end at different
    times are told apart, as a negative tuple ends one of its own end."""

    def __init__(self, spec: NRRJoinSpec) -> None:
        super().__init__(spec)
        self._every = tuple(range(spec.width + 1))
        self._live, self._given = Runs(self._every, strict=True), Runs(self._every, strict=True)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "live": self._live, "given": self._given}

    def advance(self, moment: Moment) -> list[Elements]:
        result = super().advance(moment)
        self._live.expire(moment.heartbeat)
        self._given.expire(moment.heartbeat)
        return result

    def _meet(self, arrived: Elements, moment: Moment) -> list[Elements]:
        arrived = arrived.with_columns([*arrived.columns, pa.array(arrived.exp)])
        first, second = fingerprints(arrived.columns, len(arrived))
        codes, heads = group_codes(first, second)
        came = sum_by_code(codes, np.maximum(arrived.signs, 0), len(heads))
        # Of each distinct element one that came now, if any did.
        signs = arrived.signs
        heads[codes[signs > 0]] = np.flatnonzero(signs > 0)
        distinct = Elements((), arrived.exp[heads] - 1, arrived.exp[heads])
        before = _copies(self._live, distinct, first[heads], second[heads])
        fresh = arrived.take(heads[(came > 0) & (before <= 0)])
        for given in self._results(fresh):
            self._given.add(given)
        told = self._told(arrived, first, second)
        left = before + sum_by_code(codes, signs, len(heads))
        self._forget(arrived.take(heads[(left <= 0) & (before + came > 0)]), moment)
        self._live.add(arrived)
        return told

    def _results(self, fresh: Elements) -> list[Elements]:
        """What elements with their end as a last column give: these columns, then those of the relation."""
        width = self._spec.width
        plain = Elements(fresh.columns[:width], fresh.ts, fresh.exp)
        joined = self._join(plain) if len(plain) else []
        return [
            part.with_columns([*part.columns[:width], pa.array(part.exp), *part.columns[width:]]) for part in joined
        ]

    def _told(self, arrived: Elements, first: UInt64s, second: UInt64s) -> list[Elements]:
        """What each element gives, or what a negative tuple takes back."""
        asking = Elements((), arrived.exp - 1, arrived.exp)
        probe, given = _held(self._given, asking, first, second)
        if not len(probe):
            return []
        mine, width = arrived.take(probe), self._spec.width
        columns = (*given.columns[:width], *given.columns[width + 1 :])
        return [Elements(columns, mine.ts, mine.exp, mine.sign)]

    def _forget(self, ended: Elements, moment: Moment) -> None:
        """Drop what elements gave of which no copy is left."""
        if not len(ended):
            return
        first, second = fingerprints(ended.columns, len(ended))
        probe, given = _held(self._given, Elements((), ended.exp - 1, ended.exp), first, second)
        if len(probe):
            exp = ended.exp[probe]
            now = np.minimum(moment.heartbeat, exp - 1)
            self._given.add(Elements(given.columns, now, exp, np.full(len(probe), -1, np.int64)))


def _copies(runs: Runs, asking: Elements, first: UInt64s, second: UInt64s) -> Int64s:
    """How many elements of `runs` each of `asking` meets, negative tuples counting against others."""
    counts = np.zeros(len(asking), np.int64)
    for run in runs:
        probe, rows = probe_run(run, asking, first, second)
        np.add.at(counts, probe, run.elements.signs[rows])
    return counts


def _held(runs: Runs, asking: Elements, first: UInt64s, second: UInt64s) -> tuple[Int64s, Elements]:
    """(row of `asking`, row of `runs`) for all that these hold at the instant of asking."""
    found = [(run, *probe_run(run, asking, first, second)) for run in runs]
    found = [(run, probe, rows) for run, probe, rows in found if len(probe)]
    if not found:
        return np.empty(0, np.int64), Elements((), np.empty(0, np.int64), np.empty(0, np.int64))
    probe = np.concatenate([p for _, p, _ in found])
    partners = concat([run.elements.take(rows) for run, _, rows in found])
    if partners.sign is None:
        return probe, partners
    # What was taken away may lie in one run, and what took it away in another.
    one, two = fingerprints(partners.columns, len(partners))
    codes, heads = group_codes(*with_time(one, two, probe))
    left = np.repeat(heads, np.maximum(sum_by_code(codes, partners.signs, len(heads)), 0))
    return probe[left], partners.take(left)
