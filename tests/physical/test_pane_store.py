"""Windows that read one store of panes: to the last bit what each tells alone, the panes kept once and no longer than
they are read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.operators.aggregates import shared_pane_sums
from penstock.physical.operators.aggregates.pane_store import PaneStore
from penstock.physical.plan.identity import step_keys
from penstock.physical.plan.panes import PaneStoreSpec, WindowSumsSpec
from penstock.physical.plan.plan import Plan
from penstock.physical.planning import planner
from penstock.physical.planning.planner import part_of, plan_queries
from penstock.runtime.local.runtime import LocalJob, LocalResult, run_local

STREAM = "CREATE STREAM S (ts INT, k INT, v INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 3 SECONDS;\n"
ITEMS = "k, COUNT(*) AS n, SUM(v) AS s, AVG(x) AS m, SUM(x) FILTER (WHERE v > 2) AS f, SUM(x) AS x"
#: Short and long, whole slides and not, gaps, one that tumbles.
WINDOWS = ((9, 3), (40, 1), (4, 6), (7, 2), (12, 12), (25, 10))
#: Sums of these are exact in any order, though no double holds two of them together.
VALUES = (None, 2.0**900, -(2.0**900), 2.0**-30, 0.5, 7.0)


def script(windows: Sequence[tuple[int, int]] = WINDOWS, items: str = ITEMS) -> str:
    return STREAM + "".join(
        f"CREATE QUERY q{i} AS SELECT RSTREAM({items}) "
        f"FROM S [RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY k;\n"
        for i, (length, slide) in enumerate(windows)
    )


def rows(seed: int, size: int = 1500, specials: bool = True) -> pa.Table:
    """Groups come and go by the hundred, and there are stretches without any; NaN and infinities in one of them."""
    draw = random.Random(seed)
    made = []
    now = 0
    for number in range(size):
        now += draw.choice((0, 0, 0, 1)) + (170 if number % 500 == 499 else 0)
        odd = specials and 600 < number < 900
        x = draw.choice((*VALUES, float("nan"), float("inf")) if odd else VALUES)
        v = draw.choice((None, 1, 5)) if number > 300 else 5
        made.append((max(0, now - draw.randint(0, 3)), now // 50 * 20 + draw.randint(0, 150), v, x))
    types = (pa.int32(), pa.int32(), pa.int32(), pa.float64())
    columns = [pa.array(c, t) for c, t in zip(zip(*made, strict=True), types, strict=True)]
    return pa.table(columns, names=["ts", "k", "v", "x"])


def bits(table: pa.Table) -> list[list[object]]:
    """NaN is NaN, and -0.0 is not 0.0."""
    return [[v.hex() if isinstance(v, float) else v for v in column] for column in table.to_pydict().values()]


def answer(seed: int, shards: int, batch: int, reload: bool) -> LocalResult:
    queries = bind_script(script()).queries
    return run_local(queries, {"S": rows(seed)}, shards, seed=seed, batch_rows=batch, reload=reload, drain=True)


@pytest.mark.parametrize(
    ("seed", "shards", "batch", "reload"),
    [
        (2, 3, 170, True),
        (4, 2, 29, False),
        *(pytest.param(*run, marks=pytest.mark.slow) for run in ((1, 1, 2000, False), (3, 1, 40, True))),
    ],
)
def test_together_to_the_last_bit_what_each_tells_alone(seed: int, shards: int, batch: int, reload: bool) -> None:
    together = answer(seed, shards, batch, reload)
    with mock.patch.object(planner, "shared_grains", lambda *args: {}):
        alone = answer(seed, shards, batch, reload)
    for name, table in alone.tables.items():
        assert table.num_rows > 500
        assert bits(together.tables[name]) == bits(table)


def test_neither_cuts_nor_reloads_change_a_bit() -> None:
    told = [answer(5, 1, batch, reload) for batch, reload in ((2000, False), (61, False), (61, True))]
    for name, table in told[0].tables.items():
        assert bits(told[1].tables[name]) == bits(table)
        assert bits(told[2].tables[name]) == bits(table)


def _job(windows: Sequence[tuple[int, int]]) -> tuple[Plan, LocalJob, PaneStore]:
    plan = plan_queries(bind_script(script(windows, "k, SUM(x) AS s")).queries)
    job = LocalJob(plan, {})
    return plan, job, _store(plan, job.stages[0][0])


def _store(plan: Plan, stage: StageExecutor) -> PaneStore:
    (step,) = (s.id for s in plan.steps if isinstance(s.spec, PaneStoreSpec))
    found = stage._operators[step]
    assert isinstance(found, PaneStore)
    return found


def _feed(job: LocalJob, first: int, last: int) -> dict[str, list[Elements]]:
    """One row of each of two groups a second, and their time. Windows have other sums at every boundary."""
    made = pa.table({"ts": [t for t in range(first, last) for _ in (1, 2)], "k": [1, 2] * (last - first)})
    ts = made.column("ts").to_numpy()
    numbers = made.column("k").combine_chunks().cast(pa.int32())
    columns = (made.column("ts").combine_chunks().cast(pa.int32()), numbers, numbers, pa.array(ts.astype(float)))
    elements = Elements(columns, ts, ts + 1)
    return job.round({"S": [elements]}, {"S": SourceProgress(first, last - 1)})


def test_panes_are_held_once_and_as_long_as_they_are_read() -> None:
    few, many = ((12, 3), (6, 3)), ((12, 3), (6, 3), (9, 3), (3, 3), (12, 6), (9, 9))
    held = []
    for windows in (few, many):
        _, job, store = _job(windows)
        for first in range(0, 120, 4):
            _feed(job, first, first + 4)
        held.append(store.log.rows)
    assert held[0] == held[1]
    # Panes of three seconds of two groups: no more than two of the longest windows hold, and what waits.
    assert 2 * 12 // 3 <= held[0] <= 2 * (2 * 12 // 3 + 2)


def test_a_query_less_leaves_the_store_as_it_was() -> None:
    """As when a script that has lost one starts on the same checkpoint."""
    plan, job, store = _job(((12, 3), (6, 3), (9, 3)))
    for first in range(0, 40, 4):
        _feed(job, first, first + 4)
    less = part_of(plan, {"q0", "q2"})
    names = {type(s.spec): step_keys(plan)[s.id] for s in plan.steps if isinstance(s.spec, PaneStoreSpec)}
    assert {type(s.spec): step_keys(less)[s.id] for s in less.steps if isinstance(s.spec, PaneStoreSpec)} == names
    assert sum(isinstance(s.spec, WindowSumsSpec) for s in less.steps) == 2
    after = LocalJob(less, {})
    old, new = job.stages[0][0], after.stages[0][0]
    for name, synopsis in new.synopses().items():
        synopsis.restore(*old.synopses()[name].snapshot())
    new.restore_marks(old.marks())
    assert _store(less, new).log.rows == store.log.rows
    expected, found = _feed(job, 40, 50), _feed(after, 40, 50)
    assert found.keys() == {"q0", "q2"}
    for query, parts in found.items():
        ts = [e.ts.tolist() for e in parts]
        assert ts and ts == [e.ts.tolist() for e in expected[query]]
        assert [e.columns for e in parts] == [e.columns for e in expected[query]]


def test_windows_that_are_due_together_are_computed_together() -> None:
    _, job, _ = _job([(length, 1) for length in range(2, 22)])
    _feed(job, 0, 4)
    with mock.patch.object(shared_pane_sums, "carry", wraps=shared_pane_sums.carry) as carry:
        told = _feed(job, 4, 8)
        assert len(told) == 20
        assert carry.call_count == 1
        with mock.patch.object(shared_pane_sums, "PIECE", 30):  # three windows at four boundaries have 24 rows
            _feed(job, 8, 12)
        assert carry.call_count == 1 + 7


@pytest.mark.parametrize(
    ("windows", "order", "piece"),
    [
        (((6, 3), (12, 3), (9, 1)), (0, 1, 2), shared_pane_sums.PIECE),
        # Two at a time, the one that fails while another waits to be asked for what was computed before.
        (((6, 1), (12, 1), (9, 1), (7, 1)), (2, 3, 0, 1), 16),
    ],
)
def test_what_fails_in_one_window_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, windows: Sequence[tuple[int, int]], order: Sequence[int], piece: int
) -> None:
    """Beside others of its store and in their call; those continue as if it had never been."""
    monkeypatch.setattr(shared_pane_sums, "PIECE", piece)
    others = [f"q{i}" for i in range(len(windows)) if i != 1]
    runs, finish = [], shared_pane_sums.finish

    def failing(plan: Any, integers: Any, *others: Any) -> Any:
        if max(map(int, integers[0]), default=0) > 9:  # only the longest has so many rows of a group
            raise ValueError("too many")
        return finish(plan, integers, *others)

    for broken in (False, True):
        _, job, _ = _job(windows)
        turns = job.stages[0][0]._graph.turns
        sums = [step for step in turns if isinstance(step.spec, WindowSumsSpec)]
        turns[:] = [step for step in turns if step not in sums] + [sums[i] for i in order]
        failures = StepFailures()
        job.round = partial(job.round, failures=failures)  # type: ignore[method-assign]
        told = [_feed(job, 0, 12)]
        with monkeypatch.context() as patched:
            if broken:
                patched.setattr(shared_pane_sums, "finish", failing)
            told += [_feed(job, first, first + 4) for first in range(12, 40, 4)]
        assert set(failures.errors) == ({"q1"} if broken else set())
        runs.append([{q: [(e.ts.tolist(), e.columns) for e in r.get(q, ())] for q in others} for r in told])
    assert runs[0] == runs[1]
    assert any(round_["q0"] for round_ in runs[0][3:])
