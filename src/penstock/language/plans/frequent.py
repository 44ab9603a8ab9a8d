"""Frequent items as data."""

from __future__ import annotations

from penstock.algebra import Algebra, Frequent, Measure
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.frequent import MOST_ITEMS, check_above, check_aggregate, refuse_without_panes
from penstock.language.plan_form import fault
from penstock.language.plans.fields import Below, Fields, NodeForm, given
from penstock.language.plans.scalar_text import column_names, written
from penstock.types import exact


def _write(node: Frequent) -> Fields:
    names = column_names(node.input.schema)
    measures = [{"measure": one.name, "name": name} for one, name in zip(node.measures, node.names, strict=True)]
    return {
        "group": [names[i] for i in node.group],
        "aggregate": written(node.aggregate, names),
        "k": node.k,
        **given(per=[names[node.group[i]] for i in node.per], above=None if node.above is None else str(node.above)),
        "possibly": node.possibly,
        "thesis": node.thesis,
        "measures": measures,
    }


def _read(below: Below) -> Algebra:
    group, per = below.positions("group"), below.positions("per")
    if not set(per) < set(group):
        raise refused("FREQUENT needs columns in its group beside those of per")
    aggregate = below.scalars.aggregate(below.fields["aggregate"], below.columns, ())
    try:
        above = exact(below.fields["above"].text()) if "above" in below.fields else None
    except ValueError:
        raise fault(below.fields["above"].pointer, "this is no number") from None
    check_above(above)
    check_aggregate(aggregate)
    refuse_without_panes(below.input, "FREQUENT")
    words = {one.name: one for one in Measure}
    items = [item.object(("measure", "name"), ("measure", "name")) for item in below.fields["measures"].items()]
    return Frequent(
        below.input,
        group,
        aggregate,
        below.fields["k"].whole(1, MOST_ITEMS),
        tuple(group.index(column) for column in per),
        above,
        below.fields["possibly"].flag(),
        below.fields["thesis"].flag(),
        tuple(words[item["measure"].one_of(words)] for item in items),
        tuple(item["name"].name() for item in items),
    )


FREQUENT = NodeForm(
    _write,
    _read,
    ("group", "aggregate", "k", "per", "above", "possibly", "thesis", "measures"),
    ("group", "aggregate", "k", "possibly", "thesis", "measures"),
)
