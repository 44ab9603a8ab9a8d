"""The state of an aggregate that is a sketch: its cells, and those of panes that will expire."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.statistics import seconds
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.nodes import columns_of
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, Argument
from penstock.physical.plan.state.state_parts import StateInput, StatePart, width, width_of_value

#: Bytes of a cell that is counted beside its value, between what is stored of it in a checkpoint and what memory takes
#: with space for more: its slot, four counts and the node in a tree. Of a register, and of a rank that may become its
#: greatest.
_CELL, _REGISTER, _RANK = 176, 104, 104
#: How many times as many values there are as a group has at most, where there are several groups: what is grouped by
#: often has to do with the values.
_APART = 1.5
#: Of which rows of one group and validity are one row while they wait for their expiration.
ADDED_UP = (ArgumentState.SUMS, ArgumentState.CELLS, ArgumentState.REGISTERS)


def panes_of_ticks(rows: StateInput, groups: float) -> StateInput:
    """Return rows of which those of one of `groups` and of one tick are one: beside sketches they are added up."""
    domain, rate = rows.node.domain, rows.expected.rate
    panes = rate if domain is None else min(rate, groups / seconds(1, domain))
    expected = replace(rows.expected, rate=panes, taken=min(rows.expected.taken, panes))
    return replace(rows, expected=expected, elements=rows.elements * rate / panes)


def sketch_state(
    plan: AggregateLayout, argument: Argument, rows: StateInput, groups: float, ends: bool
) -> Iterable[StatePart]:
    """Return the state of the sketches of `argument`, one for each of `groups`. ends: when rows expire is known."""
    encoder = argument.encoder
    assert encoder is not None
    columns = tuple(sorted({column for e in argument.expressions for column in columns_of(e)}))
    there = _different(rows, tuple(column for column in columns if column not in plan.group))
    there = max(1.0, there / min(_APART, math.sqrt(groups)))
    values = encoder.different(rows.size * rows.elements / groups, there)
    in_pane = encoder.different(rows.elements, there)
    bound = (
        Boundedness(Grade.BOUNDED, "the size of its sketch") if rows.content.grade is Grade.BOUNDED else rows.content
    )
    width_of_cell = width_of_value(argument.type)
    panes = max(1.0, rows.size / groups)
    row = 8 * (3 + sum(map(len, plan.carried))) + width([plan.arguments[i].type for i in plan.valued])
    if rows.elements > 1.0:
        coming = groups * (in_pane if encoder.cut else encoder.expected_counted(in_pane))
        yield StatePart("cells of the next boundary", coming, coming * row, bound)
    if argument.kind is ArgumentState.REGISTERS:
        cells = encoder.expected(values)
        yield StatePart("registers of sketches", groups * cells, groups * cells * (_REGISTER + width_of_cell), bound)
        # Of n different values in a register about ln n / (2 ln 2) have a rank above those of all that end later, as a
        # rank is half as likely as the one below it.
        above = 1.0 + math.log(max(1.0, values / cells)) / (2.0 * math.log(2.0))
        skyline = groups * cells * min(panes, above)
        yield StatePart("ranks that may become the greatest", skyline, skyline * _RANK, bound)
        if any(plan.arguments[i] is argument for i in plan.pictured):
            yield StatePart("cells of sketches", groups * cells, groups * cells * (_CELL + width_of_cell), bound)
        return
    if argument.kind is ArgumentState.REGISTER_COUNTS:
        registers = groups * encoder.expected(values)
        yield StatePart("registers of sketches", registers, registers * (_REGISTER + width_of_cell), bound)
    of_pane = encoder.expected_counted(in_pane)
    cells = min(values, encoder.different(panes * of_pane, there)) if encoder.cut else encoder.expected_counted(values)
    yield StatePart("cells of sketches", groups * cells, groups * cells * (_CELL + width_of_cell), bound)
    if ends:
        waiting = rows.size * of_pane
        yield StatePart("cells that will expire", waiting, waiting * row, rows.content)


def _different(rows: StateInput, columns: tuple[int, ...]) -> float:
    found = 1.0
    for column in columns:
        found *= rows.expected.distinct[column] if column < len(rows.expected.distinct) else rows.size * rows.elements
    return found
