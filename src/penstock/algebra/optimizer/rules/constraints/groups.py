"""Groups and distinct values that end by promises.

Law: over a monotonic input whose group columns include all columns of a promise that closes values, no row of a group
comes after its value is closed: the accumulators, or the value of DISTINCT, leave; the row of the group stays. A column
that a join compares with that of the promise by `=` does as well: its rows have the same values in both.

Counter-example: by a part of the columns of the promise a group has several values, of which others are open: CLUSTERED
BY (a, b), GROUP BY a.
"""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.promised import ClosingGroups, closes_values, promises_by_equalities
from penstock.algebra.properties.promises import NO_PROMISES, Clustered, PassedPromise, Promises
from penstock.algebra.properties.update_pattern import Pattern


def closing_groups(node: Algebra) -> Algebra:
    """Return a grouping or a DISTINCT whose groups end by promises; `node` itself where none does."""
    if isinstance(node, Aggregate):
        closing = closing_of(node.input, frozenset(node.group))
        return ClosingGroups(node.input, node.group, node.aggregates, node.names, closing) if closing else node
    if isinstance(node, Distinct):
        group = tuple(range(len(node.schema)))
        closing = closing_of(node.input, frozenset(group))
        return ClosingGroups(node.input, group, (), (), closing) if closing else node
    return node


def final_groups(node: Algebra, columns: frozenset[int]) -> ClosingGroups | None:
    """Return groups each of which enters once, when a promise on some of the `columns` closes it; None where none does.

    Args:
        node: a grouping or a DISTINCT, whose groups may end by promises.
        columns: of the groups.
    """
    plain = node.without_promises if isinstance(node, ClosingGroups) else node
    if isinstance(plain, Distinct):
        closing = closing_of(plain.input, columns)
        return ClosingGroups(plain.input, tuple(range(len(plain.schema))), (), (), closing, True) if closing else None
    if not isinstance(plain, Aggregate) or not all(c < len(plain.group) for c in columns):
        return None
    closing = closing_of(plain.input, frozenset(plain.group[c] for c in columns))
    return ClosingGroups(plain.input, plain.group, plain.aggregates, plain.names, closing, True) if closing else None


def closing_of(below: Algebra, columns: frozenset[int]) -> Promises:
    """Return the promises of a monotonic input that close values of some of the `columns`; none of another input, and
    none of rows that wait for a boundary. Of several CLUSTERED BY that have no column in common the first declared is
    used."""
    if below.pattern is not Pattern.MONOTONIC or not below.enters_with_elements:
        return NO_PROMISES
    own, equal = (_usable(some, columns) for some in (below.promises, promises_by_equalities(below)))
    # Of one promise over columns that are equal the first is enough.
    others = {one.bases: one for one in reversed(equal) if all(one.bases != used.bases for used in own)}
    closing = (*own, *reversed(others.values()))
    clustered = [one for one in closing if isinstance(one.promise, Clustered)]
    if not clustered or frozenset.intersection(*(frozenset(one.columns) for one in clustered)):
        return closing
    # All rows of one value are in one shard: by no column for all of them.
    return tuple(one for one in closing if one is clustered[0] or one not in clustered)


def _usable(promises: Promises, columns: frozenset[int]) -> list[PassedPromise]:
    """Return those promises that close values of some of the `columns`."""
    closing = (one.within(columns) for one in promises if closes_values(one) and one.slide is None)
    return [one for one in closing if one is not None]
