"""A budget that is nowhere smaller emits no less: at every instant its bag contains the other's (G5).

Keys do not change while entries wait, and no queue is full: what a smaller budget has dropped is not in its way. What
accrued up to an instant is spent on what waited before it; else a budget
that empties its queue before an instant would have less for what comes then than one that does not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction

import pyarrow as pa
import pytest
from preference_kit import budget_of, is_nowhere_smaller
from test_preferences import with_draws_of_q
from test_preferences_guarantees import Bags, assert_within, bags

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle
from penstock.testing.preferences.simulation import Simulation
from penstock.testing.scalars.values import key_of

STREAMS = "".join(
    f"CREATE STREAM {name} (id INT, t BIGINT, item INT, price INT) FROM MEMORY () TIMESTAMP BY t UNIT SECOND;"
    for name in "ab"
)
BUDGETS = [
    *(f"{units} PER SECOND" for units in (1, 2, 3, 6)), *(f"{units} PER 3 SECONDS" for units in (1, 2, 4)),
    *(f"{units} PER 4 SECONDS" for units in (1, 2)),
]  # fmt: skip
SEEDS, MANY = 30, 400


def script(draw: random.Random) -> str:
    """Return a script of one query under all budgets, the smallest first."""
    a, b = (draw.choice((1, 2, 3, 6)) for _ in range(2))
    order = draw.choice(("DESC", "ASC", "WEIGHTED"))
    if draw.random() < 0.4:
        text, terms = f"SELECT id, price FROM a [RANGE {a} SECONDS]", ("price", "item", "1")
    else:
        text = f"SELECT a.id AS x, b.id AS y FROM a [RANGE {a} SECONDS], b [RANGE {b} SECONDS] WHERE a.item = b.item"
        terms = ("a.price", "b.price", "a.price * b.price", "1")
    clause = f"{text} WITH PREFERENCE {order} {draw.choice(terms)}"
    return STREAMS + "".join(
        f"CREATE QUERY {'q' if not i else f'q{i}'} AS {clause} BUDGET {budget};" for i, budget in enumerate(BUDGETS)
    )


def rows(draw: random.Random) -> pa.Table:
    size = draw.randrange(4, 24)
    ticks = sorted(draw.randrange(12) for _ in range(size))
    found = [(i, t, min(int(draw.paretovariate(1.1)), 50), draw.randrange(1, 50)) for i, t in enumerate(ticks)]
    types = [("id", pa.int32()), ("t", pa.int64()), ("item", pa.int32()), ("price", pa.int32())]
    return pa.table({name: pa.array([row[i] for row in found], kind) for i, (name, kind) in enumerate(types)})


def denoted(query: Query, inputs: dict[str, pa.Table]) -> Bags:
    """Return the bag of the answer that the definition gives, from each instant on at which it changes."""
    table = run_oracle(query, inputs, True).as_table(query)
    now: Counter[tuple[object, ...]] = Counter()
    found: Bags = {}
    for ts, op, *row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        now = now.copy()
        now[key_of(tuple(row))] += 1 if op == "+" else -1
        found[ts] = now
    return found


def compared(seed: int, answer: Callable[[Query, dict[str, pa.Table]], Bags]) -> int:
    """Assert that each budget emits no less than those that are nowhere larger; return how many pairs differ."""
    draw = random.Random(seed)
    text = script(draw)
    inputs = {name: rows(draw) for name in "ab"}
    queries = list(bind_script(text).queries)
    queries = [queries[0], *(Query(q.name, with_draws_of_q(q.root), q.sink) for q in queries[1:])]
    emitted = [answer(query, inputs) for query in queries]
    differ = 0
    for i, few in enumerate(queries):
        for k, many in enumerate(queries):
            if i != k and is_nowhere_smaller(budget_of(many), budget_of(few)):
                assert_within(emitted[i], emitted[k], f"{BUDGETS[i]} and {BUDGETS[k]}, seed {seed}: {text}")
                differ += emitted[i] != emitted[k]
    return differ


@pytest.mark.spread(2)
@pytest.mark.parametrize("part", range(2))
def test_a_budget_that_is_nowhere_smaller_emits_no_less(part: int, case_count: int | None) -> None:
    seeds = range(part, case_count or SEEDS, 2)
    assert sum(compared(seed, bags) for seed in seeds) > len(seeds)


def test_the_definition_emits_no_less() -> None:
    assert sum(compared(seed, denoted) for seed in range(SEEDS)) > SEEDS


def test_units_for_what_comes_at_their_instant_would_emit_less(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Simulation._work_in_slots

    def behind_arrivals(self: Simulation, slot: Fraction | int, rate: Fraction, now: int) -> Fraction | int:
        if vars(self).get("worked") != now:
            vars(self)["worked"] = now
            return slot
        return work(self, slot, rate, now)

    monkeypatch.setattr(Simulation, "_work_in_slots", behind_arrivals)
    with pytest.raises(AssertionError, match=r"PER SECOND and . PER SECOND"):
        for seed in range(MANY):
            compared(seed, denoted)


def test_slots_that_begin_with_the_work_would_emit_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def present(self: Simulation, slot: Fraction | int, rate: Fraction, now: int) -> Fraction | int:
        return max(slot, now * rate)

    monkeypatch.setattr(Simulation, "_present_slot", present)
    with pytest.raises(AssertionError, match="SECONDS and"):
        for seed in range(MANY):
            compared(seed, denoted)


def test_a_pair_that_three_units_a_second_emit_is_emitted_with_six() -> None:
    draw = random.Random(33)

    def given() -> pa.Table:
        ticks = sorted(draw.randrange(12) for _ in range(30))
        found = [(i, t, min(int(draw.paretovariate(1.1)), 50), draw.randrange(50)) for i, t in enumerate(ticks)]
        types = [("id", pa.int32()), ("t", pa.int64()), ("item", pa.int32()), ("price", pa.int32())]
        return pa.table({name: pa.array([row[i] for row in found], kind) for i, (name, kind) in enumerate(types)})

    inputs = {name: given() for name in "ab"}
    join = "SELECT a.id AS x, b.id AS y FROM a [RANGE 6 SECONDS], b [RANGE 6 SECONDS] WHERE a.item = b.item"
    text = STREAMS + "".join(
        f"CREATE QUERY per_{n} AS ISTREAM({join} WITH PREFERENCE DESC a.price BUDGET {n} PER SECOND);" for n in (3, 6)
    )
    few, many = (bags(query, inputs) for query in bind_script(text).queries)
    assert_within(few, many, "3 and 6")
    assert len(list(few.values())[-1]) < len(list(many.values())[-1])
