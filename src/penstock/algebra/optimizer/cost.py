"""What a plan is expected to cost per second: the model by which update-pattern-aware rewritings are chosen.

Contract: `plan_cost` is the sum over the operators of a plan, each counted once however often it stands there, of the
elements they handle per second, after `[golab 3.5.3]`: processing (an element is looked at), state maintenance (it is
stored and looked up) and negative tuples (each is an element more for every operator above). Costs compare plans of
one query; they are no times. Projections cost nothing: which of them stand where is decided later.
"""

from __future__ import annotations

from functools import singledispatch

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, is_static
from penstock.algebra.nodes.first_rows import TopK
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.set_operations import Except, Intersect
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.optimizer.estimates import estimate, partners
from penstock.algebra.optimizer.statistics import Statistics
from penstock.tree import walk

#: Times that an element is handled by an operator with state, and where tuples are asked for their partners.
STORED_AND_LOOKED_UP, ASKED_FOR_PARTNERS = 2, 4


def plan_cost(root: Algebra, statistics: Statistics) -> float:
    """Elements that the operators under `root` handle per second."""
    nodes = {node.fingerprint: node for node in walk(root) if isinstance(node, Algebra) and not is_static(node)}
    return sum(cost(node, statistics) for node in nodes.values())


@singledispatch
def cost(node: Algebra, statistics: Statistics) -> float:
    """Elements that the operator `node` alone handles per second. Without state, each is looked at once."""
    return _told(node.inputs, statistics)


def _told(nodes: tuple[Algebra, ...], statistics: Statistics) -> float:
    """What the moving ones among `nodes` hand on; a static one is a table, which nobody is handed."""
    return sum(estimate(node, statistics).told for node in nodes if not is_static(node))


@cost.register
def _project(node: Project, statistics: Statistics) -> float:
    return 0.0


@cost.register(Aggregate)
@cost.register(Distinct)
@cost.register(Except)
@cost.register(Intersect)
@cost.register(RowWindow)
@cost.register(TopK)
@cost.register(MultiJoin)
def _with_state(node: Algebra, statistics: Statistics) -> float:
    return STORED_AND_LOOKED_UP * _told(node.inputs, statistics) + estimate(node, statistics).told


@cost.register
def _join(node: Join, statistics: Statistics) -> float:
    """Nothing of a side is stored that meets a table."""
    times = 1 if is_static(node.left) or is_static(node.right) else STORED_AND_LOOKED_UP
    return times * _told(node.inputs, statistics) + estimate(node, statistics).told


@cost.register
def _semi_join(node: SemiJoin, statistics: Statistics) -> float:
    """A join with the distinct partners; where tuples without one are asked for, they are also set against the
    pairs, which hold the tuples anew."""
    own = estimate(node, statistics).told
    if is_static(node.right):
        return _told((node.left,), statistics) + own
    joined = STORED_AND_LOOKED_UP * _told(node.inputs, statistics) + own
    if node.kind is SemiKind.SEMI:
        return joined
    pairs = partners(node.left, node.right, node.equal, node.residual, statistics).matched.told
    return joined + (ASKED_FOR_PARTNERS - STORED_AND_LOOKED_UP) * _told((node.left,), statistics) + pairs


@cost.register
def _outer_join(node: OuterJoin, statistics: Statistics) -> float:
    own = estimate(node, statistics).told
    if is_static(node.right) and node.kind is OuterKind.LEFT:
        return _told((node.left,), statistics) + own
    pairs = estimate(Join(node.left, node.right, node.equal, node.residual), statistics).told
    asked = node.inputs if node.kind is OuterKind.FULL else (node.left,)
    more = (ASKED_FOR_PARTNERS - STORED_AND_LOOKED_UP) * _told(asked, statistics) + pairs * len(asked)
    return STORED_AND_LOOKED_UP * _told(node.inputs, statistics) + more + own
