"""The plan that runs, drawn: of one query, or of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.control.entities.plan import EdgeRow, OperatorRow
from penstock.control.entities.system import SystemView
from penstock.explain.drawing import to_svg
from penstock.explain.nodes import Figures, Pairs, RenderNode
from penstock.figures import ROWS_IN, ROWS_OUT
from penstock.language.plan_choices import as_choices, choices_in
from penstock.physical.plan.plan import Step
from penstock.physical.planning.plan_document import plan_document


def running_plan(view: SystemView, query: str | None = None, source: str | None = None) -> str:
    """Return the operators of the plan that runs as an SVG document; each node goes by `0:` and the key of its
    operator, as `penstock.operators` has it.

    Args:
        query: only those that it uses; without one those of all queries.
        source: only those of queries that read this stream or relation.
    """
    steps = {step.id: step for step in view.steps}
    chosen = None if source is None else _readers_of(view, source)
    if query is not None:
        chosen = {query} if chosen is None else chosen & {query}
    used = [step for step in view.steps if chosen is None or chosen.intersection(view.readers[step.id])]
    nodes: dict[int, RenderNode] = {}
    for step in used:
        row = OperatorRow(view, step)
        inputs = [
            replace(nodes[edge.step], edge=_edge(EdgeRow(view, step, port, edge), steps[edge.step]))
            for port, edge in enumerate(step.inputs)
        ]
        parameters: Pairs = tuple(_parameter(part) for part in row.spec.split("; ") if part)
        if step.spec.answered is not None:
            # Plans call queries by the numbers of their places.
            parameters = (("query", ", ".join(sorted(view.readers[step.id]))),)
        nodes[step.id] = RenderNode(step.spec.title, parameters, (), tuple(inputs), row.key, _measured(row))
    read = {edge.step for step in used for edge in step.inputs}
    ends = tuple(node for number, node in nodes.items() if number not in read)
    title = "all queries" if query is None else f"query {query}"
    if not ends:
        return to_svg([])
    if len(ends) == 1:
        return to_svg([(title, ends[0])])
    return to_svg([(title, RenderNode("all queries", (), (), ends, "all"))])


def _readers_of(view: SystemView, source: str) -> set[str]:
    """Return the queries that read a stream or relation, also through a view."""
    key = source.lower()
    return {
        one.stored.name
        for one in view.listed
        if one.bound is not None and any(name.lower() == key for name in declared_sources(one.bound.root))
    }


def running_plan_document(view: SystemView, query: Query, logical: Mapping[str, object]) -> str:
    """Return the plan of a query as data, with the operators of the plan that runs; none where it is paused."""
    one = next(one for one in view.listed if one.stored.name == query.name)
    places = {name for name, place in view.figures.places.items() if place == one.query.place}
    steps = [step for step in view.steps if step.queries & places]
    chosen = replace(query, choices=as_choices(choices_in(one.stored.wished_plan)))
    return plan_document(chosen, logical, steps, view.figures.run.keys)


def _measured(row: OperatorRow) -> Figures:
    """Return what is measured, with room for what a page writes over it."""
    state = row.state
    return (
        (ROWS_IN.name, row.rows_in or 0),
        (ROWS_OUT.name, row.rows_out or 0),
        ("bytes", 0 if state is None else state[1]),
    )


def _edge(edge: EdgeRow, sender: Step) -> Pairs:
    shown = [("pattern", sender.pattern), ("exchange", edge.exchange)]
    return tuple((name, text) for name, text in shown if text)


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition(": ")
    return name, value
