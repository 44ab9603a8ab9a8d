"""What a plan is expected to cost per second: the model by which update-pattern-aware rewritings are chosen.

Contract: `plan_cost` is the sum over the operators of a plan, each counted once however often it stands there, of the
elements they handle per second, after `[golab 3.5.3]`: processing (an element is looked at), state maintenance (it is
stored and looked up) and negative tuples (each is an element more for every operator above). What an operator costs it
says itself (`Algebra.cost_from`). Costs compare plans of one query; they are no times. Projections cost nothing: which
of them stand where is decided later.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra, is_static
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.statistics import Statistics
from penstock.tree import walk


def plan_cost(root: Algebra, statistics: Statistics) -> float:
    """Return the elements per second that the operators under `root` handle."""
    nodes = {node.fingerprint: node for node in walk(root) if isinstance(node, Algebra) and not is_static(node)}
    return sum(cost(node, statistics) for node in nodes.values())


def cost(node: Algebra, statistics: Statistics) -> float:
    """Return the elements per second that the operator `node` alone handles."""
    inputs = tuple(estimate(child, statistics) for child in node.inputs)
    return node.cost_from(inputs, estimate(node, statistics))
