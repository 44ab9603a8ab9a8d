"""Joins on validity intervals: a result lives where both its parents do, [max ts, min exp).

`Join` remembers both inputs (`synopses/runs.py`). Every new element is probed against everything the other side has;
since multiplicities multiply, a negative tuple of a strict input takes back exactly the results its tuple gave.
`Lookup` joins with a relation that never changes and needs no state at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.physical.elements import Bools, Elements, concat
from penstock.physical.fingerprints import fingerprints
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.plan import JoinSpec, LookupSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.runs import Run, Runs, probe_run

#: Probes are cut so that one piece of output stays near this many rows.
PROBES_AT_ONCE = 1 << 18


class Join(Operator):
    """State: the runs of both sides."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._keys = (spec.left_key, spec.right_key)
        self._sides = (
            Runs(spec.left_key, spec.strict[0], spec.listed),
            Runs(spec.right_key, spec.strict[1], spec.listed),
        )
        self._fresh: tuple[list[Elements], list[Elements]] = ([], [])

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"left": self._sides[0], "right": self._sides[1]}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if not self._spec.null_safe:
            elements = elements.filter(keyed(elements, self._keys[port]))
        if len(elements):
            self._fresh[port].append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        left = concat(self._fresh[0]) if self._fresh[0] else None
        right = concat(self._fresh[1]) if self._fresh[1] else None
        self._fresh = ([], [])
        result: list[Elements] = []
        if left is not None:
            # New left meets old and new right; new right then meets old left only.
            if right is not None:
                new_right = Run.build(0, right, self._keys[1])
                result += self._probe(left, 0, iter([new_right]))
            result += self._probe(left, 0, iter(self._sides[1]))
        if right is not None:
            result += self._probe(right, 1, iter(self._sides[0]))
        if left is not None:
            self._sides[0].add(left)
        if right is not None:
            self._sides[1].add(right)
        for side in self._sides:
            side.expire(moment.heartbeat)
        return result

    def _probe(self, elements: Elements, port: int, runs: Iterator[Run]) -> list[Elements]:
        result: list[Elements] = []
        first, second = fingerprints([elements.columns[i] for i in self._keys[port]], len(elements))
        for run in runs:
            for start in range(0, len(elements), PROBES_AT_ONCE):
                stop = min(start + PROBES_AT_ONCE, len(elements))
                part = elements.slice(start, stop)
                probe, found = probe_run(run, part, first[start:stop], second[start:stop])
                if len(probe):
                    mine, other = part.take(probe), run.elements.take(found)
                    pair = (mine, other) if port == 0 else (other, mine)
                    result += combine(*pair, self._spec.residual)
        return result


def combine(left: Elements, right: Elements, residual: Expression | None) -> list[Elements]:
    """The joined elements of matching rows."""
    ts, exp = np.maximum(left.ts, right.ts), np.minimum(left.exp, right.exp)
    sign = None if left.sign is None and right.sign is None else left.signs * right.signs
    joined = Elements((*left.columns, *right.columns), ts, exp, sign)
    if residual is not None:
        joined = joined.filter(mask(residual, joined.columns, len(joined)))
    return [joined] if len(joined) else []


def keyed(elements: Elements, key: tuple[int, ...]) -> Bools:
    """Rows that can match at all: none of the key columns is NULL."""
    keep = np.ones(len(elements), np.bool_)
    for position in key:
        column: pa.Array = elements.columns[position]
        if column.null_count:
            keep &= column.is_valid().to_numpy(zero_copy_only=False)
    return keep


class Lookup(Operator):
    """Join with a static relation, held whole."""

    def __init__(self, spec: LookupSpec, table: Elements) -> None:
        self._spec = spec
        usable = table.filter(keyed(table, spec.table_key))
        self._run = Run.build(0, usable, spec.table_key) if len(usable) else None

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if self._run is None:
            return []
        elements = elements.filter(keyed(elements, self._spec.key))
        result: list[Elements] = []
        first, second = fingerprints([elements.columns[i] for i in self._spec.key], len(elements))
        for start in range(0, len(elements), PROBES_AT_ONCE):
            stop = min(start + PROBES_AT_ONCE, len(elements))
            part = elements.slice(start, stop)
            probe, found = probe_run(self._run, part, first[start:stop], second[start:stop])
            mine, other = part.take(probe), self._run.elements.take(found)
            pair = (other, mine) if self._spec.static_left else (mine, other)
            result += combine(*pair, self._spec.residual)
        return result
