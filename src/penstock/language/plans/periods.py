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
    Gaps,
    NegativeTuples,
    Project,
    Select,
    SessionWindow,
    Shed,
    StretchChances,
    TimeModelWindow,
    ValidWindow,
)
from penstock.algebra.nodes.base.checks import refused
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of
from penstock.language.plan_form import fault
from penstock.language.plans.fields import Below, Fields, NodeForm, data_fields, fields_of, form_of, write_fields


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


def _check_length(below: Algebra, length: int | None) -> None:
    """Check that all periods have one length, `length` where it is written: strategies and the end of time at a drain
    rely on it. Raises PenstockError P0341."""
    bounds = _bounds(below)
    if bounds is not None and isinstance(bounds[1], Call) and bounds[1].function == "ADD":
        begin, added = bounds[1].arguments[0], fold(bounds[1].arguments[1])
        known = added.value if isinstance(added, Literal) else None
        if begin == bounds[0] and isinstance(known, int) and known > 0 and length in (None, known):
            return
    shown = "one length" if length is None else f"a length of {length} ticks"
    raise refused(f"periods of {shown} are written below it as a begin and begin + length, one constant")


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


def _check_begins(below: Algebra, begins: Begins) -> None:
    """Check that computed begins are as the plan declares them: strategies rely on their order. Raises PenstockError
    P0341."""
    bounds = _bounds(below)
    if begins is Begins.ANY or bounds is None:
        return
    begin, end, source = bounds
    if begins is Begins.UNTIL_NEXT:
        raise refused("periods until the next element are those of UntilNext, and are not computed")
    read = columns_of(begin) | (columns_of(end) if begins is Begins.GRANULE else set())
    plain = begin.arguments[0] if isinstance(begin, Call) and begin.function == "UNIX_MICROS" else begin
    is_plain = begins is Begins.GRANULE or isinstance(plain, Column)
    if not (is_plain and len(read) == 1 and all(_is_timestamp(source, column) for column in read)):
        raise refused(f"periods that begin with {begins.value} are computed of the timestamp of their stream")


def _read_coalesce(below: Below) -> Algebra:
    values = {one.attribute: one.read(below) for one in _COALESCE}
    begins, closing, budget = values["begins"], values["closing"], values.pop("budget")
    if "closed" not in below.fields:
        lone = next((one for one in _CLOSING if one in below.fields), None)
        if lone is not None:
            raise fault(below.fields[lone].pointer, f"{lone} needs closed")
        closing = values["closing"] = None
    made = Coalesce(below.input, **values)
    longest = None if closing is None else closing.longest
    _check_begins(below.input, begins)
    if begins is Begins.FIXED or (begins is Begins.TIMESTAMP and longest is not None):
        _check_length(below.input, longest)
    elif longest not in (None, 0):
        raise refused("periods that end with the next element, or are granules, have ended where they are known")
    if budget is not None and not (made.only_closed and made.in_order) and made.granule_window is None:
        message = "a budget of whole stretches needs stretches that are emitted once and lose nothing, or granules"
        raise refused(message, "P0376")
    if budget is not None and not budget.compact and made.granule_window is not None:
        raise refused("a budget of runs of granules counts these; that of their tuples is a step below", "P0376")
    return replace(made, budget=budget)


def _write_coalesce(node: Coalesce) -> Fields:
    closed = {} if node.closing is None else {"closed": node.only_closed}
    return {"begins": node.begins.name, **closed, **write_fields(_COALESCE, node, node.inputs)}


def _read_valid(below: Below) -> Algebra:
    made = _VALID.read(below)
    assert isinstance(made, ValidWindow)
    if made.longest is not None:
        _check_length(below.input, made.longest)
    return made


def _read_gaps(below: Below) -> Algebra:
    stretches = below.input
    if not isinstance(stretches, Coalesce) or stretches.only_closed:
        raise refused("gaps are between all stretches of a Coalesce")
    made = _GAPS.read(below)
    assert isinstance(made, Gaps)
    if stretches.closing not in (None, made.closing):
        raise refused("gaps end when the stretches below are closed: slide, align, later and longest are theirs")
    if made.only_ended and stretches.closing is None:
        raise refused("periods may begin at any time, so no gap is ever closed", "P0373")
    return made


def _read_chances(below: Below) -> Algebra:
    # Whether the budget is one of which whole values go is checked when the query has its attributes.
    if not isinstance(below.input, Coalesce | Gaps | SessionWindow):
        raise refused("inclusion records of what a budget keeps are those of a Coalesce, Gaps or a SessionWindow")
    return StretchChances(below.input)


_COALESCE, _ = fields_of(Coalesce)
_CLOSING = [one.name for one in data_fields(Closing)]
_VALID, _GAPS, _CHANCES, _STRETCHES = map(form_of, (ValidWindow, Gaps, StretchChances, Coalesce))

#: The forms of the operators of this file.
PERIODS: Mapping[type[Algebra], NodeForm] = {
    Coalesce: replace(_STRETCHES, write=_write_coalesce, read=_read_coalesce, needed=("begins",)),
    ValidWindow: replace(_VALID, read=_read_valid),
    Gaps: replace(_GAPS, read=_read_gaps),
    StretchChances: replace(_CHANCES, read=_read_chances),
}
