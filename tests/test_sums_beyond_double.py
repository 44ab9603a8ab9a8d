"""Sums of doubles, to the last bit, that overflow, become finite again and cancel, as the oracle says."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.testing.cases import CaseRun
from tests.sums_kit import assert_as_the_oracle, bound

VALUES = (1e308, -1e308, 1.7e308, -1.7e308, 2.0**989, 0.5, -0.25, 3.0, None)
SPECIALS = (float("nan"), float("inf"), float("-inf"))
ITEMS = "SUM(x) AS s, AVG(x) AS m, SUM(x) FILTER (WHERE k > 0) AS f"
DECLARED = "CREATE STREAM S (ts INT, k INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts;"
QUERIES = {
    "standing": f"SELECT k, {ITEMS}, SUM(DISTINCT x) AS d FROM S [RANGE 9 SECONDS] GROUP BY k",
    "rows": f"SELECT {ITEMS} FROM S [ROWS 3]",
    "unbounded": f"SELECT k, {ITEMS} FROM S GROUP BY k",
    "boundaries": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "one pane of two": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 8 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "the other": f"RSTREAM(SELECT k, {ITEMS} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "at once": "RSTREAM(SELECT k, SUM(DISTINCT x) AS d FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k)",
    "looked up": "SELECT n.k, a.s FROM S [NOW] AS n, (SELECT k, SUM(x) AS s FROM S [RANGE 5 SECONDS] GROUP BY k) AS a "
    "WHERE n.k = a.k",
    "sequence": f"SELECT {ITEMS} FROM S [RANGE 6 TUPLES, FREQUENCY 2 TUPLES]",
    "taken back": "SELECT COUNT(*) AS n, SUM(s) AS s "
    "FROM (SELECT k, SUM(x) AS s FROM S [RANGE 5 SECONDS] GROUP BY k) AS u",
}
RUNS = (CaseRun(), CaseRun(batch_rows=7, reload=True), CaseRun(3, seed=5, batch_rows=40))


def rows(seed: int, values: tuple[float | None, ...], size: int = 90) -> pa.Table:
    draw = random.Random(seed)
    ts = sorted(draw.randint(0, 60) for _ in range(size))
    columns = {"k": [draw.choice((0, 1)) for _ in ts], "x": [draw.choice(values) for _ in ts]}
    kinds = {"ts": pa.int32(), "k": pa.int32(), "x": pa.float64()}
    return pa.table({n: pa.array(c, kinds[n]) for n, c in {"ts": ts, **columns}.items()})


@pytest.mark.spread(2)
@pytest.mark.parametrize("seed", range(4))
def test_every_way_of_summing_is_the_exact_sum_rounded(seed: int) -> None:
    values = VALUES + (SPECIALS if seed % 2 else ())
    assert_as_the_oracle(bound(DECLARED, QUERIES), rows(seed, values), RUNS, 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_variances_of_huge_values(seed: int) -> None:
    """Values whose squares overflow, beside ordinary ones, which are as exact as ever when the others are gone."""
    items = "VARIANCE(x) AS v, STDDEV(x) AS d, VAR_POP(x) AS w, STDDEV_POP(x) AS e, SUM(x) AS s"
    texts = {
        "standing": f"SELECT k, {items} FROM S [RANGE 3 SECONDS] GROUP BY k",
        "rows": f"SELECT {items} FROM S [ROWS 2]",
        "boundaries": f"RSTREAM(SELECT k, {items} FROM S [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    }
    assert_as_the_oracle(bound(DECLARED, texts), rows(seed, (1e308, -1e308, 1e308, 1.0, 2.5, None)), RUNS)
