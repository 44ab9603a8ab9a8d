"""Choices of a plan in place of the planner's: whatever is chosen, the answers are those of the law."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import PlanChoice, Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.plan.identity import query_fingerprint, step_keys
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.step_choices import JOIN_ORDER, OpenChoice, open_choices, order_named, order_text
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import Generation, grains_of, plan_part, plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.plan_choices import random_choices
from penstock.testing.random.worlds import FLAVOURS, random_case, seeded_choices
from penstock.testing.thresholds import lowered, small

CASES, SOAK_CASES = 3, 400
STREAMS = "".join(
    f"CREATE STREAM {name} (k INT, v INT, t INT) FROM MEMORY () TIMESTAMP BY t UNIT SECOND;" for name in "ABC"
)
THREE = f"""{STREAMS}
CREATE QUERY q AS SELECT A.v AS a, B.v AS b, C.v AS c
  FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS], C [RANGE 9 SECONDS] WHERE A.k = B.k AND B.k = C.k;"""
CHAIN = f"""{STREAMS}
CREATE QUERY q AS SELECT A.v AS a, B.v AS b, C.v AS c
  FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS], C [RANGE 9 SECONDS] WHERE A.k = B.k AND B.v = C.v;"""
PAIR = (
    f"""{STREAMS} CREATE QUERY q AS SELECT A.v AS a, B.v AS b FROM A [RANGE 9 SECONDS], B [ROWS 3] WHERE A.k = B.k;"""
)
BAND = f"""{STREAMS}
CREATE QUERY q AS SELECT A.v AS a, B.v AS b FROM A [RANGE 9 SECONDS], B [RANGE 9 SECONDS]
  WHERE A.k = B.k AND A.v BETWEEN B.v - 2 AND B.v + 2;"""


def planned(query: Query, chosen: tuple[PlanChoice, ...] = (), live: bool = False) -> Plan:
    ready = replace(query, root=optimize(query.root), choices=chosen)
    if not live:
        return plan_queries([ready])
    grains = grains_of([ready], Statistics(), Strategy.PATTERN, live=True)
    return plan_part(Generation(1, [ready], Statistics(), grains), Strategy.PATTERN).plan


def slots(plan: Plan) -> dict[tuple[str, str], OpenChoice]:
    return {(one.operator, one.attribute): one for step in plan.steps for one in open_choices(step.choices)}


def slot(plan: Plan, attribute: str) -> OpenChoice:
    return next(one for one in slots(plan).values() if one.attribute == attribute)


def rows(seed: int) -> pa.Table:
    numbers = range(60)
    return pa.table(
        {
            "k": pa.array([(n * seed) % 5 for n in numbers], pa.int32()),
            "v": pa.array([(n * 7 + seed) % 11 for n in numbers], pa.int32()),
            "t": pa.array([n // 2 for n in numbers], pa.int32()),
        }
    )


def agree(text: str, chosen: PlanChoice) -> None:
    (query,) = bind_script(text).queries
    inputs = {name: rows(seed) for name, seed in zip("ABC", (3, 4, 7), strict=True)}
    for batch_rows in (None, 7):
        found = run_local([replace(query, choices=(chosen,))], inputs, shards=2, batch_rows=batch_rows).tables["q"]
        assert_same(query, found, run_oracle(query, inputs))


# -- kinds of synopses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kinds"),
    [(PAIR, ("HashJoinIndex", "SortedRuns")), (BAND, ("HashJoinIndex", "SortedRuns", "IntervalRuns"))],
)
def test_every_kind_of_a_join_gives_the_same(text: str, kinds: tuple[str, ...]) -> None:
    (query,) = bind_script(text).queries
    for side in ("kind.left", "kind.right"):
        one = slot(planned(query), side)
        assert one.possible == kinds and not one.is_chosen
        for kind in kinds:
            chosen = PlanChoice(one.operator, side, kind)
            made = slot(planned(query, (chosen,)), side)
            assert (made.value, made.is_chosen) == (kind, True)
            agree(text, chosen)


def test_a_join_whose_store_has_another_kind_keeps_its_side_itself() -> None:
    (query,) = bind_script(PAIR.replace("[ROWS 3]", "[RANGE 9 SECONDS]")).queries
    plan = planned(query, live=True)
    assert [step.spec.title for step in plan.steps].count("WindowStore") == 2
    store = slot(plan, "kind.rows")
    chosen = PlanChoice(store.operator, "kind.rows", "runs")
    other = planned(query, (chosen,), live=True)
    assert "WindowStore" not in [step.spec.title for step in other.steps]
    # The side that takes the place of the store can be given back under its name.
    (side,) = [one for one in slots(other).values() if one.is_chosen]
    assert (side.operator, side.attribute, side.value) == (store.operator, "kind.rows", "SortedRuns")


# -- orders of joins -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [THREE, CHAIN])
def test_an_order_is_fixed_whatever_the_planner_would_choose(text: str) -> None:
    (query,) = bind_script(text).queries
    one = slot(planned(query), JOIN_ORDER)
    assert one.possible == ("A", "B", "C")
    for order in ("C, A, B", "B, C, A", "A, B, C"):
        chosen = PlanChoice(one.operator, JOIN_ORDER, order)
        plan = planned(query, (chosen,))
        made = [step.choices.order for step in plan.steps if step.choices.order is not None]
        assert made and {(each.text, each.is_chosen) for each in made} == {(order, True)}
        agree(text, chosen)


def test_names_of_inputs_are_read_as_they_are_written() -> None:
    names = ("a", "odd, name", "b`c", "A b")
    assert order_text(names) == "a, `odd, name`, `b``c`, `A b`"
    assert order_named("`b``c`, a ,`a b`, `odd, name`", names) == (2, 0, 3, 1)
    assert order_named(order_text(names), names) == (0, 1, 2, 3)
    assert order_named("a, a, b", ("a", "b", "c")) is None and order_named("", ("a", "b")) is None


# -- sharing -------------------------------------------------------------------------------------------------------


def test_a_step_that_is_not_shared_is_its_querys_own_with_all_above_it() -> None:
    text = f"{STREAMS} CREATE QUERY p AS SELECT k, SUM(v) AS s FROM A [RANGE 9 SECONDS] GROUP BY k;"
    text += text.partition("CREATE QUERY p")[2].join(("CREATE QUERY q", ""))
    first, second = (replace(one, root=optimize(one.root)) for one in bind_script(text).queries)
    together = plan_queries([first, second])
    (aggregate,) = [step for step in together.steps if step.spec.title == "Aggregate"]
    chosen = (PlanChoice(aggregate.choices.operator, "shared", "false"),)
    apart = plan_queries([first, replace(second, choices=chosen)])
    titles = Counter(step.spec.title for step in apart.steps)
    assert (titles["Scan"], titles["Aggregate"]) == (1, 2)
    assert len(set(step_keys(apart).values())) == len(apart.steps)
    inputs = {"A": rows(3)}
    found = run_local([first, replace(second, choices=chosen)], inputs, shards=2, batch_rows=9).tables
    assert_same(first, found["p"], run_oracle(first, inputs))
    assert_same(second, found["q"], run_oracle(second, inputs))


def test_choices_are_part_of_what_a_query_computes_for_a_checkpoint() -> None:
    (query,) = bind_script(THREE).queries
    plan = planned(query)
    operator = plan.steps[1].choices.operator
    made = [query_fingerprint(planned(query, c), "q") for c in ((), (PlanChoice(operator, "shared", "false"),))]
    assert len(set(made)) == 2


def test_keys_of_operators_do_not_depend_on_choices_nor_on_places() -> None:
    (query,) = bind_script(CHAIN).queries
    (other,) = bind_script(CHAIN.replace("CREATE QUERY q", "CREATE QUERY another")).queries
    before = slots(planned(query))
    assert slots(planned(other)).keys() == before.keys()
    one = slot(planned(query), JOIN_ORDER)
    after = slots(planned(query, (PlanChoice(one.operator, JOIN_ORDER, "C, B, A"),)))
    assert (one.operator, JOIN_ORDER) in after


# -- the law -------------------------------------------------------------------------------------------------------


def check_seed(seed: int, tally: Counter[str]) -> None:
    choices = seeded_choices(seed)
    case = random_case(choices, [one for one in FLAVOURS if not one.clock][seed % 7])
    if case.origin:
        return
    bound = bind_script("\n".join(case.statements))
    inputs = case_inputs(parse_case(case.render()), bound)
    queries = [
        replace(query, choices=random_choices(choices, lambda chosen, q=query: planned(q, chosen).steps))
        for query in bound.queries
    ]
    for query in queries:
        tally.update(f"{one.attribute} {one.value if '.' in one.attribute else ''}" for one in query.choices)
    with lowered(small(seed) if choices.chance(50) else {}):
        found = run_local(queries, inputs, shards=choices.integer(1, 3), seed=seed, reload=choices.chance(20))
    for query in queries:
        try:
            assert_same(query, found.tables[query.name], run_oracle(query, inputs))
        except Exception as error:
            raise AssertionError(f"seed {seed}\n{query.choices}\n{case.render()}\n{error}") from error


def test_random_choices_of_random_plans_keep_the_law() -> None:
    tally: Counter[str] = Counter()
    for seed in range(CASES * 7):
        check_seed(seed, tally)
    assert sum(tally.values()) > 50, tally


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_random_choices_keep_the_law() -> None:
    tally: Counter[str] = Counter()
    for seed in range(10_000, 10_000 + SOAK_CASES * 7):
        check_seed(seed, tally)
    print(dict(tally))
