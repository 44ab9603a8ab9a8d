"""How many rows a query answers for each row of its input, by the statistics of its sources.

An RSTREAM emits its whole relation at every instant at which it is evaluated, and a join all pairs. Rates of the
optimizer say how many tuples are new; here every emission counts.
"""

from __future__ import annotations

import math

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.deep_trees import deep

#: Answers of so many rows for each row of input are warned of.
MANY = 10_000.0


def rows_of_answer(root: Algebra, statistics: Statistics) -> tuple[float, float]:
    """Return the rows a second that a query answers and those that it reads, as estimated; countless ones are
    infinite."""
    names = {name for name, source in declared_sources(root).items() if not source.is_static}
    read = {
        node.source_names[0]: estimate(node, statistics).emitted
        for node in _leaves(root)
        if node.source_names and node.source_names[0] in names
    }
    return _emitted(root, statistics), sum(read.values())


@deep
def _leaves(node: Algebra) -> list[Algebra]:
    return [leaf for child in node.inputs for leaf in _leaves(child)] if node.inputs else [node]


@deep
def _emitted(node: Algebra, statistics: Statistics) -> float:
    """Return the rows a second that a node emits: what is estimated of it, times by how much its inputs emit more than
    is estimated of them."""
    if isinstance(node, RelationToStream) and node.kind is StreamKind.RSTREAM and node.domain is not None:
        relation = estimate(node.input, statistics)
        period = evaluation_period(node)
        instants = relation.emitted if period is None else 1 / max(seconds(period[0], node.domain), 1e-9)
        rows = relation.size * instants
        return rows if math.isfinite(rows) else relation.emitted
    factors = [
        _emitted(child, statistics) / known
        for child in node.inputs
        if (known := estimate(child, statistics).emitted) > 0
    ]
    return estimate(node, statistics).emitted * max([1.0, *factors])
