"""Derived property: the columns from which the value of a column is computed, row by row.

Contract: two rows of a node that agree on every origin of a column agree on that column, in whatever shard and at
whatever instant they are computed. An operator that does not say how its columns follow from its inputs
(`Algebra.computation`) ends the search: its column is its own origin, which is always a safe answer, and so is a column
that a volatile function computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.expressions.nodes import Column

#: A column of a node below: the inputs that lead to the node, and the position of the column in its rows.
Origin = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Origins:
    """Where a column comes from. copied: its value is that of its only origin."""

    columns: frozenset[Origin]
    copied: bool


def origins(node: Algebra, column: int, known: dict[Origin, Origins], path: tuple[int, ...] = ()) -> Origins:
    """Return the origins of a column of `node`.

    Args:
        known: those found so far below one node; each column is computed once, however many others read it.
        path: the inputs that lead from that node to `node`.
    """
    result = known.get((path, column))
    if result is None:
        how = node.computation(column)
        if how is None:
            result = Origins(frozenset({(path, column)}), copied=True)
        else:
            inputs = node.inputs
            below = [origins(inputs[i], read, known, (*path, i)) for i, read in how.columns]
            copied = how.copied and below[0].copied
            result = Origins(frozenset().union(*(source.columns for source in below)), copied)
        known[path, column] = result
    return result


def deciding(node: Project, columns: Sequence[int]) -> tuple[int, ...] | None:
    """Return columns of `node` that determine the values of `columns` of its input; None where there are none.

    Only columns of types whose equal values are identical count: 0.0 equals -0.0, but their texts differ.
    """
    known: dict[Origin, Origins] = {}
    positions: dict[Origin, int] = {}
    for position, expression in reversed(list(enumerate(node.expressions))):
        if isinstance(expression, Column) and _exact(expression.type):
            copies = origins(node.input, expression.index, known)
            if copies.copied:
                positions |= dict.fromkeys(copies.columns, position)
    needed = frozenset().union(*(origins(node.input, column, known).columns for column in columns))
    return tuple(sorted({positions[origin] for origin in needed})) if needed <= positions.keys() else None


def _exact(type_: pa.DataType) -> bool:
    """Return whether equal values of the type are identical."""
    tests = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_decimal,
        pa.types.is_date,
        pa.types.is_timestamp,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(type_) for test in tests)
