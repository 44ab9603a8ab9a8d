"""What EXPLAIN says of WITH PREFERENCE before the query runs: bytes of summaries, units of work, and the budget."""

from __future__ import annotations

import json

import pytest

from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.algebra.properties.statistics import Statistics
from penstock.physical.synopses.summaries.declared import bytes_of
from penstock.runtime.local.forecast import PreferenceForecast, WorkForecast, forecasts
from penstock.session import Session

SCRIPT = """
CREATE STREAM A (ts BIGINT, k INT, amount INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts BIGINT, k INT, weight INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION tiers (k INT, tier INT) FROM MEMORY ();
INSERT INTO tiers VALUES (1, 1), (1, 2), (2, 3), (2, 4);
CREATE SUMMARY b_keys ON B (k) USING EXACT;
CREATE SUMMARY b_sketched ON B (k) WITH GRANULARITY 5 SECONDS;
SET statistics = 'A(rate 100, k 50), B(rate 10, k 20)';
"""
JOIN = "SELECT A.k FROM A, B WHERE A.k = B.k"
SELECTION = "SELECT k FROM A [RANGE 10 SECONDS]"
LOOK_UP = "SELECT A.k FROM A [RANGE 10 SECONDS], tiers WHERE A.k = tiers.k"


def explained(query: str, before: str = "") -> tuple[list[str], dict[str, object]]:
    """Return the lines of preferences, and the same as JSON."""
    session = Session()
    session.execute(f"{SCRIPT}{before}CREATE QUERY q AS {query};")
    text = session.explain("q").split("-- q: preferences\n")[1].split("\n\n")[0].splitlines()
    (found,) = json.loads(session.explain("q", "json"))["preferences"]
    return text, found


def test_of_a_join_with_summaries() -> None:
    text, found = explained(f"{JOIN} WITH PREFERENCE b_keys.Estimate.Count(B.k) BUDGET 4 PER TUPLE WINDOW 10 SECONDS")
    definition = SummaryDefinition("b_keys", "B", ("k",), 10, maxlength=2)
    predicted = bytes_of(definition, 10 / 4, 20 / 4)
    summary = {
        "name": "b_keys", "method": "EXACT", "zones": predicted.zones, "sketch": 4 * predicted.sketch,
        "exact": 4 * predicted.exact,
    }  # fmt: skip
    assert found["summaries"] == [summary]
    assert text[0].startswith(f"summary b_keys by EXACT: at most {predicted.zones} zones in a shard; at most ")
    assert " by COUNTSKETCH, " in text[0]
    work = found["work"]
    assert isinstance(work, dict)
    # An A finds 2 of 100 rows of B, in a zone or two of its summary, beside the rest. A B finds 20 of 1,000 rows of A.
    assert 100 * (1 + 1 + 2) + 10 * (1 + 20) < work["asked"] < 100 * (1 + 2 + 2) + 10 * (1 + 20)
    assert (work["tuples"], work["granted"], work["suffices"]) == (110, 440, False)
    assert text[1].endswith("BUDGET 4 PER TUPLE grants 440 a second: it does not suffice, so entries wait")


def test_zones_divide_no_work_that_the_budget_covers() -> None:
    preference = "WITH PREFERENCE {} b_keys.Estimate.Count(B.k) BUDGET {} WINDOW 10 SECONDS"
    found = {}
    for order, budget in (
        ("DESC", "5 PER TUPLE"),
        ("DESC", "AUTO"),
        ("DESC", "600 PER SECOND"),
        ("WEIGHTED", "5 PER TUPLE"),
    ):
        select = JOIN if order == "DESC" else JOIN.replace("A.k FROM", "ESTIMATE(COUNT(*)) AS n FROM")
        _, one = explained(f"{select} {preference.format(order, budget)}", "SET target_latency = '1 SECOND';")
        assert isinstance(one["work"], dict)
        found[order, budget] = one["work"]["asked"], one["work"]["suffices"]
    covered, divided = 100 * 3 + 10 * 21, found["DESC", "600 PER SECOND"][0]
    assert found["DESC", "5 PER TUPLE"] == (pytest.approx(covered), True)
    assert found["DESC", "AUTO"] == (pytest.approx(covered), None)
    assert divided > 600 and found["DESC", "600 PER SECOND"][1] is False
    # The chances of results follow from thresholds, so all entries have a place in the queue.
    assert found["WEIGHTED", "5 PER TUPLE"] == (pytest.approx(divided), False)


