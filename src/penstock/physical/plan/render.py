"""A physical plan as a render tree: steps, what crosses an exchange, and in which stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.explain import RenderNode
from penstock.expressions.text import to_sql
from penstock.physical.execution.meter import Meter
from penstock.physical.plan.plan import (
    Edge,
    Exchange,
    FilterSpec,
    JoinSpec,
    LookupSpec,
    MultiJoinSpec,
    OutputSpec,
    Plan,
    ProjectSpec,
    ScanSpec,
    StaticPartnerCountsSpec,
    StaticSpec,
    Step,
)


def render_plan(
    plan: Plan, query: str, meter: Meter | None = None, statics: Mapping[str, Meter] | None = None
) -> RenderNode:
    """Return the steps that answer `query`, its output at the root. meter: what they did when they ran; statics: what
    those of the static relations did, which are then drawn below the steps that hold them."""
    root = next(s for s in plan.steps if isinstance(s.spec, OutputSpec) and s.spec.query == query)
    return _render(_Drawn(plan, meter, statics or {}), root, None)


@dataclass(frozen=True)
class _Drawn:
    """A plan and what is known of its run. prefix: before the numbers of its steps; nodes: steps that are drawn, by id:
    one that several others read is drawn once."""

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
    children = [_render(drawn, plan.steps[i.step], i) for i in step.inputs]
    if isinstance(step.spec, StaticSpec | LookupSpec | StaticPartnerCountsSpec) and step.spec.table in drawn.statics:
        children.append(_static(drawn, step.spec.table))
    measured = () if drawn.meter is None else drawn.meter.of(step.id).pairs()
    name = f"{drawn.prefix}{step.id}"
    return RenderNode(step.spec.title, _parameters(plan, step), (), tuple(children), name, measured)


def _static(drawn: _Drawn, table: str) -> RenderNode:
    """How a static relation was computed: the plan below its output."""
    inner = replace(
        drawn, plan=drawn.plan.statics[table], meter=drawn.statics[table], statics={}, prefix=f"{table[:8]}.", nodes={}
    )
    (edge,) = next(s for s in inner.plan.steps if isinstance(s.spec, OutputSpec)).inputs
    return _render(inner, inner.plan.steps[edge.step], edge)


def _parameters(plan: Plan, step: Step) -> tuple[tuple[str, str], ...]:
    spec = step.spec
    found = {key: text for key, text in spec.describe().items() if text}
    names = plan.steps[step.inputs[0].step].names if step.inputs else ()
    if isinstance(spec, ScanSpec) and (wanted := plan.wanted.get(spec.source.name)) is not None:
        found["wanted"] = to_sql(wanted, spec.source.columns.names)
    if isinstance(spec, FilterSpec):
        found["predicate"] = to_sql(spec.predicate, names)
    if isinstance(spec, ProjectSpec):
        found["columns"] = ", ".join(to_sql(e, names) for e in spec.expressions)
    if isinstance(spec, JoinSpec):
        right = plan.steps[step.inputs[1].step].names
        pairs = zip(spec.left_key, spec.right_key, strict=True)
        found["on"] = " AND ".join(f"{names[a]} = {right[b]}" for a, b in pairs)
    if isinstance(spec, OutputSpec):
        found["asked for"] = "; ".join(map(str, plan.periods.get(spec.query, ())))
        found["emitted"] = "" if plan.waits(spec.query) else "on arrival"
    if isinstance(spec, MultiJoinSpec):
        found |= _multi_join(plan, step, spec)
    if isinstance(spec, (JoinSpec, LookupSpec)) and spec.residual is not None:
        found["where"] = to_sql(spec.residual, step.names)
    return tuple((key, text) for key, text in found.items() if text)


def _multi_join(plan: Plan, step: Step, spec: MultiJoinSpec) -> dict[str, str]:
    """Return the conditions, with the inputs' names before the columns'."""
    columns = [plan.steps[edge.step].names for edge in step.inputs]
    labels = [f"{name}.{column}" for name, own in zip(spec.names, columns, strict=True) for column in own]
    starts = [sum(map(len, columns[:i])) for i in range(len(columns))]
    classes = (
        " = ".join(labels[start + place] for start, place in zip(starts, places, strict=True) if place is not None)
        for places in spec.classes
    )
    where = "" if spec.residual is None else to_sql(spec.residual, labels)
    return {"on": " AND ".join(classes), "where": where}


def _edge(step: Step, edge: Edge | None) -> tuple[tuple[str, str], ...]:
    """What flows from `step` to its parent: update pattern, the key rows are cut by, and the stage it leaves."""
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
