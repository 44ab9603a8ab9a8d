"""WITH PREFERENCE on the local runtime: what a budget covers is the plain query, what it does not cover waits."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.thresholds import lowered, small

CASE = """
statement
{before}
CREATE STREAM A (ts INT, k INT, amount INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts INT, k INT, weight DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
{summaries}
CREATE QUERY q AS {query};

input A
{a}

input B
{b}
"""
JOIN = "SELECT A.k, A.amount, B.weight FROM A [RANGE 20 SECONDS] AS A, B [RANGE 9 SECONDS] AS B WHERE A.k = B.k"
SELECTION = "SELECT k, amount FROM A [RANGE 20 SECONDS] WHERE amount > 10"
SUMMARIES = """
CREATE SUMMARY a_keys ON A (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3) USING EXACT;
CREATE SUMMARY b_keys ON B (k) WITH GRANULARITY 5 SECONDS AND COLLAPSE (2, 2) USING EXACT;
"""


def answer(
    query: str,
    seed: int = 0,
    cut: int | None = None,
    shards: int = 1,
    reload: bool = False,
    summaries: str = "",
    before: str = "",
    drain: bool = True,
    rows: int = 60,
) -> pa.Table:
    """Return the answer in one order: rows of an instant have none."""
    table = run(query, seed, cut, shards, reload, summaries, before, drain, rows).tables["q"]
    return table.sort_by([(name, "ascending") for name in table.schema.names]).combine_chunks()


def bound_case(query: str, seed: int, summaries: str, before: str, rows: int) -> tuple[Query, dict[str, pa.Table]]:
    rng = random.Random(seed)

    def lines(value: Callable[[], object]) -> str:
        now, made = rng.randrange(5), []
        for _ in range(rows):
            now += rng.choice([0, 0, 1, 1, 3])
            key = rng.choice(["0", "0", "1", "2", "NULL"])
            made.append(f"{now}, {key}, {value()}")
        return "\n".join(made)

    text = CASE.format(
        query=query,
        summaries=summaries,
        before=before,
        a=lines(lambda: rng.randrange(40)),
        b=lines(lambda: rng.choice(["1.5", "2.0", "-1.0", "NULL", "0.25"])),
    )
    case = parse_case(text)
    bound = bind_script(case.script)
    return bound.queries[0], dict(case_inputs(case, bound))


def run(
    query: str,
    seed: int = 0,
    cut: int | None = None,
    shards: int = 1,
    reload: bool = False,
    summaries: str = "",
    before: str = "",
    drain: bool = True,
    rows: int = 60,
) -> LocalResult:
    bound, inputs = bound_case(query, seed, summaries, before, rows)
    return run_local([bound], inputs, shards, drain, cut, reload=reload)


PREFERENCES = [
    "WITH PREFERENCE A.amount {budget}",
    "WITH PREFERENCE ASC A.amount FADE FACTOR 0.5 PER 3 SECONDS {budget}",
    "WITH PREFERENCE WEIGHTED A.amount {budget}",
    "WITH PREFERENCE DESC B.weight, A.amount FADE FACTOR 80 PERCENT PER 4 SECONDS {budget}",
    "WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(A.k), SUMMARY.Estimate.Count(B.k) FADE FACTOR 0.5 {budget}",
    "WITH PREFERENCE ASC SUMMARY.Estimate.Share(A.k), SUMMARY.Estimate.Count(B.k) {budget}",
]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("preference", PREFERENCES)
def test_a_budget_that_covers_all_work_changes_no_byte(preference: str, shards: int) -> None:
    plain = answer(JOIN)
    preferred = answer(
        f"{JOIN} {preference.format(budget='BUDGET 100000 PER TUPLE')}", cut=3, shards=shards, summaries=SUMMARIES
    )
    assert len(plain) > 100
    assert preferred.equals(plain)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "budget", ["BUDGET 1 PER TUPLE", "BUDGET 3 PER TUPLE", "BUDGET 2 PER SECOND", "BUDGET 3 PER 2 SECONDS"]
)
@pytest.mark.parametrize("preference", PREFERENCES)
def test_cuts_and_restarts_do_not_change_what_comes_first(preference: str, budget: str) -> None:
    query = f"{JOIN} {preference.format(budget=budget)}"
    whole = answer(query, summaries=SUMMARIES)
    assert 0 < len(whole) < len(answer(JOIN))
    for cut in (1, 2, 3):
        assert answer(query, cut=cut, reload=cut > 1, summaries=SUMMARIES).equals(whole)


@pytest.mark.parametrize("budget", ["BUDGET 1 PER TUPLE", "BUDGET 1 PER 2 SECONDS"])
def test_a_selection_waits_as_well(budget: str) -> None:
    plain = answer(SELECTION)
    assert answer(f"{SELECTION} WITH PREFERENCE amount BUDGET 1 PER TUPLE", cut=1).equals(plain)
    query = f"{SELECTION} WITH PREFERENCE amount {budget}"
    whole = answer(query)
    assert answer(query, cut=2, reload=True).equals(whole)
    if "SECONDS" in budget:
        assert 0 < len(whole) < len(plain)


WINDOWS = ["RANGE 20 SECONDS", "RANGE 3 SECONDS", "RANGE UNBOUNDED", "NOW"]
ORDERS = ["ASC ", "DESC ", "WEIGHTED "]
OWN = ["A.amount", "B.weight", "A.amount + B.weight", "A.amount - 20", "A.amount, A.k", "1 / (A.amount - 10)"]
ESTIMATES = ["SUMMARY.Estimate.Count(A.k)", "SUMMARY.Estimate.Share(B.k)", "b_keys.Estimate.Count(B.k) * A.amount"]
BUDGETS = [
    "1 PER TUPLE", "2 PER TUPLE", "15 PER TUPLE", "1 PER SECOND", "5 PER 3 SECONDS", "7 PER MINUTE", "1 PER 2 SECONDS",
    "AUTO",
]  # fmt: skip


def random_query(rng: random.Random) -> tuple[str, str, str]:
    """Return (query, summaries, settings)."""
    order, budget = rng.choice(ORDERS), rng.choice(BUDGETS)
    fade = rng.choice(["", " FADE FACTOR 0.7 PER 4 SECONDS", " FADE FACTOR 50 PERCENT PER 1 MINUTE"])
    before = rng.choice(["", "SET preference_queue = 3;", "SET preference_queue = 15;", "SET seed = 7;"])
    if budget == "AUTO":
        # Nothing decides here, so each round grants all work.
        before += "SET target_latency = '1 s';"
    if rng.random() < 0.25:
        query = f"SELECT k, amount FROM A [{rng.choice(WINDOWS)}] AS A WHERE amount > 10 AND k < 2"
        return f"{query} WITH PREFERENCE {order}amount{fade} BUDGET {budget}", "", before
    method = rng.choice(["EXACT", "COUNTSKETCH (rows '3', counters '4', buckets '2', error '1')"])
    summaries = SUMMARIES.replace("EXACT", method) if rng.random() < 0.5 else ""
    own = rng.sample(OWN, rng.choice([1, 1, 2]))
    if summaries:
        own = rng.sample([*ESTIMATES, *OWN], rng.choice([1, 2, 3]))
        if any("Estimate" in one for one in own):
            fade = rng.choice([fade, " FADE FACTOR 0.6"])
    residual = rng.choice(["", " AND A.amount > B.weight * 4"])
    windows = ["RANGE UNBOUNDED"] * 2 if rng.random() < 0.2 else [rng.choice(WINDOWS) for _ in range(2)]
    query = f"SELECT A.k, amount, weight FROM A [{windows[0]}] AS A, B [{windows[1]}] AS B WHERE A.k = B.k{residual}"
    return f"{query} WITH PREFERENCE {order}{', '.join(own)}{fade} BUDGET {budget}", summaries, before


@pytest.mark.spread(6)
@pytest.mark.parametrize("seed", range(120))
def test_the_runtime_does_what_the_simulation_does_unit_by_unit(seed: int) -> None:
    rng = random.Random(seed)
    text, summaries, before = random_query(rng)
    query, inputs = bound_case(text, seed, summaries, before, rng.choice([0, 1, 10, 40]))
    drain = rng.random() < 0.5
    wanted = run_oracle(query, inputs, drain)
    for cut in (None, rng.randrange(1000)):
        with lowered(small(seed) if cut is not None else {}):
            assert_same(query, run_local([query], inputs, 1, drain, cut, reload=cut is not None).tables["q"], wanted)


CLAUSE = "WITH PREFERENCE DESC amount BUDGET 1 PER 2 SECONDS"
OF_A = f"FROM A [RANGE 9 SECONDS] {CLAUSE}"
#: What may stand above, and a summary in another order of its columns, or of a stream that is a view.
ABOVE = [
    f"SELECT k, COUNT(*) AS n, AVG(amount) AS mean FROM A [RANGE 9 SECONDS] GROUP BY k HAVING COUNT(*) > 1 {CLAUSE}",
    f"SELECT DISTINCT k {OF_A}",
    f"ISTREAM(SELECT k, amount {OF_A})",
    f"DSTREAM(SELECT k, amount {OF_A})",
    f"RSTREAM(SELECT SUM(amount) AS total {OF_A})",
    f"WSTREAM(SELECT k, amount {OF_A})[ROWS 3]",
    f"SELECT k, amount FROM (SELECT k, amount {OF_A}) AS a ORDER BY amount LIMIT 2",
    f"SELECT MEDIAN(amount) AS m {OF_A.replace('DESC', 'WEIGHTED')}",
    "SELECT k FROM A [RANGE 9 SECONDS] WITH PREFERENCE SUMMARY.Estimate.Count(amount, k) BUDGET 1 PER 2 SECONDS",
    "SELECT k FROM even [RANGE 9 SECONDS] WITH PREFERENCE SUMMARY.Estimate.Count(k) BUDGET 1 PER 2 SECONDS",
]
DECLARED = """
CREATE SUMMARY both ON A (k, amount) WITH GRANULARITY 4 SECONDS USING EXACT;
CREATE VIEW even AS SELECT k, amount FROM A WHERE amount % 2 = 0;
CREATE SUMMARY of_view ON even (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3);
"""


@pytest.mark.parametrize("query", ABOVE)
def test_what_stands_above_reads_the_results_that_are_there(query: str) -> None:
    bound, inputs = bound_case(query, 8, DECLARED, "", 40)
    wanted = run_oracle(bound, inputs, True)
    assert wanted.events
    for cut in (None, 3):
        assert_same(bound, run_local([bound], inputs, 1, True, cut, reload=cut is not None).tables["q"], wanted)


def test_the_best_of_an_instant_come_in_the_order_of_their_priorities() -> None:
    """DESC by an exact summary: with nothing else to do, a unit a second goes through the rows of one instant by how
    often their key occurred in its zone, older rows first among equals."""
    keys = [1, 2, 2, 3, 3, 3, 1, 3]
    table = pa.table({"ts": pa.array([5] * len(keys), pa.int32()), "k": pa.array(keys, pa.int32()),
                      "amount": pa.array(range(len(keys)), pa.int32())})  # fmt: skip
    query = "SELECT k, amount FROM A [RANGE 20 SECONDS] WITH PREFERENCE SUMMARY.Estimate.Count(k) BUDGET 1 PER SECOND"
    bound, inputs = bound_case(query, 0, SUMMARIES, "", 0)
    out = run_local([bound], {**inputs, "A": table}, 1, True).tables["q"]
    found = sorted((row["ts"], row["amount"]) for row in out.to_pylist() if row["op"] == "+")
    often = {key: keys.count(key) for key in keys}
    wanted = sorted(range(len(keys)), key=lambda n: (-often[keys[n]], n))
    assert [amount for _, amount in found] == wanted and [ts for ts, _ in found] == list(range(5, 5 + len(keys)))


def test_a_summary_more_or_less_changes_no_other_query() -> None:
    query = f"{JOIN} {PREFERENCES[4].format(budget='BUDGET 2 PER TUPLE')}"
    more = "CREATE SUMMARY more ON A (amount); CREATE SUMMARY again ON B (k, weight) USING EXACT;"
    assert answer(query, summaries=SUMMARIES).equals(answer(query, summaries=SUMMARIES + more))


@pytest.mark.parametrize("reload", [False, True])
def test_a_full_queue_is_warned_of_once(reload: bool, caplog: pytest.LogCaptureFixture) -> None:
    query = f"{JOIN} WITH PREFERENCE A.amount BUDGET 1 PER 9 SECONDS"
    with caplog.at_level(logging.WARNING, "penstock"):
        run(query, cut=1, reload=reload, before="SET preference_queue = 3;")
    found = [record.getMessage() for record in caplog.records if "drops entries" in record.getMessage()]
    assert found == ["q drops entries: more than 3 wait (SET preference_queue)"]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        run(query, cut=1, reload=reload)
    assert not [record for record in caplog.records if "drops entries" in record.getMessage()]
