"""The join with a NON RETROACTIVE relation: elements are joined with its content at their timestamp, and are not
stored `[golab 3.3.1]`.

If elements may be retracted (row windows), the results of each distinct element are kept until the last of its copies
has ended, so that exactly these are retracted, however the relation has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, int64s
from penstock.physical.kernels.compiled import group_codes, sum_by_code, with_time
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.joins.join import PROBES_AT_ONCE, combine, keyed
from penstock.physical.plan.joins.specs import NRRJoinSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRuns, portions, probe_run
from penstock.types import BEGIN


class Stamp(Operator):
    """Append the ts of each element as a last column."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [elements.with_columns([*elements.columns, pa.array(elements.ts)])]


def make_nrr_join(spec: NRRJoinSpec) -> Operator:
    return StrictNRRJoin(spec) if spec.strict else NRRJoin(spec)


class NRRJoin(Operator):
    """State: the relation's rows as long as an element may still look them up, and elements ahead of the heartbeat.
    Port 2, where there is one, brings in every round the tick up to which look-ups have ended.

    Without a column that holds the timestamp (`NRRJoinSpec.came`), the elements of port 0 must have their timestamp as
    ts, not yet rounded by SLIDE."""

    def __init__(self, spec: NRRJoinSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()
        self._relation = SortedRuns(spec.right_key, strict=True)
        self._updates: list[Elements] = []
        #: No look-up at this tick or before arrives any more; BEGIN without port 2.
        self._looked_up_until = BEGIN

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "relation": self._relation}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 2:
            self._looked_up_until = max(self._looked_up_until, int(elements.ts.max()))
            return []
        key = self._spec.left_key if port == 0 else self._spec.right_key
        if not self._spec.null_safe:
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
        self._relation.expire(self._looked_up_until if self._spec.announced else moment.heartbeat - self._spec.behind)
        return result

    def _meet(self, arrived: Elements, moment: Moment) -> list[Elements]:
        return self._join(arrived)

    def _join(self, elements: Elements) -> list[Elements]:
        """Return the elements joined with their partners; they keep their own validity."""
        result: list[Elements] = []
        first, second = fingerprints([elements.columns[i] for i in self._spec.left_key], len(elements))
        # An element looks up the relation at one instant, whatever its validity.
        at = elements.ts if self._spec.came is None else int64s(elements.columns[self._spec.came])
        probing = Elements((), at, at + 1)
        for start, stop in portions(self._relation, probing, first, second, PROBES_AT_ONCE):
            part = elements.slice(start, stop)
            probe, partners = valid_matches(
                self._relation, probing.slice(start, stop), first[start:stop], second[start:stop]
            )
            if len(probe):
                mine = part.take(probe)
                always = Elements(partners.columns, mine.ts, mine.exp)
                result += combine(mine, always, self._spec.residual)
        return result


class StrictNRRJoin(NRRJoin):
    """Further state: the live elements, and the results of each distinct one of them. Elements with different
    expirations are distinct, since a negative tuple ends an element with its own expiration."""

    def __init__(self, spec: NRRJoinSpec) -> None:
        super().__init__(spec)
        self._every = tuple(range(spec.width + 1))
        self._live, self._stored_results = SortedRuns(self._every, strict=True), SortedRuns(self._every, strict=True)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "live": self._live, "given": self._stored_results}

    def advance(self, moment: Moment) -> list[Elements]:
        result = super().advance(moment)
        self._live.expire(moment.heartbeat)
        self._stored_results.expire(moment.heartbeat)
        return result

    def _meet(self, arrived: Elements, moment: Moment) -> list[Elements]:
        arrived = arrived.with_columns([*arrived.columns, pa.array(arrived.exp)])
        first, second = fingerprints(arrived.columns, len(arrived))
        codes, heads = group_codes(first, second)
        inserted = sum_by_code(codes, np.maximum(arrived.signs, 0), len(heads))
        # For each distinct element, one that was inserted in this round, if any was.
        signs = arrived.signs
        heads[codes[signs > 0]] = np.flatnonzero(signs > 0)
        distinct = Elements((), arrived.exp[heads] - 1, arrived.exp[heads])
        before = _copies(self._live, distinct, first[heads], second[heads])
        fresh = arrived.take(heads[(inserted > 0) & (before <= 0)])
        for result in self._results(fresh):
            self._stored_results.add(result)
        results = self._emit(arrived, first, second)
        left = before + sum_by_code(codes, signs, len(heads))
        self._forget(arrived.take(heads[(left <= 0) & (before + inserted > 0)]), moment)
        self._live.add(arrived)
        return results

    def _results(self, fresh: Elements) -> list[Elements]:
        """Return the results of elements with their expiration as a last column: these columns, then those of the
        relation."""
        width = self._spec.width
        plain = Elements(fresh.columns[:width], fresh.ts, fresh.exp)
        joined = self._join(plain) if len(plain) else []
        return [
            part.with_columns([*part.columns[:width], pa.array(part.exp), *part.columns[width:]]) for part in joined
        ]

    def _emit(self, arrived: Elements, first: UInt64s, second: UInt64s) -> list[Elements]:
        """Return the results of each element; for a negative tuple, the results it retracts."""
        probing = Elements((), arrived.exp - 1, arrived.exp)
        probe, results = valid_matches(self._stored_results, probing, first, second)
        if not len(probe):
            return []
        mine, width = arrived.take(probe), self._spec.width
        columns = (*results.columns[:width], *results.columns[width + 1 :])
        return [Elements(columns, mine.ts, mine.exp, mine.sign)]

    def _forget(self, ended: Elements, moment: Moment) -> None:
        """Remove the stored results of elements without remaining copies."""
        if not len(ended):
            return
        first, second = fingerprints(ended.columns, len(ended))
        probe, results = valid_matches(self._stored_results, Elements((), ended.exp - 1, ended.exp), first, second)
        if len(probe):
            exp = ended.exp[probe]
            now = np.minimum(moment.heartbeat, exp - 1)
            self._stored_results.add(Elements(results.columns, now, exp, np.full(len(probe), -1, np.int64)))


def _copies(runs: SortedRuns, probing: Elements, first: UInt64s, second: UInt64s) -> Int64s:
    """Return the number of elements of `runs` that each element of `probing` matches; negative tuples are
    subtracted."""
    counts = np.zeros(len(probing), np.int64)
    for run in runs:
        probe, rows = probe_run(run, probing, first, second)
        np.add.at(counts, probe, run.elements.signs[rows])
    return counts


def valid_matches(runs: SortedRuns, probing: Elements, first: UInt64s, second: UInt64s) -> tuple[Int64s, Elements]:
    """Return (row of `probing`, element of `runs`) for all elements valid at the ts of the probing row."""
    matches = [(run, *probe_run(run, probing, first, second)) for run in runs]
    matches = [(run, probe, rows) for run, probe, rows in matches if len(probe)]
    if not matches:
        return np.empty(0, np.int64), Elements((), np.empty(0, np.int64), np.empty(0, np.int64))
    probe = np.concatenate([p for _, p, _ in matches])
    partners = concat([run.elements.take(rows) for run, _, rows in matches])
    if partners.sign is None:
        return probe, partners
    # A deleted element and its negative tuple may be in different runs.
    first_half, second_half = fingerprints(partners.columns, len(partners))
    codes, heads = group_codes(*with_time(first_half, second_half, probe))
    left = np.repeat(heads, np.maximum(sum_by_code(codes, partners.signs, len(heads)), 0))
    return probe[left], partners.take(left)