@pytest.mark.parametrize(
    ("query", "asked", "units"),
    [
        (f"{JOIN} WITH PREFERENCE 1 BUDGET 1 PER TUPLE WINDOW 10 SECONDS", 100 * 3 + 10 * 21, 510 / 110),
        # An entry per row of A that a B finds, without a look-up.
        (f"{JOIN} WITH PREFERENCE A.amount BUDGET 1 PER TUPLE WINDOW 10 SECONDS", 100 * 3 + 10 * 20, 500 / 110),
        (f"{SELECTION} WITH PREFERENCE amount BUDGET 1 PER TUPLE", 100, 1),
        (f"{LOOK_UP} WITH PREFERENCE A.amount BUDGET 1 PER TUPLE", 100 * (1 + 4 / 50), 1.08),
        # An entry per row of tiers.
        (f"{LOOK_UP} WITH PREFERENCE tiers.tier BUDGET 1 PER TUPLE", 8, 0.08),
    ],
)
def test_units_that_are_asked(query: str, asked: float, units: float) -> None:
    _, found = explained(query)
    work = found["work"]
    assert isinstance(work, dict)
    assert (work["asked"], work["units_a_tuple"]) == (pytest.approx(asked), pytest.approx(units))


@pytest.mark.parametrize(
    ("budget", "granted", "verdict"),
    [
        ("1 PER TUPLE", 50, "it suffices on average"),
        ("49 PER SECOND", 49, "it does not suffice, so entries wait"),
        ("3000 PER MINUTE", 50, "it suffices on average"),
        ("100 PER 2 SECONDS", 50, "it suffices on average"),
    ],
)
def test_whether_a_budget_suffices(budget: str, granted: float, verdict: str) -> None:
    text, found = explained(f"{SELECTION} WITH PREFERENCE amount BUDGET {budget}", "SET statistics = 'A(rate 50)';")
    work = found["work"]
    assert isinstance(work, dict)
    assert (work["granted"], work["suffices"]) == (granted, verdict == "it suffices on average")
    assert text[-1].endswith(f"grants {granted} a second: {verdict}")


def test_auto_has_no_verdict() -> None:
    text, found = explained(f"{SELECTION} WITH PREFERENCE amount", "SET target_latency = '1 SECOND';")
    assert text == [
        "work: about 1 units a tuple, 100 a second; AUTO grants what is measured to fit into target_latency"
    ]
    work = found["work"]
    assert isinstance(work, dict) and work["granted"] is None and work["suffices"] is None


@pytest.mark.parametrize("preference", ["", " WITH PREFERENCE amount", " WITH PREFERENCE amount BUDGET UNLIMITED"])
def test_a_plain_plan_has_no_section(preference: str) -> None:
    session = Session()
    session.execute(f"{SCRIPT}CREATE QUERY q AS {SELECTION}{preference};")
    assert "-- q: preferences" not in session.explain("q")
    assert "preferences" not in json.loads(session.explain("q", "json"))


def test_of_joins_with_feedback_each_has_its_part_of_the_budget() -> None:
    session = Session()
    session.execute(
        f"{SCRIPT}CREATE STREAM C (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        "CREATE SUMMARY c_keys ON C (k) USING EXACT;"
        "CREATE QUERY q AS SELECT A.k FROM A, B, C WHERE A.k = B.k AND B.k = C.k"
        " WITH PREFERENCE c_keys.Estimate.Count(C.k) BUDGET 100 PER SECOND WINDOW 10 SECONDS;"
    )
    found = json.loads(session.explain("q", "json"))["preferences"]
    # The summary is in the join of A and B, which it feeds, and in that of C.
    assert [[summary["name"] for summary in one["summaries"]] for one in found] == [["c_keys"], ["c_keys"]]
    assert [one["work"]["granted"] for one in found] == [50, 50]


def test_no_work_of_no_tuples() -> None:
    work = WorkForecast("1 PER TUPLE", 0.0, 0.0, 0.0)
    assert (work.units, work.suffices) == (0.0, True)


def test_without_statistics_all_is_the_default() -> None:
    session = Session()
    session.execute(f"{SCRIPT}CREATE QUERY q AS {SELECTION} WITH PREFERENCE amount BUDGET 1 PER TUPLE;")
    (found,) = forecasts(session.catalog.queries["q"].root, Statistics())
    assert isinstance(found, PreferenceForecast)
    assert (found.summaries, found.work.asked) == ((), 1.0)


def test_analyze_shows_what_was_done_without_the_counts_by_bucket() -> None:
    session = Session()
    session.execute(
        f"{SCRIPT}INSERT INTO A VALUES (1, 1, 5), (1, 2, 7), (4, 1, 9);"
        f"CREATE QUERY q AS {SELECTION} WITH PREFERENCE DESC amount BUDGET 1 PER 2 SECONDS;"
    )
    nodes = json.loads(session.explain("q", "json", analyze=True))["physical"]["nodes"]
    (measured,) = (node["measured"] for node in nodes if node["label"] == "PreferringSelection")
    assert measured["preference_results"] == 3 and measured["preference_units_done"] == 3
    assert not [name for name in measured if "#" in name]
