"""An operator that does not fit what it stands over, or whose fields do not fit together, cannot be made."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from penstock.algebra import (
    Aggregate,
    Algebra,
    Begins,
    Budget,
    BudgetKind,
    Closing,
    Coalesce,
    Distinct,
    EndedPeriods,
    Except,
    Frequency,
    FrequencyWindow,
    IndividualResults,
    Internal,
    Intersect,
    Join,
    Lasting,
    OuterJoin,
    OuterKind,
    Preference,
    PreferenceOrder,
    Project,
    RelationToStream,
    RowWindow,
    Sample,
    SemiJoin,
    SessionWindow,
    Shed,
    StreamKind,
    TopK,
    UnionAll,
    UntilNext,
    ValidWindow,
    Window,
    WindowKind,
    WindowSample,
)
from penstock.algebra.nodes.base.checks import OperatorError
from penstock.expressions.nodes import Column
from penstock.language.scripts import bind_script
from penstock.types import Schema

SCRIPT = """
CREATE STREAM s (k INT, v STRING, begins BIGINT, ends BIGINT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
CREATE QUERY stream AS SELECT * FROM s;
CREATE QUERY relation AS SELECT k, v, begins, ends FROM s [RANGE 5 SECONDS];
"""
STREAM, RELATION = (query.root for query in bind_script(SCRIPT).queries)


def _columns(node: Algebra, *positions: int) -> Project:
    """Return some columns of a relation or stream."""
    fields = tuple(node.schema[i] for i in positions)
    return Project(node, tuple(Column(f.type, i, f.name) for f, i in zip(fields, positions, strict=True)), fields)


TEXT = Column(RELATION.schema[1].type, 1, "v")
WITHOUT_PERIOD = _columns(RELATION, 0, 1)
PER_TUPLE = Budget(BudgetKind.PER_TUPLE, 1)
#: The last column is a BIGINT, as a gap is; of the stream itself it is a TIMESTAMP.
WITH_GAP = _columns(STREAM, 0, 2)


@pytest.mark.parametrize(
    ("make", "code", "field"),
    [
        (lambda: Window(RELATION, WindowKind.NOW), "P0301", ()),
        (lambda: Window(STREAM, WindowKind.RANGE), "P0102", ()),
        (lambda: Window(STREAM, WindowKind.NOW, 5), "P0102", ()),
        (lambda: RowWindow(RELATION, 5), "P0301", ()),
        (lambda: RowWindow(STREAM, None), "P0102", ()),
        (lambda: RowWindow(STREAM, None, 2, (0,)), "P0102", ()),
        (lambda: FrequencyWindow(RELATION, 5), "P0301", ()),
        (lambda: FrequencyWindow(STREAM, 5, every=2, slide=2), "P0102", ()),
        (lambda: FrequencyWindow(STREAM, 5, by=(0,)), "P0102", ("by",)),
        (lambda: Sample(RELATION, Fraction(5), 1, "s"), "P0301", ()),
        (lambda: Sample(STREAM, Fraction(101), 1, "s"), "P0102", ("percent",)),
        (lambda: WindowSample(STREAM, 5, 1, "s"), "P0341", ()),
        (lambda: WindowSample(RELATION, 5, 1, "s", weight=TEXT), "P0203", ("weight",)),
        (lambda: Aggregate(RELATION, (), (), ()), "P0341", ()),
        (lambda: Distinct(STREAM), "P0341", ()),
        (lambda: TopK(STREAM, (), 1), "P0341", ()),
        (lambda: UnionAll((RELATION, STREAM)), "P0341", ()),
        (lambda: UnionAll((RELATION, WITHOUT_PERIOD)), "P0305", ()),
        (lambda: Except(RELATION, WITHOUT_PERIOD, True), "P0305", ()),
        (lambda: Intersect(RELATION, WITHOUT_PERIOD, True), "P0305", ()),
        (lambda: Join(RELATION, STREAM), "P0341", ()),
        (lambda: Join(RELATION, RELATION, ((0, 0), (0, 1))), "P0203", ("equal", 1)),
        (lambda: SemiJoin(RELATION, RELATION, ((0, 1),)), "P0203", ("equal", 0)),
        (lambda: OuterJoin(RELATION, RELATION, ((0, 1),)), "P0203", ("equal", 0)),
        (lambda: OuterJoin(RELATION, RELATION, kind=OuterKind.FULL, single="x"), "P0106", ("single",)),
        (lambda: RelationToStream(STREAM, StreamKind.ISTREAM), "P0307", ()),
        (lambda: IndividualResults(STREAM), "P0307", ()),
        (lambda: Internal(STREAM, True), "P0341", ()),
        (lambda: Frequency(STREAM), "P0102", ()),
        (lambda: Frequency(STREAM, 1, 1), "P0102", ()),
        (lambda: Frequency(RELATION, 1), "P0301", ()),
        (lambda: Coalesce(STREAM), "P0341", ()),
        (lambda: Coalesce(WITHOUT_PERIOD), "P0341", ()),
        (lambda: Coalesce(RELATION, Begins.ANY, Closing()), "P0373", ()),
        (lambda: SessionWindow(RELATION), "P0301", ()),
        (lambda: SessionWindow(STREAM), "P0341", ()),
        (lambda: ValidWindow(WITHOUT_PERIOD), "P0341", ()),
        (lambda: UntilNext(RELATION), "P0301", ()),
        (lambda: EndedPeriods(RELATION), "P0301", ()),
        (lambda: Lasting(WITHOUT_PERIOD), "P0341", ()),
        (lambda: Shed(WITHOUT_PERIOD, "newest", 1), "P0341", ()),
        (lambda: Shed(RELATION, "newest", 1, buckets=2), "P0106", ("buckets",)),
        (lambda: Preference(PreferenceOrder.DESC, PER_TUPLE, Fraction(2)), "P0203", ("fade",)),
        (lambda: Preference(PreferenceOrder.DESC, PER_TUPLE, records=True), "P0355", ("records",)),
    ],
)
def test_an_operator_that_does_not_fit_cannot_be_made(
    make: Callable[[], object], code: str, field: tuple[str | int, ...]
) -> None:
    with pytest.raises(OperatorError) as caught:
        make()
    assert (caught.value.code, caught.value.field) == (code, field)


def test_those_that_fit_are_made() -> None:
    assert SessionWindow(WITH_GAP).schema.names == ("k", "begin", "end")
    assert Join(RELATION, RELATION, ((0, 0), (1, 1))).schema == Schema(RELATION.schema.fields * 2)
    assert Coalesce(RELATION, Begins.TIMESTAMP, Closing()).schema == RELATION.schema
