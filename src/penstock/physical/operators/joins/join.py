"""Joins on validity intervals: a result is valid where both its inputs are, [max ts, min exp).

`Join` stores both inputs (`physical/synopses/join_indexes/hash_index.py`;
`physical/synopses/join_indexes/interval_runs.py` where rows are compared by ranges). Every new element probes all
elements of the other side; since multiplicities multiply, a negative tuple of a strict input cancels exactly the
results of its tuple. `Lookup` joins with a relation that never changes and needs no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluation.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.physical.elements import Bools, Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.joins.growth import account
from penstock.physical.plan.joins.ranges import RangeSpan, comparable, span_keys, spans
from penstock.physical.plan.joins.specs import JoinSpec, LookupSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.join_indexes.interval_runs import IntervalRun, IntervalRuns, probe_ranges
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRun, SortedRuns, probe_pieces
from penstock.types import BEGIN, END

#: Probes are cut so that about this many pairs are formed at once, or those of one probe.
PROBES_AT_ONCE = 1 << 18
#: Elements by which the number of pairs is estimated: of one side, fewer where these have many partners, and of those
#: that they are compared with.
_SAMPLES, _SAMPLE_OF_OTHER = (4, 32, 128), 2048


class Join(Operator):
    """State: the elements of both sides, and where advances are divided, those that are left to the next round."""

    def __init__(self, spec: JoinSpec) -> None:
        self._spec = spec
        self._sides = (Side(spec, 0), Side(spec, 1))
        self._fresh: tuple[list[Elements], list[Elements]] = ([], [])
        self._left_over = (ReorderBuffer(), ReorderBuffer())
        #: Whether `_fresh` is only what the next advance is to join.
        self._is_portion = False

    def synopses(self) -> Mapping[str, Synopsis]:
        held: dict[str, Synopsis] = {"left": self._sides[0].held, "right": self._sides[1].held}
        if self._spec.divides:
            held |= {"left_over": self._left_over[0].queue, "right_over": self._left_over[1].queue}
        return held

    def portion(self, moment: Moment, rows: int) -> int:
        """See the contract. Elements of one instant are joined together."""
        self._take_left_over()
        fresh = [concat(parts) if parts else None for parts in self._fresh]
        self._is_portion = True
        until, among = END, fresh
        while (reached := self._reached(among, rows)) is not None and reached < until:
            until = reached
            if not self._spec.left_key:
                break
            # With a key it is an estimate, which the elements up to there alone may not bear out.
            among = [None if one is None else one.filter(one.ts <= until) for one in among]
        if until == END:
            return moment.heartbeat
        # What the frontier has is emitted there.
        kept = max(until, moment.frontier) if until >= moment.heartbeat else until
        for parts, one, over in zip(self._fresh, fresh, self._left_over, strict=True):
            if one is not None:
                now = one.filter(one.ts <= kept)
                parts[:] = [now] if len(now) else []
                over.add(one.filter(one.ts > kept))
                over.hold()
        return min(until, moment.heartbeat)

    def _reached(self, fresh: Sequence[Elements | None], rows: int) -> int | None:
        """Return up to which instant elements have about `rows` pairs; None for all of them. Those of one instant are
        joined together."""
        left, right = (np.empty(0, np.int64) if one is None else one.ts for one in fresh)
        standing = [side.held.rows * self._copies_of_row(port) for port, side in enumerate(self._sides)]
        both = 1.0
        if len(left) * (standing[1] + len(right)) + len(right) * standing[0] > rows and self._spec.left_key:
            # A sample shows how many of these are partners.
            standing = [self._partners(fresh[1 - port], 1 - port, rows // 4) for port in (0, 1)]
            both = self._share_of_pairs(*fresh)
        if len(left) * (standing[1] + both * len(right)) + len(right) * standing[0] <= rows:
            return None
        # Those valid from the beginning of time go with the first instant behind it.
        instants = np.unique(np.maximum(np.concatenate([left, right]), BEGIN + 1))
        lefts, rights = (np.searchsorted(np.sort(ts), instants, "right").astype(np.float64) for ts in (left, right))
        pairs = lefts * (standing[1] + both * rights) + rights * standing[0]
        return int(instants[max(0, int(np.searchsorted(pairs, rows, "right")) - 1)])

    def _partners(self, fresh: Elements | None, port: int, rows: int) -> float:
        """Return about how many stored elements of the other side each of some elements of a side joins. rows: pairs
        that are many."""
        other = self._sides[1 - port].held
        if fresh is None or not len(fresh) or not other.rows:
            return 0.0
        found, looked_at = 0, 0
        for count in _SAMPLES:
            sample = _sample(fresh, count)
            found += sum(len(probe) for probe, _ in self._sides[port].pairs(sample, other))
            looked_at += len(sample)
            if found > rows or len(sample) < count:
                break
        return found / looked_at * self._copies_of_row(1 - port)

    def _copies_of_row(self, port: int) -> float:
        """Return about how many rows a stored element of a side stands for."""
        return 1.0

    def _share_of_pairs(self, left: Elements | None, right: Elements | None) -> float:
        """Return about which part of all pairs of some elements of both sides have one key."""
        if left is None or right is None or not len(left) or not len(right):
            return 0.0
        keys = self._spec.left_key, self._spec.right_key
        samples = _sample(left, _SAMPLES[-1]), _sample(right, _SAMPLE_OF_OTHER)
        first, second = (
            fingerprints([one.columns[i] for i in key], len(one))[0] for one, key in zip(samples, keys, strict=True)
        )
        return float((first[:, None] == second[None, :]).mean())

    def _take_left_over(self) -> None:
        for parts, over in zip(self._fresh, self._left_over, strict=True):
            parts[:] = [*over.parts_until(END), *parts]

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(self._sides[port].joinable(elements))
        if len(elements):
            self._fresh[port].append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        if not self._is_portion:
            self._take_left_over()
        self._is_portion = False
        left = concat(self._fresh[0]) if self._fresh[0] else None
        right = concat(self._fresh[1]) if self._fresh[1] else None
        self._fresh = ([], [])
        result: list[Elements] = []
        if left is not None:
            # New left elements probe old and new right ones; new right elements then probe old left ones only.
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

    def _probe(self, elements: Elements, port: int, others: HashJoinIndex | Iterable[SortedRun]) -> list[Elements]:
        result: list[Elements] = []
        for probe, other in self._sides[port].pairs(elements, others):
            mine = elements.take(probe)
            pair = (mine, other) if port == 0 else (other, mine)
            result += combine(*pair, self._spec.residual)
        return result


def _sample(elements: Elements, count: int) -> Elements:
    """Return some of the elements, evenly spaced, or all of a few."""
    if len(elements) <= count:
        return elements
    return elements.take(np.arange(count) * len(elements) // count)


class Side:
    """One input of a join: how its elements are stored, and how they probe the other input's."""

    def __init__(self, spec: JoinSpec, port: int) -> None:
        key = spec.right_key if port else spec.left_key
        self._key, self._null_safe = key, spec.null_safe
        self._span = None if spec.ranges is None else spec.ranges.side(port)
        self.held: HashJoinIndex | SortedRuns = _index(spec, port, key, self._span)

    def joinable(self, elements: Elements) -> Bools:
        """Return rows that can have a partner at all."""
        return joinable(elements, () if self._null_safe else self._key, self._span)

    def build(self, elements: Elements) -> SortedRun:
        """Return new elements (at least one) as a run that can be probed without being stored. They may span any
        length of time, so the run is sorted by time."""
        return (
            self.held.build(0, elements)
            if isinstance(self.held, SortedRuns)
            else SortedRun.build(0, elements, self._key)
        )

    def pairs(
        self, elements: Elements, others: HashJoinIndex | Iterable[SortedRun]
    ) -> Iterator[tuple[Int64s, Elements]]:
        """Yield (rows of `elements`, the element that each may match), in batches."""
        if isinstance(others, HashJoinIndex):
            first, second = fingerprints([elements.columns[i] for i in self._key], len(elements))
            yield from others.meet(elements, first, second, PROBES_AT_ONCE)
            return
        for run, probe, matching in partners(elements, self._key, self._span, others):
            yield probe, run.elements.take(matching)


