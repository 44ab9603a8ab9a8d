"""Ordered bags: in trees for every question about the order, in heaps where only the extremes are needed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expressions.nodes import KeyDirection
from penstock.physical.elements import Int64s
from penstock.physical.kernels import heaps, trees
from penstock.physical.synopses.tables.bags import Found, LinkedBag, Questions
from penstock.physical.synopses.tables.keyed_table import KeyedTable


class OrderedBag(LinkedBag):
    """A bag in trees, which evaluates every question. distinct: every value counts once."""

    def __init__(
        self,
        groups: KeyedTable,
        type_: pa.DataType,
        distinct: bool,
        questions: Questions,
        directions: tuple[KeyDirection, ...] = (),
    ) -> None:
        super().__init__(groups, type_, questions, directions)
        self._distinct = distinct

    def ask(self, groups: Int64s) -> Found:
        self._refresh()
        found, between = self._room(len(groups))
        members, counts = trees.ask(
            self._nodes, self._roots, groups, self._questions.asked, self._questions.parameters, found, between
        )
        return Found(found, between, members, counts)

    def follow(
        self, slots: Int64s, times: Int64s, order: Int64s, pairs: Int64s, weights: Int64s, outputs: int
    ) -> Found:
        self._refresh()
        found, between = self._room(outputs)
        members, counts = trees.follow(
            slots,
            times,
            order,
            pairs,
            weights,
            self.integers[0],
            self._distinct,
            self._nodes,
            self._roots,
            self._wide,
            self._spans,
            self._data,
            self._questions.asked,
            self._questions.parameters,
            found,
            between,
        )
        self.touch(pairs[pairs >= 0])
        return Found(found, between, members, counts)

    def _plant(self, groups: Int64s, slots: Int64s) -> None:
        trees.plant(
            self._nodes,
            self._roots,
            groups,
            slots,
            self.integers[0],
            self._distinct,
            self._wide,
            self._spans,
            self._data,
        )

    def _uproot(self, groups: Int64s) -> None:
        trees.uproot(self._nodes, self._roots, groups)


class ExtremeBag(LinkedBag):
    """A bag in heaps, which evaluates trees.LEAST and trees.GREATEST only."""

    def __init__(
        self, groups: KeyedTable, type_: pa.DataType, questions: Questions, directions: tuple[KeyDirection, ...] = ()
    ) -> None:
        super().__init__(groups, type_, questions, directions)
        self._sides = np.where(questions.asked == trees.LEAST, 0, 1)

    def _no_roots(self, size: int) -> Int64s:
        return np.zeros((size, 2), np.int64)

    def ask(self, groups: Int64s) -> Found:
        self._refresh()
        tops = self._roots[groups][:, self._sides].T - 1
        return _tops(np.stack([tops, tops], axis=2))

    def follow(
        self, slots: Int64s, times: Int64s, order: Int64s, pairs: Int64s, weights: Int64s, outputs: int
    ) -> Found:
        self._refresh()
        found, _ = self._room(outputs)
        heaps.follow(
            slots,
            times,
            order,
            pairs,
            weights,
            self.integers[0],
            self._nodes,
            self._roots,
            self._sides,
            self._wide,
            self._spans,
            self._data,
            found,
        )
        self.touch(pairs[pairs >= 0])
        return _tops(found)

    def _plant(self, groups: Int64s, slots: Int64s) -> None:
        heaps.fill(self._nodes, self._roots, groups, slots, self._sides, self._wide, self._spans, self._data)

    def _uproot(self, groups: Int64s) -> None:
        heaps.clear(self._nodes, self._roots, groups, self._wide, self._spans, self._data)


def _tops(found: Int64s) -> Found:
    none = np.empty(0, np.int64)
    return Found(found, np.zeros(found.shape[:2]), none, none)
