"""The guarantees of preferences, as properties of the operator: its answers alone are read, and its metrics for G7.

G1 sound, G2 exact, G3 each result once, G4 repeatable, G5 monotone, G6 WEIGHTED by its probabilities, G7 accounted for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from preference_kit import bound_preference, budget_of, is_nowhere_smaller, preferring_node
from test_preferences import with_draws_of_q

from penstock.algebra import PreferringSelection
from penstock.algebra.nodes.query import Query
from penstock.expressions.draws import draws, exponential_draws
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.testing.scalars.values import Row, key_of

Bags = dict[int, Counter[Row]]
SEEDS = range(300, 312)


def bags(query: Query, inputs: Mapping[str, pa.Table], shards: int = 1, cut: int | None = None) -> Bags:
    """Return the bag of the answer from each instant on at which it changes; of a stream, all elements so far."""
    table = run_local([query], dict(inputs), shards, True, cut, reload=cut is not None).tables[query.name]
    if query.root.is_stream:
        table = table.add_column(1, "op", pa.array(["+"] * table.num_rows, pa.string()))
    now: Counter[Row] = Counter()
    found: Bags = {}
    for ts, op, *row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        now = now.copy()
        now[key_of(tuple(row))] += 1 if op == "+" else -1
        found[ts] = now
    return found


def assert_within(few: Bags, many: Bags, said: str) -> None:
    """Assert that a bag is part of another one at every instant."""
    instants = sorted({*few, *many})
    small: Counter[Row] = Counter()
    large: Counter[Row] = Counter()
    for at in instants:
        small, large = few.get(at, small), many.get(at, large)
        assert min(small.values(), default=0) >= 0
        assert not small - large, f"at {at}: {said}"


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_sound_repeatable_and_monotone(seed: int) -> None:
    """G1 and G3: a sub-bag of the plain answer at every instant, so no result occurs twice. G4: of the input alone. G5:
    a budget that is nowhere smaller emits no less, where keys do not change while entries wait. G2: a budget that
    covers the work emits all."""
    made, script, inputs = bound_preference(seed)
    rng = random.Random(seed)
    queries = {query.name: query for query in script.queries}
    shards, said = rng.choice([1, 3]), made.case.render()
    few = bags(queries["q"], inputs, shards)
    plain = bags(queries["plain"], inputs)
    assert_within(few, plain, said)
    assert few == bags(queries["q"], inputs, shards, cut=seed), said
    more = replace(queries["more"], root=with_draws_of_q(queries["more"].root))
    larger = bags(more, inputs, shards, cut=seed)
    assert_within(larger, plain, said)
    if made.nested and is_nowhere_smaller(budget_of(more), budget_of(queries["q"]), shards):
        assert_within(few, larger, said)
    ample = bags(queries["ample"], inputs, shards, cut=seed)
    assert_within(ample, plain, said)
    assert_within(plain, ample, said)


@pytest.mark.spread(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_entries_are_accounted_for_after_every_round(seed: int) -> None:
    """G7 in entries; in units where each entry is one of them."""
    _, script, inputs = bound_preference(seed)
    query = script.queries[0]
    runs: list[RunMetrics] = []
    run_local([query], inputs, 2, True, seed, reload=True, watcher=runs.append)
    for one in (run.queries["q"].preference for run in runs):
        if one is None:
            continue
        parts = [getattr(one, f"entries_{name}") for name in ("done", "waiting", "expired", "shed")]
        assert one.entries_made == sum(parts) and min(parts) >= 0
        assert min(one.units_done, one.units_waiting, one.units_expired, one.units_shed) >= 0
        assert one.results <= one.units_done
        if isinstance(preferring_node(query), PreferringSelection):
            assert (one.units_asked, one.units_done) == (one.entries_made, one.entries_done)


GROUPS, MEMBERS, DONE = 400, 40, 12


def test_weighted_entries_are_done_by_their_probabilities() -> None:
    """G6: groups of rows meet, one by one, a processor that does 12 of 40 before all have ended. A row whose rivals
    leave the threshold κ to it is done with probability 1 - exp(-κ·w), so the sum of 1/π over what is done is an
    unbiased estimate of the number of rows (Horvitz and Thompson). Groups are independent, so their mean is nearly
    normal, and 6.2 standard deviations leave 6e-10."""
    weights = np.array([1, 2, 5, 10] * (MEMBERS // 4), np.int32)
    ts = np.repeat(np.arange(GROUPS) * 1000, MEMBERS)
    table = pa.table({
        "ts": ts, "n": np.tile(np.arange(MEMBERS, dtype=np.int32), GROUPS), "w": np.tile(weights, GROUPS),
    })  # fmt: skip
    script = bind_script(
        "CREATE STREAM s (ts BIGINT, n INT, w INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY q AS SELECT ts, n, w FROM s [RANGE {DONE} SECONDS]"
        " WITH PREFERENCE WEIGHTED w BUDGET 1 PER SECOND;"
    )
    table = table.cast(pa.schema([("ts", pa.int64()), ("n", pa.int32()), ("w", pa.int32())]))
    out = run_local(list(script.queries), {"s": table}, 1, True, 5).tables["q"]
    found = set(zip(out.column(2).to_pylist(), out.column(3).to_pylist(), strict=True))
    drawn = draws(
        0, "/preference/q/0", ts, [*(c.combine_chunks() for c in table.columns), pa.array(np.full(len(ts), -1))]
    )
    keys = (exponential_draws(drawn) / table["w"].to_numpy()).reshape(GROUPS, MEMBERS)
    thresholds = np.sort(keys, axis=1)[:, DONE]
    done = keys < thresholds[:, None]
    emitted = np.array([[(1000 * g, n) in found for n in range(MEMBERS)] for g in range(GROUPS)])
    assert (emitted == done).all(), "the least keys are done"
    chances = 1 - np.exp(-thresholds[:, None] * weights)
    for weight in (1, 2, 5, 10):
        of_weight = weights == weight
        estimates = (emitted / chances)[:, of_weight].sum(axis=1)
        error = estimates.std(ddof=1) / np.sqrt(GROUPS)
        assert abs(estimates.mean() - of_weight.sum()) < 6.2 * error
        assert emitted[:, of_weight].mean() == pytest.approx(chances[:, of_weight].mean(), abs=0.05)
