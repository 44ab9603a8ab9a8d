"""Properties of preferences, over random queries and inputs: G1 to G5 and G7 of docs/preferences.md, on the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from preference_kit import PREFERRING, bound_preference

from penstock.algebra import Algebra, PreferringLookUp
from penstock.algebra.nodes.base import is_static, operators
from penstock.language.binder.context import Context
from penstock.language.plan_form import FORMAT, printed
from penstock.language.plans.document import logical, read_plan
from penstock.language.scripts import BoundScript
from penstock.language.text import SourceText
from penstock.runtime.local.runtime import run_local
from penstock.settings import Settings
from penstock.testing.compare import assert_same, first_difference
from penstock.testing.definitions import World, relation
from penstock.testing.oracle import run_oracle, timely_rows
from penstock.testing.preferences.kinds import simulate
from penstock.testing.scalars.values import Row, key_of
from penstock.tree import Node, transform_up


def world(script: BoundScript, inputs: dict[str, pa.Table]) -> World:
    rows = {name: timely_rows(script.catalog.sources[name], table) for name, table in inputs.items() if name != "r"}
    rows["r"] = timely_rows(script.catalog.sources["r"], inputs["r"])
    final = max((ts for name in ("o", "p") for ts, _ in rows[name]), default=0) + 30
    return World(rows, final)


def with_draws_of_q(root: Algebra) -> Algebra:
    """Return a plan whose draws are those of the query `q`: they depend on the name."""

    def named(node: Node) -> Node:
        if not isinstance(node, PREFERRING):
            return node
        return replace(node, preference=replace(node.preference, query="q"))

    return transform_up(root, named, within=Algebra)


def bags(root: Algebra, at: World) -> dict[int, Counter[Row]]:
    while root.is_stream:
        root = root.inputs[0]
    return {tau: Counter(map(key_of, relation(root, at).at(tau))) for tau in range(-10, at.final + 1)}


SEEDS = range(60)


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_emitted_is_part_of_the_answer(seed: int) -> None:
    """G1 and G3: at every instant a sub-bag, so no result occurs twice. G5: larger grants emit more, where keys do not
    change while entries wait."""
    made, script, inputs = bound_preference(seed)
    at = world(script, inputs)
    queries = {query.name: query for query in script.queries}
    few, more, whole = (bags(with_draws_of_q(queries[name].root), at) for name in ("q", "more", "plain"))
    for tau, bag in few.items():
        assert not bag - whole[tau], f"at {tau}\n{made.case.render()}"
        assert not more[tau] - whole[tau], f"at {tau}\n{made.case.render()}"
        if made.nested:
            assert not bag - more[tau], f"at {tau}\n{made.case.render()}"


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_budget_that_covers_the_work_changes_nothing(seed: int) -> None:
    """G2: the answer of the query without the clause; UNLIMITED, and AUTO without a target, have its plan too."""
    made, script, inputs = bound_preference(seed)
    queries = {query.name: query for query in script.queries}
    assert queries["unlimited"].root.fingerprint == queries["plain"].root.fingerprint
    ample, plain = (run_oracle(queries[name], inputs, True).events for name in ("ample", "plain"))
    assert first_difference(ample, plain) is None, made.case.render()


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_units_are_accounted_for(seed: int) -> None:
    """G7, and G4: a second simulation is the same."""
    _, script, inputs = bound_preference(seed)
    at = world(script, inputs)
    query = next(query for query in script.queries if query.name == "q")
    node = next(one for one in operators(query.root) if isinstance(one, PREFERRING))
    (first,), (second,) = simulate(node, at), simulate(node, at)
    count = first.account
    assert count.asked == count.done + count.waiting + count.expired + count.shed
    assert first.account == second.account
    assert list(map(repr, first.emitted)) == list(map(repr, second.emitted))


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(30))
def test_plans_are_read_as_they_were(seed: int) -> None:
    _, script, _ = bound_preference(seed)
    data = logical(script.queries[0].root)
    context = Context(SourceText(""), script.catalog, Settings())
    assert logical(read_plan(printed({"format": FORMAT, "logical": data}), context)) == data


def test_the_random_queries_wait_fade_and_expire() -> None:
    """Among them are all kinds, look-ups in NON RETROACTIVE relations too, and queues in which something expires."""
    kinds: Counter[str] = Counter()
    expired = 0
    for seed in SEEDS:
        _, script, inputs = bound_preference(seed)
        at = world(script, inputs)
        query = next(query for query in script.queries if query.name == "q")
        for node in operators(query.root):
            if isinstance(node, PREFERRING):
                looks_up = isinstance(node, PreferringLookUp) and not is_static(node.right)
                kinds["as of" if looks_up else type(node).__name__] += 1
                expired += simulate(node, at)[0].account.expired > 0
    assert len(kinds) == 4
    assert expired > 10


#: 5379: a key of two columns, of which one is summarised and holds NULL; arrival numbers leave that row out.
@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", [5379, *range(5400, 5430)])
def test_the_local_runtime_does_what_the_random_queries_do_on_the_oracle(seed: int) -> None:
    _, script, inputs = bound_preference(seed)
    query = script.queries[0]
    wanted = run_oracle(query, inputs, True)
    for cut in (None, seed):
        assert_same(query, run_local([query], inputs, 1, True, cut, reload=cut is not None).tables["q"], wanted)
