"""The state of a sketch that EXPLAIN predicts is within a factor of two of what a run holds.

That holds whether a pane arrives in one batch or in many.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.approximate import greatest_state
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from tests.counts import some_slow

SECONDS = 60
CALLS = (
    "APPROX_COUNT_DISTINCT(x)",
    "APPROX_QUANTILE(d, 0.9)",
    "APPROX_PERCENTILE(d, 0.9, 100)",
    "COUNT_MIN_SKETCH(x, 0.01, 0.99)",
    "HLL_SKETCH_AGG(x, 10)",
)


@dataclass(frozen=True)
class Setup:
    """rows: of a minute; values, groups: how many different ones; length, slide: of the window, in seconds."""

    rows: int
    values: int
    groups: int
    length: int
    slide: int


SETUPS = (Setup(60_000, 20_000, 1, 30, 5), Setup(60_000, 1_000, 1, 30, 1), Setup(30_000, 5_000, 10, 20, 5))


def stream(setup: Setup) -> pa.Table:
    draw = np.random.default_rng(1)
    return pa.table({
        "x": draw.integers(0, setup.values, setup.rows),
        "d": draw.lognormal(3.0, 1.0, setup.rows),
        "k": draw.integers(0, setup.groups, setup.rows),
        "ts": pa.array(np.arange(setup.rows) * SECONDS // setup.rows, pa.int32()),
    })  # fmt: skip


@pytest.mark.parametrize("batches", [1, 10])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setup", some_slow(SETUPS, 3), ids=lambda setup: f"{setup.groups}-{setup.slide}")
def test_within_a_factor_of_two(call: str, setup: Setup, batches: int) -> None:
    rate = setup.rows // SECONDS
    window = f"RANGE {setup.length} SECONDS SLIDE {setup.slide} SECONDS"
    session = Session()
    session.execute(f"""CREATE STREAM S (x BIGINT, d DOUBLE, k BIGINT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
        SET statistics = 'S(rate {rate}, x {setup.values}, d {setup.rows}, k {setup.groups})';
        CREATE QUERY q AS RSTREAM(SELECT k, {call} AS r FROM S [{window}] GROUP BY k);""")
    predicted = json.loads(session.explain("q", "json"))["state"]["bytes"]
    with greatest_state() as most:
        run_local(
            [session.catalog.queries["q"]], {"S": stream(setup)}, shards=1, batch_rows=rate * setup.slide // batches
        )
    assert predicted / 2 <= most[0] <= predicted * 2
