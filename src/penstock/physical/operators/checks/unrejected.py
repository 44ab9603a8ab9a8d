"""The rows of a stream that none of several checks rejects.

Verdicts come as the rejected rows themselves. Of equal rows of one instant all checks reject the last ones by arrival,
or all: CLUSTERED BY and ORDERED BY judge them alike, and UNIQUE leaves the first at most. So all that has to be known
is how many of them each check rejects.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.arrays import Bools
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_time, group_codes, in_time, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.checks.first_checks import bits
from penstock.physical.plan.inputs import UnrejectedSpec
from penstock.physical.synopses.contract import Synopsis


class Unrejected(Operator):
    """State: rows ahead of the heartbeat."""

    def __init__(self, spec: UnrejectedSpec) -> None:
        self._early = [ReorderBuffer() for _ in range(1 + len(spec.checks))]

    def synopses(self) -> Mapping[str, Synopsis]:
        return {f"early{port}": early.queue for port, early in enumerate(self._early)}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early[port].add(elements.valid())
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        rows, *rejected = (early.until(moment.heartbeat) for early in self._early)
        if rows is None:
            return []
        if not in_time(rows.ts):
            rows = rows.take(argsort_time(rows.ts))
        came = [one for one in rejected if one is not None]
        kept = rows.filter(unbroken(rows, came)) if came else rows
        return [kept] if len(kept) else []


def unbroken(rows: Elements, rejected: list[Elements]) -> Bools:
    """Return which rows no check rejects. rejected: what each does."""
    everything = concat([rows, *rejected])
    exact = [bits(column) for column in everything.columns]
    first, second = with_time(*fingerprints(exact, len(everything)), everything.ts)
    codes, heads = group_codes(first, second)
    mine, start = codes[: len(rows)], len(rows)
    copies = np.bincount(mine, minlength=len(heads))
    number = _numbers(mine, copies)
    left = copies.copy()
    for one in rejected:
        gone = np.bincount(codes[start : start + len(one)], minlength=len(heads))
        start += len(one)
        left = np.minimum(left, copies - gone)
    kept: Bools = number < left[mine]
    return kept


def _numbers(codes: Int64s, copies: Int64s) -> Int64s:
    """Return of each row how many with its code are before it. copies: the rows of each code."""
    order = np.argsort(codes, kind="stable")
    number = np.empty(len(codes), np.int64)
    number[order] = np.arange(len(codes)) - np.repeat(np.cumsum(copies) - copies, copies)
    return number
