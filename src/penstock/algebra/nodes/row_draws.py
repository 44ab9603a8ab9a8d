"""The draws by which SAMPLE(n ROWS) chooses: every row of a relation has one of its own, copies of a row too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import Algebra, Unary, has_lives
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import Expression
from penstock.types import Field, Schema

#: The column of draws.
DRAW = Field("draw", BIGINT)


def drawn_by_pane(relation: Algebra) -> bool:
    """Return whether a row's draw also follows from its pane: where it is known when a row ends."""
    return has_lives(relation) and relation.pattern is not Pattern.STRICT


@dataclass(frozen=True, eq=False)
class RowDraws(Unary):
    """The rows of `input`, each with its draw as a last column.

    A draw is a hash of the seed, the name of the source, the row, and the number of the copy among equal rows, from 0.
    Equal rows are those of one pane, that is with equal validity, which is hashed too. Where rows may be retracted
    before they are known to end they are all that are live.

    Args:
        weight: DOUBLE; rows for which it is NULL, NaN or not above 0 are counted.
        per: columns that are equal in equal rows, by which rows may lie in shards; none: any.
    """

    seed: int
    name: str
    per: tuple[int, ...] = ()
    weight: Expression | None = None

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, DRAW))

    @property
    def needs(self) -> Needs:
        return needs_of_relations(self.inputs)

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def boundedness(self) -> Boundedness:
        return self.input.boundedness

    @property
    def carries_ends(self) -> bool:
        return self.input.carries_ends and drawn_by_pane(self.input)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, distinct=(*below.distinct, below.size))

    def describe(self) -> Mapping[str, str]:
        return {"draws": self.name, "seed": str(self.seed)}
