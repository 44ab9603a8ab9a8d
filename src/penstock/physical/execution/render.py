"""A physical plan as a render tree: steps, their exchanges and their stages, and the measurements of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.explain import RenderNode
from penstock.expressions.calls.text import to_sql
from penstock.physical.execution.meter import Meter
from penstock.physical.plan.plan import Edge, Exchange, Plan, Step
from penstock.physical.plan.spec import Parameter, Ticks
from penstock.types import TimeDomain


def render_plan(
    plan: Plan, query: str, meter: Meter | None = None, statics: Mapping[str, Meter] | None = None
) -> RenderNode:
    """Return the steps that answer `query`, its output at the root. meter: the measurements of their run; statics:
    those of the static relations, which are then drawn below the steps that read them."""
    return _render(_Drawn(plan, meter, statics or {}), plan.output(query), None)


@dataclass(frozen=True)
class _Drawn:
    """A plan with measurements of its run. prefix: of the numbers of its steps; nodes: steps that are drawn, by id: one
    with several readers is drawn once."""

    plan: Plan
    meter: Meter | None
    statics: Mapping[str, Meter]
    prefix: str = ""
    nodes: dict[int, RenderNode] = field(default_factory=dict)


def _render(drawn: _Drawn, step: Step, edge: Edge | None) -> RenderNode:
    if step.id not in drawn.nodes:
        drawn.nodes[step.id] = _node(drawn, step)
    return replace(drawn.nodes[step.id], edge=_edge(step, edge))


def _node(drawn: _Drawn, step: Step) -> RenderNode:
    plan = drawn.plan
    children = [_render(drawn, plan.step(i.step), i) for i in step.inputs]
    children += [_static(drawn, table) for table in step.spec.static_tables if table in drawn.statics]
    measured = () if drawn.meter is None else drawn.meter.of(step.id).pairs()
    name = f"{drawn.prefix}{step.id}"
    return RenderNode(step.spec.title, _parameters(plan, step), (), tuple(children), name, measured)


def _static(drawn: _Drawn, table: str) -> RenderNode:
    """Return how a static relation was computed: the plan below its output."""
    inner = replace(
        drawn, plan=drawn.plan.statics[table], meter=drawn.statics[table], statics={}, prefix=f"{table[:8]}.", nodes={}
    )
    (edge,) = inner.plan.output("").inputs
    return _render(inner, inner.plan.step(edge.step), edge)


def _parameters(plan: Plan, step: Step) -> tuple[tuple[str, str], ...]:
    spec, source, query = step.spec, step.spec.scanned, step.spec.answered
    domain = _domain(plan, step)
    found = {key: _text(parameter, domain) for key, parameter in spec.describe().items() if parameter}
    if source is not None and (condition := plan.source_predicates.get(source.name)) is not None:
        found["source predicate"] = to_sql(condition, source.columns.names)
    if query is not None:
        found["evaluated at"] = "; ".join(map(str, plan.periods.get(query, ())))
        found["emitted"] = "" if plan.waits(query) else "on arrival"
    found |= spec.expressions_text([plan.step(edge.step).names for edge in step.inputs], step.names)
    return tuple((key, text) for key, text in found.items() if text)


def _text(parameter: Parameter, domain: TimeDomain | None) -> str:
    parts = parameter if isinstance(parameter, tuple) else (parameter,)
    return ", ".join(part.show(domain) if isinstance(part, Ticks) else part for part in parts)


def _domain(plan: Plan, step: Step) -> TimeDomain | None:
    """Return the time domain of the sources below a step, which is one for all; None where they are static."""
    todo, seen = [step], {step.id}
    while todo:
        below = todo.pop()
        source = below.spec.scanned
        if source is not None and source.domain is not None:
            return source.domain
        fresh = {edge.step for edge in below.inputs} - seen
        seen |= fresh
        todo += [plan.step(number) for number in fresh]
    return None


def _edge(step: Step, edge: Edge | None) -> tuple[tuple[str, str], ...]:
    """Return the properties of the edge from `step` to its parent: update pattern, the key of the exchange, and the
    stage."""
    return (
        ("pattern", step.pattern),
        ("key", "" if edge is None or edge.exchange is None else _key(step, edge.exchange)),
        ("stage", "ingest" if step.stage == 0 else str(step.stage)),
    )


def _key(step: Step, exchange: Exchange) -> str:
    if exchange.everywhere:
        return "every shard"
    if exchange.key is None:
        return "any shard"
    return "shuffle by (" + ", ".join(step.names[i] for i in exchange.key) + ")" if exchange.key else "one shard"
