"""A plan as data: the logical plan of a query beside the steps that answer it (docs/plans.md).

The logical plan is what can be read back; the steps are for people and programs that look at them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.algebra.nodes.query import Query
from penstock.language.plan_choices import by_operator
from penstock.language.plan_form import FORMAT, printed
from penstock.physical.plan.plan import Edge, Exchange, Step
from penstock.physical.plan.step_choices import SHARED, open_choices
from penstock.types import type_name


def plan_document(query: Query, logical: Mapping[str, object], steps: Sequence[Step], keys: Mapping[int, str]) -> str:
    """Return the document of a query. steps: those that answer it, by `keys`; none of a query that does not run."""
    columns = [{"name": name, "type": type_name(type_)} for name, type_ in _columns(query)]
    stated = {"name": query.name, "kind": "stream" if query.root.is_stream else "relation", "columns": columns}
    physical = [_step(step, keys) for step in steps]
    chosen = by_operator(query.choices)
    document = {"format": FORMAT, "queries": [stated], "logical": logical, "physical": physical, "attributes": chosen}
    return printed(document)


def _columns(query: Query) -> Iterable[tuple[str, Any]]:
    return ((field.name, field.type) for field in query.output_schema)


def _step(step: Step, keys: Mapping[int, str]) -> dict[str, Any]:
    return {
        "id": step.id,
        "key": keys[step.id],
        "spec": {"name": step.spec.title, **_parameters(step)},
        "stage": step.stage,
        "inputs": [_edge(edge) for edge in step.inputs],
        "attributes": _attributes(step),
    }


def _attributes(step: Step) -> dict[str, Any]:
    """Return what can be chosen of a step, by what that goes by."""
    found: dict[str, Any] = {}
    for one in open_choices(step.choices, step.spec.answered is None):
        own = found.setdefault(one.operator, {})
        own[one.attribute] = one.value == "true" if one.attribute == SHARED else one.value
    return found


def _parameters(step: Step) -> dict[str, str]:
    """Return the parameters of a step, as EXPLAIN shows them."""
    found = {}
    for name, value in step.spec.describe().items():
        parts = value if isinstance(value, tuple) else (value,)
        found[name] = ", ".join(part if isinstance(part, str) else part.show(None) for part in parts)
    return found


def _edge(edge: Edge) -> dict[str, Any]:
    return {"step": edge.step, **({} if edge.exchange is None else {"exchange": _exchange(edge.exchange)})}


def _exchange(exchange: Exchange) -> dict[str, Any]:
    if exchange.everywhere:
        return {"to": "all shards"}
    if exchange.key is None:
        return {"to": "the shard of the sender"}
    return {"to": "the shard of the key", "key": list(exchange.key)}
