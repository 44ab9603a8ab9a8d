"""Preferences over several shards, and what is told of them: answers and metrics are those of the definition, however
the input is cut into rounds."""

from __future__ import annotations

import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from preference_kit import bound_preference, run_measured, shards_of, simulated
from test_preferences_engine import bound_case, random_query

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.runtime.monitoring.preference_metrics import PreferenceMetrics, preference_text
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.preferences.simulation import ACCURACY, Simulation, completeness, exact_quantile
from penstock.testing.thresholds import lowered, small

SEEDS = range(24)


def case_of(seed: int) -> tuple[Query, dict[str, pa.Table], random.Random]:
    """Return a random query of one of two kinds: with small inputs of all shapes, or with more rows."""
    rng = random.Random(seed)
    if seed % 2:
        _, script, inputs = bound_preference(seed)
        return script.queries[0], inputs, rng
    text, summaries, before = random_query(rng)
    return *bound_case(text, seed, summaries, before, rng.choice([1, 10, 40])), rng


def assert_told(told: PreferenceMetrics | None, shards: list[Simulation]) -> None:
    """Compare metrics with the simulations of all shards."""
    figures = [one.figures for one in shards]
    if told is None:
        assert not any(one.priorities for one in figures)
        return
    accounts = [one.entry_account for one in shards]
    assert told.entries_made == sum(one.asked for one in accounts)
    assert told.entries_done == sum(one.done for one in accounts)
    assert told.entries_shed == sum(one.shed for one in accounts)
    assert told.entries_expired + told.entries_waiting == sum(one.expired + one.waiting for one in accounts)
    assert told.units_done == sum(one.account.done for one in shards)
    delays = [delay for one in figures for delay in one.delays]
    assert told.results == len(delays)
    rows = sum(one.rows for one in figures)
    assert told.rows == rows
    assert told.results_per_row == (len(delays) / rows if rows else None)
    assert told.completeness == pytest.approx(completeness(figures), rel=1e-12)
    apart = [ticks for one in figures for ticks in one.apart]
    assert told.age_difference == (sum(apart) / len(apart) if apart else None)
    for promising, share, value in (
        (True, Fraction(1, 2), told.promising_delay),
        (True, Fraction(19, 20), told.promising_delay_high),
        (False, Fraction(1, 2), told.other_delay),
        (False, Fraction(19, 20), told.other_delay_high),
    ):
        wanted = exact_quantile([ticks for kind, ticks in delays if kind is promising], share)
        assert value == (None if wanted is None else pytest.approx(wanted, rel=ACCURACY))


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_and_metrics_are_those_of_the_definition(seed: int) -> None:
    query, inputs, rng = case_of(seed)
    shards, drain = rng.choice([1, 2, 3, 5]), rng.random() < 0.5
    wanted = run_oracle(query, inputs, drain, shards=shards_of(shards))
    for cut in (None, rng.randrange(1000)):
        with lowered(small(seed) if cut is not None else {}):
            result, told = run_measured(query, inputs, shards, drain, cut)
        assert_same(query, result.tables["q"], wanted)
        if wanted.final is not None:
            assert_told(told, simulated(query, inputs, wanted.final, shards))


def test_the_cases_tell_of_all_figures() -> None:
    """Among them are results of promising entries and of others, late ones, missing pairs, and several shards at
    work."""
    found: Counter[str] = Counter()
    for seed in SEEDS:
        query, inputs, rng = case_of(seed)
        shards, drain = rng.choice([1, 2, 3, 5]), rng.random() < 0.5
        final = run_oracle(query, inputs, drain, shards=shards_of(shards)).final
        figures = [one.figures for one in simulated(query, inputs, final or 0, shards)]
        delays = [delay for one in figures for delay in one.delays]
        found["promising"] += any(promising for promising, _ in delays)
        found["late"] += any(ticks for _, ticks in delays)
        found["incomplete"] += completeness(figures) < 1
        found["estimated"] += any(one.unknown for one in figures)
        found["shards"] += sum(one.rows > 0 for one in figures) > 1
    assert min(found[name] for name in ("promising", "late", "incomplete", "estimated", "shards")) >= 5, found


def test_the_documented_example_tells_what_the_page_says() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "preferences.md").read_text(encoding="utf-8")
    text, said = (
        re.search(pattern, page, re.DOTALL)
        for pattern in (r"```cql\n(CREATE STREAM transfers.*?)```", r"```told\n(.*?)\n```")
    )
    assert text is not None and said is not None
    script = bind_script(text[1])
    source = script.catalog.sources["transfers"]
    schema = pa.schema(list(zip(source.columns.names, source.columns.types, strict=True)))
    rows = [dict(zip(schema.names, row, strict=True)) for row in script.catalog.memory["transfers"]]
    for cut in (None, 1, 2):
        _, told = run_measured(script.queries[0], {"transfers": pa.Table.from_pylist(rows, schema)}, 1, False, cut)
        assert told is not None and preference_text(told) == said[1].replace("\n", " ")
