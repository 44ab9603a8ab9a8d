"""ESTIMATE without bounds over rows that are retracted when their value is dropped: sums first, chances behind them.

Σ x/π is Σ x over one π where all rows have the same, as under a budget of one bucket. So rows are grouped without their
inclusion records, and when the threshold falls each group is replaced, not each row.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Aggregate, Algebra, Project, Select, StretchChances
from penstock.algebra.nodes.base import RECORD
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import DOUBLE
from penstock.expressions.nodes import AggregateCall, Column, Expression, Literal, columns_of, remap
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.temporal.stretch_chances import StretchChancesSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered

_COUNT, _SUM = "ESTIMATE_COUNT", "ESTIMATE_SUM"


def lower_estimated_sums(node: Aggregate, builder: Builder) -> Lowered | None:
    """Return `node` where it is such estimates, and aggregates that do not read records; else None."""
    found = _without_records(node.input)
    if found is None:
        return None
    rows, positions = found
    calls, estimated = [], []
    for call in node.aggregates:
        inner = call
        if call.function in (_COUNT, _SUM):
            inner = replace(call, type=DOUBLE, function="SUM", arguments=call.arguments[:1])
        moved = _moved(inner, positions)
        if not isinstance(moved, AggregateCall):
            return None
        calls.append(moved)
        estimated.append(call.function if inner is not call else None)
    if not any(estimated) or not positions.keys() >= set(node.group):
        return None
    sums = Aggregate(rows, tuple(positions[i] for i in node.group), tuple(calls), node.names)
    child = builder.lower(sums)
    budget = dropping_step(child.step, builder)
    if builder.steps[budget - builder.first].stage != child.stage:
        return None
    spec = StretchChancesSpec(sums.schema.types, (), 1, 1, _scaled(sums, estimated))
    return replace(child, step=builder.add(spec, [Edge(child.step), Edge(budget)], child.stage, node))


def dropping_step(step: int, builder: Builder) -> int:
    """Return the step that drops values, `step` or one below it."""
    found = builder.steps[step - builder.first]
    return step if found.spec.drops_values else dropping_step(found.inputs[0].step, builder)


def _without_records(node: Algebra) -> tuple[Algebra, dict[int, int]] | None:
    """Return selected and computed rows without their inclusion records, and where their other columns are there; None
    where they have none of one chance for all, or where anything but a column reads them."""
    if isinstance(node, StretchChances):
        same = not node.once and node.buckets == 1 and node.refusal() is None
        return (node.input, {i: i for i in range(len(node.schema) - 1)}) if same else None
    below = _without_records(node.input) if isinstance(node, Select | Project) else None
    if below is None:
        return None
    rows, positions = below
    if isinstance(node, Select):
        predicate = _moved(node.predicate, positions)
        return None if predicate is None else (Select(rows, predicate), positions)
    assert isinstance(node, Project)
    kept = [
        (i, _moved(e, positions), node.fields[i])
        for i, e in enumerate(node.expressions)
        if not (isinstance(e, Column) and e.index not in positions)
    ]
    expressions = tuple(e for _, e, _ in kept if e is not None)
    if len(expressions) < len(kept):
        return None
    made = Project(rows, expressions, tuple(field for *_, field in kept))
    return made, {i: place for place, (i, *_) in enumerate(kept)}


def _moved(expression: Expression, positions: dict[int, int]) -> Expression | None:
    """Return an expression over rows without records, None where it reads them."""
    if not columns_of(expression) <= positions.keys():
        return None
    return remap(expression, positions.__getitem__)


def _scaled(sums: Aggregate, estimated: list[str | None]) -> tuple[Expression, ...]:
    """Return the columns of the groups, sums that are estimates divided by the chance."""
    width = len(sums.group)
    found: list[Expression] = [Column(f.type, i, f.name) for i, f in enumerate(sums.schema)]
    chance = build_call("INCLUSION_CHANCE", [Column(RECORD.type, len(found), RECORD.name)])
    for place, function in enumerate(estimated, width):
        if function is not None:
            total = found[place]
            found[place] = build_call("DIV", [total, chance])
            if function == _COUNT:
                found[place] = build_call("IF", [build_call("ISNULL", [total]), Literal(DOUBLE, 0.0), found[place]])
    return tuple(found)
