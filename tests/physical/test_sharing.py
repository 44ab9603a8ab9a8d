"""Sharing across time: steps of queries that began at different times become one where nobody can tell the difference.

That no answer changes is shown by the lives of `tests/runtime/test_live.py`, each against the law, and by
`tests/runtime/test_merged_lives.py`; here is what is merged, when, and what is not.
"""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.plan.identity import step_keys
from penstock.runtime.live import LiveEngine
from penstock.testing.compare import events_of
from penstock.types import END

SOURCES = """
CREATE STREAM S (ts INT, k INT, a INT, d DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (ts INT, k INT, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE FUNCTION draw RETURNS DOUBLE VOLATILE AS 'penstock.testing.samples:draw';
CREATE FUNCTION checked RETURNS INT AS 'penstock.testing.samples:checked';
"""
NOW, WARM, BEGINNING = Start(), Start(StartMode.WARM), Start(StartMode.BEGINNING)
SUM = "SELECT k, SUM(a) AS s FROM S [RANGE 10 SECONDS] GROUP BY k"
JOIN = "SELECT S.k, S.a, T.b FROM S [RANGE 10 SECONDS], T [RANGE 10 SECONDS] WHERE S.k = T.k"


def query(name: str, text: str) -> Query:
    return bind_script(f"{SOURCES} CREATE QUERY {name} AS {text};").queries[0]


