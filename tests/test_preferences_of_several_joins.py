"""Preferences over more inputs than two: one join after the other, each with a queue, and the feedback between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from preference_kit import PREFERRING, bound_preference, shards_of, simulated
from test_preferences import bags, with_draws_of_q, world

from penstock.algebra import PreferringJoin
from penstock.algebra.nodes.base import operators
from penstock.language.binder.context import Context
from penstock.language.plan_form import FORMAT, printed
from penstock.language.plans.document import logical, read_plan
from penstock.language.text import SourceText
from penstock.runtime.local.runtime import run_local
from penstock.settings import Settings
from penstock.testing.compare import assert_same, first_difference
from penstock.testing.oracle import run_oracle
from penstock.testing.preferences.kinds import simulate

#: Those behind 7060 have feedback.
SEEDS = [*range(7000, 7060), 7100, 7121, 7139, 7152, 7157, 7186, 7187, 7208]


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_emitted_is_part_of_the_answer(seed: int) -> None:
    """G1 and G3."""
    made, script, inputs = bound_preference(seed, several=True)
    at = replace(world(script, inputs), final=200)
    queries = {query.name: query for query in script.queries}
    few, whole = (bags(with_draws_of_q(queries[name].root), at) for name in ("q", "plain"))
    for tau, bag in few.items():
        assert not bag - whole[tau], f"at {tau}\n{made.case.render()}"


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_budget_that_covers_the_work_changes_nothing(seed: int) -> None:
    """G2."""
    made, script, inputs = bound_preference(seed, several=True)
    queries = {query.name: query for query in script.queries}
    assert queries["unlimited"].root.fingerprint == queries["plain"].root.fingerprint
    ample, plain = (run_oracle(queries[name], inputs, True).events for name in ("ample", "plain"))
    assert first_difference(ample, plain) is None, made.case.render()


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_local_runtime_does_what_the_oracle_does(seed: int) -> None:
    """G4, under random cuts and restarts, and in up to three shards."""
    _, script, inputs = bound_preference(seed, several=True)
    query, shards = script.queries[0], 1 + seed % 3
    wanted = run_oracle(query, inputs, True, shards=shards_of(shards))
    for cut in (None, seed):
        found = run_local([query], inputs, shards, True, cut, reload=cut is not None).tables["q"]
        assert_same(query, found, wanted)


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_local_runtime_with_an_ample_budget_is_the_plain_query(seed: int) -> None:
    """Results of a join end in another order than they begin; none of them is passed over in the next one."""
    _, script, inputs = bound_preference(seed, several=True)
    queries = {query.name: query for query in script.queries}
    wanted = run_oracle(queries["plain"], inputs, True)
    found = run_local([queries["ample"]], inputs, 1 + seed % 2, True, seed).tables["ample"]
    assert_same(queries["ample"], found, wanted)


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_units_are_accounted_for(seed: int) -> None:
    """G7, in every join."""
    _, script, inputs = bound_preference(seed, several=True)
    at = world(script, inputs)
    for node in operators(script.queries[0].root):
        if isinstance(node, PREFERRING):
            (one,) = simulate(node, at)
            count = one.account
            assert count.asked == count.done + count.waiting + count.expired + count.shed


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_plans_are_read_as_they_were(seed: int) -> None:
    _, script, _ = bound_preference(seed, several=True)
    query = script.queries[0]
    data = logical(query.root)
    read = read_plan(printed({"format": FORMAT, "logical": data}), Context(SourceText(""), script.catalog, Settings()))
    assert logical(read) == data
    assert read.fingerprint == query.root.fingerprint


def test_the_random_queries_feed_back_and_wait() -> None:
    found: Counter[str] = Counter()
    for seed in SEEDS:
        _, script, inputs = bound_preference(seed, several=True)
        query = script.queries[0]
        nodes = [node for node in operators(query.root) if isinstance(node, PREFERRING)]
        assert len(nodes) == 2
        found["feedback"] += any(isinstance(node, PreferringJoin) and node.ahead for node in nodes)
        found["short"] += sum(one.account.expired + one.account.waiting > 0 for one in simulated(query, inputs, 40, 1))
    assert found["feedback"] > 5
    assert found["short"] > 5
