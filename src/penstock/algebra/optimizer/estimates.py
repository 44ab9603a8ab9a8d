"""What is expected of a relation, from what is known of the sources: rates, lifetimes, distinct values.

`estimate` carries the statistics of the sources up a plan, as System R does for tables, per unit of time. The formula
of each operator is its own (`Algebra.estimate_from`); those that several share are in
`algebra/properties/cardinality.py`.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.optimizer.statistics import Statistics
from penstock.algebra.properties.cardinality import Estimate


def estimate(node: Algebra, statistics: Statistics) -> Estimate:
    """Return what is expected of `node`; of each plan it is computed once."""
    known: Estimate | None = statistics.estimates.get(node.fingerprint)
    if known is None:
        inputs = tuple(estimate(child, statistics) for child in node.inputs)
        known = statistics.estimates[node.fingerprint] = node.estimate_from(inputs, statistics)
    return known
