"""The state of a sketch that EXPLAIN predicts is within a factor of two of what a run holds.

That holds whether a pane arrives in one batch or in many.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from benchmarks.approximate import greatest_state
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from tests.counts import some_slow

Float64s = npt.NDArray[np.float64]

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


#: Numbers as they come: skewed ones, both signs, and those of which a few are most frequent.
NUMBERS: dict[str, Callable[[np.random.Generator, int], Float64s]] = {
    "lognormal": lambda draw, rows: draw.lognormal(3.0, 1.0, rows),
    "lognormal-wide": lambda draw, rows: draw.lognormal(3.0, 2.0, rows),
    "exponential": lambda draw, rows: draw.exponential(20.0, rows),
    "uniform": lambda draw, rows: draw.uniform(0.0, 1000.0, rows),
    "integers": lambda draw, rows: np.floor(draw.uniform(0.0, 1000.0, rows)),
    "delays": lambda draw, rows: np.rint(
        np.where(draw.random(rows) < 0.6, draw.normal(-4.0, 4.0, rows), draw.exponential(45.0, rows))
    ),
}
#: Few rows for each group, and few groups.
GROUPED = (
    Setup(60_000, 1, 1, 30, 5),
    Setup(9_000, 1, 3, 30, 5),
    Setup(30_000, 1, 1_000, 30, 5),
    Setup(3_000, 1, 1_000, 30, 10),
)


def stream(setup: Setup, numbers: str = "lognormal") -> pa.Table:
    draw = np.random.default_rng(1)
    return pa.table({
        "x": draw.integers(0, setup.values, setup.rows),
        "d": NUMBERS[numbers](draw, setup.rows),
        "k": draw.integers(0, setup.groups, setup.rows),
        "ts": pa.array(np.arange(setup.rows) * SECONDS // setup.rows, pa.int32()),
    })  # fmt: skip


@pytest.mark.parametrize("batches", [1, 10])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setup", some_slow(SETUPS, 3), ids=lambda setup: f"{setup.groups}-{setup.slide}")
def test_within_a_factor_of_two(call: str, setup: Setup, batches: int) -> None:
    held, predicted = _states(call, setup, stream(setup), setup.rows, batches)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("setup", GROUPED, ids=lambda setup: f"{setup.rows}-{setup.groups}")
@pytest.mark.parametrize("accuracy", [0.01, 0.1])
def test_quantiles_of_numbers_of_every_kind(accuracy: float, setup: Setup, numbers: str) -> None:
    rows = stream(setup, numbers)
    different = len(rows["d"].unique())
    held, predicted = _states(f"APPROX_QUANTILE(d, 0.9, {accuracy})", setup, rows, different, 2)
    assert predicted / 2 <= held <= predicted * 2


def _states(call: str, setup: Setup, rows: pa.Table, numbers: int, batches: int) -> tuple[int, float]:
    """Return the bytes of the state that a run holds at most, and those that EXPLAIN says. numbers: how many different
    ones."""
    rate = setup.rows // SECONDS
    window = f"RANGE {setup.length} SECONDS SLIDE {setup.slide} SECONDS"
    session = Session()
    session.execute(f"""CREATE STREAM S (x BIGINT, d DOUBLE, k BIGINT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
        SET statistics = 'S(rate {rate}, x {setup.values}, d {numbers}, k {setup.groups})';
        CREATE QUERY q AS RSTREAM(SELECT k, {call} AS r FROM S [{window}] GROUP BY k);""")
    predicted = json.loads(session.explain("q", "json"))["state"]["bytes"]
    with greatest_state() as most:
        run_local([session.catalog.queries["q"]], {"S": rows}, shards=1, batch_rows=rate * setup.slide // batches)
    return most[0], predicted
