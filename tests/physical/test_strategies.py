"""`SET state_strategy`: which state structures each strategy plans, and that the answers are the same.

That they are the same for every query is for the property test, whose runs draw a strategy, and for the text cases,
which run under all three.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.physical.synopses.queues.expiration_queue import ListQueue
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from penstock.settings import Settings

SCRIPT = """
CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY q AS SELECT DISTINCT S.a FROM S [RANGE 3 SECONDS], T [RANGE 5 SECONDS] WHERE S.a = T.a;
"""


def plan(strategy: str) -> str:
    session = Session()
    session.execute(f"SET state_strategy = '{strategy}'; {SCRIPT}")
    return session.explain("q").split("physical plan")[1].split("-- q: state")[0]


def test_pattern_follows_the_update_pattern() -> None:
    text = plan("pattern")
    assert "state: δ*" in text
    assert "hash index by key / hash index by key" in text
    assert "NegativeTuples" not in text


def test_direct_looks_through_lists() -> None:
    text = plan("direct")
    assert "list of all input" in text
    assert "looked through for ends" in text
    assert "state: list" in text
    assert "NegativeTuples" not in text


def test_negative_announces_every_window() -> None:
    text = plan("negative")
    assert text.count("NegativeTuples") == 2
    assert "state: counts" in text
    assert "hash index by key, with negative tuples" in text


def test_a_script_explains_by_the_setting_it_made() -> None:
    told = Session().execute(f"{SCRIPT} SET state_strategy = negative; EXPLAIN SELECT a FROM S [NOW];").texts
    assert "NegativeTuples" in told[-1]


def test_another_word_is_refused() -> None:
    with pytest.raises(PenstockError, match="one of pattern, direct, negative"):
        Settings().with_value("state_strategy", "lazy")


def test_the_answers_are_the_same() -> None:
    bound = bind_script(SCRIPT)
    ticks = list(range(200))
    inputs = {
        "S": pa.table({"ts": pa.array(ticks, pa.int32()), "a": pa.array([t * 7 % 5 for t in ticks], pa.int32())}),
        "T": pa.table({"ts": pa.array(ticks, pa.int32()), "a": pa.array([t * 3 % 7 for t in ticks], pa.int32())}),
    }
    answers = [
        run_local(bound.queries, inputs, batch_rows=3, reload=True, strategy=strategy)
        .tables["q"]
        .sort_by(
            [
                ("ts", "ascending"),
                ("op", "descending"),
                ("a", "ascending"),
            ]
        )
        for strategy in Strategy
    ]
    assert answers[0].num_rows > 50
    assert answers[0] == answers[1] == answers[2]


def rows(*due: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(due, pa.int64())], names=["due"])


def test_a_list_gives_what_is_due_in_any_order() -> None:
    queue = ListQueue()
    queue.push(rows(5, 1, 3))
    queue.push(rows(2, 9))
    assert sorted(d for batch in queue.pop_until(3) for d in batch.column(0).to_pylist()) == [1, 2, 3]
    assert queue.rows == 2
    fresh = ListQueue()
    fresh.restore(*queue.snapshot())
    assert sorted(d for batch in fresh.pop_until(9) for d in batch.column(0).to_pylist()) == [5, 9]
    assert fresh.rows == 0


def test_a_list_of_many_small_batches_stays_one() -> None:
    queue = ListQueue()
    for due in range(1000):
        queue.push(rows(due))
    assert len(queue.contents()) <= 300
    assert sum(batch.num_rows for batch in queue.pop_until(998)) == 999


def steps(*queries: str) -> list[str]:
    """The specs planned for DISTINCT and the telling of changes."""
    text = SCRIPT + "".join(f"CREATE QUERY q{n} AS {query};" for n, query in enumerate(queries))
    plan = plan_queries([q for q in bind_script(text).queries if q.name != "q"])
    return sorted(type(s.spec).__name__ for s in plan.steps if "Distinct" in str(s.spec) or "Changes" in str(s.spec))


def test_distinct_tells_its_changes_where_nobody_else_reads_it() -> None:
    distinct = "SELECT DISTINCT a FROM S [RANGE 3 SECONDS]"
    assert steps(distinct) == ["DistinctChangesSpec"]
    assert steps(distinct, distinct) == ["DistinctChangesSpec"]
    assert steps(distinct, f"ISTREAM({distinct})") == ["DistinctChangesSpec"] * 2
    assert steps(f"RSTREAM({distinct})", distinct) == ["ChangesSpec", "DistinctSpec"]
    assert steps("SELECT DISTINCT a FROM S [ROWS 3]") == ["ChangesSpec", "DistinctSpec"]