class Life:
    """An engine that is fed one row a second of each stream."""

    def __init__(self) -> None:
        self.engine = LiveEngine(2)
        sources = bind_script(
            f"{SOURCES} CREATE QUERY q AS SELECT S.k FROM S [NOW], T [NOW], R WHERE S.k = T.k AND S.k = R.k;"
        ).queries[0]
        for leaf in leaves(sources.root):
            assert isinstance(leaf, Scan)
            self.engine.declare(leaf.source)
        self.tick = 0
        self.events: dict[str, list[object]] = {}
        self.queries: dict[str, Query] = {}

    def register(self, name: str, text: str, start: Start = NOW) -> None:
        self.queries[name] = query(name, text)
        self.take({name: self.engine.register(self.queries[name], start)})

    def take(self, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            self.events.setdefault(name, []).extend(events_of(self.queries[name], table))

    def go_on(self, seconds: int, but: str = "") -> None:
        for _ in range(seconds):
            self.tick += 1
            ts, k = pa.array([self.tick], pa.int32()), pa.array([self.tick % 3], pa.int32())
            value = pa.array([self.tick], pa.int32())
            rows = {"S": [ts, k, value, pa.array([self.tick / 10])], "T": [ts, k, value], "R": [ts, k, value]}
            names = {"S": ["ts", "k", "a", "d"], "T": ["ts", "k", "b"], "R": ["ts", "k", "c"]}
            for source, columns in rows.items():
                if source != but:
                    self.engine.insert(source, pa.RecordBatch.from_arrays(columns, names[source]))
            self.take(self.engine.round())

    def change(self) -> None:
        """Make another version of the plan."""
        self.register("other", "SELECT b FROM T [NOW] WHERE b < 0")
        self.engine.drop("other")

    def steps(self) -> Counter[str]:
        """How many steps there are of each kind."""
        return Counter(step.spec.title for step in self.engine._job.plan.steps)


def shared_kinds(*texts: tuple[str, str, Start], seconds: int = 30) -> Counter[str]:
    """The kinds of steps after the queries have begun one after the other and time has gone on."""
    life = Life()
    life.go_on(3)
    for name, text, start in texts:
        life.register(name, text, start)
        life.go_on(2)
    life.go_on(seconds)
    life.change()
    return life.steps()


def test_steps_without_memory_are_shared_at_once() -> None:
    life = Life()
    life.go_on(2)
    life.register("one", SUM)
    life.go_on(1)
    life.register("two", SUM)
    steps = life.steps()
    assert steps["Scan"] == steps["AccumulatorRows"] == 1
    assert steps["Aggregate"] == 2, "the second has not seen what came before"
    (channel,) = life.engine._job.plan.receivers
    assert channel.step in life.engine._job.plan.shared, "and rows are sent once for both"


@pytest.mark.parametrize("start", [WARM, BEGINNING])
@pytest.mark.parametrize("text", [SUM, JOIN])
def test_a_query_that_has_read_its_past_joins_the_standing_steps(text: str, start: Start) -> None:
    life = Life()
    life.register("one", text)
    life.go_on(25)
    before = life.steps()
    life.register("two", text, start)
    assert life.steps() == before + Counter(Output=1)
    life.go_on(15)
    late = [event for event in life.events["one"] if event[0] > 30]
    assert late and late == [event for event in life.events["two"] if event[0] > 30]


def test_a_query_that_began_now_is_merged_when_time_has_gone_on_by_its_need() -> None:
    life = Life()
    life.register("one", SUM)
    life.go_on(20)
    life.register("two", SUM)
    merged_after = None
    for second in range(1, 20):
        life.go_on(1)
        life.change()
        if life.steps()["Aggregate"] == 1:
            merged_after = second
            break
    # What was read before reaches up to 20. The first second brings the first element, with which time begins, 21; the
    # heartbeat trails the largest timestamp by 1, so at 32 the window holds nothing up to there.
    assert merged_after == 12


def test_a_version_is_needed_for_a_merge() -> None:
    life = Life()
    life.register("one", SUM)
    life.go_on(5)
    life.register("two", SUM)
    life.go_on(40)
    assert life.steps()["Aggregate"] == 2
    life.change()
    assert life.steps()["Aggregate"] == 1


def test_the_merged_state_stays_when_the_query_goes_that_it_came_from() -> None:
    life = Life()
    life.register("one", SUM)
    life.go_on(20)
    life.register("two", SUM, WARM)
    (before,) = (key for step, key in keys(life) if step == "Aggregate")
    life.engine.drop("one")
    (after,) = (key for step, key in keys(life) if step == "Aggregate")
    assert before == after
    life.engine = LiveEngine.restored(pickle.loads(pickle.dumps(life.engine.snapshot())))
    life.register("three", SUM, WARM)
    assert life.steps()["Aggregate"] == 1
    life.go_on(15)
    late = [event for event in life.events["two"] if event[0] > 25]
    assert late and late == [event for event in life.events["three"] if event[0] > 25]


def keys(life: Life) -> list[tuple[str, str]]:
    plan = life.engine._job.plan
    return [(plan.step(number).spec.title, key) for number, key in step_keys(plan).items()]


def test_steps_are_not_merged_while_a_slower_source_holds_one_back() -> None:
    window = "SELECT k, COUNT(*) AS n FROM S [RANGE 5 SECONDS] GROUP BY k"
    joined = f"SELECT w.k, w.n, T.b FROM ({window}) w, T [RANGE 5 SECONDS] WHERE w.k = T.k"
    life = Life()
    life.register("one", window)
    life.go_on(20)
    life.go_on(4, but="T")
    life.register("two", joined, WARM)
    assert life.steps()["Aggregate"] == 2, "that of the second stands at the heartbeat of T"
    life.tick -= 4
    life.go_on(8, but="S")
    life.change()
    assert life.steps()["Aggregate"] == 1
    life.go_on(10)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT k, SUM(d) AS s FROM S [RANGE 10 SECONDS] GROUP BY k", "Aggregate"),
        ("SELECT d, COUNT(*) AS n FROM S [RANGE 10 SECONDS] GROUP BY d", "Aggregate"),
        ("SELECT COUNT(*) AS n FROM (SELECT DISTINCT k FROM S [RANGE 10 SECONDS]) d", "Distinct"),
        ("SELECT k, a FROM S [RANGE 10 SECONDS] WHERE a > 3 OR draw(a) < 0", "Filter"),
    ],
)
def test_what_remembers_more_than_live_tuples_is_not_merged(text: str, kind: str) -> None:
    assert shared_kinds(("one", text, NOW), ("two", text, WARM))[kind] == 2


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT DISTINCT k FROM S [RANGE 10 SECONDS]", "DistinctChanges"),
        ("SELECT k FROM S [RANGE 9 SECONDS] EXCEPT ALL SELECT k FROM T [RANGE 4 SECONDS]", "SetOperation"),
        ("SELECT S.k, c FROM S [RANGE 9 SECONDS] LEFT JOIN R ON S.k = R.k AND R.c < 5", "PartnerCounts"),
        ("SELECT k, a FROM S [RANGE 9 SECONDS] WHERE NOT EXISTS (SELECT * FROM R WHERE R.k = S.k)", "PartnerCounts"),
        ("SELECT k, COUNT(*) AS n FROM S [RANGE 9 SECONDS] GROUP BY k ORDER BY n, k LIMIT 2", "TopK"),
        ("SELECT k, a FROM S [PARTITION BY k ROWS 3]", "RowWindow"),
    ],
)
def test_what_remembers_live_tuples_alone_is_merged(text: str, kind: str) -> None:
    once = shared_kinds(("one", text, BEGINNING))
    assert shared_kinds(("one", text, BEGINNING), ("two", text, WARM))[kind] == once[kind] > 0


