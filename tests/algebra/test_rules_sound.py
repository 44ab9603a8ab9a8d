"""Every rule keeps the meaning: random plans over random small inputs, before and after, by the oracle.

Values come from tiny ranges and hold NULLs, so that ties, equal tuples and NULL conditions are everywhere; a relation
with `-` updates gives negative tuples; RSTREAM stands over windows with and without SLIDE.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
import pytest

from penstock.algebra import (
    Aggregate,
    Algebra,
    Coalesce,
    Distinct,
    Except,
    IndividualResults,
    Intersect,
    Join,
    NRRJoin,
    OuterJoin,
    OuterKind,
    Project,
    RelationScan,
    RelationToStream,
    Restamp,
    RowWindow,
    Sample,
    Select,
    SemiJoin,
    SemiKind,
    SortKey,
    Source,
    StreamKind,
    StreamScan,
    TopK,
    UnionAll,
    Window,
    WindowKind,
)
from penstock.algebra.nodes.base import has_lives
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.optimizer.optimizer import Planning, TraceStep, apply, optimize
from penstock.algebra.optimizer.rules import RULES
from penstock.algebra.render import render
from penstock.explain import to_text
from penstock.expressions.nodes import AggregateCall, Call, Cast, Column, Expression, Literal
from penstock.testing.cases import made_up
from penstock.testing.oracle import run_oracle
from penstock.types import Field, Schema, TimeDomain, Unit

INT, LONG, BOOL = pa.int32(), pa.int64(), pa.bool_()
SECONDS = TimeDomain(Unit.SECOND, False)
WIDE = Schema((Field("ts", LONG), Field("a", INT), Field("b", INT), Field("c", LONG)))
S = Source("S", True, WIDE, "MEMORY", timestamp=0, domain=SECONDS)
T = Source("T", True, WIDE, "MEMORY", timestamp=0, domain=SECONDS)
R = Source("R", False, Schema((Field("k", INT), Field("v", INT), Field("w", LONG))), "MEMORY")
CHANGES = Schema((Field("ts", LONG), Field("op", pa.string()), Field("k", INT), Field("v", INT)))
U = Source("U", False, CHANGES, "MEMORY", timestamp=0, domain=SECONDS, operation=1)
N = Source("N", False, CHANGES, "MEMORY", timestamp=0, domain=SECONDS, operation=1, non_retroactive=True)


class Maker:
    """Random plans. Depth bounds them; every relation has at least one integer column."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.slide = draw.choice([None, None, 2])

    def root(self) -> Algebra:
        relation = self.relation(self.draw.randint(1, 4))
        kind = self.draw.choice([None, *StreamKind, StreamKind.RSTREAM])
        return relation if kind is None else RelationToStream(relation, kind)

    def stream(self, depth: int) -> Algebra:
        if depth > 1 and self.draw.random() < 0.08 and has_lives(relation := self.relation(depth - 1)):
            return IndividualResults(relation)
        if depth > 1 and self.draw.random() < 0.2:
            return RelationToStream(
                self.relation(depth - 1), self.draw.choice([StreamKind.ISTREAM, StreamKind.DSTREAM])
            )
        scan: Algebra = StreamScan(self.draw.choice([S, T]), (0, 1, 2, 3))
        if self.draw.random() < 0.1:
            scan = Sample(scan, Fraction(self.draw.choice([50, 80])), self.draw.randint(0, 9), "S")
        return self.select(scan) if self.draw.random() < 0.2 else scan

    def view(self, depth: int) -> Algebra:
        """A stream that a view makes of another, by selection and projection mostly."""
        kind = self.draw.choice([WindowKind.UNBOUNDED, WindowKind.UNBOUNDED, WindowKind.NOW])
        return RelationToStream(self.project(Window(self.stream(depth), kind)), StreamKind.ISTREAM)

    def leaf(self, depth: int) -> Algebra:
        chance = self.draw.random()
        if chance < 0.1:
            return RelationScan(U, (2, 3))
        if chance < 0.25:
            return RelationScan(R, (0, 1, 2))
        return self.window(self.stream(depth))

    def window(self, stream: Algebra) -> Algebra:
        if self.draw.random() < 0.25:
            return self.row_window(stream)
        kind = self.draw.choice([WindowKind.NOW, WindowKind.RANGE, WindowKind.RANGE, WindowKind.UNBOUNDED])
        length = self.draw.choice([1, 2, 4]) if kind is WindowKind.RANGE else None
        return Window(stream, kind, length, self.slide if kind is WindowKind.RANGE else None)

    def row_window(self, stream: Algebra) -> Algebra:
        columns = range(len(stream.schema))
        partition = tuple(self.draw.sample(columns, self.draw.randint(0, min(2, len(columns)))))
        step, length = self.draw.choice([None, None, 2]), self.draw.choice([None, None, 3])
        return RowWindow(stream, self.draw.randint(1, 3), step, partition, length, self.slide)

    def relation(self, depth: int) -> Algebra:
        if depth <= 0:
            return self.leaf(depth)
        makers: list[Callable[[int], Algebra]] = [
            lambda d: self.select(self.relation(d)),
            lambda d: self.select(self.relation(d)),
            lambda d: self.project(self.relation(d)),
            lambda d: self.select(self.join(d)),
            self.join,
            lambda d: self.select(self.nrr_join(d)),
            lambda d: self.draw.choice([self.select, self.project])(self.matched(d)),
            self.negated,
            lambda d: self.project(self.select(Distinct(self.relation(d)))),
            lambda d: self.project(self.window(RelationToStream(self.relation(d), self.draw.choice(list(StreamKind))))),
            lambda d: self.select(self.window(self.view(d))),
            lambda d: self.select(self.union(d)),
            lambda d: self.select(self.in_windows()),
            lambda d: self.project(self.interval_join()),
            lambda d: self.select(self.set_operation(d)),
            lambda d: self.select(self.coalesced(self.relation(d))),
            lambda d: self.select(self.first(self.relation(d))),
            lambda d: self.select(self.aggregate(self.relation(d))),
        ]
        return self.draw.choice(makers)(depth - 1)

    def select(self, node: Algebra) -> Algebra:
        parts = [self.condition(node) for _ in range(self.draw.randint(1, 3))]
        predicate = parts[0]
        for part in parts[1:]:
            predicate = Call(BOOL, "AND", (predicate, part))
        return Select(node, predicate)

    def column(self, node: Algebra, type_: pa.DataType | None = None) -> Column | None:
        found = [i for i, f in enumerate(node.schema) if (f.type in (INT, LONG) if type_ is None else f.type == type_)]
        if not found:
            return None
        index = self.draw.choice(found)
        return Column(node.schema[index].type, index, node.schema[index].name)

    def condition(self, node: Algebra) -> Expression:
        column = self.column(node)
        chance = self.draw.random()
        if column is None or chance < 0.05:
            return Literal(BOOL, self.draw.choice([True, False, None]))
        if chance < 0.07:
            return Call(BOOL, "LT", (Literal(INT, 1), Literal(INT, self.draw.choice([1, 2, None]))))
        if chance < 0.1:
            return Call(BOOL, "IS_NULL", (column,))
        function = self.draw.choice(["EQ", "NE", "LT", "GE"])
        other = self.column(node, column.type)
        if chance < 0.4 and other is not None:
            return Call(BOOL, self.draw.choice([function, "EQ"]), (column, other))
        if chance < 0.5 and (wide := self.column(node, LONG)) is not None:
            return Call(BOOL, "EQ", (Cast(LONG, column) if column.type == INT else column, wide))
        return Call(BOOL, function, (column, Literal(column.type, self.draw.randint(0, 2))))

    def project(self, node: Algebra) -> Algebra:
        if self.draw.random() < 0.15:
            return Project(node, tuple(Column(f.type, i) for i, f in enumerate(node.schema)), node.schema.fields)
        expressions: list[Expression] = []
        for _ in range(self.draw.randint(1, 3)):
            column = self.column(node)
            assert column is not None
            literal = Literal(column.type, self.draw.choice([1, None]))
            computed = Call(column.type, "ADD", (column, literal))
            expressions.append(self.draw.choice([column, column, computed, literal]))
        fields = tuple(Field(f"p{i}", e.type) for i, e in enumerate(expressions))
        return Project(node, tuple(expressions), fields)

    def join(self, depth: int) -> Algebra:
        return self.joined(self.relation(depth), self.relation(depth))

    def joined(self, left: Algebra, right: Algebra) -> Algebra:
        one = self.column(left)
        other = None if one is None else self.column(right, one.type)
        equal = ((one.index, other.index),) if one and other and self.draw.random() < 0.5 else ()
        joined = Join(left, right, equal)
        return Join(left, right, equal, self.condition(joined)) if self.draw.random() < 0.5 else joined

    def in_windows(self) -> Algebra:
        """Groups of windows as columns."""
        length, slide = self.draw.choice([(2, 2), (4, 2), (3, 3)])
        windows = Restamp(self.select(StreamScan(S, (0, 1, 2, 3))), length, slide, self.draw.randrange(slide))
        rows = self.select(Window(windows, WindowKind.UNBOUNDED))
        group = (self.draw.choice([4, 5, 6]), *self.draw.sample((1, 2), self.draw.randint(0, 1)))
        return Aggregate(rows, group, (AggregateCall(LONG, "COUNT", ()),), ("n",))

    def interval_join(self) -> Algebra:
        """A join of whole streams that bounds the time between their rows."""
        left, right = (Window(StreamScan(s, (0, 1, 2, 3)), WindowKind.UNBOUNDED) for s in (S, T))
        one, other = Column(LONG, 0, "ts"), Column(LONG, 4, "ts")

        def bound(comparison: str, ticks: int) -> Expression:
            return Call(BOOL, comparison, (other, Call(LONG, "ADD", (one, Literal(LONG, ticks)))))

        back, ahead = self.draw.randint(-3, 1), self.draw.randint(-1, 3)
        near = Call(BOOL, "AND", (bound("GE", back), bound(self.draw.choice(["LE", "LT"]), ahead)))
        kind = self.draw.choice([*SemiKind, None, None])
        return Join(left, right, (), near) if kind is None else SemiJoin(left, right, ((1, 1),), near, kind)

    def nrr_join(self, depth: int) -> Algebra:
        left: Algebra = Window(self.stream(depth), WindowKind.RANGE, self.draw.choice([1, 3]), self.slide)
        if self.draw.random() < 0.3:
            left = self.project(self.select(left))
        right: Algebra = RelationScan(N, (2, 3))
        if self.draw.random() < 0.3:
            right = self.select(right)
        one = self.column(left, INT)
        equal = ((one.index, self.draw.choice([0, 1])),) if one and self.draw.random() < 0.6 else ()
        joined = NRRJoin(left, right, equal)
        return NRRJoin(left, right, equal, self.condition(joined)) if self.draw.random() < 0.5 else joined

    def matched(self, depth: int) -> Algebra:
        """An outer or semi-join under the condition of a join."""
        return self.matching(self.relation(depth), self.relation(depth))

    def matching(self, left: Algebra, right: Algebra) -> Algebra:
        joined = self.joined(left, right)
        assert isinstance(joined, Join)
        parts = (joined.left, joined.right, joined.equal, joined.residual)
        if self.draw.random() < 0.5:
            return OuterJoin(*parts, self.draw.choice(list(OuterKind)))
        return SemiJoin(*parts, self.draw.choice(list(SemiKind)))

    def negated(self, depth: int) -> Algebra:
        """A negation beside, above or below another operator, with or without a projection between them."""
        chance = self.draw.random()
        if chance < 0.4:
            other, found = self.relation(depth), self.between(self.matched(depth))
            return self.joined(*self.draw.sample([found, other], 2))
        if chance < 0.6:
            return self.matching(self.joined(self.relation(depth), self.relation(depth)), self.relation(depth))
        if chance < 0.75:
            return self.draw.choice([Distinct, self.aggregate])(self.between(self.matched(depth)))
        if chance < 0.9:
            return self.grouped_join(depth)
        return self.matching(self.relation(depth), Distinct(self.relation(depth)))

    def grouped_join(self, depth: int) -> Algebra:
        """Groups joined with a relation that has at most one tuple for each."""
        keyed = self.grouped(self.draw.choice([RelationScan(R, (0, 1, 2)), self.relation(depth)]))
        grouped = self.grouped(self.relation(depth), keyed.schema[0].type)
        sides = self.draw.sample([self.between(grouped), keyed], 2)
        alike = sides[0].schema[0].type == sides[1].schema[0].type
        return Join(*sides, ((0, 0),)) if alike else self.joined(*sides)

    def grouped(self, node: Algebra, type_: pa.DataType | None = None) -> Algebra:
        column = self.column(node, type_) or self.column(node)
        assert column is not None
        return Aggregate(node, (column.index,), (AggregateCall(LONG, "COUNT", ()),), ("n",))

    def between(self, node: Algebra) -> Algebra:
        return self.project(node) if self.draw.random() < 0.4 else node

    def union(self, depth: int) -> Algebra:
        def member() -> Algebra:
            below = self.relation(depth)
            column = self.column(below)
            assert column is not None
            wide = Cast(LONG, column) if column.type == INT else column
            return Project(below, (column if column.type == LONG else wide, wide), fields)

        fields = (Field("x", LONG), Field("y", LONG))
        return UnionAll((member(), member()))

    def set_operation(self, depth: int) -> Algebra:
        left, right = self.union(depth).inputs
        return self.draw.choice([Except, Intersect])(left, right, self.draw.random() < 0.5)

    def coalesced(self, node: Algebra) -> Algebra:
        """Periods that begin at a column, of one or two columns more."""
        columns = [column for column in (self.column(node), self.column(node)) if column is not None]
        begin = self.column(node)
        assert begin is not None
        wide = Cast(LONG, begin) if begin.type == INT else begin
        end = Call(LONG, "ADD", (wide, Literal(LONG, self.draw.choice([1, 2]))))
        fields = (*(Field(f"c{i}", c.type) for i, c in enumerate(columns)), Field("begin", LONG), Field("end", LONG))
        return Coalesce(Project(node, (*columns, wide, end), fields))

    def first(self, node: Algebra) -> Algebra:
        column = self.column(node)
        assert column is not None
        return TopK(node, (SortKey(column.index, self.draw.random() < 0.5),), self.draw.randint(0, 3))

    def aggregate(self, node: Algebra) -> Algebra:
        group = tuple(self.draw.sample(range(len(node.schema)), self.draw.randint(0, min(2, len(node.schema)))))
        column = self.column(node)
        assert column is not None
        calls = (AggregateCall(LONG, "COUNT", ()), AggregateCall(column.type, "MAX", (column,)))
        return Aggregate(node, group, calls, ("n", "most"))


