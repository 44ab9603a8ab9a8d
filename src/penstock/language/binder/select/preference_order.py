"""In which order the inputs of a preference are joined, and what each join knows of the clause.

Conditions and expressions come over the columns of FROM; a join has those of what is joined before, then its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.algebra import Algebra, SummaryDefinition
from penstock.expressions.nodes import Call, Column, Expression, SummaryEstimate, columns_of, remap
from penstock.language.binder.inputs.inputs import FromInput
from penstock.language.text import TextSpan
from penstock.tree import walk


@dataclass(frozen=True)
class Later:
    """A stream that is joined later. classes: of its summarised columns, those that are equal."""

    stream: Algebra
    summary: SummaryDefinition
    summarised: tuple[int, ...]
    classes: tuple[int, ...]
    expressions: tuple[Expression, ...]


@dataclass(frozen=True)
class Term:
    """One expression of the clause. owners: the members whose estimates it reads; columns: what else it reads."""

    expression: Expression
    span: TextSpan
    owners: frozenset[int]
    columns: frozenset[int]

    @staticmethod
    def of(expression: Expression, span: TextSpan, order: JoinSequence) -> Term:
        estimates = [e for e in walk(expression) if isinstance(e, SummaryEstimate)]
        owners = frozenset(order.owner(column.index) for e in estimates for column in e.columns)
        return Term(expression, span, owners, columns_of(expression))


@dataclass(frozen=True)
class JoinSequence:
    """The order in which members of FROM are joined.

    Args:
        inputs: the members.
        firsts: of each member, its first column in FROM.
        members: their numbers, in the order of joining.
        classes: by column of FROM, the least column that conditions equate with it.
    """

    inputs: tuple[FromInput, ...]
    firsts: tuple[int, ...]
    members: tuple[int, ...]
    classes: tuple[int, ...]

    @staticmethod
    def of(
        inputs: Sequence[FromInput], conditions: Sequence[Expression], is_table: Callable[[Algebra], bool]
    ) -> JoinSequence:
        owners = [n for n, member in enumerate(inputs) for _ in member.node.schema]
        firsts = tuple(owners.index(n) for n in range(len(inputs)))
        linked = [{owners[c] for c in columns_of(e)} for e in conditions if _is_equality(e)]
        streams = [n for n, member in enumerate(inputs) if not is_table(member.node)]
        order, left = [streams[0]], streams[1:]
        while left:
            chosen = next((n for n in left if any(n in pair and pair & set(order) for pair in linked)), left[0])
            order.append(chosen)
            left.remove(chosen)
        order += [n for n, member in enumerate(inputs) if is_table(member.node)]
        return JoinSequence(tuple(inputs), firsts, tuple(order), _classes(len(owners), conditions))

    def owner(self, column: int) -> int:
        return max(n for n, first in enumerate(self.firsts) if first <= column)

    def _columns_of(self, member: int) -> range:
        first = self.firsts[member]
        return range(first, first + len(self.inputs[member].node.schema))

    @property
    def positions(self) -> list[int]:
        """Return where each column of FROM is in the last join."""
        places = {column: place for place, column in enumerate(self._joined(len(self.members)))}
        return [places[column] for column in range(len(places))]

    def _joined(self, count: int) -> list[int]:
        return [column for member in self.members[:count] for column in self._columns_of(member)]

    def step(self, place: int) -> JoinStep:
        """Return the join that takes member `place` of the order."""
        return JoinStep(self, place, {column: at for at, column in enumerate(self._joined(place + 1))})


@dataclass(frozen=True)
class JoinStep:
    """One of several joins. places: of the columns of FROM that it has."""

    order: JoinSequence
    place: int
    places: Mapping[int, int]

    @property
    def classes(self) -> tuple[int, ...]:
        """Return the classes of the join's columns."""
        return tuple(self.order.classes[column] for column in self.places)

    def conditions(self, every: Sequence[Expression]) -> list[Expression]:
        """Return the conditions that this join is the first to have all columns of."""
        before = {column for column, at in self.places.items() if at < self._left}
        return [
            self._here(e)
            for e in every
            if (read := columns_of(e)) <= self.places.keys() and (self.place == 1 or not read <= before)
        ]

    @property
    def _left(self) -> int:
        return len(self.places) - len(self.order.inputs[self.order.members[self.place]].node.schema)

    def term(self, term: Term) -> Expression | None:
        """Return an expression over the join's columns; None where it counts 1, since a column or an estimate is not
        to be had."""
        here = {self.order.members[self.place], *(self.order.members[:1] if self.place == 1 else ())}
        if not term.columns <= self.places.keys() or not term.owners <= here:
            return None
        return self._here(term.expression)

    def later(self, terms: Sequence[Term], summaries: Mapping[str, SummaryDefinition]) -> list[Later]:
        """Return the streams that are joined later, and the expressions that read estimates of one of them alone."""
        found: list[Later] = []
        for member in self.order.members[self.place + 1 :]:
            own = [term for term in terms if term.owners == {member} and _reads_estimates_alone(term)]
            read = [e for term in own for e in walk(term.expression) if isinstance(e, SummaryEstimate)]
            if not read or len({e.summary for e in read}) > 1:
                continue
            summary, first = summaries[read[0].summary], self.order.firsts[member]
            indexes = [column.index for column in read[0].columns]
            expressions = tuple(remap(term.expression, lambda i: i - first) for term in own)  # noqa: B023
            classes = tuple(self.order.classes[i] for i in indexes)
            own_columns = tuple(i - first for i in indexes)
            found.append(Later(self.order.inputs[member].node, summary, own_columns, classes, expressions))
        return found

    def _here(self, expression: Expression) -> Expression:
        return remap(expression, lambda i: self.places[i])


def _reads_estimates_alone(term: Term) -> bool:
    nodes = list(walk(term.expression))
    inside = sum(len(e.columns) for e in nodes if isinstance(e, SummaryEstimate))
    return sum(isinstance(e, Column) for e in nodes) == inside


def _is_equality(condition: Expression) -> bool:
    return isinstance(condition, Call) and condition.function == "EQ"


def _classes(count: int, conditions: Sequence[Expression]) -> tuple[int, ...]:
    """Return by column the least one that equalities of columns of one type make equal to it."""
    found = list(range(count))
    pairs = [
        (first.index, second.index)
        for e in conditions
        if isinstance(e, Call) and e.function == "EQ"
        for first, second in [e.arguments]
        if isinstance(first, Column) and isinstance(second, Column) and first.type == second.type
    ]
    for _ in pairs:
        for one, other in pairs:
            found[one] = found[other] = min(found[one], found[other])
    return tuple(found)
