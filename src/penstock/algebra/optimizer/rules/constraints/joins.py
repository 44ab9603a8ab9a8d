"""Joins whose rows leave by promises: which inputs fit, and by which rules.

Law: rules 1 to 7 over two inputs whose rows enter with elements and end with windows in time, if at all. A relation
that retracts rows, a row window, a session or a FREQUENCY needs a row once more, to retract what it gave; no rule. A
semi- or outer join needs that an input that may be absent never loses a row, else the end of a match must find its
partner: P LEFT JOIN C [RANGE 4], P 0:0, C 2:0, closed at 2; at 6 the row must be (0, NULL) again.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.promised import (
    JoinResult,
    Leaving,
    PromisedJoin,
    compared_pairs,
    in_windows_of_time,
    shard_pairs,
)
from penstock.algebra.optimizer.rules.constraints.clustered import leaving_by_clusters
from penstock.algebra.optimizer.rules.constraints.ordered import leaving_by_order
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs
from penstock.algebra.optimizer.rules.constraints.punctuated import leaving_by_punctuations
from penstock.algebra.optimizer.rules.constraints.references import leaving_by_reference
from penstock.algebra.optimizer.rules.constraints.unique import leaving_by_unique
from penstock.algebra.properties.promises import Base, Clustered
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Expression

_RULES = (
    leaving_by_reference,
    leaving_by_unique,
    leaving_by_clusters,
    leaving_by_order,
    leaving_by_punctuations,
)
#: What a join returns -> the inputs that may be absent.
_ABSENT = {
    JoinResult.INNER: (),
    JoinResult.LEFT: (1,),
    JoinResult.SEMI: (1,),
    JoinResult.ANTI: (1,),
    JoinResult.MARK: (1,),
    JoinResult.FULL: (0, 1),
}


def leaving_of(inputs: ComparedInputs, joined: JoinResult = JoinResult.INNER) -> tuple[Leaving, ...]:
    """Return why rows of the two sides of a join leave, in the order of the rules; empty where no rule holds.

    Of several CLUSTERED BY that have no compared column in common the first counts, in the order of the streams in FROM
    and of their declarations: all rows of one value must be in one shard.
    """
    found = _by_rules(inputs, joined)
    clustered = [one for one in found if isinstance(one.promise.promise, Clustered)]
    if not clustered or shard_pairs(found, compared_pairs(clustered)):
        return found
    first = min(clustered, key=lambda one: one.of)
    return tuple(one for one in found if one not in clustered or one is first)


def unused_promises(
    inputs: ComparedInputs, leaving: tuple[Leaving, ...], joined: JoinResult = JoinResult.INNER
) -> tuple[Base, ...]:
    """Return the promises by which rows would leave, but do not for others that count."""
    return tuple(base for one in _by_rules(inputs, joined) if one not in leaving for base in one.promise.bases)


def _by_rules(inputs: ComparedInputs, joined: JoinResult) -> tuple[Leaving, ...]:
    if not all(map(in_windows_of_time, inputs.sides)):
        return ()
    if any(inputs.sides[side].pattern is not Pattern.MONOTONIC for side in _ABSENT[joined]):
        return ()
    return tuple(one for rule in _RULES for one in rule(inputs))


def promised_join(
    left: Algebra,
    right: Algebra,
    equal: Pairs,
    residual: Expression | None,
    joined: JoinResult,
    plain: frozenset[tuple[int, int]],
) -> PromisedJoin | None:
    """Return the join of two inputs whose rows leave by promises; None where no rule holds.

    Args:
        plain: the pairs of plain columns that `equal` compares; of one that is widened for the comparison the column
            itself.
    """
    inputs = ComparedInputs(left, right, plain)
    leaving = leaving_of(inputs, joined)
    if not leaving:
        return None
    return PromisedJoin(left, right, equal, residual, joined, leaving, unused_promises(inputs, leaving, joined))
