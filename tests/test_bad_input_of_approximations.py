"""Approximate answers that are refused: every code, at the place of the mistake, with a hint."""

from __future__ import annotations

import pytest

from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script

DECLARED = (
    "CREATE STREAM s (ts INT, k INT, x DOUBLE, t STRING, h BINARY) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    "CREATE RELATION r (op STRING, k INT, ts INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;\n"
)
PANES = "FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]"
GROUPED = "(SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k) v"
LISTS = f"(SELECT TOP_K(k, 3) AS e {PANES}) v"

REFUSED = {
    # P0352: rows that may be retracted
    f"SELECT APPROX_PERCENTILE(n, 0.5) AS a FROM {GROUPED}": "P0352",
    f"SELECT APPROX_TOP_K(n, 3) AS a FROM {GROUPED}": "P0352",
    f"SELECT n FROM {GROUPED} GROUP BY n FREQUENT 3": "P0352",
    "SELECT k FROM r GROUP BY k FREQUENT 3": "P0352",
    "SELECT APPROX_TOP_K(k, 3) AS a FROM r": "P0352",
    "SELECT k FROM s [ROWS 5 SLIDE 2 ROWS] GROUP BY k FREQUENT 3": "P0352",
    "SELECT APPROX_PERCENTILE(x, 0.5) AS a FROM s [ROWS 5 SLIDE 2 ROWS]": "P0352",
    "SELECT APPROX_TOP_K(k, 3) AS a FROM s [PARTITION BY k ROWS 2]": "P0352",
    # P0353: no panes
    "SELECT k FROM s [RANGE 4 SECONDS] GROUP BY k FREQUENT 3": "P0353",
    "SELECT k FROM s [ROWS 5] GROUP BY k FREQUENT 3": "P0353",
    "SELECT k FROM s GROUP BY k FREQUENT 3": "P0353",
    "SELECT APPROX_TOP_K(k, 3) AS a FROM s [RANGE 4 SECONDS]": "P0353",
    "SELECT APPROX_PERCENTILE(x, 0.5) AS a FROM s": "P0353",
    # P0355: exact, not sampled, or without a formula
    f"SELECT LOWER_BOUND(COUNT(*)) AS a {PANES}": "P0355",
    f"SELECT UPPER_BOUND(SUM(x)) AS a {PANES}": "P0355",
    f"SELECT ERROR_BOUND(APPROX_TOP_K(k, 3)) AS a {PANES}": "P0355",
    f"SELECT LOWER_BOUND(x) AS a {PANES}": "P0355",
    f"SELECT MISSED_BOUND() AS a {PANES}": "P0355",
    f"SELECT ESTIMATE(COUNT(*)) AS a {PANES}": "P0355",
    "SELECT ESTIMATE(MAX(x)) AS a FROM s SAMPLE(10)": "P0355",
    "SELECT ESTIMATE(COUNT(DISTINCT k)) AS a FROM s SAMPLE(10)": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS a FROM s SAMPLE(10) [ROWS 5]": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS a FROM s SAMPLE(10) p, s SAMPLE(10) q WHERE p.k = q.k": "P0355",
    "SELECT ESTIMATE(COUNT(*)) AS a FROM s SAMPLE(10) p LEFT JOIN r ON p.k = r.k": "P0355",
    "SELECT ESTIMATE(SUM(h)) AS a FROM s SAMPLE(10)": "P0203",
    # P0356: what FREQUENT does not keep
    f"SELECT k, AVG(x) AS a {PANES} GROUP BY k FREQUENT 3": "P0356",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 BY AVG(x)": "P0356",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 BY COUNT(DISTINCT x)": "P0356",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 HAVING COUNT(x) > 1": "P0356",
    # ranges of parameters
    f"SELECT k {PANES} GROUP BY k FREQUENT 0": "P0203",
    f"SELECT k {PANES} GROUP BY k FREQUENT 99999999999": "P0203",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 BY SUM(x)": "P0203",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 ABOVE 0": "P0203",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 ABOVE 0.0000000001": "P0203",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 PER (k)": "P0304",
    f"SELECT k {PANES} GROUP BY k FREQUENT 3 PER (t)": "P0304",
    f"SELECT k, LOWER_BOUND(COUNT(*), 0.9) AS a {PANES} GROUP BY k FREQUENT 3": "P0204",
    f"SELECT APPROX_TOP_K(k) AS a {PANES}": "P0204",
    f"SELECT APPROX_TOP_K(k, 0) AS a {PANES}": "P0203",
    f"SELECT APPROX_TOP_K(k, 5, 4) AS a {PANES}": "P0203",
    f"SELECT APPROX_TOP_K(k, k) AS a {PANES}": "P0203",
    f"SELECT APPROX_TOP_K(DISTINCT k, 2) AS a {PANES}": "P0304",
    f"SELECT APPROX_QUANTILE(x, 1.2) AS a {PANES}": "P0203",
    f"SELECT APPROX_QUANTILE(t, 0.5) AS a {PANES}": "P0203",
    "SELECT APPROX_QUANTILE(h, 0.5) AS a FROM s": "P0203",
    f"SELECT APPROX_QUANTILE(x, 0.5, x) AS a {PANES}": "P0203",
    f"SELECT APPROX_QUANTILE(x, ARRAY(0.5, 0.9)) AS a {PANES}": "P0901",
    f"SELECT APPROX_PERCENTILE(e, 0.5) AS a FROM {LISTS}": "P0203",
    f"SELECT APPROX_COUNT_DISTINCT(e) AS a FROM {LISTS}": "P0203",
    f"SELECT APPROX_COUNT_DISTINCT(*) AS a {PANES}": "P0304",
    "SELECT k FROM s SAMPLE(0 ROWS)": "P0203",
    "SELECT k FROM s SAMPLE(99999999999 ROWS)": "P0203",
    "SELECT k FROM s SAMPLE(3 ROWS WEIGHT h)": "P0203",
    "SELECT k FROM s SAMPLE(101)": "P0102",
    "SELECT k FROM s SAMPLE(10 BY nothing)": "P0202",
    "SELECT k FROM r SAMPLE(10)": "P0103",
    "SELECT k FROM s WHERE ESTIMATE(COUNT(*)) > 1": "P0304",
    "SELECT SUM(ESTIMATE(COUNT(*))) AS a FROM s SAMPLE(10)": "P0304",
    "SELECT ESTIMATE(COUNT(*), 3) AS a FROM s SAMPLE(10)": "P0204",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 5, 5) AS a FROM s SAMPLE(10)": "P0203",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 5) AS a FROM s SAMPLE(10)": "P0204",
    "SELECT LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 'a', 5) AS a FROM s SAMPLE(10)": "P0203",
    # images that are cut off, of another version, or none
    "SELECT HLL_SKETCH_ESTIMATE(X'') AS a FROM s": "P0203",
    "SELECT HLL_SKETCH_ESTIMATE(X'0a02070c00000000') AS a FROM s": "P0203",
    "SELECT HLL_SKETCH_ESTIMATE(k) AS a FROM s": "P0203",
    "SELECT HLL_UNION_AGG(k) AS a FROM s [NOW]": "P0203",
    "SELECT HLL_SKETCH_ESTIMATE(t) AS a FROM s": "P0203",
    "SELECT HLL_UNION_AGG(t) AS a FROM s [NOW]": "P0203",
    "SELECT COUNT_MIN_ESTIMATE(t, k) AS a FROM s": "P0203",
    "SELECT COUNT_MIN_ESTIMATE(X'00000002000000000000000000000001000000010000000000000001', 1) AS a FROM s": "P0203",
    "SELECT COUNT_MIN_ESTIMATE(X'000000010000000000000000000000010000000100', 1) AS a FROM s": "P0203",
    "SELECT COUNT_MIN_ERROR(X'') AS a FROM s": "P0203",
    "SELECT COUNT_MIN_ERROR(k) AS a FROM s": "P0203",
}


