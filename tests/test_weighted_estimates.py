"""ESTIMATE over WITH PREFERENCE WEIGHTED: what its definition says, whatever the rounds, and what it promises."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from preference_kit import Seeded, shards_of

from penstock.language import BoundScript, bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import assert_same, first_difference
from penstock.testing.oracle import run_oracle
from penstock.testing.preferences.random_queries import random_estimate

SEEDS = range(40)


def bound(seed: int) -> tuple[BoundScript, dict, str]:
    text = random_estimate(Seeded(seed)).render()
    case = parse_case(text)
    script = bind_script(case.script)
    return script, case_inputs(case, script), text


@pytest.mark.parametrize("seed", SEEDS)
def test_the_local_runtime_does_what_the_definition_says(seed: int) -> None:
    script, inputs, text = bound(seed)
    query = script.queries[0]
    rng = random.Random(seed)
    for shards in (1, rng.choice([2, 3, 5])):
        wanted = run_oracle(query, inputs, True, shards=shards_of(shards))
        for cut in (None, seed + 1):
            try:
                assert_same(
                    query, run_local([query], inputs, shards, True, cut, reload=cut is not None).tables["q"], wanted
                )
            except Exception as error:
                raise AssertionError(f"seed {seed} shards {shards} cut {cut}\n{text}") from error