def tables(draw: random.Random) -> dict[str, pa.Table]:
    def value() -> int | None:
        return draw.choice([0, 1, 2, None])

    def table(schema: Schema, rows: list[tuple[object, ...]]) -> pa.Table:
        arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
        return pa.table(arrays, names=list(schema.names))

    def instants(count: int) -> list[int]:
        return sorted(draw.randint(3, 12) for _ in range(count))

    return {
        "S": table(WIDE, [(ts, value(), value(), value()) for ts in instants(draw.randint(0, 6))]),
        "T": table(WIDE, [(ts, value(), value(), value()) for ts in instants(draw.randint(0, 6))]),
        "R": table(R.columns, [(value(), value(), value()) for _ in range(3)]),
        "U": table(CHANGES, [(ts, draw.choice("++-"), value(), value()) for ts in instants(4)]),
        "N": table(CHANGES, [(ts, draw.choice("++-"), value(), value()) for ts in instants(4)]),
    }


def case(seed: int) -> tuple[Query, dict[str, pa.Table]]:
    draw = random.Random(seed)
    return Query("q", Maker(draw).root(), SinkSpec("MEMORY")), tables(draw)


#: Rules over the nodes of CSQL: these plans have none; tests/test_frequency.py sets random queries against them.
OF_FREQUENCIES = {
    "evaluate_as_often_as_picked", "evaluate_in_time", "merge_frequencies", "pull_projection_above_frequency",
    "push_selection_below_frequency", "read_sequence_as_stream",
}  # fmt: skip


