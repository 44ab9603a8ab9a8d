"""Joins on validity intervals: a result lives where both its parents do, [max ts, min exp).

`Join` remembers both inputs (`synopses/chains.py`; `synopses/ranges.py` where rows are compared by ranges). Every new
element is probed against everything the other side has; since multiplicities multiply, a negative tuple of a strict
input takes back exactly the results its tuple gave.
`Lookup` joins with a relation that never changes and needs no state at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.physical.elements import Bools, Elements, Int64s, concat
from penstock.physical.fingerprints import fingerprints
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.plan import JoinSpec, LookupSpec
from penstock.physical.ranges import Span, comparable, span_keys, spans
from penstock.physical.synopses.chains import Chains
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.ranges import RangeRun, RangeRuns, probe_ranges
from penstock.physical.synopses.runs import Run, probe_run

#: Probes are cut so that one piece of output stays near this many rows.
PROBES_AT_ONCE = 1 << 18


class Join(Operator):
    """State: what both sides hold."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._sides = (Side(spec, 0), Side(spec, 1))
        self._fresh: tuple[list[Elements], list[Elements]] = ([], [])

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"left": self._sides[0].held, "right": self._sides[1].held}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(self._sides[port].joinable(elements))
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
                result += self._probe(left, 0, [self._sides[1].build(right)])
            result += self._probe(left, 0, self._sides[1].held)
        if right is not None:
            result += self._probe(right, 1, self._sides[0].held)
        for side, fresh in zip(self._sides, (left, right), strict=True):
            if fresh is not None:
                side.held.add(fresh.filter(fresh.exp > moment.heartbeat + 1))
            side.held.expire(moment.heartbeat)
        return result

    def _probe(self, elements: Elements, port: int, others: Chains | Iterable[Run]) -> list[Elements]:
        result: list[Elements] = []
        for probe, other in self._sides[port].pairs(elements, others):
            mine = elements.take(probe)
            pair = (mine, other) if port == 0 else (other, mine)
            result += combine(*pair, self._spec.residual)
        return result


class Side:
    """One input of a join: how its elements are remembered, and how they look for partners among the other's."""

    def __init__(self, spec: JoinSpec, port: int) -> None:
        key, strict = (spec.right_key if port else spec.left_key), spec.strict[port]
        self._key, self._null_safe = key, spec.null_safe
        self._span = None if spec.ranges is None else spec.ranges.side(port)
        self.held: Chains | RangeRuns = (
            Chains(key, strict, spec.listed) if self._span is None else RangeRuns(key, self._span, strict, spec.listed)
        )

    def joinable(self, elements: Elements) -> Bools:
        """Rows that can have a partner at all."""
        return joinable(elements, () if self._null_safe else self._key, self._span)

    def build(self, elements: Elements) -> Run:
        """New elements (at least one), to be asked for partners without being remembered. They may span any time, so
        that they lie in order of it."""
        return self.held.build(0, elements) if isinstance(self.held, RangeRuns) else Run.build(0, elements, self._key)

    def pairs(self, elements: Elements, others: Chains | Iterable[Run]) -> Iterator[tuple[Int64s, Elements]]:
        """(rows of `elements`, what each meets) that may be partners, in pieces."""
        if isinstance(others, Chains):
            first, second = fingerprints([elements.columns[i] for i in self._key], len(elements))
            yield from others.meet(elements, first, second, PROBES_AT_ONCE)
            return
        for run, probe, found in partners(elements, self._key, self._span, others):
            yield probe, run.elements.take(found)


def partners(
    elements: Elements, key: tuple[int, ...], span: Span | None, runs: Iterable[Run]
) -> Iterator[tuple[Run, Int64s, Int64s]]:
    """(run, rows of `elements`, rows of the run) with equal keys, overlapping validity and, where there is a `span`,
    overlapping spans; in pieces."""
    first, second = fingerprints([elements.columns[i] for i in key], len(elements))
    ends = None if span is None else span_keys(span, elements)
    for run in runs:
        if isinstance(run, RangeRun) and ends is not None:
            for probe, found in probe_ranges(run, elements, first, second, *ends, PROBES_AT_ONCE):
                yield run, probe, found
            continue
        for start in range(0, len(elements), PROBES_AT_ONCE):
            stop = min(start + PROBES_AT_ONCE, len(elements))
            probe, found = probe_run(run, elements.slice(start, stop), first[start:stop], second[start:stop])
            if len(probe):
                yield run, probe + start, found


def joinable(elements: Elements, key: tuple[int, ...], span: Span | None) -> Bools:
    """Rows that can have a partner at all: no column of the key is NULL, and no end of the span."""
    keep = keyed(elements, key)
    return keep if span is None else keep & comparable(span, elements)


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


class StaticRows:
    """A static relation that is held whole, to be asked for partners. span: by which its rows are found, too."""

    def __init__(self, table: Elements, key: tuple[int, ...], span: Span | None) -> None:
        usable = table.filter(joinable(table, key, span))
        self._runs: list[Run] = []
        if len(usable):
            self._runs = [Run.build(0, usable, key) if span is None else RangeRun.of(0, usable, key, span)]

    def partners(
        self, elements: Elements, key: tuple[int, ...], span: Span | None
    ) -> Iterator[tuple[Elements, Int64s, Int64s]]:
        """(the relation's rows, rows of `elements`, their partners' numbers), in pieces."""
        rows = np.flatnonzero(joinable(elements, key, span))
        for run, probe, found in partners(elements.take(rows), key, span, self._runs):
            yield run.elements, rows[probe], found


class Lookup(Operator):
    """Join with a static relation, held whole."""

    def __init__(self, spec: LookupSpec, table: Elements) -> None:
        self._spec = spec
        self._span, held = spans(spec.ranges)
        self._rows = StaticRows(table, spec.table_key, held)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        result: list[Elements] = []
        for rows, probe, found in self._rows.partners(elements, self._spec.key, self._span):
            mine, other = elements.take(probe), rows.take(found)
            pair = (other, mine) if self._spec.static_left else (mine, other)
            result += combine(*pair, self._spec.residual)
        return result