def test_the_first_rows_of_shards_are_not_merged_where_senders_decide_on_the_shard() -> None:
    text = "SELECT k, a FROM S [RANGE 10 SECONDS] ORDER BY a DESC, k LIMIT 3"
    assert shared_kinds(("one", text, NOW), ("two", text, WARM))["TopK"] == 4, "local and final, of each"


def test_a_row_window_that_has_not_read_its_rows_is_never_merged() -> None:
    text = "SELECT k, a FROM S [ROWS 3]"
    assert shared_kinds(("one", text, NOW), ("two", text, NOW), seconds=60)["RowWindow"] == 2


def test_samples_of_other_percentages_are_different_steps() -> None:
    one, two = (f"SELECT k, a FROM S [RANGE 9 SECONDS] SAMPLE({percent})" for percent in (50, 60))
    steps = shared_kinds(("one", one, NOW), ("two", two, NOW), ("three", two, NOW))
    assert (steps["Scan"], steps["Sample"]) == (1, 2)


def test_rounded_sums_are_merged_where_nothing_is_taken_back_and_nothing_above_them_is() -> None:
    sums = "RSTREAM(SELECT k, SUM(d) AS s, MAX(a) AS m FROM S [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k)"
    assert shared_kinds(("one", sums, NOW), ("two", sums, NOW))["IncrementalSlide"] == 1
    above = f"SELECT x.k, x.s, T.b FROM ({sums}) [RANGE 4 SECONDS] x, T [RANGE 4 SECONDS] WHERE x.k = T.k"
    steps = shared_kinds(("one", above, NOW), ("two", above, NOW))
    assert (steps["IncrementalSlide"], steps["Join"]) == (1, 2)


def test_a_failing_step_that_several_share_ends_all_of_them_and_no_other() -> None:
    life = Life()
    life.register("one", "SELECT k, a FROM S [RANGE 10 SECONDS] WHERE checked(a) > 0")
    life.go_on(20)
    life.register("two", "SELECT k, a FROM S [RANGE 10 SECONDS] WHERE checked(a) > 0", WARM)
    life.register("three", SUM)
    plan, failures = life.engine._job.plan, StepFailures()
    (failing,) = (step for step in plan.steps if step.spec.title == "Filter")
    ingest = IngestExecutor(plan, "S", {}, failures=failures)
    one = pa.array([-1], pa.int32())
    columns = tuple(pa.array([-1.0]) if column == 3 else one for column in ingest.columns)
    result = ingest.run(Elements(columns, np.array([30]), np.array([END])))
    assert failures.errors.keys() == failing.queries and len(failing.queries) == 2
    (sent,) = result.onward.values()
    assert sum(map(len, sent)) == 1, "the third is not affected"


SLIDING = "RSTREAM(SELECT k, SUM(a) AS s FROM S [RANGE {} SECONDS SLIDE {} SECONDS] GROUP BY k)"


@pytest.mark.parametrize("start", [NOW, WARM])
def test_a_window_joins_the_panes_that_stand_where_their_grain_divides_its_length_and_slide(start: Start) -> None:
    texts = [SLIDING.format(12, 4), SLIDING.format(8, 8), SLIDING.format(20, 4)]
    steps = shared_kinds(*((f"q{i}", text, start) for i, text in enumerate(texts)))
    assert (steps["PaneStore"], steps["WindowSums"], steps["AccumulatorRows"]) == (1, 3, 1)


def test_panes_never_get_another_grain() -> None:
    steps = shared_kinds(("one", SLIDING.format(12, 4), NOW), ("two", SLIDING.format(6, 3), WARM))
    assert (steps["PaneStore"], steps["AccumulatorRows"]) == (2, 2)
    # The coarsest of those that there are.
    steps = shared_kinds(
        ("one", SLIDING.format(6, 3), NOW), ("two", SLIDING.format(12, 6), WARM), ("three", SLIDING.format(18, 6), WARM)
    )
    assert steps["PaneStore"] == 1


def test_extremes_of_windows_that_slide_get_the_panes_of_others() -> None:
    texts = [
        f"RSTREAM(SELECT k, MAX(a) AS m FROM S [RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY k)"
        for length, slide in ((12, 4), (24, 8))
    ]
    steps = shared_kinds(("one", texts[0], NOW), ("two", texts[1], NOW))
    assert (steps["AccumulatorRows"], steps["IncrementalSlide"]) == (1, 2)
