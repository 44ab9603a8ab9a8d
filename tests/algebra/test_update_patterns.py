"""The update pattern of every operator: the table of [semantics 5], and the order of the patterns."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

from penstock.algebra import (
    Aggregate,
    Algebra,
    Distinct,
    Except,
    IndividualResults,
    Internal,
    Intersect,
    Join,
    NRRJoin,
    OuterJoin,
    OuterKind,
    Pattern,
    Project,
    RelationScan,
    RelationToStream,
    Restored,
    RowWindow,
    Sample,
    Select,
    SemiJoin,
    SemiKind,
    Source,
    StreamKind,
    StreamScan,
    TopK,
    UnionAll,
    Window,
    WindowKind,
)
from penstock.algebra.properties.update_pattern import worst
from penstock.expressions.nodes import AggregateCall, Call, Column, Literal
from penstock.types import CALENDAR, Field, Schema

COLUMNS = Schema((Field("k", pa.int64()), Field("v", pa.int64())))
STREAM = StreamScan(Source("s", True, COLUMNS, "MEMORY", timestamp=0, domain=CALENDAR), (0, 1))
STATIC = RelationScan(Source("r", False, COLUMNS, "MEMORY"), (0, 1))
UPDATED = RelationScan(Source("u", False, COLUMNS, "MEMORY", timestamp=0, domain=CALENDAR, operation=1), (0, 1))

MON = Window(STREAM, WindowKind.UNBOUNDED)
WKS = Window(STREAM, WindowKind.RANGE, 10)
OTHER = Window(STREAM, WindowKind.RANGE, 20)
NOW = Window(STREAM, WindowKind.NOW)
SLIDING = Window(STREAM, WindowKind.RANGE, 10, 5)
AT_BOUNDARIES = Window(STREAM, WindowKind.UNBOUNDED, None, 5)
POSITIVE = Call(pa.bool_(), "GT", (Column(pa.int64(), 1, "v"), Literal(pa.int64(), 0)))


def select(node: Algebra) -> Algebra:
    return Select(node, POSITIVE)


def project(node: Algebra) -> Algebra:
    return Project(node, (Column(pa.int64(), 1, "v"),), (Field("v", pa.int64()),))


def narrow(node: Algebra) -> Algebra:
    """Return the first two columns of a relation, as a member of a union has them."""
    columns = tuple(Column(field.type, i, field.name) for i, field in enumerate(node.schema.fields[:2]))
    return Project(node, columns, node.schema.fields[:2])


def join(left: Algebra, right: Algebra) -> Algebra:
    return Join(left, right, ((0, 0),))


def nrr_join(left: Algebra) -> Algebra:
    return NRRJoin(left, RelationScan(replace(UPDATED.source, non_retroactive=True), (0, 1)), ((0, 0),))


def semi(left: Algebra, right: Algebra, kind: SemiKind = SemiKind.SEMI) -> Algebra:
    return SemiJoin(left, right, ((0, 0),), None, kind)


def outer(left: Algebra, right: Algebra, kind: OuterKind = OuterKind.LEFT) -> Algebra:
    return OuterJoin(left, right, ((0, 0),), None, kind)


def union(*members: Algebra) -> Algebra:
    return UnionAll(members)


def group(node: Algebra) -> Algebra:
    return Aggregate(node, (0,), (AggregateCall(pa.int64(), "COUNT", ()),), ("n",))


ROWS = RowWindow(STREAM, 5)
STR = group(WKS)

TABLE = [
    # leaves and windows
    ("stream", STREAM, "MON"),
    ("unbounded window", MON, "MON"),
    ("range window", WKS, "WKS"),
    ("now window", NOW, "WKS"),
    ("sliding window", SLIDING, "WKS"),
    ("row window", ROWS, "STR"),
    ("partitioned row window with RANGE", RowWindow(STREAM, 5, None, (0,), 10), "STR"),
    ("sample", Sample(STREAM, Fraction(10), 0, "s"), "MON"),
    ("window of a sample", Window(Sample(STREAM, Fraction(10), 0, "s"), WindowKind.RANGE, 10), "WKS"),
    ("static relation", STATIC, "MON"),
    ("relation with updates", UPDATED, "STR"),
    # selection and projection pass the pattern on
    ("select MON", select(MON), "MON"),
    ("select WKS", select(WKS), "WKS"),
    ("select STR", select(UPDATED), "STR"),
    ("project WKS", project(WKS), "WKS"),
    ("project WK", project(join(WKS, WKS)), "WK"),
    # union passes the worst; windows of different length do not leave in the order they came
    ("union MON MON", union(MON, MON), "MON"),
    ("union same windows", union(WKS, WKS), "WKS"),
    ("union different windows", union(WKS, OTHER), "WK"),
    ("union same length, other slide", union(WKS, SLIDING), "WK"),
    ("union same slide, other boundaries", union(SLIDING, Window(STREAM, WindowKind.RANGE, 10, 5, 2)), "WK"),
    ("union WKS WK", union(WKS, narrow(join(WKS, WKS))), "WK"),
    ("union WKS STR", union(WKS, STR), "STR"),
    # joins
    ("join MON MON", join(MON, MON), "MON"),
    ("join WKS WKS", join(WKS, WKS), "WK"),
    ("join MON WKS", join(MON, WKS), "WK"),
    ("join WKS row window", join(WKS, ROWS), "STR"),
    ("join WKS STR", join(WKS, STR), "STR"),
    ("join WKS updated relation", join(WKS, UPDATED), "STR"),
    ("join WKS static", join(WKS, STATIC), "WKS"),
    ("join static WKS", join(STATIC, WKS), "WKS"),
    ("join MON static", join(MON, STATIC), "MON"),
    # a NON RETROACTIVE relation does not add
    ("nrr join WKS", nrr_join(WKS), "WKS"),
    ("nrr join MON", nrr_join(MON), "MON"),
    ("group of an nrr join", group(nrr_join(WKS)), "STR"),
    # a semi-join is as the join; what has to go when a partner comes is strict, unless partners never change
    ("semi-join MON MON", semi(MON, MON), "MON"),
    ("semi-join WKS WKS", semi(WKS, WKS), "WK"),
    ("semi-join WKS STR", semi(WKS, STR), "STR"),
    ("semi-join WKS static", semi(WKS, STATIC), "WKS"),
    ("anti-join MON MON", SemiJoin(MON, MON, ((1, 1),), None, SemiKind.ANTI), "STR"),
    ("anti-join MON MON by the timestamp", semi(MON, MON, SemiKind.ANTI), "MON"),
    ("anti-join MON NOW by the timestamp", semi(MON, NOW, SemiKind.ANTI), "STR"),
    ("anti-join of rows that enter at boundaries", semi(AT_BOUNDARIES, AT_BOUNDARIES, SemiKind.ANTI), "STR"),
    ("anti-join WKS static", semi(WKS, STATIC, SemiKind.ANTI), "WKS"),
    ("anti-join static WKS", semi(STATIC, WKS, SemiKind.ANTI), "STR"),
    ("mark MON MON", SemiJoin(MON, MON, ((1, 1),), None, SemiKind.MARK), "STR"),
    ("mark MON MON by the timestamp", semi(MON, MON, SemiKind.MARK), "MON"),
    ("mark MON static", semi(MON, STATIC, SemiKind.MARK), "MON"),
    ("left join WKS WKS", outer(WKS, WKS), "STR"),
    ("left join WKS static", outer(WKS, STATIC), "WKS"),
    ("left join static WKS", outer(STATIC, WKS), "STR"),
    ("left join MON MON", OuterJoin(MON, MON, ((1, 1),)), "STR"),
    ("left join MON MON by the timestamp", outer(MON, MON), "MON"),
    ("full join MON MON by the timestamp", outer(MON, MON, OuterKind.FULL), "MON"),
    ("left join by the timestamp of a group", outer(MON, group(MON)), "MON"),
    ("full join WKS static", outer(WKS, STATIC, OuterKind.FULL), "STR"),
    # duplicate elimination
    ("distinct MON", Distinct(MON), "MON"),
    ("distinct WKS", Distinct(WKS), "WK"),
    ("distinct WK", Distinct(join(WKS, WKS)), "WK"),
    ("distinct STR", Distinct(STR), "STR"),
    # set operations: what a tuple of the other side ends is not known beforehand
    ("except MON", Except(project(MON), project(MON), False), "STR"),
    ("except MON with the timestamp", Except(MON, MON, False), "MON"),
    ("except all MON with the timestamp", Except(MON, MON, True), "MON"),
    ("except all WKS", Except(WKS, WKS, True), "STR"),
    ("except WKS static", Except(WKS, STATIC, False), "STR"),
    ("except static", Except(STATIC, STATIC, True), "MON"),
    ("intersect MON", Intersect(MON, MON, False), "MON"),
    ("intersect all MON static", Intersect(MON, STATIC, True), "MON"),
    ("intersect WKS", Intersect(WKS, WKS, False), "STR"),
    ("intersect STR", Intersect(STR, MON, True), "STR"),
    ("union as sets", Distinct(union(WKS, OTHER)), "WK"),
    # the first rows: one that comes pushes another out
    ("first of MON", TopK(MON, (), 1), "STR"),
    ("first of static", TopK(STATIC, (), 1), "MON"),
    ("distinct row window", Distinct(ROWS), "STR"),
    # grouping
    ("group MON", group(project(MON)), "STR"),
    ("group MON by the timestamp", group(MON), "MON"),
    ("group of rows that enter at boundaries", group(AT_BOUNDARIES), "STR"),
    ("group of a join with its timestamp", group(join(MON, STATIC)), "MON"),
    ("group of a join of streams", group(Join(MON, MON, ((1, 1),))), "STR"),
    ("group of a union by the timestamp", group(union(MON, MON)), "MON"),
    ("group WKS", group(WKS), "STR"),
    ("group static", group(STATIC), "MON"),
    ("ungrouped", Aggregate(WKS, (), (AggregateCall(pa.int64(), "COUNT", ()),), ("n",)), "STR"),
    # a stream made of a relation only grows
    # INTERNAL windows: results do not expire
    ("internal range", Internal(WKS, True), "MON"),
    ("internal join", Internal(join(WKS, ROWS), False), "MON"),
    ("internal grouping", Internal(STR, False), "MON"),
    ("istream of STR", RelationToStream(STR, StreamKind.ISTREAM), "MON"),
    ("results of WKS", IndividualResults(WKS), "MON"),
    ("window over results", Window(IndividualResults(join(WKS, WKS)), WindowKind.RANGE, 5), "WKS"),
    ("restored", Restored(RelationToStream(SLIDING, StreamKind.RSTREAM), WKS, 5, 0, True), "MON"),
    ("window over a derived stream", Window(RelationToStream(STR, StreamKind.ISTREAM), WindowKind.RANGE, 5), "WKS"),
]


@pytest.mark.parametrize(("plan", "expected"), [(p, e) for _, p, e in TABLE], ids=[name for name, _, _ in TABLE])
def test_pattern(plan: Algebra, expected: str) -> None:
    assert plan.pattern.short == expected


def test_patterns_are_ordered() -> None:
    assert Pattern.MONOTONIC < Pattern.WEAKEST < Pattern.WEAK < Pattern.STRICT
    assert worst([Pattern.WEAK, Pattern.WEAKEST]) is Pattern.WEAK
    assert worst([]) is Pattern.MONOTONIC
