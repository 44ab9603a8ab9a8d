"""Load shedding: all tuples of a budget are in one shard, so that answers do not depend on the number of shards."""

from __future__ import annotations

import pyarrow as pa

from penstock.algebra import Algebra, Project, RowWindow, Select
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.shed import Shed
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import Column, Expression, Literal, conjunction, substitute, substitute_all
from penstock.physical.plan.temporal.shedding import ShedRowsSpec, ShedSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.types import Field


@lower.register
def _shed(node: Shed, builder: Builder) -> Lowered:
    window = node.row_window
    below = node.input if window is None else _all_rows(node, window)
    edge, stage, partitions = builder.keyed(builder.lower(below), ())
    shared = (
        node.schema.types,
        node.policy,
        node.budget,
        node.in_bytes,
        node.buckets,
        node.compact,
        node.least,
        node.ordered,
        node.sample,
        node.query,
        node.every,
        node.at_least,
        node.fails,
        node.cpu,
        node.shares_limit,
    )
    rows = None if window is None else window.rows
    spec = ShedSpec(*shared) if rows is None else ShedRowsSpec(*shared, rows)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


def _all_rows(node: Shed, window: RowWindow) -> Algebra:
    """Return the stream below a window of rows, with the columns of `node`, and whether a row is selected: those that
    are not count, too."""
    path: list[Select | Project] = []
    below = node.input
    while isinstance(below, Select | Project):
        path.append(below)
        below = below.input
    stream = in_arrival_order(window.input)
    assert stream is not None
    columns: tuple[Expression, ...] = tuple(Column(f.type, i, f.name) for i, f in enumerate(stream.schema))
    conditions: tuple[Expression, ...] = ()
    for one in reversed(path):
        if isinstance(one, Project):
            columns = substitute_all(one.expressions, columns)
        else:
            conditions = (*conditions, substitute(one.predicate, columns))
    selected = conjunction(conditions)
    if selected is None:
        selected = Literal(pa.bool_(), True)
    else:
        # Of a row that is not selected nothing is computed, which could fail.
        columns = tuple(
            c if isinstance(c, Column | Literal) else build_call("IF", [selected, c, Literal(c.type, None)])
            for c in columns
        )
    return Project(stream, (*columns, selected), (*node.schema.fields, Field("selected", pa.bool_())))
