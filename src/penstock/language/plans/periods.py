"""What reads periods as data: coalescing, session windows and `[VALID]`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    Begins,
    Closing,
    Coalesce,
    EndedPeriods,
    Gaps,
    Lasting,
    Lives,
    NegativeTuples,
    Project,
    Select,
    SessionWindow,
    Shed,
    StretchChances,
    TimeModelWindow,
    UntilNext,
    ValidWindow,
)
from penstock.expressions.coercion import BIGINT
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of
from penstock.language.plans import checks
from penstock.language.plans.node_form import Below, Fields, NodeForm, given, names_of, slide_of
from penstock.language.plans.shedding import BUDGET, read_budget, write_budget
from penstock.types import LONGEST_TICKS


def _write_coalesce(node: Coalesce) -> Fields:
    when = node.closing
    if when is None:
        return {"begins": node.begins.name}
    rest = given(slide=when.slide, align=when.align or None, later=when.later or None, longest=when.longest)
    return {"begins": node.begins.name, "closed": node.only_closed, **rest, **write_budget(node.budget)}


def _bounds(node: Algebra) -> tuple[Expression, Expression, Algebra] | None:
    """Return the begin and the end that the last two columns of `node` are, where they are computed, and the operator
    of whose columns; None where an operator between does more than pass them on."""
    begin, end = len(node.schema) - 2, len(node.schema) - 1
    while isinstance(node, Project | Select | NegativeTuples | Shed):
        if isinstance(node, Project):
            first, last = node.expressions[begin], node.expressions[end]
            if not (isinstance(first, Column) and isinstance(last, Column)):
                return first, last, node.input
            begin, end = first.index, last.index
        node = node.input
    return None


def _check_length(below: Below, length: int | None) -> None:
    """Check that all periods have one length, `length` where it is written: strategies and the end of time at a drain
    rely on it. Raises PenstockError P0341."""
    bounds = _bounds(below.input)
    if bounds is not None and isinstance(bounds[1], Call) and bounds[1].function == "ADD":
        begin, added = bounds[1].arguments[0], fold(bounds[1].arguments[1])
        known = added.value if isinstance(added, Literal) else None
        if begin == bounds[0] and isinstance(known, int) and known > 0 and length in (None, known):
            return
    shown = "one length" if length is None else f"a length of {length} ticks"
    raise below.refuse(f"periods of {shown} are written below it as a begin and begin + length, one constant")


def _is_timestamp(node: Algebra, column: int) -> bool:
    """Return whether a column may be the timestamp of the elements of which `node` has the rows: not where it is
    another column of their stream."""
    while True:
        if isinstance(node, ArrivalTime):
            if column == len(node.schema) - 1:
                return True
            node = node.input
        elif node.is_stream:
            return node.timestamp_column == column
        elif isinstance(node, Project):
            expression = node.expressions[column]
            if not isinstance(expression, Column):
                return False
            node, column = node.input, expression.index
        elif isinstance(node, Select | NegativeTuples | Shed | TimeModelWindow):
            node = node.input
        else:
            return True


def _check_begins(below: Below, begins: Begins) -> None:
    """Check that computed begins are as the plan declares them: strategies rely on their order. Raises PenstockError
    P0341."""
    bounds = _bounds(below.input)
    if begins is Begins.ANY or bounds is None:
        return
    begin, end, source = bounds
    if begins is Begins.UNTIL_NEXT:
        raise below.refuse("periods until the next element are those of UntilNext, and are not computed")
    read = columns_of(begin) | (columns_of(end) if begins is Begins.GRANULE else set())
    plain = begin.arguments[0] if isinstance(begin, Call) and begin.function == "UNIX_MICROS" else begin
    is_plain = begins is Begins.GRANULE or isinstance(plain, Column)
    if not (is_plain and len(read) == 1 and all(_is_timestamp(source, column) for column in read)):
        raise below.refuse(f"periods that begin with {begins.value} are computed of the timestamp of their stream")


def _read_coalesce(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    checks.without_internal(below.inputs, "coalescing", below.pointer)
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns of what is coalesced are a period, two BIGINTs")
    closing = None
    if "closed" in below.fields:
        closing = Closing(
            *slide_of(below), below.whole("later", 0, 1, 0) or 0, below.whole("longest", 0, LONGEST_TICKS - 1)
        )
    begins = below.enum("begins", Begins)
    if closing is not None and begins is Begins.ANY:
        raise below.refuse("periods may begin at any time, so none is ever closed", "P0373")
    longest = None if closing is None else closing.longest
    _check_begins(below, begins)
    if begins is Begins.FIXED or (begins is Begins.TIMESTAMP and longest is not None):
        _check_length(below, longest)
    elif longest not in (None, 0):
        raise below.refuse("periods that end with the next element, or are granules, have ended where they are known")
    made = Coalesce(below.input, begins, closing, closing is not None and below.fields["closed"].flag())
    budget = read_budget(below)
    if budget is not None and not (made.only_closed and made.in_order) and made.granule_window is None:
        raise below.refuse(
            "a budget of whole stretches needs stretches that are emitted once and lose nothing, or granules", "P0376"
        )
    if budget is not None and not budget.compact and made.granule_window is not None:
        raise below.refuse("a budget of runs of granules counts these; that of their tuples is a step below", "P0376")
    return replace(made, budget=budget)


def _write_sessions(node: SessionWindow) -> Fields:
    partition = names_of(node.input, node.partition)
    budget = write_budget(node.budget)
    return {**given(partition=partition, gap=node.gap, at_most=node.at_most, open=node.open or None), **budget}


def _read_sessions(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    if below.input.schema[-1].type != BIGINT:
        raise below.refuse("the last column of a stream with sessions is a gap in ticks, BIGINT")
    is_open = "open" in below.fields and below.fields["open"].flag()
    gap, most = below.ticks("gap"), below.ticks("at_most")
    return SessionWindow(below.input, below.partition(), gap, most, is_open, read_budget(below))


def _read_valid(below: Below) -> Algebra:
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns below VALID are a period, two BIGINTs")
    longest = below.ticks("longest")
    if longest is not None:
        _check_length(below, longest)
    return ValidWindow(below.input, longest)


def _write_until_next(node: UntilNext) -> Fields:
    window = given(length=node.length, slide=node.slide, align=node.align or None)
    return {**_write_ended(node), "lives": node.lives.name, **window}


def _read_until_next(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    slide, align = slide_of(below)
    by, most, lives = below.partition("by"), below.ticks("at_most"), below.enum("lives", Lives)
    return UntilNext(below.input, by, most, lives, below.ticks("length"), slide, align)


def _write_ended(node: UntilNext | EndedPeriods) -> Fields:
    return given(by=names_of(node.input, node.by), at_most=node.at_most)


def _read_ended(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    return EndedPeriods(below.input, below.partition("by"), below.ticks("at_most"))


def _write_lasting(node: Lasting) -> Fields:
    return {"least": node.least, **given(slide=node.slide, align=node.align or None)}


def _read_lasting(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    schema = below.input.schema
    if len(schema) < 2 or {schema[-2].type, schema[-1].type} != {BIGINT}:
        raise below.refuse("the last two columns of what lasts are a period, two BIGINTs")
    least = below.whole("least", 0, LONGEST_TICKS - 1, 0) or 0
    return Lasting(below.input, least, *slide_of(below))


def _write_gaps(node: Gaps) -> Fields:
    when = node.closing
    rest = given(slide=when.slide, align=when.align or None, later=when.later or None, longest=when.longest)
    return {"ended": node.only_ended, **rest} if node.only_ended else rest


def _read_gaps(below: Below) -> Algebra:
    if not isinstance(below.input, Coalesce) or below.input.only_closed:
        raise below.refuse("gaps are between all stretches of a Coalesce")
    closing = Closing(
        *slide_of(below), below.whole("later", 0, 1, 0) or 0, below.whole("longest", 0, LONGEST_TICKS - 1)
    )
    if below.input.closing not in (None, closing):
        raise below.refuse("gaps end when the stretches below are closed: slide, align, later and longest are theirs")
    ended = "ended" in below.fields and below.fields["ended"].flag()
    if ended and below.input.closing is None:
        raise below.refuse("periods may begin at any time, so no gap is ever closed", "P0373")
    return Gaps(below.input, closing, ended)


def _read_chances(below: Below) -> Algebra:
    # Whether the budget is one of which whole values go is checked when the query has its attributes.
    if not isinstance(below.input, Coalesce | Gaps | SessionWindow):
        raise below.refuse("inclusion records of what a budget keeps are those of a Coalesce, Gaps or a SessionWindow")
    return StretchChances(below.input)


#: The forms of the operators of this file.
PERIODS: Mapping[type[Algebra], NodeForm] = {
    Coalesce: NodeForm(
        _write_coalesce,
        _read_coalesce,
        ("begins", "closed", "slide", "align", "later", "longest", *BUDGET),
        ("begins",),
    ),
    SessionWindow: NodeForm(_write_sessions, _read_sessions, ("partition", "gap", "at_most", "open", *BUDGET)),
    ValidWindow: NodeForm(lambda node: given(longest=node.longest), _read_valid, ("longest",)),
    UntilNext: NodeForm(
        _write_until_next, _read_until_next, ("by", "at_most", "lives", "length", "slide", "align"), ("lives",)
    ),
    EndedPeriods: NodeForm(_write_ended, _read_ended, ("by", "at_most")),
    Gaps: NodeForm(_write_gaps, _read_gaps, ("ended", "slide", "align", "later", "longest")),
    StretchChances: NodeForm(lambda node: {}, _read_chances),
    Lasting: NodeForm(_write_lasting, _read_lasting, ("least", "slide", "align"), ("least",)),
}
