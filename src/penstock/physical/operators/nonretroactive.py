"""The join with a NON RETROACTIVE relation: elements meet it as of their timestamp, and are gone `[golab 3.3.1]`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels import group_codes, sum_by_code, with_time
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.join import PROBES_AT_ONCE, combine, keyed
from penstock.physical.operators.pending import Early
from penstock.physical.plan import NRRJoinSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.runs import Runs, probe_run


class NRRJoin(Operator):
    """State: the relation's rows as long as an element may still ask for them, and elements ahead of the heartbeat.

    Port 0 brings elements whose ts is their timestamp, before any SLIDE rounds it."""

    def __init__(self, spec: NRRJoinSpec) -> None:
        self._spec = spec
        self._early = Early()
        self._relation = Runs(spec.right_key, strict=True)
        self._updates: list[Elements] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "relation": self._relation}

    def process(self, port: int, elements: Elements) -> list[Elements]:
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
        result = [] if arrived is None else self._join(arrived)
        self._relation.expire(moment.heartbeat)
        return result

    def _join(self, elements: Elements) -> list[Elements]:
        """The elements with their partners; their own validity stays."""
        result: list[Elements] = []
        first, second = fingerprints([elements.columns[i] for i in self._spec.left_key], len(elements))
        # An element asks for one instant, however long it lives.
        asking = Elements((), elements.ts, elements.ts + 1)
        for start in range(0, len(elements), PROBES_AT_ONCE):
            stop = min(start + PROBES_AT_ONCE, len(elements))
            part = elements.slice(start, stop)
            probe, partners = self._partners(asking.slice(start, stop), first[start:stop], second[start:stop])
            if len(probe):
                mine = part.take(probe)
                always = Elements(partners.columns, mine.ts, mine.exp)
                result += combine(mine, always, self._spec.residual)
        return result

    def _partners(self, asking: Elements, first: UInt64s, second: UInt64s) -> tuple[Int64s, Elements]:
        """(row of `asking`, row of the relation) for all that the relation holds at the instant of asking."""
        found = [(run, *probe_run(run, asking, first, second)) for run in self._relation]
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
