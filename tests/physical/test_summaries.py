"""Summaries of streams against lists of zones with a Counter each; cuts, restores, limits."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions import draws
from penstock.expressions.sketches.count_sketch import CountSketchShape, places, square_limit, value_hashes
from penstock.physical.synopses.summaries import stream_summary
from penstock.physical.synopses.summaries.contract import SlotCounts
from penstock.physical.synopses.summaries.count_sketch import SketchCounts
from penstock.physical.synopses.summaries.declared import predicted_bytes
from penstock.physical.synopses.summaries.exact import ExactCounts
from penstock.physical.synopses.summaries.levels import SummaryLevels, levels_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary
from tests.physical.naive_summary import NaiveSummary, place

SMALL = CountSketchShape(rows=3, counters=4, buckets=2)
#: (tick, value or None, whether it is counted or asks)
Event = tuple[int, int | None, bool]


def counts_of(shape: CountSketchShape | None) -> SlotCounts:
    return ExactCounts() if shape is None else SketchCounts(shape)


def hashed(value: int) -> int:
    return int(draws.mixed(np.array([value], np.uint64))[0])


def batch(events: list[Event]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    ts = np.array([tick for tick, _, _ in events], np.int64)
    values = np.array([0 if value is None else hashed(value) for _, value, _ in events], np.uint64)
    known = np.array([value is not None for _, value, _ in events], np.bool_)
    return ts, values, known, np.array([counted for _, _, counted in events], np.bool_)


def answers(summary: StreamSummary, events: list[Event], first: int = 0) -> list[tuple[int, ...]]:
    found = summary.process(*batch(events))
    columns = (found.event + first, found.low, found.high, found.granularity, found.estimate, found.elements)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected(naive: NaiveSummary, events: list[Event]) -> list[tuple[int, ...]]:
    made: list[tuple[int, ...]] = []
    for number, (tick, value, counted) in enumerate(events):
        key = None if value is None else hashed(value)
        if counted:
            naive.count(tick, key)
        else:
            made += [(number, *row) for row in naive.ask(tick, key)]
    return made


@st.composite
def lives(draw: st.DrawFn) -> tuple[SummaryLevels, CountSketchShape | None, list[Event], list[int]]:
    shape = draw(st.sampled_from([None, SMALL, CountSketchShape(1, 2, 1), CountSketchShape(5, 3, 1)]))
    granularity = draw(st.integers(1, 12))
    levels = levels_of(
        granularity,
        draw(st.integers(2, 3)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(3, 2), Fraction(4)])),
        shape.counters if shape else 64,
        draw(st.integers(1, 4)),
        draw(st.integers(1, 12)),
    )
    tick = draw(st.integers(-40, 40))
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 40))):
        tick += draw(st.sampled_from([0, 0, 0, 1, 1, 2, granularity, 5 * granularity, 60]))
        events.append((tick, draw(st.one_of(st.none(), st.integers(0, 4))), draw(st.booleans())))
    cuts = draw(st.lists(st.integers(0, len(events)), max_size=4))
    return levels, shape, events, sorted({0, *cuts, len(events)})


@settings(max_examples=10)
@given(lives())
def test_zones_and_estimates_are_those_of_the_definition_whatever_the_cuts(
    life: tuple[SummaryLevels, CountSketchShape | None, list[Event], list[int]],
) -> None:
    levels, shape, events, cuts = life
    naive = NaiveSummary(levels, shape)
    true = expected(naive, events)
    whole, cut, single = (StreamSummary(levels, counts_of(shape)) for _ in range(3))
    assert answers(whole, events) == true
    made = []
    for first, last in pairwise(cuts):
        made += answers(cut, events[first:last], first)
        again = StreamSummary(levels, counts_of(shape))
        again.restore(*cut.snapshot())
        cut = again
    assert made == true
    assert [row for i, event in enumerate(events) for row in answers(single, [event], i)] == true
    for summary in (whole, cut, single):
        assert [tuple(zone) for zone in summary.zones()] == naive.listed()
        assert summary.arrived == naive.arrived
        assert summary.rows == sum(elements for *_, elements in naive.listed())
    assert contents(whole) == contents(cut) == contents(single)


@settings(max_examples=100)
@given(lives(), st.integers(0, 6), st.data())
def test_what_is_counted_later_is_what_is_counted_at_once(
    life: tuple[SummaryLevels, CountSketchShape | None, list[Event], list[int]], most: int, data: st.DataObject
) -> None:
    """Parts of the events without questions are counted later or not, and what is kept may have any length."""
    levels, shape, events, cuts = life
    naive = NaiveSummary(levels, shape)
    summary = StreamSummary(levels, counts_of(shape))
    with mock.patch.object(stream_summary, "MOST_UNCOUNTED", most):
        for first, last in pairwise(cuts):
            part = events[first:last]
            if data.draw(st.integers(0, 2)):
                part = [event for event in part if event[2]]
                ts, values, known, _ = batch(part)
                summary.count_later(ts, values, known)
                expected(naive, part)
            else:
                assert answers(summary, part) == expected(naive, part)
            # What is older than all zones may be there until the next stretch is counted.
            assert summary.rows >= sum(elements for *_, elements in naive.listed())
            assert summary.arrived == naive.arrived
            again = StreamSummary(levels, counts_of(shape))
            again.restore(*summary.snapshot())
            summary = again
        last_tick = events[-1][0] if events else 0
        questions = [(last_tick + later, value, False) for later in (0, 0, 13, 130) for value in range(5)]
        assert answers(summary, questions) == expected(naive, questions)
        assert [tuple(zone) for zone in summary.zones()] == naive.listed()


@pytest.mark.parametrize("shape", [None, SMALL])
def test_the_limit_of_a_granularity_holds_for_what_is_counted_later(shape: CountSketchShape | None) -> None:
    levels = replace(levels_of(10), most=3)
    events: list[Event] = [(tick, tick % 4, True) for tick in (1, 2, 3, 4, 5, 12, 13, 25)]
    direct, later = (StreamSummary(levels, counts_of(shape)) for _ in range(2))
    direct.process(*batch(events))
    ts, values, known, _ = batch(events)
    later.count_later(ts, values, known)
    assert [tuple(zone) for zone in later.zones()] == [tuple(zone) for zone in direct.zones()]
    assert [zone.elements for zone in direct.zones()] == [3, 1] and contents(later) == contents(direct)


def contents(summary: StreamSummary) -> list[tuple[list[int], list[int]]]:
    _, chunks = summary.snapshot()
    return [(c["key"].to_pylist(), c["count"].to_pylist()) for c in chunks.values()]


@given(lives())
def test_sums_of_granularities_are_those_of_their_zones(
    life: tuple[SummaryLevels, CountSketchShape | None, list[Event], list[int]],
) -> None:
    levels, shape, events, _ = life
    summary = StreamSummary(levels, counts_of(shape))
    summary.process(*batch(events))
    for level in range(levels.depth):
        sums: dict[int, int] = {}
        for slot in summary._live().tolist():
            if summary._zones[slot, 5] == level + 1:
                for key, count in zip(*summary.counts.counts(slot), strict=True):
                    sums[int(key)] = sums.get(int(key), 0) + int(count)
        keys, counts = summary.counts.counts(level)
        assert dict(zip(keys.tolist(), counts.tolist(), strict=True)) == {k: c for k, c in sums.items() if c}


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=20),
    st.sampled_from([SMALL, CountSketchShape(), CountSketchShape(7, 5, 3)]),
)
def test_places_are_those_of_plain_integers(values: list[int], shape: CountSketchShape) -> None:
    cells, signs = places(np.array(values, np.uint64), shape)
    for number, value in enumerate(values):
        for row in range(shape.rows):
            assert (int(cells[number, row]), int(signs[number, row])) == place(value, row, shape)


def test_values_with_a_null_are_not_known_and_equal_values_of_all_integer_types_are_one() -> None:
    hashes, known = value_hashes(3, [pa.array([1, None, 3]), pa.array(["a", "b", None])], 3)
    assert known.tolist() == [True, False, False]
    narrow, _ = value_hashes(3, [pa.array([-1, 7], pa.int16())], 2)
    wide, _ = value_hashes(3, [pa.array([-1, 7], pa.int64())], 2)
    other, _ = value_hashes(4, [pa.array([-1, 7], pa.int64())], 2)
    assert narrow.tolist() == wide.tolist() != other.tolist()
    zeros, _ = value_hashes(3, [pa.array([0.0, -0.0, float("nan"), -float("nan")])], 4)
    assert zeros[0] == zeros[1] and zeros[2] == zeros[3] and len(hashes) == 3


@pytest.mark.parametrize("shape", [None, CountSketchShape()])
def test_the_paper_s_interface(shape: CountSketchShape | None) -> None:
    counts = counts_of(shape)
    values = draws.mixed(np.arange(6, dtype=np.uint64))
    counts.reserve(3, 0)
    counts.summarize(0, values.repeat([1, 2, 3, 0, 0, 0]))
    counts.summarize(1, values.repeat([0, 2, 1, 4, 0, 0]))
    counts.add(0, 1)
    assert counts.estimate(values, np.array([0, 1])).tolist() == [[1, 0], [4, 2], [4, 1], [4, 4], [0, 0], [0, 0]]
    counts.subtract(0, 1)
    assert counts.estimate(values, np.array([0])).tolist() == [[1], [2], [3], [0], [0], [0]]
    assert counts.estimate(values[:0], np.array([0])).shape == (0, 1)
    assert counts.confidence(2) == 1.0  # an empty zone does not err
    assert (counts.confidence(0) == 1.0) is (shape is None)
    if shape is not None:
        assert counts.variance(0) == pytest.approx((1 + 4 + 9) / 64)


@pytest.mark.parametrize("shape", [None, CountSketchShape()])
def test_a_million_values(shape: CountSketchShape | None) -> None:
    """Distinct ones first, then one only; the estimates of the frequent one are exact or nearly so."""
    levels = levels_of(1_000_000)
    summary = StreamSummary(levels, counts_of(shape))
    many = 1_000_000
    ts = np.arange(many, dtype=np.int64) * 3
    values = draws.mixed(np.arange(many, dtype=np.uint64))
    values[1::2] = hashed(5)
    yes = np.ones(many, np.bool_)
    assert len(summary.process(ts, values, yes, yes).event) == 0
    assert summary.rows == many and summary.arrived == many
    lows = [zone.low for zone in summary.zones()]
    assert lows == sorted(lows) and summary.zones()[-1].high == many
    found = summary.process(ts[-1:], np.array([hashed(5)], np.uint64), yes[:1], ~yes[:1])
    assert found.estimate.sum() == pytest.approx(many // 2, rel=0.01)
    assert found.elements.sum() == many
    if shape is None:
        assert found.estimate.sum() == many // 2


@pytest.mark.parametrize("shape", [None, SMALL])
@pytest.mark.parametrize(("granularity", "depth"), [(1, 1), (1, 4), (2**62, 3), (2**63 - 1, 2)])
def test_the_ends_of_time(shape: CountSketchShape | None, granularity: int, depth: int) -> None:
    levels = levels_of(granularity, 2, depth)
    summary = StreamSummary(levels, counts_of(shape))
    first, last = -(2**63), 2**63 - 1
    events: list[Event] = [(first, 1, True), (first, 1, False), (first + 1, 1, True), (first + 1, 1, False)]
    events += [(0, 1, True), (0, 1, False), (last - 1, 1, True), (last, 1, True), (last, 1, False)]
    rows = answers(summary, events)
    assert [row[4] for row in rows if row[0] == 1] == [1]
    assert summary.arrived == 5
    assert rows[-1][2] <= 5 and {row[0] for row in rows} == {1, 3, 5, 8}
    assert summary.levels.granularities(np.array([first, last]), last)[1] == 1


def test_no_more_elements_than_a_counter_holds() -> None:
    for shape in (None, SMALL):
        levels = SummaryLevels(10, 2, 2, 1, 10, 10**9, most=3)
        summary = StreamSummary(levels, counts_of(shape))
        answers(summary, [(0, 1, True)] * 5)
        assert [tuple(zone) for zone in summary.zones()] == [(0, 3, 1, 3)]
        assert summary.arrived == 5
        answers(summary, [(10, 1, True)] * 2 + [(20, 1, True)])
        # Two zones of G2 would hold five: the newer one is dropped, its elements are beyond.
        assert [tuple(zone) for zone in summary.zones()] == [(0, 3, 2, 3), (7, 8, 1, 1)]


def test_a_summary_without_elements_and_with_nulls_only() -> None:
    for shape in (None, SMALL):
        summary = StreamSummary(levels_of(10), counts_of(shape))
        assert answers(summary, []) == [] == answers(summary, [(3, 1, False), (3, None, False)])
        answers(summary, [(4, None, True)] * 3)
        assert summary.zones() == [] and summary.arrived == 3 and summary.confidence() == 1.0
        again = StreamSummary(levels_of(10), counts_of(shape))
        again.restore(*summary.snapshot())
        assert again.arrived == 3 and answers(again, [(5, 1, True), (5, 1, False)])[0][1:3] == (3, 4)


def test_chunks_of_unchanged_zones_keep_their_numbers() -> None:
    summary = StreamSummary(levels_of(10, 2, 3), SketchCounts(SMALL))
    answers(summary, [(1, 1, True), (11, 2, True), (21, 3, True)])
    _, first = summary.snapshot()
    answers(summary, [(22, 4, True)])
    _, second = summary.snapshot()
    assert len(first) == len(second) == 3 and len(set(first) & set(second)) == 2
    assert all(first[number].equals(second[number]) for number in set(first) & set(second))
    summary.advance(31)
    _, third = summary.snapshot()
    assert set(third) <= set(second)


def test_e_is_compared_exactly() -> None:
    assert square_limit(Fraction(4), 64) == 1024
    assert square_limit(Fraction("0.1"), 100) == 1
    assert square_limit(Fraction("0.0999999999999999999"), 100) == 0


@pytest.mark.parametrize("shape", [None, CountSketchShape()])
@pytest.mark.parametrize(("per_second", "distinct"), [(20, 10), (200, 1000), (500, 100_000)])
def test_predicted_bytes_hold_when_all_granularities_are_full(
    shape: CountSketchShape | None, per_second: int, distinct: int
) -> None:
    levels = levels_of(1_000, 3, 3, error=Fraction(10**9))
    summary = StreamSummary(levels, counts_of(shape))
    count = per_second * levels.span // 1000
    draw = np.random.default_rng(1)
    yes = np.ones(count, np.bool_)
    values = draws.mixed(draw.integers(0, distinct, count).astype(np.uint64))
    summary.process(np.arange(count) * 1000 // per_second, values, yes, yes)
    predicted = predicted_bytes(levels, shape or CountSketchShape(), per_second / 1000, distinct)
    bytes_of_method = predicted.exact if shape is None else predicted.sketch
    assert bytes_of_method / 5 <= summary.nbytes <= bytes_of_method
    assert len(summary.zones()) <= predicted.zones