def _index(spec: JoinSpec, port: int, key: tuple[int, ...], span: RangeSpan | None) -> HashJoinIndex | SortedRuns:
    """Return an empty synopsis for a side of a join."""
    kind, strict = spec.kind_of(port), spec.strict[port]
    if kind == "IntervalRuns":
        assert span is not None, "rows are compared by ranges"
        return IntervalRuns(key, span, strict, spec.listed)
    return SortedRuns(key, strict, spec.listed) if kind == "SortedRuns" else HashJoinIndex(key, strict, spec.listed)


def partners(
    elements: Elements, key: tuple[int, ...], span: RangeSpan | None, runs: Iterable[SortedRun]
) -> Iterator[tuple[SortedRun, Int64s, Int64s]]:
    """Yield (run, rows of `elements`, rows of the run) with equal keys, overlapping validity and, if there is a `span`,
    overlapping ranges; in batches."""
    first, second = fingerprints([elements.columns[i] for i in key], len(elements))
    ends = None if span is None else span_keys(span, elements)
    for run in runs:
        if isinstance(run, IntervalRun) and ends is not None:
            for probe, matching in probe_ranges(run, elements, first, second, *ends, PROBES_AT_ONCE):
                yield run, probe, matching
            continue
        for start in range(0, len(elements), PROBES_AT_ONCE):
            stop = min(start + PROBES_AT_ONCE, len(elements))
            part = elements.slice(start, stop)
            for probe, matching in probe_pieces(run, part, first[start:stop], second[start:stop], PROBES_AT_ONCE):
                if len(probe):
                    yield run, probe + start, matching


