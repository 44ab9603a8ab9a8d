"""Variances when much larger values have come and gone: those of the present content, as exact arithmetic has them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expressions.aggregates import variance
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, add_row, distil
from penstock.expressions.aggregates.accumulators.squares import SQUARES
from penstock.expressions.aggregates.accumulators.total import TOTAL
from penstock.expressions.aggregates.contract import ArgumentSums
from penstock.testing.cases import CaseRun
from tests.sums_kit import assert_as_the_oracle, bound, spread_over

DECLARED = "CREATE STREAM S (ts INT, k INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts;"
ITEMS = "VAR_POP(x) AS v, VARIANCE(x) AS w, STDDEV(x) AS d, STDDEV_POP(x) AS e"
QUERIES = {
    "rows": f"SELECT {ITEMS} FROM S [ROWS 2]",
    "sliding": f"SELECT k, {ITEMS} FROM S [RANGE 2 SECONDS] GROUP BY k",
    "panes": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "beside a sum": f"SELECT {ITEMS}, AVG(k) AS m FROM S [RANGE 2 SECONDS]",
    "distinct": "SELECT VAR_POP(DISTINCT x) AS v FROM S [RANGE 3 SECONDS]",
    "looked up": "SELECT n.k, a.v FROM S [NOW] AS n, "
    "(SELECT k, VAR_POP(x) AS v FROM S [RANGE 2 SECONDS] GROUP BY k) AS a WHERE n.k = a.k",
    "deletions": f"DSTREAM(SELECT k, {ITEMS} FROM S [RANGE 2 SECONDS] GROUP BY k)",
    "retraction": "SELECT VAR_POP(x) AS v, STDDEV(x) AS d "
    "FROM (SELECT k, MAX(x) AS x FROM S [RANGE 2 SECONDS] GROUP BY k) AS u",
    "multiplied": "SELECT VAR_POP(x) AS v FROM (SELECT x FROM S [RANGE 2 SECONDS] UNION ALL "
    "SELECT x FROM S [RANGE 2 SECONDS] UNION ALL SELECT x FROM S [RANGE 2 SECONDS]) AS u",
}
RUNS = (CaseRun(), CaseRun(batch_rows=3, reload=True), CaseRun(3, seed=5, batch_rows=4))
#: Values, the first of which are much larger than the last, which are alike or nearly so.
GLITCHES = (
    (1e160, 1e153, 1e153, 1e153, 1e153, 1.5e153, 1.5e153, 1.5e153),
    (1e9, 0.1, 0.1, 0.1, 0.3, 0.2, 0.1, 0.1, 0.1),
    (-3e9, 0.7, 0.7, 0.7, 0.1, 1e10, 0.7, 0.7, 0.7, 0.7),
    (1e308, -1e308, 1e308, 1e308, 1e300, 1e300, 1e300, 3e299),
    (1e-150, 1e-160, 1e-160, 1e-160, 3e-150, 3e-150, 3e-155, 3e-155, 3e-155),
)


@pytest.mark.spread(2)
@pytest.mark.parametrize("values", GLITCHES)
def test_every_way_forgets_larger_values(values: Sequence[float]) -> None:
    queries = bound(DECLARED, QUERIES)
    for keys in (1, 2):
        assert_as_the_oracle(queries, spread_over(values, keys, 2), RUNS, 1e-13)


# -- the sums themselves -----------------------------------------------------------------------------------------------


class Sums:
    """The lanes of one group, to which values come and from which they go."""

    def __init__(self) -> None:
        self.count = 0
        self.integers = np.zeros((3, 1), np.int64)
        self.floats = np.zeros((3 * WIDTH, 1))

    def change(self, value: float, sign: int) -> None:
        column, once = pa.array([value], pa.float64()), np.ones(1, np.int64)
        integers, total = TOTAL.lanes(column, once)
        _, squares = SQUARES.lanes(column, once)
        row = np.array([lane[0] for lane in (*total, *squares)]).reshape(1, -1)
        self.count += sign
        self.integers[:, 0] += [sign * lane[0] for lane in integers]
        for first in range(0, 3 * WIDTH, WIDTH):
            add_row(self.floats.T, 0, first, first + WIDTH, row, 0, sign)

    def variance(self) -> float:
        parts = {TOTAL: (self.integers, self.floats[:WIDTH]), SQUARES: (self.integers[:0], self.floats[WIDTH:])}
        sums = ArgumentSums(pa.float64(), np.array([self.count]), parts)
        return float(variance._variances(sums, np.array([float(self.count)]))[0])


def content(draw: random.Random, scales: tuple[int, int], steps: int) -> Iterator[tuple[Sums, list[float]]]:
    """Yield a group's sums and its values, which come and go at random."""
    sums, present = Sums(), list[float]()
    for _ in range(steps):
        if present and draw.random() < 0.5:
            sums.change(present.pop(draw.randrange(len(present))), -1)
        else:
            same = present and draw.random() < 0.4
            new = draw.uniform(-10, 10) * 10.0 ** draw.randint(*scales)
            present.append(draw.choice(present) if same else new)
            sums.change(present[-1], 1)
        if not present:
            sums = Sums()  # as operators do with the sums of no terms
        else:
            yield sums, present


def exact(values: list[float]) -> float:
    whole = [Fraction(value) for value in values]
    mean = sum(whole, Fraction(0)) / len(whole)
    spread = sum(((value - mean) ** 2 for value in whole), Fraction(0)) / len(whole)
    try:
        return float(spread)
    except OverflowError:
        return math.inf


def assert_near(found: float, expected: float, error: float) -> None:
    """Assert that two variances differ by a few units in the last place and by the `error`, which is absolute."""
    if math.isinf(expected) or math.isinf(found):
        assert found == expected or min(found, expected) > 1.797e308
    else:
        assert abs(found - expected) <= 4 * math.ulp(expected) * (expected > 0) + error, (found, expected)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([-290, -160, -100, -20, 0, 40, 110, 119, 150, 290]))
def test_values_within_a_factor_of_ten_to_the_ten_leave_nothing(seed: int, scale: int) -> None:
    """Also where they are so small or large that their squares are not doubles: with no error but of the last bits."""
    for sums, present in content(random.Random(seed), (scale, scale + 9), 60):
        assert_near(sums.variance(), exact(present), 0.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_values_of_all_scales_leave_what_the_pages_say(seed: int) -> None:
    """The sum may be off by 1e-30 of the largest value since the group was empty, and the squares by 1e-60 of its
    square."""
    largest = Fraction(0)
    for sums, present in content(random.Random(seed), (-300, 299), 60):
        largest = max(largest, *(abs(Fraction(value)) for value in present))
        mean = abs(sum(map(Fraction, present), Fraction(0)) / len(present))
        off = largest / 10**30
        try:
            error = float(2 * mean * off + off * off)
        except OverflowError:
            continue
        assert_near(sums.variance(), exact(present), error)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64).map(lambda v: v / 2**20), max_size=9))
def test_distilled_terms_have_the_same_sum(values: list[float]) -> None:
    terms = np.array([*values, 0.0])
    count = distil(terms, len(values))
    left = [Fraction(v) for v in terms[:count].tolist()]
    assert sum(left) == sum(map(Fraction, values))
    assert all(abs(one) < abs(other) for one, other in itertools.pairwise(left)) and 0 not in left
    if left:
        assert abs(sum(left) - left[-1]) < Fraction(math.ulp(float(left[-1])))
