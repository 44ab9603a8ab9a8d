"""Where a stream's elements carry their own timestamp: what FIRST and LAST order rows by [semantics 4.2]."""

from __future__ import annotations

from functools import singledispatch

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.sample import Sample
from penstock.algebra.nodes.scans import StreamScan
from penstock.algebra.nodes.windows import RowWindow, Window
from penstock.expressions.nodes import Column


@singledispatch
def timestamp_column(node: Algebra) -> int | None:
    """Return the column of `node` that holds, in every row, the timestamp of the stream element that the row is. None
    when no column surely does."""
    return None


@timestamp_column.register
def _scan(node: StreamScan) -> int | None:
    stamp = node.source.timestamp
    return node.columns.index(stamp) if stamp is not None and stamp in node.columns else None


@timestamp_column.register(Select)
@timestamp_column.register(Sample)
def _chosen(node: Select | Sample) -> int | None:
    return timestamp_column(node.input)


@timestamp_column.register
def _sample(node: Sample) -> int | None:
    return timestamp_column(node.input)


@timestamp_column.register
def _project(node: Project) -> int | None:
    below = timestamp_column(node.input)
    return next((i for i, e in enumerate(node.expressions) if isinstance(e, Column) and e.index == below), None)


@timestamp_column.register(Window)
@timestamp_column.register(RowWindow)
def _window(node: Window | RowWindow) -> int | None:
    # With SLIDE an element is seen at a boundary only, which is not what it carries.
    late = node.slide is not None or (isinstance(node, RowWindow) and node.step is not None)
    return None if late else timestamp_column(node.input)


@timestamp_column.register
def _rows(node: RowWindow) -> int | None:
    return timestamp_column(node.input) if node.slide is None and node.step is None else None


@timestamp_column.register
def _to_stream(node: RelationToStream) -> int | None:
    # What comes, comes at its own timestamp; tuples that hold theirs are equal at one instant only.
    return timestamp_column(node.input) if node.kind is StreamKind.ISTREAM else None
