"""EXPLAIN: the plans of a query as text, JSON, Mermaid or SVG, and the measurements of a run of it (`analyze.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import TraceStep, optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.render import render
from penstock.deep_trees import deep
from penstock.errors import PenstockError, nearest
from penstock.explain import to_json, to_mermaid, to_svg, to_text
from penstock.explain.nodes import RenderNode
from penstock.physical.execution.render import render_plan
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.plan_document import plan_document
from penstock.physical.planning.planner import plan_queries
from penstock.physical.planning.state_size.summary import query_state
from penstock.runtime.local.forecast import forecasts

if TYPE_CHECKING:
    from penstock.runtime.local.analyze import Analysis

FORMATS = ("text", "json", "mermaid", "drawn")
#: Formats that are one picture of both plans.
_CHARTS = {"mermaid": to_mermaid, "drawn": to_svg}


@deep
def explain(
    query: Query,
    format: str = "text",  # noqa: A002 - the door's word
    statistics: Statistics | None = None,
    ran: Analysis | None = None,
    strategy: Strategy = Strategy.PATTERN,
) -> str:
    """Return the optimized logical plan and the physical plan of a query, ordered by the statistics of its sources.
    ran: a run of it, whose measurements are shown. Raises PenstockError P0104 for an unknown format."""
    if format not in FORMATS:
        raise PenstockError("P0104", f"explain has no format {format}", hint=nearest(format, FORMATS))
    trace: list[TraceStep] = []
    root = optimize(query.root, trace, planning=strategy.planning(statistics), choices_only=True)
    logical = _with_notes(query, render(root))
    if ran is None:
        physical = render_plan(plan_queries([replace(query, root=root)], statistics, strategy), query.name)
    else:
        physical = render_plan(ran.plan, query.name, ran.meter, ran.statics)
    known = statistics or Statistics()
    state = query_state(query, known, strategy, root)
    preferences = forecasts(root, known)
    if format == "json":
        choices = json.dumps([_choice(step, costs) for step in trace if (costs := step.costs)])
        forecast = json.dumps([one.as_json() for one in preferences])
        preferring = f'"preferences": {forecast},\n' if preferences else ""
        return (
            f'{{"query": {json.dumps(query.name)},\n"logical": {to_json(logical)},\n"choices": {choices},\n'
            f'"physical": {to_json(physical)},\n{preferring}"state": {json.dumps(state.as_json(), indent=2)}}}\n'
        )
    parts = [("logical plan", logical), ("physical plan" if ran is None else _ran(ran), physical)]
    if format in ("mermaid", "drawn"):
        return _CHARTS[format]([(f"{query.name}: {title}", tree) for title, tree in parts])
    texts = [(title, to_text(tree)) for title, tree in parts]
    # The same choice may have been tried again once columns were pruned.
    choice_lines = dict.fromkeys(_choice_text(step, costs) for step in trace if (costs := step.costs))
    if choice_lines:
        texts.insert(1, ("choices by cost", "".join(f"{line}\n" for line in choice_lines)))
    if chosen := choice_lines_of(query):
        texts.append(("choices of the plan", "".join(f"{line}\n" for line in chosen)))
    if preferences:
        texts.append(("preferences", "".join(f"{line}\n" for one in preferences for line in one.lines)))
    texts.append(("state", state.text()))
    return "\n".join(f"-- {query.name}: {title}\n{text}" for title, text in texts)


def _with_notes(query: Query, tree: RenderNode) -> RenderNode:
    """Return a plan whose root names the sources of which periods are read row by row."""
    if not query.uncoalesced:
        return tree
    return replace(tree, parameters=(*tree.parameters, ("not coalesced", ", ".join(query.uncoalesced))))


def choice_lines_of(query: Query) -> list[str]:
    """Return what is chosen of the plan of a query in place of the planner's, a choice a line."""
    return [f"{one.operator}: {one.attribute} = {one.value}, chosen by UPDATE or ALTER QUERY" for one in query.choices]


@deep
def export_plan(query: Query, logical: Mapping[str, object], statistics: Statistics, strategy: Strategy) -> str:
    """Return the plan of a query as data. logical: its logical plan."""
    root = optimize(query.root, planning=strategy.planning(statistics), choices_only=True)
    plan = plan_queries([replace(query, root=root)], statistics, strategy)
    return plan_document(query, logical, plan.steps, step_keys(plan))


def _choice(step: TraceStep, costs: tuple[float, float]) -> dict[str, Any]:
    return {"rule": step.rule, "taken": step.taken, "cost_before": costs[0], "cost_after": costs[1]}


def _choice_text(step: TraceStep, costs: tuple[float, float]) -> str:
    """A plan that was considered: its cost, and the plan that it would replace."""
    verdict = "taken" if step.taken else "left"
    return f"{step.rule}: {verdict}, {costs[1]:.4g} elements/s handled instead of {costs[0]:.4g}"


def _ran(analysis: Analysis) -> str:
    return f"physical plan, as it ran in {analysis.seconds:.3f} s"
