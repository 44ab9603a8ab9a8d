"""The cost model: the expected cost of a plan per second, by which update-pattern-aware rewritings are chosen.

Contract: `plan_cost` is the sum over the operators of a plan, each counted once however often it occurs, of the
elements they process per second, after `[golab 3.5.3]`: processing (an element is read), state maintenance (it is
stored and looked up) and negative tuples (each is one more element for every operator above). Each operator defines its
own cost (`Algebra.cost_from`). Costs compare plans of one query; they are no times. Projections cost nothing: their
place is decided later.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra, is_static, operators
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.properties.statistics import Statistics


def plan_cost(root: Algebra, statistics: Statistics) -> float:
    """Return the elements per second that the operators under `root` process."""
    nodes = {node.fingerprint: node for node in operators(root) if not is_static(node)}
    return sum(cost(node, statistics) for node in nodes.values())


def cost(node: Algebra, statistics: Statistics) -> float:
    """Return the elements per second that the operator `node` alone processes."""
    inputs = tuple(estimate(child, statistics) for child in node.inputs)
    return node.cost_from(inputs, estimate(node, statistics))
