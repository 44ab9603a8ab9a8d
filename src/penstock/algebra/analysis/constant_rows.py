"""The rows of a query over constants alone: known before anything runs, and so a list that INSERT may write.

Each operator is carried out as its definition has it, on whole columns where expressions are computed. Joins, groups
and subqueries are left to queries that run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.aggregate import Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.constant import Constant
from penstock.algebra.nodes.first_rows import SortKey, TopK
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.set_operations import Except, Intersect, UnionAll
from penstock.errors import PenstockError
from penstock.expressions.evaluation.evaluate import evaluate_all, mask, python_value
from penstock.tree import walk_once
from penstock.types import Schema

#: What is carried out here.
_OPERATORS = (Constant, Project, Select, UnionAll, Distinct, Except, Intersect, TopK)


@dataclass(frozen=True)
class ConstantRows:
    """Columns, and the number of rows: there may be rows of no columns."""

    columns: tuple[pa.Array, ...]
    count: int

    def take(self, places: Sequence[int]) -> ConstantRows:
        chosen = pa.array(places, pa.int64())
        return ConstantRows(tuple(column.take(chosen) for column in self.columns), len(places))

    def keys(self) -> list[tuple[object, ...]]:
        """Return each row as a value that equals that of an equal row: NULL is NULL, NaN is NaN, -0.0 is 0.0."""
        columns = [list(map(_key, _values(column))) for column in self.columns]
        return list(zip(*columns, strict=True)) if columns else [()] * self.count


def first_unknown(root: Algebra) -> Algebra | None:
    """Return an operator whose rows are not those of constants, or are not carried out here; None where all are."""
    nodes = (node for node in walk_once(root) if isinstance(node, Algebra))
    return next((node for node in nodes if not isinstance(node, _OPERATORS)), None)


def constant_rows(root: Algebra, most: int) -> ConstantRows:
    """Return the rows of a relation of which `first_unknown` knows every operator, in its order where it has one.

    Args:
        most: the number of rows that no step may exceed.

    Raises:
        PenstockError: P0105 for more rows.
    """
    return _Computation(most).rows(root)


class _Computation:
    def __init__(self, most: int) -> None:
        self._most = most
        #: By fingerprint: a local view may be read any number of times, in others that are.
        self._known: dict[str, ConstantRows] = {}

    def rows(self, node: Algebra) -> ConstantRows:
        found = self._known.get(node.fingerprint)
        if found is None:
            found = self._known[node.fingerprint] = self._computed(node)
        return found

    def _computed(self, node: Algebra) -> ConstantRows:
        if isinstance(node, Constant):
            self._check(len(node.rows))
            return _rows_of(node.rows, node.schema)
        below = [self.rows(one) for one in node.inputs]
        if isinstance(node, UnionAll):
            count = sum(one.count for one in below)
            self._check(count)
            return ConstantRows(_concatenated([one.columns for one in below], node.schema), count)
        first = below[0]
        if isinstance(node, Project):
            return ConstantRows(tuple(evaluate_all(node.expressions, first.columns, first.count)), first.count)
        if isinstance(node, Select):
            return first.take(np.flatnonzero(mask(node.predicate, first.columns, first.count)).tolist())
        if isinstance(node, TopK):
            return first.take(_first(node, first))
        if isinstance(node, Distinct):
            return first.take(list({key: place for place, key in reversed([*enumerate(first.keys())])}.values())[::-1])
        assert isinstance(node, Except | Intersect), "first_unknown has looked for others"
        return first.take(_compared(node, first.keys(), below[1].keys()))

    def _check(self, count: int) -> None:
        if count > self._most:
            raise PenstockError("P0105", f"these are {count:,} rows, {self._most:,} are the limit")


def _rows_of(rows: Sequence[Sequence[object]], schema: Schema) -> ConstantRows:
    columns = (pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema))
    return ConstantRows(tuple(columns), len(rows))


def _concatenated(parts: Sequence[Sequence[pa.Array]], schema: Schema) -> tuple[pa.Array, ...]:
    return tuple(pa.concat_arrays([part[i] for part in parts]) for i in range(len(schema)))


def _compared(node: Except | Intersect, left: Sequence[object], right: Sequence[object]) -> list[int]:
    """Return the places of the rows of the left that are in the answer [semantics 4.2]."""
    others, taken = Counter(right), Counter[object]()
    places = []
    for place, key in enumerate(left):
        taken[key] += 1
        is_other = taken[key] <= others[key] if node.every else others[key] > 0
        is_first = node.every or taken[key] == 1
        if is_first and is_other == isinstance(node, Intersect):
            places.append(place)
    return places


def _first(node: TopK, rows: ConstantRows) -> list[int]:
    """Return the places of the first rows, in their order."""
    places = list(range(rows.count))
    for key in reversed(node.total_order):
        values = _values(rows.columns[key.column])
        places.sort(key=lambda place: _order(values[place], key), reverse=key.descending)
    keys = ConstantRows(tuple(rows.columns[i] for i in node.partition), rows.count).keys()
    parts = Counter[object]()
    found = []
    for place in places:
        parts[keys[place]] += 1
        if node.offset < parts[keys[place]] <= node.offset + node.limit:
            found.append(place)
    return found


def _values(column: pa.Array) -> list[object]:
    """Return values that can be compared: of times their ticks, since Python has not all of them."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()).cast(pa.int64())
    return list(map(python_value, column))


def _order(value: object, key: SortKey) -> tuple[object, ...]:
    """Return by what a value is sorted: NaN behind all numbers, lists element by element."""
    if value is None:
        # A descending sort turns this round.
        return (0 if key.nulls_first is not key.descending else 2,)
    return (1, _comparable(value))


def _comparable(value: object) -> tuple[object, ...]:
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, list):
        return (1, [_comparable(part) for part in value])
    return (1, value)


def _key(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(map(_key, value))
    return value
