"""Estimates of relations from the statistics of the sources: rates, lifetimes, distinct values.

`estimate` propagates the statistics of the sources up a plan, as System R does for tables, per unit of time. Each
operator has its own formula (`Algebra.estimate_from`); shared formulas are in `algebra/properties/cardinality.py`.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import Statistics


def estimate(node: Algebra, statistics: Statistics) -> Estimate:
    """Return the estimate of `node`, computed once per plan."""
    known: Estimate | None = statistics.estimates.get(node.fingerprint)
    if known is None:
        inputs = tuple(estimate(child, statistics) for child in node.inputs)
        known = statistics.estimates[node.fingerprint] = node.estimate_from(inputs, statistics)
    return known
