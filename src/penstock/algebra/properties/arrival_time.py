"""The arrival time of the tuples of a relation, as a column: the instant at which a NON RETROACTIVE relation is read.

An element of a window arrives at its own timestamp, whatever the boundary at which it becomes visible; a pair of a join
arrives with the later of both. `with_arrivals` expresses this in plain algebra over windows that emit it
(`ArrivalTime`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra, StreamToRelation, TimeModelWindow, is_static, operators
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.properties.need import Needs
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Call, Column, Expression, remap
from penstock.types import Field, Schema

_CAME = Field("came", pa.int64())


@dataclass(frozen=True, eq=False)
class ArrivalTime(Algebra):
    """The window `input` with a last column: the timestamp of each of its elements, in ticks; in the sequence model the
    instant at which it arrived."""

    input: Algebra

    @property
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, _CAME))

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern


def with_arrivals(node: Algebra) -> Algebra:
    """Return `node`, which is `is_elementwise`, with the arrival time of each tuple as a last column."""
    if isinstance(node, StreamToRelation):
        return ArrivalTime(node)
    if isinstance(node, Select):
        return Select(with_arrivals(node.input), node.predicate)
    if isinstance(node, Project):
        below = with_arrivals(node.input)
        return Project(below, (*node.expressions, _came(below)), (*node.fields, _CAME))
    if isinstance(node, NRRJoin):
        left = with_arrivals(node.left)
        width, right = len(node.left.schema), len(node.right.schema)
        joined = NRRJoin(left, node.right, node.equal, _moved(node.residual, lambda i: i + (i >= width)), width)
        return _behind(joined, [*range(width), *range(width + 1, width + 1 + right)], [width], node.schema)
    if isinstance(node, Join):
        return _of_join(node)
    assert isinstance(node, MultiJoin)
    starts = node.offsets
    member = [n for n, m in enumerate(node.members) for _ in m.schema]
    residual = _moved(node.residual, lambda i: i + member[i])
    joined_all = MultiJoin(tuple(map(with_arrivals, node.members)), node.classes, residual)
    ends = [start + n + len(m.schema) for n, (start, m) in enumerate(zip(starts, node.members, strict=True))]
    return _behind(joined_all, [i + member[i] for i in range(len(member))], ends, node.schema)


def _of_join(node: Join) -> Algebra:
    """Return the join with arrival times. A static relation precedes everything, so it adds nothing."""
    width, right = len(node.left.schema), len(node.right.schema)
    shift = 0 if is_static(node.left) else 1
    left = node.left if is_static(node.left) else with_arrivals(node.left)
    right_input = node.right if is_static(node.right) else with_arrivals(node.right)
    residual = _moved(node.residual, lambda i: i if i < width else i + shift)
    ends = [width] * shift + ([] if is_static(node.right) else [width + shift + right])
    kept = [*range(width), *range(width + shift, width + shift + right)]
    return _behind(Join(left, right_input, node.equal, residual), kept, ends, node.schema)


def _behind(node: Algebra, kept: list[int], ends: list[int], schema: Schema) -> Project:
    """Return the columns `kept` of `node`, named as in `schema`, followed by the greatest of its columns `ends`."""
    stamps = tuple(Column(_CAME.type, i, _CAME.name) for i in ends)
    latest = stamps[0] if len(stamps) == 1 else Call(_CAME.type, "GREATEST", stamps)
    columns = tuple(Column(f.type, i, f.name) for f, i in zip(schema, kept, strict=True))
    return Project(node, (*columns, latest), (*schema.fields, _CAME))


def _came(node: Algebra) -> Column:
    return Column(_CAME.type, len(node.schema) - 1, _CAME.name)


def _moved(residual: Expression | None, position: Callable[[int], int]) -> Expression | None:
    return None if residual is None else remap(residual, position)


def longest_slide(node: Algebra) -> int:
    """Return for at most how many ticks after its arrival a tuple of `node` may become visible."""
    return max((w.slide or 0 for w in operators(node) if isinstance(w, TimeModelWindow)), default=0)
