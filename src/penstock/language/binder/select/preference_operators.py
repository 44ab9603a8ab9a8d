"""The operators of a preference over the members of FROM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from penstock.algebra import (
    Algebra,
    Preference,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    Project,
    Sample,
    Select,
    SummaryDefinition,
    Window,
    is_nrr,
    is_static,
)
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.preferences import SummaryAhead
from penstock.expressions.nodes import Expression, SummaryEstimate, columns_of, conjunction, remap
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput
from penstock.language.binder.inputs.keyed import columns, keyed_sides
from penstock.language.binder.select.preference_order import JoinSequence, Later, Term
from penstock.language.text import TextSpan
from penstock.tree import Node, transform_up, walk


@dataclass(frozen=True)
class Terms:
    """The bound expressions of a clause, and the summaries by name that they read."""

    expressions: tuple[Expression, ...]
    spans: tuple[TextSpan, ...]
    summaries: dict[str, SummaryDefinition]


def is_table(node: Algebra) -> bool:
    """Return whether `node` is looked up by elements of a stream as of their instants."""
    return is_static(node) or is_nrr(node)


def is_joined(node: Algebra) -> bool:
    """Return whether `node` has the results of one of several joins under a preference."""
    while isinstance(node, Select | Project):
        node = node.input
    return isinstance(node, PreferringJoin | PreferringLookUp)


@dataclass(frozen=True)
class PreferenceBuilder:
    terms: Terms
    preference: Preference
    span: TextSpan
    context: Context

    def build(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        if len(members) == 1:
            return self._selection(members[0], conditions)
        if len(members) > 2:
            return self._all(members, conditions)
        first, second = (member.node for member in members)
        if not is_table(first) and not is_table(second):
            return self._join(members, conditions)
        if is_table(second):
            return self._look_up(members, conditions)
        # The stream comes first.
        table, width = len(first.schema), len(second.schema)

        def swapped(index: int) -> int:
            return index - table if index >= table else index + width

        terms = replace(self.terms, expressions=tuple(remap(e, swapped) for e in self.terms.expressions))
        node = replace(self, terms=terms)._look_up(members[::-1], [remap(c, swapped) for c in conditions])
        order = [swapped(i) for i in range(table + width)]
        return Project(node, columns(node, order), tuple(node.schema[i] for i in order))

    def _selection(self, member: FromInput, conditions: list[Expression]) -> Algebra:
        summary, summarised = self._summary(member, 0, len(member.node.schema))
        free = [c for c in conditions if columns_of(c) and columns_of(c) <= set(summarised)]
        tested = tuple(c for c in conditions if c not in free)
        return PreferringSelection(
            member.node,
            conjunction(tested),
            conjunction(tuple(free)),
            summary,
            summarised,
            self.terms.expressions,
            self.preference,
        )

    def _look_up(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        left, right = members[0].node, members[1].node
        width = len(left.schema)
        summary, summarised = self._summary(members[0], 0, width)
        own, between = _split(conditions, width)
        if summary is None:
            left, own[0] = _selected(left, own[0]), None
        right = _selected(right, own[1])
        keyed = keyed_sides(left, right, between)
        shift = len(keyed.left.schema) - width
        node: Algebra = PreferringLookUp(
            keyed.left,
            keyed.right,
            keyed.equal,
            keyed.residual,
            own[0],
            summary,
            summarised,
            tuple(_shifted(e, width, shift) for e in self.terms.expressions),
            self.preference,
        )
        return keyed.without_keys(node, [*range(width), *keyed.right_places])

    def _all(self, members: Sequence[FromInput], conditions: list[Expression]) -> Algebra:
        """Join more than two inputs, one after the other."""
        order = JoinSequence.of(members, conditions, is_table)
        terms = [Term.of(e, span, order) for e, span in zip(self.terms.expressions, self.terms.spans, strict=True)]
        steps = [order.step(place) for place in range(1, len(members))]
        for term in terms:
            if all(step.term(term) is None for step in steps):
                hint = "write one preference for each stream, which are multiplied"
                self.context.fail("P0350", "one preference reads estimates and another stream", term.span, hint)
        budget = replace(self.preference.budget, joins=len(members) - 1)
        joined = FromInput(members[order.members[0]].node, members[order.members[0]].span)
        for place, (step, number) in enumerate(zip(steps, order.members[1:], strict=True)):
            here = [(t, e) for t in terms if (e := step.term(t)) is not None]
            builder = replace(
                self,
                terms=replace(self.terms, expressions=tuple(e for _, e in here), spans=tuple(t.span for t, _ in here)),
                preference=replace(self.preference, budget=budget, place=place),
            )
            both, tested = (joined, members[number]), step.conditions(conditions)
            if is_table(members[number].node):
                node = builder._look_up(both, tested)
            else:
                node = builder._join(both, tested, step.later(terms, self.terms.summaries), step.classes)
            joined = FromInput(node, self.span)
        positions = order.positions
        fields = tuple(f for member in members for f in member.node.schema)
        return (
            joined.node
            if positions == sorted(positions)
            else Project(joined.node, columns(joined.node, positions), fields)
        )

    def _join(
        self,
        members: Sequence[FromInput],
        conditions: list[Expression],
        later: Sequence[Later] = (),
        classes: Sequence[int] = (),
    ) -> Algebra:
        """Join two inputs. later: what is joined after them; classes: by column of the two, those that are equal."""
        sides = [member.node for member in members]
        width = len(sides[0].schema)
        first = self._summary(members[0], 0, width)
        second = self._summary(members[1], width, width + len(sides[1].schema))
        summaries = (first[0], second[0])
        own, between = _split(conditions, width)
        for side in (0, 1):
            if summaries[side] is None:
                sides[side], own[side] = _selected(sides[side], own[side]), None
        keyed = keyed_sides(sides[0], sides[1], between)
        if not keyed.equal:
            hint = "write one in WHERE or ON, such as a.k = b.k"
            self.context.fail("P0901", "a preference over a join of streams needs an equality", self.span, hint)
        summarised = (first[1], tuple(i - width for i in second[1]))
        self._same_pairs(summaries, summarised, keyed.equal)
        shift = len(keyed.left.schema) - width
        by_side = [self._into(side, width, shift, keyed.equal, len(keyed.left.schema)) for side in (0, 1)]
        node = PreferringJoin(
            keyed.left,
            keyed.right,
            keyed.equal,
            keyed.residual,
            (own[0], own[1]),
            summaries,
            summarised,
            (by_side[0], by_side[1]),
            self.preference,
        )
        fed = _fed_back(node, later, classes, width)
        node = replace(node, later=tuple(stream for stream, _ in fed), ahead=tuple(one for _, one in fed))
        return keyed.without_keys(node, [*range(width), *keyed.right_places])

    def _into(
        self, side: int, width: int, shift: int, equal: Sequence[tuple[int, int]], offset: int
    ) -> tuple[Expression, ...]:
        """Return the expressions for elements that probe `side`: estimates there are of the prober's key."""
        found: list[Expression] = []
        for term, span in zip(self.terms.expressions, self.terms.spans, strict=True):
            estimates = [e for e in walk(term) if isinstance(e, SummaryEstimate)]
            owners = {int(e.columns[0].index >= width) for e in estimates}
            if len(owners) > 1:
                hint = "write two preferences, which are multiplied"
                self.context.fail("P0350", "one preference reads estimates of both streams", span, hint)
            if owners and owners != {side}:
                continue
            partner: dict[int, int] = {}
            for pair in equal:
                own, other = pair[side], pair[1 - side]
                partner.setdefault(own + (width if side else 0), other if side else offset + other)
            for column in (column for e in estimates for column in e.columns):
                if column.index not in partner:
                    hint = "equate it with a column of the other stream, of the same type"
                    self.context.fail("P0350", f"no condition of the join equates {column.name}", span, hint)
            found.append(_probing(term, width, shift, partner))
        return tuple(found)

    def _same_pairs(
        self,
        summaries: tuple[SummaryDefinition | None, SummaryDefinition | None],
        summarised: tuple[tuple[int, ...], tuple[int, ...]],
        equal: Sequence[tuple[int, int]],
    ) -> None:
        if None in summaries:
            return
        read = [{pair for pair in equal if pair[side] in summarised[side]} for side in (0, 1)]
        if read[0] != read[1]:
            hint = "declare both summaries on the columns that the join equates"
            message = "summaries of two streams on columns that are not equated with each other are not supported yet"
            self.context.fail("P0901", message, self.span, hint)

    def _summary(self, member: FromInput, first: int, end: int) -> tuple[SummaryDefinition | None, tuple[int, ...]]:
        """Return the summary that is read of a stream, and the positions of its columns among those of FROM."""
        read = [
            e
            for term in self.terms.expressions
            for e in walk(term)
            if isinstance(e, SummaryEstimate) and first <= e.columns[0].index < end
        ]
        names = {e.summary for e in read}
        if not names:
            return None, ()
        if len(names) > 1:
            self._refuse_several(first, end)
        if not isinstance(member.node, Window) or any(isinstance(n, Sample) for n in operators(member.node)):
            hint = "read the stream itself under a window in time, without SAMPLE"
            message = "a summary of a stream that is sampled or computed in FROM is not supported yet"
            self.context.fail("P0901", message, member.span, hint)
        return self.terms.summaries[read[0].summary], tuple(column.index for column in read[0].columns)

    def _refuse_several(self, first: int, end: int) -> NoReturn:
        """Fail at the first expression that reads another summary of the columns of a stream than those before."""
        seen: set[str] = set()
        for term, span in zip(self.terms.expressions, self.terms.spans, strict=True):  # noqa: B007
            seen |= {
                e.summary for e in walk(term) if isinstance(e, SummaryEstimate) and first <= e.columns[0].index < end
            }
            if len(seen) > 1:
                break
        names = sorted(seen)
        hint = (
            f"read {names[0]} or {names[1]} alone: its zones divide the partners, and FADE counts its granularities;"
            " a second measure of a row may be a column of it"
        )
        self.context.fail(
            "P0350", f"a preference reads two summaries of a stream, {names[0]} and {names[1]}", span, hint
        )


