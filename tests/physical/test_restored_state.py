"""The contract of state: what was restored and is written again, with nothing in between, is what had been written.

So it is where a command follows a restart at once: state is written before its first round. Every registered operator
and synopsis takes part, in a script of `scripts/` or below.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from preference_kit import Seeded

from penstock.language.scripts import bind_script
from penstock.physical.execution.executor import ExecutorSnapshot
from penstock.physical.operators import OPERATORS
from penstock.physical.plan.inputs import ConstantSpec, StaticSpec
from penstock.physical.plan.joins.specs import (
    ChosenJoinSpec,
    JoinSpec,
    StoreJoinSpec,
    TakingBackJoinSpec,
)
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.synopses import SYNOPSES
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.testing import run_case
from penstock.testing.cases import CaseRun, case_inputs, parse_case
from penstock.testing.random.preference_queries import random_estimate, random_preference

SCRIPTS = Path(__file__).parents[1] / "scripts"
PATTERN, DIRECT, NEGATIVE = Strategy.PATTERN, Strategy.DIRECT, Strategy.NEGATIVE
#: Scripts, and how state is kept in them.
CASES = {
    "joins/looked_up_other_streams": NEGATIVE, "joins/outer_band": DIRECT, "temporal/shedding": PATTERN,
    "temporal/shedding_estimates": PATTERN, "temporal/drain_by_rows": PATTERN, "temporal/changes": PATTERN,
    "temporal/closed_under_outer_joins": DIRECT, "temporal/conditional": PATTERN, "subqueries/lateral": PATTERN,
    "subqueries/own_of_none": NEGATIVE, "preferences/covered": DIRECT, "preferences/estimates": DIRECT,
    "preferences/tables": DIRECT, "preferences/selection": PATTERN, "frequency/mixes": PATTERN,
    "frequency/view_of_answers": NEGATIVE, "windows/overlap_few": PATTERN, "windows/range_by_rows": PATTERN,
    "windows/samples_of_two_streams": NEGATIVE, "streams/restore_one_tree": NEGATIVE, "streams/restore": PATTERN,
    "streams/restore_counts": NEGATIVE, "sets/intersect_streams": PATTERN, "relations/nonretroactive_several": PATTERN,
    "relations/nonretroactive_rows": NEGATIVE, "frequent/items": NEGATIVE, "subqueries/exists": PATTERN,
    "promises/groups_in_order": PATTERN, "promises/groups_that_are_closed": PATTERN,
    "promises/rows_that_are_closed": NEGATIVE, "promises/orders_that_are_complete": PATTERN,
    "promises/auctions_that_are_closed": PATTERN, "promises/punctuated_rows_count": PATTERN,
    "promises/checked_by_several_promises": PATTERN, "joins/finitely_many_values": PATTERN,
}  # fmt: skip
#: What comes with several queries of a stream, or with more of its rows than scripts have.
QUERIES = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY least AS SELECT k, MIN(a) AS a FROM S [RANGE 2 SECONDS] GROUP BY k;
CREATE QUERY less AS SELECT k, MIN(a) AS a FROM S [RANGE 9 SECONDS] GROUP BY k;
CREATE QUERY most AS SELECT RSTREAM(k, MAX(a) AS a) FROM S [RANGE 60 SECONDS SLIDE 4 SECONDS] GROUP BY k;
CREATE QUERY more AS SELECT RSTREAM(k, MAX(a) AS a) FROM S [RANGE 30 SECONDS SLIDE 6 SECONDS] GROUP BY k;
CREATE QUERY anew AS SELECT RSTREAM(k, COUNT(DISTINCT a) AS n) FROM S [RANGE 6 SECONDS SLIDE 6 SECONDS] GROUP BY k;
CREATE QUERY shed WITH (memory '20 TUPLES') AS
  SELECT k, VALID(s) FROM S (k) VALID FOR 3 SECONDS [ROWS 40] AS s;
CREATE QUERY listed AS SELECT S.a, c.w FROM S [NOW], (VALUES (1, 10), (2, 20)) AS c (k, w) WHERE S.k = c.k;
"""
#: Specs whose operator is that of another one.
ALIKE = {ConstantSpec: StaticSpec, ChosenJoinSpec: JoinSpec, TakingBackJoinSpec: StoreJoinSpec}