#: A rule over CLOSED: these plans have none; tests/test_promised_groups.py has random queries with it.
OF_PROMISES = {"push_selection_below_closed_rows"}


def seeds(case_count: int | None, case_seed: int | None, usual: int) -> range:
    first = (case_seed or 0) * 1_000_000
    return range(first, first + (case_count or usual))


def test_optimized_plans_mean_the_same(case_count: int | None, case_seed: int | None) -> None:
    fired: set[str] = set()
    for seed in seeds(case_count, case_seed, 400):
        query, inputs = case(seed)
        trace: list[TraceStep] = []
        planning = Planning(made_up([query], seed))
        after = optimize(query.root, trace, check=True, planning=planning)
        fired |= {step.rule for step in trace if step.taken}
        expected = run_oracle(query, inputs, drain=seed % 2 == 0)
        found = run_oracle(query, inputs, drain=seed % 2 == 0, optimized_root=after)
        assert found.events == expected.events, shown(seed, query.root, after)
        assert optimize(after, planning=planning) == after, shown(seed, query.root, after)
    known = {rule.name for rule in RULES} - OF_FREQUENCIES - OF_PROMISES
    assert fired == known, "the random plans do not reach every rule"


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_each_rule_alone_keeps_the_meaning(rule, case_count: int | None, case_seed: int | None) -> None:  # type: ignore[no-untyped-def]
    for seed in seeds(case_count, case_seed, 40):
        query, inputs = case(seed)
        after = apply(rule, query.root)
        if after is not query.root:
            expected = run_oracle(query, inputs, drain=True)
            found = run_oracle(query, inputs, drain=True, optimized_root=after)
            assert found.events == expected.events, shown(seed, query.root, after)


def shown(seed: int, before: Algebra, after: Algebra) -> str:
    return f"seed {seed}\n{to_text(render(before))}\n{to_text(render(after))}"
