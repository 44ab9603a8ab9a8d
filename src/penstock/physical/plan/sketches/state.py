"""The state of an aggregate that is a sketch: its cells, and those of panes that will expire."""

from __future__ import annotations

import math
from collections.abc import Iterable

from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.nodes import columns_of
from penstock.physical.plan.state import SLOT, TIMES, StateInput, StatePart, width, width_of_value
from penstock.physical.planning.aggregate_layout import AggregateLayout, Argument

#: Bytes of the slot of a cell beside its fingerprint: four counts, the index, and space for more.
_COUNTS, _NODE = 40, 64


def sketch_state(plan: AggregateLayout, argument: Argument, rows: StateInput, groups: float) -> Iterable[StatePart]:
    """Return the state of the sketches of `argument`, one for each of `groups`."""
    encoder = argument.encoder
    assert encoder is not None
    elements = rows.size * rows.elements / groups
    columns = tuple(sorted({column for e in argument.expressions for column in columns_of(e)}))
    different = _different(rows, columns)
    values = max(1.0, min(elements, different))
    cells = encoder.expected(values)
    bound = (
        Boundedness(Grade.BOUNDED, "the size of its sketch") if rows.content.grade is Grade.BOUNDED else rows.content
    )
    nbytes = SLOT + _COUNTS + width_of_value(argument.type)
    panes = max(1.0, rows.size / groups)
    if argument.kind is ArgumentState.REGISTERS:
        yield StatePart("registers of sketches", groups * cells, groups * cells * nbytes, bound)
        # Of n cells in a register in random order about log n are greater than all that follow.
        skyline = cells * max(1.0, min(math.log(panes) + 1.0, math.log(max(math.e, elements / cells)) + 1.0))
        yield StatePart("ranks that may become the greatest", groups * skyline, groups * skyline * _NODE, bound)
        if any(plan.arguments[i] is argument for i in plan.pictured):
            yield StatePart("cells of sketches", groups * cells, groups * cells * (nbytes + _NODE), bound)
        return
    cells = encoder.expected_of_rows(elements, different)
    if encoder.cut:
        cells = min(values, panes * encoder.expected(min(values, rows.elements)))
    yield StatePart("cells of sketches", groups * cells, groups * cells * (nbytes + _NODE + TIMES), bound)
    if rows.node.carries_ends:
        waiting = rows.size * encoder.expected_of_rows(rows.elements, values)
        row = 8 * (3 + sum(map(len, plan.carried))) + width([plan.arguments[i].type for i in plan.valued])
        yield StatePart("cells that will expire", waiting, waiting * row, rows.content)


def _different(rows: StateInput, columns: tuple[int, ...]) -> float:
    found = 1.0
    for column in columns:
        found *= rows.expected.distinct[column] if column < len(rows.expected.distinct) else rows.size
    return found
