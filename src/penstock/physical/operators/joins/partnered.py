"""The left tuples of a join that have a partner: pairs in pieces, of which the stretches with a partner are kept.

A semi-join or anti-join with a condition reads of its pairs only which left tuple each belongs to and when it is valid.
So the pairs of a piece (`join.PROBES_AT_ONCE`) become elements of the left tuples at once: overlapping validities of
equal tuples are united, or, where either side may have negative tuples, pairs of one tuple and one validity are added
up. Elements of several pieces are put together in the same way when there are as many again.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from penstock.arrays import Int64s
from penstock.compilation import loop
from penstock.physical.elements import Elements, concat
from penstock.physical.kernels.compiled import argsort_code_time, group_codes, sum_by_code, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.joins import join
from penstock.physical.operators.joins.growth import give_back
from penstock.physical.operators.joins.join import Join, combine
from penstock.physical.plan.joins.specs import PartneredSpec
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRun


class PartneredJoin(Join):
    """State: the elements of both sides."""

    def __init__(self, spec: PartneredSpec) -> None:
        super().__init__(spec)
        self._width = len(spec.left_types)
        self._signed = any(spec.strict)

    def _probe(self, elements: Elements, port: int, others: HashJoinIndex | Iterable[SortedRun]) -> list[Elements]:
        held: list[Elements] = []
        rows, most = 0, join.PROBES_AT_ONCE
        for probe, other in self._sides[port].pairs(elements, others):
            mine = elements.take(probe)
            for pairs in combine(*((mine, other) if port == 0 else (other, mine)), self._spec.residual):
                held.append(self._united(pairs.with_columns(pairs.columns[: self._width])))
                rows += len(held[-1])
                give_back(pairs.nbytes - held[-1].nbytes)
            if rows > most:
                before = sum(one.nbytes for one in held)
                held = [self._united(concat(held))]
                rows = len(held[0])
                give_back(before - held[0].nbytes)
                most = max(join.PROBES_AT_ONCE, 2 * rows)
        return [self._united(concat(held))] if len(held) > 1 else held

    def _united(self, elements: Elements) -> Elements:
        """Return the intervals of `elements`, in which their tuples have a partner, in fewer elements."""
        first, second = fingerprints(elements.columns, len(elements))
        if self._signed:
            codes, heads = group_codes(*with_time(*with_time(first, second, elements.ts), elements.exp))
            sums = sum_by_code(codes, elements.signs, len(heads))
            found = elements.take(heads[sums != 0])
            return Elements(found.columns, found.ts, found.exp, sums[sums != 0])
        codes, _ = group_codes(first, second)
        order = argsort_code_time(codes, elements.ts)
        rows, ends = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        count = int(_unite(codes, elements.ts.copy(), elements.exp.copy(), order, rows, ends))
        found = elements.take(rows[:count])
        return Elements(found.columns, found.ts, ends[:count].copy())  # a view would hold the whole


@loop
def _unite(codes: Int64s, ts: Int64s, exp: Int64s, order: Int64s, rows: Int64s, ends: Int64s) -> int:
    """Unite the validities of rows of one code that overlap or meet; `order` sorts by (code, ts). rows: the first row
    of each, ends: its end. Return their number."""
    count = 0
    for n in range(order.shape[0]):
        row = order[n]
        if count and codes[rows[count - 1]] == codes[row] and ts[row] <= ends[count - 1]:
            ends[count - 1] = max(ends[count - 1], exp[row])
        else:
            rows[count] = row
            ends[count] = exp[row]
            count += 1
    return count
