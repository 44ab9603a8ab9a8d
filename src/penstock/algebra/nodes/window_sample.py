"""SAMPLE(n ROWS): a sample of the content of a window, of fixed size.

Every row has a draw (`row_draws.py`). The sample at τ is the n rows of R(τ) with the least draws: `ORDER BY draw LIMIT
n` at every instant, of each value of the PER columns. With WEIGHT the n rows with the greatest priorities w / u, u the
draw in (0, 1) (priority sampling, Duffield, Lund and Thorup).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import RECORD, Algebra, Unary, column_labels, is_static
from penstock.algebra.nodes.base.checks import need_relations, refused
from penstock.algebra.nodes.base.fields import Columns, Seed, SomeRows
from penstock.algebra.nodes.first_rows import SortKey, TopK
from penstock.algebra.nodes.frequent import Blocks
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.row_draws import DRAW, RowDraws
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.aggregates import count_rows
from penstock.expressions.calls.functions import build_call
from penstock.expressions.calls.text import to_sql
from penstock.expressions.coercion import BIGINT, DOUBLE, STRING, cast_to, is_numeric
from penstock.expressions.draws import salted
from penstock.expressions.nodes import Call, Column, Expression, Literal
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class WindowSample(Unary):
    """`rows` rows of `input`, of each value of the columns `per`. name: of the source, whose draws are its own. weight:
    DOUBLE; rows whose weight is NULL, NaN or not above 0 are never drawn. records: a last column has the inclusion
    records."""

    rows: SomeRows
    seed: Seed
    name: str
    per: Columns = ()
    weight: Expression | None = None
    records: bool = False

    def __post_init__(self) -> None:
        need_relations(self.inputs)
        if self.weight is not None and not is_numeric(self.weight.type):
            raise refused("a weight is a number", "P0203", at=("weight",))

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, RECORD)) if self.records else self.input.schema

    @property
    def needs(self) -> Needs:
        # Draws of blocks of rows follow from their numbers, which are counted from the first element of the stream.
        return super().needs if self.blocks is not None else needs_of_relations(self.inputs)

    @property
    def drawn_by(self) -> tuple[str, int] | None:
        return f"{self.name.lower()}/rows", self.seed

    @property
    def blocks(self) -> Blocks | None:
        """Return the window and its step where the input is the last N elements of a stream, of which the sample is
        taken in the time that their numbers are; None for any other input."""
        window = self.input
        plain = isinstance(window, RowWindow) and not window.partition and window.length is None
        if not plain or not isinstance(window, RowWindow) or window.slide is not None or window.rows is None:
            return None
        return window, window.step or 1

    @property
    def pattern(self) -> Pattern:
        # A row that enters may displace another.
        return Pattern.MONOTONIC if is_static(self) else Pattern.STRICT

    @property
    def boundedness(self) -> Boundedness:
        return self.input.boundedness

    @property
    def carries_ends(self) -> bool:
        return False

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def with_inclusion(self) -> Algebra | None:
        if self.input.with_inclusion() is not None:
            hint = "leave one of the samples out"
            raise PenstockError("P0355", "ESTIMATE over a sample of a sample", hint=hint)
        return replace(self, records=True)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        rows = min(below.size, self.rows * below.combinations(self.per))
        distinct = tuple(min(rows, d) for d in below.distinct)
        return Estimate(below.rate, rows / below.rate, distinct + ((rows,) if self.records else ()), below.rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        per = {"per": ", ".join(labels[i] for i in self.per)} if self.per else {}
        weight = {} if self.weight is None else {"weight": to_sql(self.weight, labels)}
        return {"sample": f"{self.rows} rows", **per, **weight, "seed": str(self.seed)}

    # What it is in terms of other operators

    @property
    def expanded(self) -> Algebra:
        """Return the same relation by operators that run."""
        width = len(self.input.schema)
        drawn = self._drawn()
        order = (SortKey(width, self.weight is not None, False),)
        first = TopK(drawn, order, self.rows, 0, self.per)
        if not self.records:
            return Project(first, _columns(self.input.schema), self.input.schema.fields)
        return self._weighed(drawn, first, order) if self.weight is not None else self._counted(drawn, first)

    def _drawn(self) -> Algebra:
        """Return the rows with the number that they are ordered by; for priorities their weight and draw behind it."""
        columns, width = _columns(self.input.schema), len(self.input.schema)
        if self.weight is None:
            return RowDraws(self.input, self.seed, self.name, self.per)
        weight, draw = cast_to(self.weight, DOUBLE), Column(BIGINT, width, DRAW.name)
        above = build_call("AND", [build_call("GT", [weight, Literal(DOUBLE, 0.0)]), _not_nan(weight)])
        priority = Call(DOUBLE, "SAMPLE_PRIORITY", (weight, draw))
        fields = (*self.input.schema.fields, Field("priority", DOUBLE), Field("weight", DOUBLE), DRAW)
        drawn = RowDraws(self.input, self.seed, self.name, self.per, weight)
        return Project(Select(drawn, above), (*columns, priority, weight, draw), fields)

    def _counted(self, drawn: Algebra, first: Algebra) -> Algebra:
        """Return the sample with records of n of N rows: N is counted."""
        width = len(self.input.schema)
        keys = self._keys()
        fields = tuple(Field(f"key{i}", e.type) for i, e in enumerate(keys))
        counts = Aggregate(
            Project(drawn, keys or (Literal(BIGINT, 0),), fields or (Field("key0", BIGINT),)),
            tuple(range(len(keys))),
            (count_rows(),),
            ("n",),
        )
        joined = self._joined(first, counts, keys)
        places = len(first.schema) + len(keys)
        whole = Column(BIGINT, places + len(keys), "n")
        share = Call(DOUBLE, "DIV", (Literal(DOUBLE, float(self.rows)), cast_to(whole, DOUBLE)))
        pi = build_call("LEAST", [Literal(DOUBLE, 1.0), share])
        size = build_call("LEAST", [Literal(BIGINT, self.rows), whole])
        return self._recorded(joined, pi, Column(BIGINT, width, "draw"), size)

    def _weighed(self, drawn: Algebra, first: Algebra, order: tuple[SortKey, ...]) -> Algebra:
        """Return the sample with records of priorities: a row is kept with min(1, w / τ), τ the (n+1)-th priority."""
        width = len(self.input.schema)
        keys = self._keys()
        beyond = TopK(drawn, order, 1, self.rows, self.per)
        fields = (*(Field(f"key{i}", e.type) for i, e in enumerate(keys)), Field("limit", DOUBLE))
        limits = Project(beyond, (*keys, Column(DOUBLE, width, "priority")), fields)
        joined = self._joined(first, limits, keys, OuterKind.LEFT)
        limit = Column(DOUBLE, len(first.schema) + 2 * len(keys), "limit")
        share = Call(DOUBLE, "DIV", (Column(DOUBLE, width + 1, "weight"), limit))
        pi = build_call("COALESCE", [build_call("LEAST", [Literal(DOUBLE, 1.0), share]), Literal(DOUBLE, 1.0)])
        return self._recorded(joined, pi, Column(BIGINT, width + 2, DRAW.name), Literal(BIGINT, 0))

    def _joined(
        self, first: Algebra, other: Algebra, keys: tuple[Expression, ...], outer: OuterKind | None = None
    ) -> Algebra:
        """Return the sample with the row of its stratum from `other`, by keys in which NULL equals NULL."""
        columns = _columns(first.schema)
        fields = (*first.schema.fields, *(Field(f"key{i}", e.type) for i, e in enumerate(keys)))
        left = Project(first, (*columns, *keys), fields) if keys else first
        equal = tuple((len(columns) + i, i) for i in range(len(keys)))
        return Join(left, other, equal) if outer is None else OuterJoin(left, other, equal, None, outer)

    def _recorded(self, joined: Algebra, pi: Expression, cluster: Expression, size: Expression) -> Algebra:
        # Strata of different samples are different ones.
        columns = tuple(_columns(self.input.schema)[i] for i in self.per)
        own = Literal(BIGINT, salted(self.seed, f"{self.name}/strata"))
        stratum = Literal(BIGINT, 0) if self.weight is not None else Call(BIGINT, "SAMPLE_DRAW", (own, *columns))
        record = Call(RECORD.type, "INCLUSION_RECORD", (pi, cluster, stratum, size))
        return Project(joined, (*_columns(self.input.schema), record), (*self.input.schema.fields, RECORD))

    def _keys(self) -> tuple[Expression, ...]:
        """Return expressions that are equal, and never NULL, where the PER columns are equal or both NULL."""
        keys: list[Expression] = []
        for i in self.per:
            field = self.input.schema[i]
            column: Expression = Column(field.type, i, field.name)
            keys.append(build_call("ISNULL", [column]))
            if pa.types.is_floating(field.type):
                keys.append(build_call("COALESCE", [cast_to(column, DOUBLE), Literal(DOUBLE, 0.0)]))
            else:
                keys.append(build_call("COALESCE", [cast_to(column, STRING), Literal(STRING, "")]))
        return tuple(keys)


def _columns(schema: Schema) -> tuple[Expression, ...]:
    return tuple(Column(f.type, i, f.name) for i, f in enumerate(schema))


def _not_nan(value: Expression) -> Expression:
    return build_call("NOT", [build_call("ISNAN", [value])])