def test_what_stands_between_is_said_in_words_of_the_language() -> None:
    between = {
        "s SAMPLE(10) [ROWS 5]": "[ROWS n]",
        "(SELECT k, COUNT(*) AS n FROM s SAMPLE(10) GROUP BY k) v": "GROUP BY or an aggregate",
        "(SELECT DISTINCT k FROM s SAMPLE(10) [NOW]) v": "DISTINCT",
        "(SELECT k FROM s SAMPLE(10) [NOW] UNION ALL SELECT k FROM s [NOW]) v": "UNION ALL",
        "s SAMPLE(10) p LEFT JOIN r ON p.k = r.k": "an outer join",
        "s SAMPLE(10) [NOW] WHERE k IN (SELECT k FROM r)": "IN or EXISTS",
    }
    for source, words in between.items():
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"{DECLARED}CREATE QUERY q AS SELECT ESTIMATE(COUNT(*)) AS a FROM {source};")
        assert caught.value.errors[0].message == f"ESTIMATE through {words} of a sample", source


def test_an_element_of_what_a_function_of_others_returns_has_the_hint_of_the_function() -> None:
    for asked in ("APPROX_QUANTILES(x, 4)[OFFSET(2)]", "approx_quantiles(abs(x + (1)), 4)[1]"):
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"{DECLARED}CREATE QUERY q AS SELECT {asked} AS a {PANES};")
        (error,) = caught.value.errors
        assert error.code == "P0101" and error.hint is not None and error.hint.startswith("APPROX_QUANTILE(")


@pytest.mark.parametrize("text", REFUSED)
def test_refused_at_its_place_with_a_hint(text: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{DECLARED}CREATE QUERY q AS {text};")
    (error,) = caught.value.errors
    assert error.code == REFUSED[text]
    assert error.position is not None and error.position.line == 2
    assert error.hint
