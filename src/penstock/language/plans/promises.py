"""Operators whose state ends, or whose rows enter, by promises of streams, as data.

A promise is named by its stream and constraint, and by the columns of the rows that it is on; of a join also by the
side whose rows leave, and by its columns that are compared with those of the promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.algebra import Aggregate, Algebra, Distinct, Join, OuterJoin, SemiJoin
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.promised import (
    ClosedRows,
    ClosingGroups,
    JoinResult,
    Leaving,
    PromisedJoin,
    closes_values,
)
from penstock.algebra.optimizer.rules.constraints.groups import closing_of
from penstock.algebra.optimizer.rules.constraints.joins import leaving_of, unused_promises
from penstock.algebra.optimizer.rules.constraints.pairs import ComparedInputs, compared_columns
from penstock.algebra.properties.promises import NO_PROMISES, PassedPromise, Promises, Unique
from penstock.algebra.properties.update_pattern import Pattern
from penstock.language.plan_form import Part, fault
from penstock.language.plans.fields import Below, Fields, NodeForm, given, names_of
from penstock.language.plans.scalar_binding import NamedColumns

_NAMED = ("stream", "constraint", "columns")
_LEAVING = ("side", *_NAMED, "compared")
_SIDES = ("left", "right")


def _write_join(node: PromisedJoin) -> Fields:
    sides = node.left, node.right
    leaving = [
        {
            "side": _SIDES[one.side],
            **_written((one.promise,), sides[one.of])[0],
            "compared": names_of(sides[one.side], one.columns),
        }
        for one in node.leaving
    ]
    return {"leaving": leaving}


def _read_join(below: Below) -> Algebra:
    joined = below.input
    if not isinstance(joined, Join | OuterJoin | SemiJoin) or (isinstance(joined, OuterJoin) and joined.single):
        raise refused("PromisedJoin stands over a Join, an OuterJoin or a SemiJoin", "P0106")
    kind = JoinResult.INNER if isinstance(joined, Join) else JoinResult(joined.kind.value)
    inputs = ComparedInputs(joined.left, joined.right, compared_columns(joined.left, joined.right, joined.equal))
    known = leaving_of(inputs, kind)
    leaving = tuple(_leaving(part, known, inputs) for part in below.fields["leaving"].items())
    if not leaving:
        raise fault(below.fields["leaving"].pointer, "a promise is needed", "P0373")
    unused = unused_promises(inputs, leaving, kind)
    return PromisedJoin(joined.left, joined.right, joined.equal, joined.residual, kind, leaving, unused)


def _leaving(part: Part, known: Sequence[Leaving], inputs: ComparedInputs) -> Leaving:
    """Return why rows leave that a part of a list says, of what is `known` of a join. Raises PenstockError P0373."""
    parts = part.object(_LEAVING, _LEAVING)
    side = parts["side"].name()
    named = parts["stream"].name(), parts["constraint"].name()
    for one in known:
        base = one.promise.bases[0]
        if (_SIDES[one.side], base.source, base.promise.name) != (side, *named):
            continue
        columns = (
            NamedColumns.of(inputs.sides[number].schema).positions(parts[name])
            for number, name in ((one.of, "columns"), (one.side, "compared"))
        )
        if tuple(columns) == (one.promise.columns, one.columns):
            return one
    raise fault(part.pointer, f"rows of the side {side} do not leave by {named[1]} of {named[0]} here", "P0373")


def _written(promises: Promises, node: Algebra) -> list[Fields]:
    bases = [(one, one.bases[0]) for one in promises]
    return [
        dict(zip(_NAMED, (base.source, base.promise.name, names_of(node, one.columns)), strict=True))
        for one, base in bases
    ]


def _promises(part: Part, known: Promises, node: Algebra) -> Promises:
    """Return the promises that a list names, of those `known` of a relation. Raises PenstockError P0373."""
    found = tuple(_promise(item, known, node) for item in part.items())
    if not found:
        raise fault(part.pointer, "a promise is needed", "P0373")
    return found


def _promise(part: Part, known: Promises, node: Algebra) -> PassedPromise:
    parts = part.object(_NAMED, _NAMED)
    columns = NamedColumns.of(node.schema).positions(parts["columns"])
    named = parts["stream"].name(), parts["constraint"].name()
    for one in known:
        base, left = one.bases[0], one.within(columns)
        if (base.source, base.promise.name) == named and left is not None and left.columns == columns:
            return left
    raise fault(part.pointer, f"there is no promise {named[1]} of {named[0]} that closes these columns here", "P0373")


def _write_groups(node: ClosingGroups) -> Fields:
    return {"closing": _written(node.closing, node.input), **given(final=node.final or None)}


def _read_groups(below: Below) -> Algebra:
    groups = below.input
    if not isinstance(groups, Aggregate | Distinct):
        raise refused("ClosingGroups stand over an Aggregate or a Distinct", "P0106")
    rows = groups.input
    group = groups.group if isinstance(groups, Aggregate) else tuple(range(len(rows.schema)))
    closing = _promises(below.fields["closing"], closing_of(rows, frozenset(group)), rows)
    final = "final" in below.fields and below.fields["final"].flag()
    calls, names = (groups.aggregates, groups.names) if isinstance(groups, Aggregate) else ((), ())
    return ClosingGroups(rows, group, calls, names, closing, final)


def _write_rows(node: ClosedRows) -> Fields:
    return {"closing": [_written(condition, node.input) for condition in node.closing]}


def _read_rows(below: Below) -> Algebra:
    rows = below.input
    known = NO_PROMISES
    if rows.pattern is Pattern.MONOTONIC and rows.enters_with_elements:
        closing = (one for one in rows.promises if closes_values(one) or isinstance(one.promise, Unique))
        known = tuple(one for one in closing if one.slide is None)
    conditions: Sequence[Part] = below.fields["closing"].items()
    if not conditions:
        raise fault(below.fields["closing"].pointer, "a condition is needed", "P0373")
    return ClosedRows(rows, tuple(_promises(one, known, rows) for one in conditions))


PROMISES: Mapping[type[Algebra], NodeForm] = {
    PromisedJoin: NodeForm(
        _write_join, _read_join, ("leaving",), ("leaving",), below=lambda node: (node.without_promises,)
    ),
    ClosedRows: NodeForm(_write_rows, _read_rows, ("closing",), ("closing",)),
    ClosingGroups: NodeForm(
        _write_groups, _read_groups, ("closing", "final"), ("closing",), below=lambda node: (node.without_promises,)
    ),
}