@dataclass
class Restarts:
    """What has been restored. holding: the synopses that had rows; specs: of the operators."""

    holding: set[str] = field(default_factory=set)
    specs: set[type] = field(default_factory=set)

    def reload(self, job: LocalJob) -> None:
        """Take the place of `LocalJob.reload`: restore every shard twice, and compare what the two would write."""
        self.specs |= {type(step.spec) for plan in plans(job.plan) for step in plan.steps}
        for row in job.stages:
            for shard, executor in enumerate(row):
                self.holding |= {type(one).__name__ for one in executor.synopses().values() if one.rows}
                written = executor.snapshot()
                restored = job._restored(executor, shard)
                again = restored.snapshot()
                assert_equal(again, written)
                row[shard] = job._restored(restored, shard)
                assert {n: one.rows for n, one in row[shard].synopses().items()} == {
                    n: one.rows for n, one in restored.synopses().items()
                }


def plans(plan: Plan) -> list[Plan]:
    """Return a plan and those inside of its operators."""
    inner: list[Plan] = [vars(step.spec)["inner"] for step in plan.steps if "inner" in vars(step.spec)]
    return [plan, *(one for below in inner for one in plans(below))]


def assert_equal(found: ExecutorSnapshot, expected: ExecutorSnapshot) -> None:
    """Assert that two snapshots have the same contents, to the bit."""
    assert found.marks == expected.marks
    assert found.synopses.keys() == expected.synopses.keys()
    for name, synopsis in expected.synopses.items():
        assert found.synopses[name].manifest == synopsis.manifest, name
        assert found.synopses[name].chunks.keys() == synopsis.chunks.keys(), name
        for number, chunk in synopsis.chunks.items():
            # NaN differs from itself in Arrow.
            assert written(found.synopses[name].chunks[number]) == written(chunk), name


def written(batch: pa.RecordBatch) -> bytes:
    """Return the bytes of a batch as it is stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def run_all() -> None:
    """Run everything with a restart between all rounds. The scripts check their answers too."""
    for name, strategy in CASES.items():
        shards = 1 if name.startswith("preferences/") else 2
        for thresholds in (None, 1):
            run = CaseRun(shards, batch_rows=2, reload=True, guesses=2, strategy=strategy, thresholds=thresholds)
            run_case(SCRIPTS / f"{name}.cqltest", (run,))
    draw = np.random.default_rng(1)
    ticks = np.sort(draw.integers(0, 200, 600))
    columns = [ticks, draw.integers(0, 4, 600), draw.integers(0, 30, 600)]
    table = pa.table([pa.array(column, pa.int32()) for column in columns], names=["ts", "k", "a"])
    run_local(bind_script(QUERIES).queries, {"S": table}, 2, True, 3, reload=True)
    for seed in range(12):
        for case in (random_preference(Seeded(seed)).case, random_estimate(Seeded(seed))):
            parsed = parse_case(case.render())
            script = bind_script(parsed.script)
            run_local(script.queries[:1], case_inputs(parsed, script), 1, True, seed, reload=True)


def test_what_is_restored_and_written_again_is_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    restarts = Restarts()
    monkeypatch.setattr(LocalJob, "reload", lambda job: restarts.reload(job))
    run_all()
    missing = set(SYNOPSES) - restarts.holding
    assert not missing, "no case has rows in them"
    missing = {spec for spec in OPERATORS if spec not in restarts.specs and ALIKE.get(spec) not in restarts.specs}
    assert not missing, "no case has them"
