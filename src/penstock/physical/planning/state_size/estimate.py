"""Estimate the state of a plan before it runs: whether it is bounded, by what, and about how many bytes.

`state_of` walks the steps of a plan; each spec returns the parts of state that its operator stores (`Spec.state`).
Sizes follow from the estimates of the inputs (`algebra/properties/statistics.py`): rates, lengths of windows and
numbers of distinct values; they are good for an order of magnitude. State bounded by the number of some values is as
large as the statistics have these values; unbounded state is shown as it is after an hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.algebra.nodes.base import Algebra, TimeModelWindow, operators
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, width
from penstock.physical.planning.state_size.parts import StepState

#: What each step of a plan computes, by its number.
StepNodes = Mapping[int, Algebra] | Sequence[Algebra]


def state_of(plan: Plan, nodes: StepNodes, statistics: Statistics) -> tuple[StepState, ...]:
    """Return the steps of `plan` that store state; nodes: what each computes (`planner.planned`)."""
    computed: dict[int, StateInput] = {}
    steps = []
    fresh: set[int] = set()
    for step in plan.steps:
        inputs = tuple(computed[edge.step] for edge in step.inputs)
        output = _output(step, nodes[step.id], inputs, statistics)
        computed[step.id] = output
        parts = [*step.spec.state(inputs, output)]
        arrives = any(edge.step in fresh for edge in step.inputs)
        if step.stage == 0 or (arrives and step.spec.forwards_early):
            fresh.add(step.id)
        if arrives and step.spec.holds_early:
            parts.append(_ahead(step, inputs, plan))
        parts = [part for part in parts if part.rows > 0]
        if parts:
            steps.append(StepState(step, tuple(parts)))
    return tuple(steps)


def _output(step: Step, node: Algebra, inputs: tuple[StateInput, ...], statistics: Statistics) -> StateInput:
    output = step.spec.passed_on(inputs, StateInput(node, node.boundedness, estimate(node, statistics), step.types))
    lanes = step.spec.panes(inputs)
    if lanes is None or node.domain is None:
        return output
    # Elements that share group and interval are one: at most one per group and boundary.
    windows = (window for window in operators(node) if isinstance(window, TimeModelWindow) and window.judges_alone)
    period = max(seconds(window.slide or 0, node.domain) for window in windows)
    expected = output.expected
    rate = min(expected.rate, output.values(lanes.group) / period) if period else expected.rate
    elements = expected.rate / rate if rate else 1.0
    expected = Estimate(rate, expected.length, expected.distinct)
    return replace(output, expected=expected, lanes=lanes, elements=elements, period=period)


def _ahead(step: Step, inputs: Sequence[StateInput], plan: Plan) -> StatePart:
    """Return the elements that wait until the heartbeat has passed them: those within the slack of their source."""
    sources = [plan.sources[name] for name in sorted(step.sources) if plan.sources[name].slack]
    waits = max((seconds(s.slack, s.domain) for s in sources if s.domain), default=0.0)
    each = [(waits * child.expected.rate, width(child.types) + TIMES) for child in inputs]
    names = ", ".join(source.name for source in sources)
    return StatePart(
        "elements ahead of the heartbeat",
        sum(rows for rows, _ in each),
        sum(rows * nbytes for rows, nbytes in each),
        Boundedness(Grade.BOUNDED, f"ORDER WITHIN of {names}", length=waits),
    )
