"""What reads periods as data: coalescing, session windows and `[VALID]`."""

from __future__ import annotations

from penstock.algebra import Algebra, Begins, Closing, Coalesce, SessionWindow, ValidWindow
from penstock.expressions.coercion import BIGINT
from penstock.language.plans import checks
from penstock.language.plans.node_form import Below, Fields, NodeForm, given, names_of, slide_of


def _write_coalesce(node: Coalesce) -> Fields:
    when = node.closing
    if when is None:
        return {"begins": node.begins.name}
    rest = given(slide=when.slide, align=when.align or None, later=when.later or None, longest=when.longest)
    return {"begins": node.begins.name, "closed": node.only_closed, **rest}


def _read_coalesce(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    checks.without_internal(below.inputs, "coalescing", below.pointer)
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns of what is coalesced are a period, two BIGINTs")
    closing = None
    if "closed" in below.fields:
        closing = Closing(*slide_of(below), below.whole("later", 0, 1, 0) or 0, below.ticks("longest"))
    begins = below.enum("begins", Begins)
    if closing is not None and begins is Begins.ANY:
        raise below.refuse("periods may begin at any time, so none is ever closed", "P0373")
    return Coalesce(below.input, begins, closing, closing is not None and below.fields["closed"].flag())


def _write_sessions(node: SessionWindow) -> Fields:
    partition = names_of(node.input, node.partition)
    return given(partition=partition, gap=node.gap, at_most=node.at_most, open=node.open or None)


def _read_sessions(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    if below.input.schema[-1].type != BIGINT:
        raise below.refuse("the last column of a stream with sessions is a gap in ticks, BIGINT")
    is_open = "open" in below.fields and below.fields["open"].flag()
    return SessionWindow(below.input, below.partition(), below.ticks("gap"), below.ticks("at_most"), is_open)


def _read_valid(below: Below) -> Algebra:
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns below VALID are a period, two BIGINTs")
    return ValidWindow(below.input)


COALESCE = NodeForm(
    _write_coalesce, _read_coalesce, ("begins", "closed", "slide", "align", "later", "longest"), ("begins",)
)  # fmt: skip
SESSIONS = NodeForm(_write_sessions, _read_sessions, ("partition", "gap", "at_most", "open"))
VALID = NodeForm(lambda node: {}, _read_valid)
