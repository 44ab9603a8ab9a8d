"""The state of a sketch that EXPLAIN predicts is within a factor of two of what a run holds.

That holds in memory and in a checkpoint, whether a pane arrives in one batch or in many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from penstock.physical.execution.executor import StageExecutor
from penstock.physical.synopses.contract import Synopsis
from penstock.runtime.local.runtime import run_local
from penstock.session import Session

Float64s = npt.NDArray[np.float64]

SECONDS = 60
CALLS = (
    "APPROX_COUNT_DISTINCT(x)",
    "APPROX_QUANTILE(d, 0.9)",
    "APPROX_PERCENTILE(d, 0.9, 100)",
    "COUNT_MIN_SKETCH(x, 0.01, 0.99)",
    "HLL_SKETCH_AGG(x, 10)",
    "APPROX_TOP_K(x, 3)",
)
#: Those that windows without SLIDE do not have.
OF_PANES = ("APPROX_PERCENTILE(d, 0.9, 100)", "APPROX_TOP_K(x, 3)")
WINDOWS = ("RANGE 30 SECONDS", "RANGE 20 SECONDS SLIDE 20 SECONDS", "ROWS 6000 SLIDE 1000 ROWS", "NOW")


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
    return pa.table(
        {
            "x": draw.integers(0, setup.values, setup.rows),
            "d": NUMBERS[numbers](draw, setup.rows),
            "k": draw.integers(0, setup.groups, setup.rows),
            "ts": pa.array(np.arange(setup.rows) * SECONDS // setup.rows, pa.int32()),
        }
    )


@pytest.mark.spread(12)
@pytest.mark.parametrize("batches", [1, 10])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: f"{setup.groups}-{setup.slide}")
def test_within_a_factor_of_two(call: str, setup: Setup, batches: int) -> None:
    held, predicted = _states(call, setup, stream(setup), setup.rows, batches)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(6)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("window", WINDOWS)
def test_every_kind_of_window(call: str, window: str) -> None:
    if call in OF_PANES and "SLIDE" not in window:
        pytest.skip("over panes alone")
    setup = SETUPS[2]
    held, predicted = _states(call, setup, stream(setup), setup.rows, 5, window=window)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(16)
@pytest.mark.parametrize("call", [call for call in CALLS if call not in OF_PANES])
@pytest.mark.parametrize("window", ["NOW", "RANGE 30 SECONDS"])
@pytest.mark.parametrize("groups", [1, 20])
@pytest.mark.parametrize(("size", "batches"), [("memory", 1), ("memory", 5), ("checkpoint", 1)])
def test_many_rows_of_each_tick(call: str, window: str, groups: int, size: str, batches: int) -> None:
    """Of a thousand rows with one timestamp, those of a group that fall into one cell wait for their end as one."""
    setup = Setup(60_000, 20_000, groups, 30, 1)
    sized = held_in_memory if size == "memory" else in_a_checkpoint
    held, predicted = _states(call, setup, stream(setup), setup.rows, batches, sized, window)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(12)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: f"{setup.groups}-{setup.slide}")
def test_a_checkpoint_too(call: str, setup: Setup) -> None:
    stored, predicted = _states(call, setup, stream(setup), setup.rows, 5, in_a_checkpoint)
    assert predicted / 2 <= stored <= predicted * 2


def test_values_that_come_again() -> None:
    """Planes fly several times a week: a group has fewer different values than rows, and not all that there are."""
    draw, setup = np.random.default_rng(3), Setup(30_000, 4_000, 3, 30, 5)
    ranks = np.arange(1, setup.values + 1)
    chances = ranks**-0.6 / np.sum(ranks**-0.6)
    rows = stream(setup).set_column(0, "x", [draw.choice(setup.values, setup.rows, p=chances)])
    for size in (held_in_memory, in_a_checkpoint):
        for call in ("APPROX_COUNT_DISTINCT(x)", "HLL_SKETCH_AGG(x)", "APPROX_TOP_K(x, 3)"):
            held, predicted = _states(call, setup, rows, setup.rows, 5, size)
            assert predicted / 2 <= held <= predicted * 2, call


def test_values_that_are_the_group() -> None:
    setup = Setup(30_000, 1, 100, 30, 5)
    held, predicted = _states("APPROX_TOP_K(k, 3)", setup, stream(setup), setup.rows, 2)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(3)
@pytest.mark.parametrize("window", ["RANGE 30 SECONDS SLIDE 5 SECONDS", "RANGE 30 SECONDS SLIDE 1 SECOND", WINDOWS[2]])
@pytest.mark.parametrize("frequent", ["10", "200", "10 PER (k)"])
@pytest.mark.parametrize("values", [300, 20_000])
def test_lists_of_frequent_items(values: int, frequent: str, window: str) -> None:
    setup = Setup(60_000, values, 5, 30, 1)
    group = "k, x" if "PER" in frequent else "x"
    query = f"RSTREAM(SELECT x, COUNT(*) AS n FROM S [{window}] GROUP BY {group} FREQUENT {frequent})"
    held, predicted = _states_of(query, setup, stream(setup), setup.rows, 1_000)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(3)
@pytest.mark.parametrize("window", ["RANGE 30 SECONDS", "RANGE 30 SECONDS SLIDE 5 SECONDS"])
@pytest.mark.parametrize("sample", ["100 ROWS", "5 ROWS PER (k)", "100 ROWS WEIGHT d"])
@pytest.mark.parametrize("groups", [1, 10])
def test_samples_of_a_number_of_rows(groups: int, sample: str, window: str) -> None:
    """Rows wait for the boundary after them before any is drawn."""
    setup = Setup(60_000, 20_000, groups, 30, 1)
    query = f"ISTREAM(SELECT x, d FROM S [{window}] SAMPLE({sample}))"
    held, predicted = _states_of(query, setup, stream(setup), setup.rows, 1_000)
    assert predicted / 2 <= held <= predicted * 2


@pytest.mark.spread(6)
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("setup", GROUPED, ids=lambda setup: f"{setup.rows}-{setup.groups}")
@pytest.mark.parametrize("accuracy", [0.01, 0.1])
def test_quantiles_of_numbers_of_every_kind(accuracy: float, setup: Setup, numbers: str) -> None:
    rows = stream(setup, numbers)
    different = len(rows["d"].unique())
    held, predicted = _states(f"APPROX_QUANTILE(d, 0.9, {accuracy})", setup, rows, different, 2)
    assert predicted / 2 <= held <= predicted * 2


def held_in_memory(synopsis: Synopsis) -> int:
    return synopsis.nbytes


def in_a_checkpoint(synopsis: Synopsis) -> int:
    return sum(chunk.nbytes for chunk in synopsis.snapshot()[1].values())


@contextmanager
def greatest_state(size: Callable[[Synopsis], int]) -> Iterator[list[int]]:
    """Yield a list with the greatest size of all state after a round."""
    most, original = [0], StageExecutor.run

    def run(self: StageExecutor, *args: Any, **options: Any) -> Any:
        result = original(self, *args, **options)
        most[0] = max(most[0], sum(map(size, self.synopses().values())))
        return result

    StageExecutor.run = run  # type: ignore[method-assign]
    try:
        yield most
    finally:
        StageExecutor.run = original  # type: ignore[method-assign]


def _states(
    call: str,
    setup: Setup,
    rows: pa.Table,
    numbers: int,
    batches: int,
    size: Callable[[Synopsis], int] = held_in_memory,
    window: str = "",
) -> tuple[int, float]:
    """Return the bytes of the state that a run holds at most, and those that EXPLAIN says. numbers: how many different
    ones; window: another than that of the setup."""
    rate = setup.rows // SECONDS
    window = window or f"RANGE {setup.length} SECONDS SLIDE {setup.slide} SECONDS"
    query = f"RSTREAM(SELECT k, {call} AS r FROM S [{window}] GROUP BY k)"
    return _states_of(query, setup, rows, numbers, rate * setup.slide // batches, size)


def _states_of(
    query: str, setup: Setup, rows: pa.Table, numbers: int, batch: int, size: Callable[[Synopsis], int] = held_in_memory
) -> tuple[int, float]:
    """Return the same of a query over S. batch: rows of a round."""
    rate = setup.rows // SECONDS
    session = Session()
    session.execute(f"""CREATE STREAM S (x BIGINT, d DOUBLE, k BIGINT, ts INT) FROM MEMORY () TIMESTAMP BY ts;
        SET statistics = 'S(rate {rate}, x {setup.values}, d {numbers}, k {setup.groups})';
        CREATE QUERY q AS {query};""")
    predicted = json.loads(session.explain("q", "json"))["state"]["bytes"]
    with greatest_state(size) as most:
        run_local([session.catalog.queries["q"]], {"S": rows}, shards=1, batch_rows=batch)
    return most[0], predicted
