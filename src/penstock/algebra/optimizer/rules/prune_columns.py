"""Only the columns that are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, TimeModelWindow, Unary
from penstock.algebra.nodes.frequency import Frequency
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import Scan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.optimizer.rules.support import column, over_inputs
from penstock.algebra.properties.arrival_order import in_arrival_order
from penstock.expressions.nodes import AggregateCall, Column, Expression, columns_of, remap
from penstock.types import Field


def prune_columns(root: Algebra) -> Algebra:
    """Scans read, and joins, aggregates and unions receive, only columns that are read above them.

    Law: π is linear in multiplicities, so a column that is not read may be dropped anywhere below, as long as bags stay
    bags. A projection that only renames or reorders is dissolved on the way and put back where the shape of the row
    counts.
    Unsound below:
    - DISTINCT: δ{(1,a),(1,b)} has two tuples, δ{1} has one;
    - a RelationToStream: if (1,a) leaves and (1,b) enters at one instant, ISTREAM emits (1,b); pruned to the first
      column, 1 leaves and 1 enters, which cancel. The root's changes are netted alike. All their columns are read;
    - group columns of an aggregate, partition columns of a row window: they make the groups;
    - a row window or a frequency operator over a stream without an order of arrival: elements of one instant are
      ordered by all their values; with one, ROWS 1 of (1,b) (2,a) is (2,a) also where only the letter is read;
    - a relation with updates: a `-` deletes a row that equals it in all columns, not in those that are read.
    An NRR's rows are distinguished by columns that are not read, too, but as of one instant it is a bag like any other.
    A relation keeps at least one column. An operator that this file does not know reads all columns of its inputs.
    """
    return _exact(_all(root), root.schema.fields, named=True)


@dataclass(frozen=True)
class _Pruned:
    """`node` with, for every requested old position, the position that the column now has."""

    node: Algebra
    positions: Mapping[int, int]

    def moved(self, expression: Expression) -> Expression:
        return remap(expression, lambda i: self.positions[i])


def _all(node: Algebra) -> _Pruned:
    return _prune(node, frozenset(range(len(node.schema))))


def _exact(pruned: _Pruned, fields: Iterable[Field], named: bool = False, kept: Iterable[int] | None = None) -> Algebra:
    """Return the pruned relation with exactly the old columns `kept` (all of `fields` for None), in that order;
    `named`: their names must stay too."""
    old = tuple(fields)
    chosen = tuple(range(len(old)) if kept is None else kept)
    positions = [pruned.positions[i] for i in chosen]
    schema = pruned.node.schema
    if positions == list(range(len(schema))) and (not named or schema.names == tuple(old[i].name for i in chosen)):
        return pruned.node
    columns = tuple(column(schema[position], position) for position in positions)
    return Project(pruned.node, columns, tuple(old[i] for i in chosen))


def _narrow(node: Algebra, needed: frozenset[int]) -> _Pruned:
    """Return the input `node` of an operator that stores or ships rows, with the `needed` columns and no other."""
    pruned = _prune(node, needed)
    used = sorted({pruned.positions[i] for i in needed})
    if not used or len(used) == len(pruned.node.schema):
        return pruned
    schema = pruned.node.schema
    thin = Project(pruned.node, tuple(column(schema[i], i) for i in used), tuple(schema[i] for i in used))
    return _Pruned(thin, {i: used.index(pruned.positions[i]) for i in needed})


def _identity(node: Algebra) -> _Pruned:
    return _Pruned(node, {i: i for i in range(len(node.schema))})


def _prune(node: Algebra, needed: frozenset[int]) -> _Pruned:
    """Return `node` with at least the `needed` columns; the result is kept with the node, as its fingerprint is, since
    a node may have many parents."""
    known: dict[frozenset[int], _Pruned] = node.__dict__.setdefault("_pruned", {})
    if needed not in known:
        known[needed] = _prune_anew(node, needed)
    return known[needed]


@singledispatch
def _prune_anew(node: Algebra, needed: frozenset[int]) -> _Pruned:
    return _identity(over_inputs(node, lambda child: _exact(_all(child), child.schema.fields, named=True)))


@_prune_anew.register
def _scan(node: Scan, needed: frozenset[int]) -> _Pruned:
    if not (node.source.is_stream or node.source.is_static):
        return _identity(node)
    kept = sorted(needed) or [_cheapest(node)]
    return _Pruned(replace(node, columns=tuple(node.columns[i] for i in kept)), {old: i for i, old in enumerate(kept)})


def _cheapest(node: Scan) -> int:
    """Return the column to read when none is needed: the timestamp, which is read anyway, or a narrow one."""
    if node.source.timestamp in node.columns:
        return node.columns.index(node.source.timestamp)
    return min(range(len(node.columns)), key=lambda i: _width(node.schema[i].type))


def _width(type_: pa.DataType) -> int:
    try:
        return int(type_.bit_width)
    except ValueError:
        return 1 << 16


@_prune_anew.register
def _select(node: Select, needed: frozenset[int]) -> _Pruned:
    below = _prune(node.input, needed | columns_of(node.predicate))
    return _Pruned(Select(below.node, below.moved(node.predicate)), below.positions)


@_prune_anew.register
def _project(node: Project, needed: frozenset[int]) -> _Pruned:
    kept = sorted(needed) or [0]
    chosen = [node.expressions[i] for i in kept]
    below = _prune(node.input, frozenset().union(*(columns_of(e) for e in chosen)))
    columns = [e for e in chosen if isinstance(e, Column)]
    if len(columns) == len(chosen):
        return _Pruned(below.node, {i: below.positions[c.index] for i, c in zip(kept, columns, strict=True)})
    thin = Project(below.node, tuple(below.moved(e) for e in chosen), tuple(node.fields[i] for i in kept))
    return _Pruned(thin, {old: i for i, old in enumerate(kept)})


@_prune_anew.register
def _window(node: TimeModelWindow, needed: frozenset[int]) -> _Pruned:
    if not node.judges_alone:
        return _whole(node, needed)
    below = _prune(node.input, needed)
    return _Pruned(replace(node, input=below.node), below.positions)


@_prune_anew.register
def _row_window(node: RowWindow, needed: frozenset[int]) -> _Pruned:
    if in_arrival_order(node.input) is None:
        return _whole(node, needed)
    below = _narrow(node.input, needed.union(node.partition))
    return _Pruned(
        replace(node, input=below.node, partition=tuple(below.positions[i] for i in node.partition)), below.positions
    )


@_prune_anew.register
def _pick(node: Frequency, needed: frozenset[int]) -> _Pruned:
    if in_arrival_order(node.input) is None:
        return _identity(replace(node, input=_exact(_all(node.input), node.schema.fields, named=True)))
    below = _narrow(node.input, needed.union(node.partition))
    partition = tuple(below.positions[i] for i in node.partition)
    return _Pruned(replace(node, input=below.node, partition=partition), below.positions)


@_prune_anew.register(Join)
@_prune_anew.register(NRRJoin)
def _join(node: Join | NRRJoin, needed: frozenset[int]) -> _Pruned:
    width = len(node.left.schema)
    read = needed | (columns_of(node.residual) if node.residual is not None else frozenset())
    left_keys, right_keys = {pair[0] for pair in node.equal}, {pair[1] for pair in node.equal}
    left = _narrow(node.left, frozenset(i for i in read if i < width) | left_keys)
    right = _narrow(node.right, frozenset(i - width for i in read if i >= width) | right_keys)
    offset = len(left.node.schema)
    positions = dict(left.positions) | {width + i: offset + new for i, new in right.positions.items()}
    equal = tuple((left.positions[i], right.positions[j]) for i, j in node.equal)
    residual = None if node.residual is None else remap(node.residual, lambda i: positions[i])
    return _Pruned(replace(node, left=left.node, right=right.node, equal=equal, residual=residual), positions)


@_prune_anew.register
def _semi_join(node: SemiJoin, needed: frozenset[int]) -> _Pruned:
    width = len(node.left.schema)
    read = columns_of(node.residual) if node.residual is not None else frozenset()
    left = _narrow(node.left, frozenset(i for i in needed | read if i < width) | {i for i, _ in node.equal})
    right = _narrow(node.right, frozenset(i - width for i in read if i >= width) | {j for _, j in node.equal})
    rejoined = _rejoined(node, left, right)
    return _Pruned(rejoined, dict(left.positions) | {width: len(left.node.schema)})  # the mark stands last


@_prune_anew.register
def _outer_join(node: OuterJoin, needed: frozenset[int]) -> _Pruned:
    width = len(node.left.schema)
    read = needed | (columns_of(node.residual) if node.residual is not None else frozenset())
    left = _narrow(node.left, frozenset(i for i in read if i < width) | {i for i, _ in node.equal})
    right = _narrow(node.right, frozenset(i - width for i in read if i >= width) | {j for _, j in node.equal})
    offset = len(left.node.schema)
    positions = dict(left.positions) | {width + i: offset + new for i, new in right.positions.items()}
    return _Pruned(_rejoined(node, left, right), positions)


def _rejoined(node: SemiJoin | OuterJoin, left: _Pruned, right: _Pruned) -> SemiJoin | OuterJoin:
    """Return `node` over pruned inputs."""
    width, offset = len(node.left.schema), len(left.node.schema)
    equal = tuple((left.positions[i], right.positions[j]) for i, j in node.equal)
    residual = node.residual
    if residual is not None:
        residual = remap(residual, lambda i: left.positions[i] if i < width else offset + right.positions[i - width])
    return replace(node, left=left.node, right=right.node, equal=equal, residual=residual)


@_prune_anew.register
def _multi_join(node: MultiJoin, needed: frozenset[int]) -> _Pruned:
    read = needed | (columns_of(node.residual) if node.residual is not None else frozenset())
    members: list[_Pruned] = []
    positions: dict[int, int] = {}
    width = 0
    for number, (member, start) in enumerate(zip(node.members, node.offsets, strict=True)):
        keys = {own for columns in node.classes if (own := columns[number]) is not None}
        inside = {i - start for i in read if start <= i < start + len(member.schema)}
        thin = _narrow(member, frozenset(inside | keys))
        positions |= {start + old: width + new for old, new in thin.positions.items()}
        width += len(thin.node.schema)
        members.append(thin)
    classes = tuple(
        tuple(None if own is None else thin.positions[own] for own, thin in zip(columns, members, strict=True))
        for columns in node.classes
    )
    residual = None if node.residual is None else remap(node.residual, lambda i: positions[i])
    return _Pruned(MultiJoin(tuple(thin.node for thin in members), classes, residual), positions)


@_prune_anew.register
def _aggregate(node: Aggregate, needed: frozenset[int]) -> _Pruned:
    width = len(node.group)
    kept = [n for n in range(len(node.aggregates)) if width + n in needed]
    if not kept and not width:
        kept = [0]
    calls = [node.aggregates[n] for n in kept]
    below = _narrow(node.input, frozenset(node.group).union(*(columns_of(call) for call in calls)))
    moved = tuple(call for call in map(below.moved, calls) if isinstance(call, AggregateCall))
    group = tuple(below.positions[i] for i in node.group)
    positions = {i: i for i in range(width)} | {width + n: width + i for i, n in enumerate(kept)}
    return _Pruned(Aggregate(below.node, group, moved, tuple(node.names[n] for n in kept)), positions)


@_prune_anew.register
def _union(node: UnionAll, needed: frozenset[int]) -> _Pruned:
    kept = sorted(needed) or [0]
    # The first member gives the union its names.
    members = tuple(
        _exact(_prune(member, frozenset(kept)), member.schema.fields, named=number == 0, kept=kept)
        for number, member in enumerate(node.members)
    )
    return _Pruned(UnionAll(members), {old: i for i, old in enumerate(kept)})


@_prune_anew.register(Distinct)
@_prune_anew.register(Internal)
@_prune_anew.register(RelationToStream)
def _whole(node: Unary, needed: frozenset[int]) -> _Pruned:
    fields = node.input.schema.fields
    return _identity(replace(node, input=_exact(_all(node.input), fields, named=True)))