def _fed_back(
    node: PreferringJoin, later: Sequence[Later], classes: Sequence[int], width: int
) -> list[tuple[Algebra, SummaryAhead]]:
    """Return the streams joined later whose estimates the join knows: those of the values by which it divides rows.
    width: of the left input without its computed columns."""
    known: dict[int, tuple[int, int]] = {}
    for pair in node.equal:
        if pair[0] < width and width + pair[1] < len(classes):
            known.setdefault(classes[width + pair[1]], pair)
    divided: Pairs | None = node.sharding if any(node.summaries) else None
    found: list[tuple[Algebra, SummaryAhead]] = []
    for one in later:
        if not all(of in known for of in one.classes):
            continue
        keys = tuple(known[of] for of in one.classes)
        divided = keys if divided is None else divided
        if set(keys) == set(divided):
            found.append((one.stream, SummaryAhead(one.summary, one.summarised, keys, one.expressions)))
    return found


def _split(conditions: Sequence[Expression], width: int) -> tuple[list[Expression | None], list[Expression]]:
    """Return the conditions over each side alone, over its own columns, and those over both."""
    own: list[list[Expression]] = [[], []]
    between: list[Expression] = []
    for condition in conditions:
        sides = {column >= width for column in columns_of(condition)}
        if len(sides) == 1:
            side = int(next(iter(sides)))
            own[side].append(remap(condition, lambda i: i - width) if side else condition)
        else:
            between.append(condition)
    return [conjunction(tuple(own[0])), conjunction(tuple(own[1]))], between


def _selected(node: Algebra, condition: Expression | None) -> Algebra:
    return node if condition is None else Select(node, condition)


def _shifted(expression: Expression, width: int, shift: int) -> Expression:
    """Return an expression over a joined row whose left side has got `shift` more columns."""
    return remap(expression, lambda i: i if i < width else i + shift)


def _probing(term: Expression, width: int, shift: int, partner: dict[int, int]) -> Expression:
    """Return `term` over the joined row, with the estimates over the columns that are equated with theirs."""
    shifted = _shifted(term, width, shift)

    def probing(node: Node) -> Node:
        if not isinstance(node, SummaryEstimate):
            return node
        own = [column.index if column.index < width else column.index - shift for column in node.columns]
        keys = [replace(column, index=partner[at]) for column, at in zip(node.columns, own, strict=True)]
        return replace(node, columns=tuple(keys))

    return transform_up(shifted, probing)
