"""The operators of WITH PREFERENCE: the join of two streams, those of a stream with a relation, and the selection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.preference_clause import BudgetKind
from penstock.arrays import Int64s
from penstock.expressions.draws import draws
from penstock.expressions.evaluation.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.physical.elements import Bools, Elements, concat, forever
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.joins.join import keyed
from penstock.physical.operators.joins.nonretroactive import valid_matches
from penstock.physical.operators.preferences.entries import Direction
from penstock.physical.operators.preferences.feedback import StreamAhead
from penstock.physical.operators.preferences.operator import PreferenceSide, Preferring
from penstock.physical.plan.preferences.queries import (
    PreferenceSpec,
    PreferringJoinSpec,
    PreferringLookUpSpec,
    PreferringNRRLookUpSpec,
    PreferringSelectionSpec,
)
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRuns
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements


class PreferringJoin(Preferring):
    """A join of two streams."""

    def __init__(self, spec: PreferringJoinSpec, shards: int) -> None:
        keys = (spec.left_key, spec.right_key)
        inputs = [
            PreferenceSide(
                keys[side], spec.filters[side], spec.arrival[side], spec.summaries[side], _summarised(spec, side)
            )
            for side in (0, 1)
        ]
        directions = [
            Direction(
                spec.preference,
                side,
                spec.into[1 - side],
                (spec.types, spec.right_types),
                spec.summaries[1 - side] is not None,
                spec.reads_partner[1 - side],
                False,
                False,
                _eager(spec),
            )
            for side in (0, 1)
        ]
        left, right = (NumberedElements(side.key, side.passing) for side in inputs)
        later = [
            StreamAhead(spec.preference, ahead, arrival)
            for ahead, arrival in zip(spec.ahead, spec.arrival[2:], strict=True)
        ]
        super().__init__(spec.preference, shards, inputs, directions, (left, right), (1, 0), later)
        self._residual = spec.residual

    def _examined(self, side: int, x: Elements, partners: Elements | None, at: Int64s) -> tuple[Elements, Bools]:
        assert partners is not None
        left, right = (partners, x) if side else (x, partners)
        return _joined(left, right, at, self._residual)


class PreferringLookUp(Preferring):
    """A join of a stream with a static relation."""

    def __init__(self, spec: PreferringLookUpSpec, shards: int, table: Elements) -> None:
        direction = Direction(
            spec.preference,
            0,
            spec.expressions,
            (spec.types, spec.table_types),
            spec.summary is not None,
            spec.reads_partner,
            False,
            True,
            _eager(spec),
        )
        side = PreferenceSide(spec.key, spec.filter, spec.arrival[0], spec.summary, spec.summarised)
        rows = NumberedElements(spec.table_key, lambda elements: keyed(elements, spec.table_key))
        # The chain of a key runs from the last row to the first, so the least draw comes last.
        drawn = draws(0, "", np.zeros(len(table), np.int64), table.columns)
        ordered = table.take(np.argsort(drawn, kind="stable")[::-1].copy())
        rows.add(forever(ordered.columns, len(ordered)))
        stored = (NumberedElements(side.key, side.passing), rows)
        super().__init__(spec.preference, shards, [side], [direction], stored, (0,))
        self._residual = spec.residual

    def _examined(self, side: int, x: Elements, partners: Elements | None, at: Int64s) -> tuple[Elements, Bools]:
        assert partners is not None
        return _joined(x, partners, at, self._residual)


class PreferringNRRLookUp(Preferring):
    """A join of a stream with a NON RETROACTIVE relation.

    The partners of an element are those of its own instant, whatever becomes of them while it waits. So they are copied
    when it arrives, as elements that end with it: their key is its number, and the least draw comes last.

    Further state: the relation's rows as long as an element may look them up.
    """

    def __init__(self, spec: PreferringNRRLookUpSpec, shards: int) -> None:
        direction = Direction(
            spec.preference,
            0,
            spec.expressions,
            (spec.types, spec.table_types),
            spec.summary is not None,
            spec.reads_partner,
            False,
            True,
            _eager(spec),
        )
        side = PreferenceSide(spec.key, spec.filter, spec.arrival[0], spec.summary, spec.summarised)
        copies = NumberedElements((len(spec.table_types),), _all_are_found, hidden=1)
        stored = (NumberedElements(side.key, side.passing), copies)
        super().__init__(spec.preference, shards, [side], [direction], stored, (0,))
        self._spec, self._copies, self._ending = spec, copies, stored
        self._relation = SortedRuns(spec.table_key, strict=True)
        self._updates: list[Elements] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "relation": self._relation, "partners": self._copies}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 0:
            return super().process(port, elements)
        elements = elements.filter(keyed(elements, self._spec.table_key))
        if len(elements):
            self._updates.append(elements)
        return []

    def advance(self, moment: Moment) -> Iterator[Elements]:
        if self._updates:
            self._relation.add(concat(self._updates))
            self._updates = []
        yield from super().advance(moment)
        self._relation.expire(moment.heartbeat)

    def _partners(
        self, port: int, makers: Elements, numbers: Int64s, words: Int64s, bounds: Int64s
    ) -> tuple[Int64s, Int64s]:
        probing = Elements((), makers.ts, makers.ts + 1)
        first, second = fingerprints([makers.columns[i] for i in self._spec.key], len(makers))
        which, partners = valid_matches(self._relation, probing, first, second)
        if len(which):
            drawn = draws(0, "", np.zeros(len(which), np.int64), partners.columns)
            order = np.lexsort((~drawn, which))
            which = which[order]
            found = partners.take(order)
            self._copies.add(Elements((*found.columns, pa.array(numbers[which])), makers.ts[which], makers.exp[which]))
        bounds = np.full(len(makers), self._copies.next)
        return self._copies.newest_before(self._copies.words_of([pa.array(numbers)], len(makers)), bounds), bounds

    def _examined(self, side: int, x: Elements, partners: Elements | None, at: Int64s) -> tuple[Elements, Bools]:
        assert partners is not None
        return _joined(x, partners, at, self._spec.residual)


class PreferringSelection(Preferring):
    """A selection over a stream."""

    def __init__(self, spec: PreferringSelectionSpec, shards: int) -> None:
        direction = Direction(
            spec.preference,
            0,
            spec.expressions,
            (spec.types, ()),
            spec.summary is not None,
            False,
            True,
            True,
            _eager(spec),
        )
        side = PreferenceSide((), spec.filter, spec.arrival[0], spec.summary, spec.summarised)
        stored = (NumberedElements((), _none_is_found), NumberedElements((), _none_is_found))
        super().__init__(spec.preference, shards, [side], [direction], stored, (0,))
        self._condition = spec.residual

    def _examined(self, side: int, x: Elements, partners: Elements | None, at: Int64s) -> tuple[Elements, Bools]:
        result = Elements(x.columns, at, x.exp)
        passed = _passing(result, self._condition)
        return result.filter(passed), passed


def _eager(spec: PreferenceSpec) -> bool:
    return spec.preference.budget.kind is not BudgetKind.AUTO


def _all_are_found(elements: Elements) -> Bools:
    return np.ones(len(elements), np.bool_)


def _none_is_found(elements: Elements) -> Bools:
    return np.zeros(len(elements), np.bool_)


def _summarised(spec: PreferringJoinSpec, side: int) -> tuple[int, ...]:
    """Return the columns of a side that are summarised, or that equal those summarised on the other side."""
    if spec.summaries[side] is not None:
        return spec.summarised[side]
    if spec.summaries[1 - side] is None:
        return ()
    keys = (spec.left_key, spec.right_key)
    to_own = dict(zip(keys[1 - side], keys[side], strict=True))
    return tuple(to_own[column] for column in spec.summarised[1 - side])


def _joined(left: Elements, right: Elements, at: Int64s, residual: Expression | None) -> tuple[Elements, Bools]:
    """Return the pairs, examined at instants, that pass the residual condition, and which did."""
    result = Elements((*left.columns, *right.columns), at, np.minimum(left.exp, right.exp))
    passed = _passing(result, residual)
    return result.filter(passed), passed


def _passing(elements: Elements, condition: Expression | None) -> Bools:
    if condition is None:
        return np.ones(len(elements), np.bool_)
    return mask(condition, elements.columns, len(elements))
