"""What negation is expected to give, what plans are expected to cost, and the choices that follow and are told."""

from __future__ import annotations

import json
import math

import pytest

from penstock.algebra import Algebra, Join, Scan, SemiJoin, leaves
from penstock.algebra.optimizer.cost import cost, plan_cost
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.optimizer import Planning, TraceStep, optimize
from penstock.algebra.properties.statistics import HORIZON, SourceStatistics, Statistics, known_statistics
from penstock.language.scripts import bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.session import Session
from penstock.tree import walk

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;\n" for name in "STN"
)
NEGATED = "SELECT * FROM S [RANGE 10 SECONDS] WHERE NOT EXISTS (SELECT * FROM N [RANGE 5 SECONDS] WHERE N.k = S.k)"
#: Golab's Query 4, negation above the join.
QUERY = (
    "SELECT S.v, T.v AS u FROM S [RANGE 100 SECONDS], T [RANGE 100 SECONDS] WHERE S.k = T.k "
    "AND NOT EXISTS (SELECT * FROM N [RANGE 100 SECONDS] WHERE N.k = S.k)"
)
#: Sparse keys, so that the join makes little of much; and few, so that it makes much.
SPARSE, DENSE = "S(k 100000), T(k 100000), N(k 100000)", "S(k 10), T(k 10), N(k 10)"


def bound(query: str) -> Algebra:
    return bind_script(f"{STREAMS} CREATE QUERY q AS {query};").queries[0].root


def hinted(text: str) -> Statistics:
    session = Session()
    session.execute(f"SET statistics = '{text}';")
    return Statistics().updated(session.settings["statistics"])


def explained(query: str, setting: str, format_: str) -> str:
    session = Session()
    session.execute(f"{STREAMS} {setting}")
    return session.query(query).explain(format_)


def test_negation_gives_the_lone_tuples_and_takes_back_those_that_find_partners() -> None:
    known = Statistics({"s": SourceStatistics(10.0, {"k": 50.0}), "n": SourceStatistics(4.0, {"k": 50.0})})
    root = bound(NEGATED)
    (negation,) = (node for node in walk(root) if isinstance(node, SemiJoin))
    found = estimate(negation, known)
    lone = math.exp(-20 / 50)  # 20 tuples of N over 50 keys
    turns = 100 * 4 / 50 * lone  # each of 100 tuples of S meets 4/50 of N a second
    assert found.size == pytest.approx(100 * lone)
    assert found.taken == pytest.approx(turns)
    assert found.emitted == pytest.approx(10 * lone + 2 * turns)


def test_a_negative_tuple_costs_what_a_tuple_does() -> None:
    """A join over what takes tuples back handles more than one over as many tuples whose ends are known."""
    join = next(
        n for n in walk(bound("SELECT 1 FROM S [ROWS 20], T [RANGE 20 SECONDS] WHERE S.k = T.k")) if isinstance(n, Join)
    )
    plain = next(
        n
        for n in walk(bound("SELECT 1 FROM S [RANGE 20 SECONDS], T [RANGE 20 SECONDS] WHERE S.k = T.k"))
        if isinstance(n, Join)
    )
    known = hinted("S(k 1000), T(k 1000)")
    assert estimate(join, known).rate == pytest.approx(estimate(plain, known).rate)
    more = estimate(join, known)
    assert more.taken == pytest.approx(more.rate / 2)  # of the side that counts rows
    assert cost(join, known) == pytest.approx(cost(plain, known) + 2 * 1.0 + more.taken)


def test_a_shared_subplan_costs_once() -> None:
    root = bound("SELECT a.v FROM S [RANGE 20 SECONDS] AS a, S [RANGE 20 SECONDS] AS b WHERE a.v < 3 AND b.v < 3")
    single = [n for n in walk(root) if isinstance(n, Algebra)]
    assert len({n.fingerprint for n in single}) < len(single)
    assert plan_cost(root, Statistics()) == sum(cost(n, Statistics()) for n in set(single))


def test_rows_of_a_table_are_its_size() -> None:
    script = "CREATE RELATION R (k INT, v INT, PRIMARY KEY (k)) FROM MEMORY (); CREATE QUERY q AS SELECT k FROM R;"
    (query,) = bind_script(script).queries
    (scan,) = (leaf for leaf in leaves(query.root) if isinstance(leaf, Scan))
    known = known_statistics({"R": scan.source}, {"r": [(i, 0) for i in range(36)]}, {}, ())
    assert known.sources["r"].rate * HORIZON == pytest.approx(36)
    assert estimate(scan, known).size == pytest.approx(36)
    assert estimate(scan, Statistics()).distinct[0] == pytest.approx(HORIZON)  # unknown, but a key


@pytest.mark.parametrize(("statistics", "above"), [(SPARSE, True), (DENSE, False)])
def test_negation_stands_where_it_costs_less(statistics: str, above: bool) -> None:
    known = hinted(statistics)
    trace: list[TraceStep] = []
    plan = optimize(bound(QUERY), trace, check=True, planning=Planning(known))
    (negation,) = (node for node in walk(plan) if isinstance(node, SemiJoin))
    assert any(isinstance(node, Join) for node in walk(negation)) is above
    written = optimize(bound(QUERY), planning=Planning(known, by_pattern=False))
    assert plan_cost(plan, known) <= plan_cost(written, known)
    choices = [step for step in trace if step.costs]
    assert choices
    assert all(step.taken == (step.costs[1] < step.costs[0]) for step in choices if step.costs)


def test_explain_tells_what_was_chosen_and_why() -> None:
    text = explained(QUERY, f"SET statistics = '{DENSE}';", "text")
    told = text.split("-- query: choices by cost\n")[1].split("\n\n")[0] if "-- query:" in text else text
    assert "push_negation_below_join: taken, " in told
    assert "elements/s handled instead of" in told
    choices = json.loads(explained(QUERY, f"SET statistics = '{SPARSE}';", "json"))["choices"]
    assert [c["taken"] for c in choices] == [False] * len(choices) != []
    assert all(c["cost_after"] >= c["cost_before"] for c in choices)
    assert "choices by cost" not in explained("SELECT k FROM S [NOW]", "", "text")


@pytest.mark.parametrize("strategy", [Strategy.DIRECT, Strategy.NEGATIVE])
def test_the_baselines_keep_the_plan_as_it_was_written(strategy: Strategy) -> None:
    setting = f"SET statistics = '{DENSE}'; SET state_strategy = '{strategy.value}';"
    assert json.loads(explained(QUERY, setting, "json"))["choices"] == []
    assert not strategy.planning(None).by_pattern
    assert Strategy.PATTERN.planning(None).by_pattern