def joinable(elements: Elements, key: tuple[int, ...], span: RangeSpan | None) -> Bools:
    """Return rows that can have a partner at all: no column of the key is NULL, and no end of the span."""
    keep = keyed(elements, key)
    return keep if span is None else keep & comparable(span, elements)


def combine(left: Elements, right: Elements, residual: Expression | None) -> list[Elements]:
    """Return the joined elements of matching rows."""
    ts, exp = np.maximum(left.ts, right.ts), np.minimum(left.exp, right.exp)
    sign = None if left.sign is None and right.sign is None else left.signs * right.signs
    joined = Elements((*left.columns, *right.columns), ts, exp, sign)
    if residual is not None:
        joined = joined.filter(mask(residual, joined.columns, len(joined)))
    account(joined)
    return [joined] if len(joined) else []


def keyed(elements: Elements, key: tuple[int, ...]) -> Bools:
    """Return rows that can match at all: none of the key columns is NULL."""
    keep = np.ones(len(elements), np.bool_)
    for position in key:
        column: pa.Array = elements.columns[position]
        if column.null_count:
            keep &= column.is_valid().to_numpy(zero_copy_only=False)
    return keep


class StaticRows:
    """A static relation held in memory and probed for partners. span: the ranges by which its rows are found as
    well."""

    def __init__(self, table: Elements, key: tuple[int, ...], span: RangeSpan | None) -> None:
        usable = table.filter(joinable(table, key, span))
        self._runs: list[SortedRun] = []
        if len(usable):
            self._runs = [SortedRun.build(0, usable, key) if span is None else IntervalRun.of(0, usable, key, span)]

    def partners(
        self, elements: Elements, key: tuple[int, ...], span: RangeSpan | None
    ) -> Iterator[tuple[Elements, Int64s, Int64s]]:
        """Yield (the relation's rows, rows of `elements`, row numbers of their partners), in batches."""
        rows = np.flatnonzero(joinable(elements, key, span))
        for run, probe, matching in partners(elements.take(rows), key, span, self._runs):
            yield run.elements, rows[probe], matching


class Lookup(Operator):
    """Join with a static relation held in memory."""

    def __init__(self, spec: LookupSpec, table: Elements) -> None:
        self._spec = spec
        self._span, table_span = spans(spec.ranges)
        self._rows = StaticRows(table, spec.table_key, table_span)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        result: list[Elements] = []
        for rows, probe, matching in self._rows.partners(elements, self._spec.key, self._span):
            mine, other = elements.take(probe), rows.take(matching)
            pair = (other, mine) if self._spec.static_left else (mine, other)
            result += combine(*pair, self._spec.residual)
        return result
