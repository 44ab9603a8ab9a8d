"""Preferences in a plan as data.

Expressions read two columns more than the operator has: the estimates of the summary. A summary is written by its name,
as a source is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.algebra import (
    Algebra,
    Join,
    Preference,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    SummaryDefinition,
    Window,
    is_nrr,
    is_static,
)
from penstock.algebra.nodes.base.checks import need_relations, refused
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.preferences import SummaryAhead
from penstock.errors import nearest
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import BIGINT, DOUBLE
from penstock.expressions.nodes import Column, Expression, SummaryEstimate, with_estimates
from penstock.language.binder.select.preference_operators import is_joined
from penstock.language.binder.select.preferences import window_of
from penstock.language.plan_form import Part, fault
from penstock.language.plans.fields import (
    Below,
    Fields,
    NodeForm,
    data_fields,
    fields_of,
    given,
    read_pairs,
    write_fields,
)
from penstock.language.plans.scalar_binding import NamedColumns
from penstock.language.plans.scalar_text import column_names, written
from penstock.tree import Node, transform_up
from penstock.types import Field, Schema

_PREFERENCE = data_fields(Preference)
_CLAUSE = tuple(one.name for one in _PREFERENCE)
_NEEDED = tuple(one.name for one in _PREFERENCE if one.is_needed)
_CONDITION, _ = fields_of(Join)
_LATER = ("summary", "summarised", "keys", "preferences")
_SIDE = ("filter", "summary", "summarised")
_ESTIMATES = (Field("estimated count", BIGINT), Field("estimated share", DOUBLE))


# --- writing


def _write_condition(node: PreferringJoin | PreferringLookUp) -> Fields:
    return write_fields(_CONDITION, node, node.inputs)


def _write_clause(preference: Preference) -> Fields:
    return write_fields(_PREFERENCE, preference, ())


def _write_terms(expressions: Sequence[Expression], schema: Schema) -> list[str]:
    width, names = len(schema), column_names(_with_estimates(schema))
    return [written(with_estimates(e, width, width + 1), names) for e in expressions]


def _write_side(
    node: Algebra, condition: Expression | None, summary: SummaryDefinition | None, summarised: Sequence[int]
) -> Fields:
    names = column_names(node.schema)
    return given(
        filter=None if condition is None else written(condition, names),
        summary=None if summary is None else summary.name,
        summarised=[names[i] for i in summarised],
    )


def _write_join(node: PreferringJoin) -> Fields:
    sides = [
        _write_side(side, node.filters[n], node.summaries[n], node.summarised[n])
        | {"preferences": _write_terms(node.into[n], _joined(node))}
        for n, side in enumerate(node.inputs[:2])
    ]
    later = [_write_ahead(node, *one) for one in zip(node.later, node.ahead, strict=True)]
    return {**_write_condition(node), "sides": sides, **given(later=later), **_write_clause(node.preference)}


def _write_ahead(node: PreferringJoin, stream: Algebra, ahead: SummaryAhead) -> Fields:
    left, right = column_names(node.left.schema), column_names(node.right.schema)
    names, estimates = column_names(stream.schema), column_names(Schema(_ESTIMATES))
    return {
        "summary": ahead.summary.name,
        "summarised": [names[i] for i in ahead.summarised],
        "keys": [[left[i], right[j]] for i, j in ahead.keys],
        "preferences": [written(with_estimates(e, 0, 1), estimates) for e in ahead.expressions],
    }


def _write_look_up(node: PreferringLookUp) -> Fields:
    side = _write_side(node.left, node.filter, node.summary, node.summarised)
    terms = {"preferences": _write_terms(node.expressions, _joined(node))}
    return {**_write_condition(node), **side, **terms, **_write_clause(node.preference)}


def _joined(node: PreferringJoin | PreferringLookUp) -> Schema:
    return Schema(node.left.schema.fields + node.right.schema.fields)


def _write_selection(node: PreferringSelection) -> Fields:
    side = _write_side(node.input, node.filter, node.summary, node.summarised)
    condition = None if node.condition is None else written(node.condition, column_names(node.schema))
    terms = {"preferences": _write_terms(node.expressions, node.input.schema)}
    return {**given(condition=condition), **side, **terms, **_write_clause(node.preference)}


# --- reading


def _condition(below: Below) -> tuple[Pairs, Expression | None]:
    """Return the equal columns and the residual of a join."""
    need_relations(below.inputs)
    equal, residual = (one.read(below) for one in _CONDITION)
    return equal or (), residual


def _read_join(below: Below) -> Algebra:
    equal, residual = _condition(below)
    if not equal:
        raise refused("a preference over a join of streams needs an equality", "P0901")
    left, right = below.inputs[:2]
    schema = Schema(left.schema.fields + right.schema.fields)
    items = below.fields["sides"].items()
    if len(items) != 2:
        raise refused("a join has two sides")
    sides = [
        _ReadSide(below, item.object((*_SIDE, "preferences"), ("preferences",)), node)
        for item, node in zip(items, below.inputs[:2], strict=True)
    ]
    pairs = [{pair for pair in equal if pair[n] in side.summarised} for n, side in enumerate(sides) if side.summary]
    if any(len(found) < len(side.summarised) for found, side in zip(pairs, filter(_has_summary, sides), strict=True)):
        raise refused("summarised columns are not equated", "P0350")
    if len(pairs) == 2 and pairs[0] != pairs[1]:
        raise refused("two summaries on columns that are not equated with each other", "P0901")
    into = []
    for n, side in enumerate(sides):
        keys = []
        for column in side.summarised:
            other = next(pair[1 - n] for pair in equal if pair[n] == column)
            keys.append(other if n else len(left.schema) + other)
        into.append(side.terms(schema, keys))
    ahead = _read_later(below, equal)
    found = PreferringJoin(
        left,
        right,
        equal,
        residual,
        (sides[0].filter, sides[1].filter),
        (sides[0].summary, sides[1].summary),
        (sides[0].summarised, sides[1].summarised),
        (into[0], into[1]),
        _read_clause(below),
        below.inputs[2:],
        ahead,
    )
    if any(set(one.keys) != set(found.sharding) for one in ahead):
        raise refused("estimates of streams that are joined later are of the values by which rows are divided")
    return found


def _read_later(below: Below, equal: Pairs) -> tuple[SummaryAhead, ...]:
    """Return what is estimated of the inputs behind the first two."""
    items = below.fields["later"].items() if "later" in below.fields else []
    if len(items) != len(below.inputs) - 2:
        raise refused("each input behind the first two has an item in `later`")
    left, right = (NamedColumns.of(side.schema) for side in below.inputs[:2])
    found = []
    for item, node in zip(items, below.inputs[2:], strict=True):
        fields = item.object(_LATER, _LATER)
        side = _ReadSide(below, fields, node)
        keys = [(left.position(one), right.position(other)) for _, (one, other) in read_pairs(fields["keys"])]
        if side.summary is None or len(keys) != len(side.summarised) or not set(keys) <= set(equal):
            raise fault(item.pointer, "each summarised column has a pair of equal columns", "P0350")
        terms = side.terms(Schema(()), side.summarised, node.schema)
        found.append(SummaryAhead(side.summary, side.summarised, tuple(keys), terms))
    return tuple(found)


def _read_look_up(below: Below) -> Algebra:
    equal, residual = _condition(below)
    left, right = below.inputs
    side = _ReadSide(below, below.fields, left)
    if not is_static(right):
        if not is_nrr(right):
            raise refused("the right input is neither a static relation nor a NON RETROACTIVE one")
        window = window_of(left)
        if window is not None and window.slide is not None:
            raise refused("SLIDE beside a NON RETROACTIVE relation", "P0901")
        if not {pair[0] for pair in equal} >= set(side.summarised):
            raise refused("summarised columns are not equated with those of the NON RETROACTIVE relation", "P0901")
    terms = side.terms(Schema(left.schema.fields + right.schema.fields), side.summarised)
    return PreferringLookUp(
        left, right, equal, residual, side.filter, side.summary, side.summarised, terms, _read_clause(below)
    )


def _read_selection(below: Below) -> Algebra:
    side = _ReadSide(below, below.fields, below.input)
    condition = (
        below.scalars.condition(below.fields["condition"], below.columns) if "condition" in below.fields else None
    )
    terms = side.terms(below.input.schema, side.summarised)
    return PreferringSelection(
        below.input, condition, side.filter, side.summary, side.summarised, terms, _read_clause(below)
    )


class _ReadSide:
    """A stream of a preference, with its summary."""

    def __init__(self, below: Below, fields: Mapping[str, Part], node: Algebra) -> None:
        self._below, self._fields = below, fields
        need_relations((node,))
        if window_of(node) is None and not is_joined(node):
            message = "a preference reads streams under a window in time without SLIDE"
            raise refused(message, "P0901")
        columns = NamedColumns.of(node.schema)
        self.filter = below.scalars.condition(fields["filter"], columns) if "filter" in fields else None
        self.summarised = columns.positions(fields["summarised"]) if "summarised" in fields else ()
        self.summary = self._summary(node)

    def _summary(self, node: Algebra) -> SummaryDefinition | None:
        if "summary" not in self._fields:
            if self.summarised:
                raise refused("summarised columns without a summary")
            return None
        part = self._fields["summary"]
        declared = self._below.scalars.context.catalog.summaries
        found = declared.get(part.name().lower())
        if found is None:
            raise fault(part.pointer, f"unknown summary {part.text()}", "P0201", nearest(part.text(), list(declared)))
        if len(self.summarised) != len(found.definition.columns) or not isinstance(node, Window):
            raise fault(part.pointer, "this summary is not one of the input's columns", "P0350")
        return found.definition

    def terms(self, schema: Schema, keys: Sequence[int], estimated: Schema | None = None) -> tuple[Expression, ...]:
        """Return the preferences over `schema`. keys: the columns that are estimated, of `estimated`, by default of
        `schema`."""
        columns = NamedColumns.of(_with_estimates(schema))
        names = column_names(estimated or schema)
        read = tuple(Column((estimated or schema)[i].type, i, names[i]) for i in keys)
        return tuple(self._term(part, columns, len(schema), read) for part in self._fields["preferences"].items())

    def _term(self, part: Part, columns: NamedColumns, width: int, estimated: tuple[Column, ...]) -> Expression:
        bound = self._below.scalars.value(part, columns)
        if bound.type != DOUBLE or volatile(bound):
            raise fault(part.pointer, "a preference is a DOUBLE that is the same whenever it is computed", "P0203")

        def placed(node: Node) -> Node:
            if not isinstance(node, Column) or node.index < width:
                return node
            if self.summary is None:
                raise fault(part.pointer, "an estimate without a summary", "P0350")
            quantity = "COUNT" if node.index == width else "SHARE"
            return SummaryEstimate(node.type, quantity, self.summary.name, estimated)

        return transform_up(bound, placed)


def _has_summary(side: _ReadSide) -> bool:
    return side.summary is not None


def _read_clause(below: Below) -> Preference:
    return Preference(**{one.attribute: one.read(below) for one in _PREFERENCE})


def _with_estimates(schema: Schema) -> Schema:
    return Schema((*schema.fields, *_ESTIMATES))


PREFERRING_JOIN = NodeForm(
    _write_join, _read_join, ("equal", "residual", "sides", "later", *_CLAUSE), ("equal", "sides", *_NEEDED), (2, None)
)
PREFERRING_LOOK_UP = NodeForm(
    _write_look_up,
    _read_look_up,
    ("equal", "residual", *_SIDE, "preferences", *_CLAUSE),
    ("preferences", *_NEEDED),
    (2, 2),
)
PREFERRING_SELECTION = NodeForm(
    _write_selection, _read_selection, ("condition", *_SIDE, "preferences", *_CLAUSE), ("preferences", *_NEEDED)
)
