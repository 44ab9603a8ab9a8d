"""Which columns of declared streams a plan compares by `=` and groups by: promises on them may end its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.analysis.column_origins import Origin, Origins, origins
from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, operators
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.promised import ClosingGroups, PromisedJoin
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.algebra.nodes.scans import StreamScan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin

#: A column of a declared stream: its name, and the position.
DeclaredColumn = tuple[str, int]


@dataclass(frozen=True)
class StreamColumns:
    """Columns of a declared stream, by their positions."""

    stream: str
    columns: tuple[int, ...]


def columns_of_state(root: Algebra) -> Iterator[StreamColumns]:
    """Yield the columns by which a plan joins and groups, of each stream those of one operator together."""
    for node in operators(root):
        for pair in compared_streams(node):
            yield from pair
        yield from grouped_streams(node)


def compared_streams(node: Algebra) -> Iterator[tuple[StreamColumns, StreamColumns]]:
    """Yield the columns of two streams that a join compares, in the same order."""
    for left, right, equal in _sides(node):
        by_streams: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for i, j in equal:
            one, other = _declared(left, i), _declared(right, j)
            if one is not None and other is not None:
                by_streams.setdefault((one[0], other[0]), []).append((one[1], other[1]))
        for (mine, theirs), found in by_streams.items():
            yield (
                StreamColumns(mine, tuple(one for one, _ in found)),
                StreamColumns(theirs, tuple(other for _, other in found)),
            )


@dataclass(frozen=True)
class StreamReference:
    """Columns of a stream that refer to those of another one, or of itself, in the same order."""

    stream: str
    columns: tuple[int, ...]
    parent: str
    parent_columns: tuple[int, ...]


def references_of_state(root: Algebra) -> Iterator[StreamReference]:
    """Yield how the streams that a plan joins may refer to each other."""
    for node in operators(root):
        for one, other in compared_streams(node):
            for child, parent in ((one, other), (other, one)):
                if child != parent:  # of itself every row is there
                    yield StreamReference(child.stream, child.columns, parent.stream, parent.columns)


def grouped_streams(node: Algebra) -> Iterator[StreamColumns]:
    """Yield the columns of each stream by which an operator groups; none for one that does not group."""
    if not isinstance(node, Aggregate | Distinct | ClosingGroups):
        return
    group = tuple(range(len(node.schema))) if isinstance(node, Distinct) else node.group
    places = [place for c in group if (place := _declared(node.input, c)) is not None]
    for name in dict.fromkeys(stream for stream, _ in places):
        yield StreamColumns(name, tuple(dict.fromkeys(c for stream, c in places if stream == name)))


def has_order(type_: pa.DataType) -> bool:
    """Return whether rows of a stream may come in the order of a type: whole numbers, dates and times."""
    is_ = pa.types
    return bool(is_.is_integer(type_) or is_.is_date32(type_) or is_.is_timestamp(type_))


def _sides(node: Algebra) -> Iterator[tuple[Algebra, Algebra, list[tuple[int, int]]]]:
    if isinstance(node, Join | OuterJoin | SemiJoin | PromisedJoin):
        yield node.left, node.right, list(node.equal)
    if isinstance(node, MultiJoin):
        for i, one in enumerate(node.members):
            for j in range(i + 1, len(node.members)):
                pairs = ((columns[i], columns[j]) for columns in node.classes)
                yield one, node.members[j], [(a, b) for a, b in pairs if a is not None and b is not None]


def _declared(node: Algebra, column: int) -> DeclaredColumn | None:
    """Return the column of a declared stream that a column is; None for one of a relation, or that is computed."""
    known: dict[Origin, Origins] = {}
    found = origins(node, column, known)
    if len(found.columns) != 1 or not found.copied:
        return None
    ((path, place),) = found.columns
    for step in path:
        node = node.inputs[step]
    if isinstance(node, RelationToStream) and node.enters_with_elements:
        return _declared(node.input, place)
    return (node.source.name, node.columns[place]) if isinstance(node, StreamScan) else None
