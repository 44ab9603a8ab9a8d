"""CSQL beyond the text cases: rules on and off, what windows store, the paper's own queries, explain, many cuts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Sequenced
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.optimizer.rules import RULES
from penstock.explain import to_json, to_text
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.executor import InnerPlan
from penstock.physical.execution.render import render_plan
from penstock.physical.operators import Moment
from penstock.physical.operators.sequence.count_time import CountTime
from penstock.physical.operators.sequence.relations import SequenceModelWithRelations
from penstock.physical.operators.sequence.sequence_model import SequenceModel
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.sequence import CountTimeSpec, FrequencySpec, SequenceModelSpec
from penstock.physical.plan.spec import Ticks
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import CaseRun, case_inputs, parse_case, run_case
from penstock.testing.compare import assert_same, first_difference
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, random_case, seeded_choices
from penstock.tree import walk
from penstock.types import END

FLAVOUR = next(flavour for flavour in FLAVOURS if flavour.name == "frequency")
STREAM = "CREATE STREAM S (ts BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts;"
LAWS = [
    "evaluate_as_often_as_picked", "evaluate_in_time", "merge_frequencies", "pull_projection_above_frequency",
    "push_selection_below_frequency", "read_sequence_as_stream",
]  # fmt: skip
CASES = 12


def plan_of(query: str) -> Plan:
    (bound,) = bind_script(f"{STREAM} CREATE QUERY q AS {query};").queries
    return plan_queries([bound])


def spec_of(query: str) -> SequenceModelSpec:
    (found,) = (step.spec for step in plan_of(query).steps if isinstance(step.spec, SequenceModelSpec))
    return found


@pytest.mark.parametrize("law", LAWS)
def test_each_law_on_and_off(law: str, case_count: int | None, case_seed: int | None) -> None:
    """The oracle's answer is that of the plan as it was written, with that law alone and with all rules but it."""
    alone = tuple(rule for rule in RULES if rule.name == law)
    others = tuple(rule for rule in RULES if rule.name != law)
    assert len(alone) == 1
    for seed in range(case_count or CASES):
        case = random_case(seeded_choices(seed + 1000 * (case_seed or 0)), FLAVOUR)
        bound = bind_script("\n".join(case.statements))
        inputs = case_inputs(parse_case(case.render()), bound)
        for query in bound.queries:
            plans = [optimize(query.root, check=True, rules=rules) for rules in (alone, others)]
            if all(plan == query.root for plan in plans):
                continue
            written = run_oracle(query, inputs).events
            for plan in plans:
                found = run_oracle(query, inputs, optimized_root=plan).events
                assert first_difference(written, found) is None, case.render()


def test_the_paper_word_for_word() -> None:
    """Its four queries with its own frequencies; the inputs are too long to be fed row by row, as text cases are."""
    run_case(Path(__file__).with_name("csql_paper.cqltest"), [CaseRun(), CaseRun(shards=3, seed=7, reload=True)])


# --- what is stored

Row = tuple[int, int, int]


def rows(count: int, keys: int = 3, step: int = 1) -> list[Row]:
    return [(i * step, i % keys, i) for i in range(count)]


def feed(line: SequenceModel | CountTime, given: list[Row]) -> int:
    """The largest number of elements that the windows of `line` held after a round of one element."""
    most = 0
    for row in given:
        columns = tuple(
            pa.array([value], kind) for value, kind in zip(row, (pa.int64(), pa.int32(), pa.int32()), strict=True)
        )
        line.process(0, Elements(columns, np.array([row[0]]), np.array([END])))
        list(line.advance(Moment(row[0], given[0][0])))
        held = [s for name, s in line.synopses().items() if name.startswith("window")]
        most = max(most, sum(s.rows for s in held))
    return most


@pytest.mark.parametrize(
    ("window", "most"),
    [
        ("RANGE 3 TUPLES, FREQUENCY 50 TUPLES", 6),
        ("RANGE 3 TUPLES, FREQUENCY 50 TUPLES PARTITIONED BY k", 18),
        ("RANGE 3 SECOND, FREQUENCY 50 TUPLES", 6),
        ("RANGE 3 SECOND, FREQUENCY 50 SECOND", 6),
        ("RANGE 3 TUPLES, FREQUENCY 50 SECOND", 6),
        ("RANGE 3 TUPLES, FREQUENCY 50 SECOND PARTITIONED BY k", 18),
        ("RANGE UNBOUNDED, FREQUENCY 5 TUPLES", 5),
        ("RANGE 120 TUPLES, FREQUENCY 50 TUPLES", 171),
        ("RANGE 120 SECOND, FREQUENCY 50 TUPLES", 171),
    ],
)
def test_a_window_stores_what_an_evaluation_needs(window: str, most: int) -> None:
    """What it holds since the last evaluation, and what it may show at the next: never the elements between."""
    spec = spec_of(f"SELECT ISTREAM(k, v) FROM S [{window}]")
    assert feed(SequenceModel(spec, {}, InnerPlan), rows(180)) <= most


def test_elements_that_no_evaluation_needs_are_not_stored_at_all() -> None:
    """Not for a round either: a window of 2 of every 100."""
    line = SequenceModel(spec_of("SELECT ISTREAM(k, v) FROM S [RANGE 2 TUPLES, FREQUENCY 100 TUPLES]"), {}, InnerPlan)
    assert feed(line, rows(98)) == 0
    chunks = [s.snapshot()[1] for name, s in line.synopses().items() if name.startswith("window")]
    assert chunks == [{}]


@pytest.mark.parametrize("answer", ["COUNT(*)", "k, v", "k, AVG(v)"])
def test_counted_windows_are_windows_in_the_time_of_numbers(answer: str) -> None:
    """And store nothing of what lies between two of them."""
    group = " GROUP BY k" if "AVG" in answer else ""
    plan = plan_of(f"SELECT {answer} FROM S [RANGE 2 TUPLES, FREQUENCY 100 TUPLES]{group}")
    (spec,) = (step.spec for step in plan.steps if isinstance(step.spec, CountTimeSpec))
    assert (spec.rows, spec.every, spec.asked) == (2, 100, ((100, 0, 0),))
    numbered = CountTime(spec, {}, InnerPlan)

    def held() -> int:
        return sum(s.rows for s in numbered.synopses().values())

    nothing = held()
    feed(numbered, rows(98))
    assert held() == nothing
    feed(numbered, [(100, 0, 0)])
    assert held() > nothing


def test_a_log_is_rewritten_when_most_of_it_is_gone() -> None:
    """In bytes too, and a restored line goes on as the one that was saved."""
    query = "SELECT ISTREAM(k, SUM(v)) FROM S [RANGE 500 SECOND, FREQUENCY 7 TUPLES PARTITIONED BY k] GROUP BY k"
    (bound,) = bind_script(f"{STREAM} CREATE QUERY q AS {query};").queries
    draw = random.Random(5)
    given = sorted((draw.randrange(15_000), draw.randrange(3), draw.randrange(9)) for _ in range(12_000))
    types = (pa.int64(), pa.int32(), pa.int32())
    table = pa.table(
        {n: pa.array(c, t) for n, c, t in zip(["ts", "k", "v"], zip(*given, strict=True), types, strict=True)}
    )
    whole = run_local([bound], {"S": table})
    assert whole.tables["q"].num_rows > 1000
    cut = run_local([bound], {"S": table}, batch_rows=800, reload=True)
    assert whole.tables["q"].sort_by([("ts", "ascending"), ("k", "ascending"), ("sum(v)", "ascending")]) == cut.tables[
        "q"
    ].sort_by([("ts", "ascending"), ("k", "ascending"), ("sum(v)", "ascending")])


def test_of_a_non_retroactive_relation_only_what_waits_can_ask_for_is_kept() -> None:
    """It is replaced with every element; a window of which nothing waits lets all that it was go."""
    (bound,) = bind_script(
        f"{STREAM}"
        " CREATE NON RETROACTIVE RELATION N (ts BIGINT, v INT, PRIMARY KEY (v)) FROM MEMORY () TIMESTAMP BY ts;"
        " CREATE QUERY q AS SELECT S.k FROM S [RANGE 5 TUPLES, FREQUENCY 10 TUPLES], N WHERE S.k >= N.v;"
    ).queries
    (spec,) = (step.spec for step in plan_queries([bound]).steps if isinstance(step.spec, SequenceModelSpec))
    line = SequenceModelWithRelations(spec, {}, InnerPlan)
    held = []
    for ts, k, v in rows(200):
        columns = (pa.array([ts]), pa.array([k], pa.int32()), pa.array([v], pa.int32()))
        line.process(0, Elements(columns, np.array([ts]), np.array([END])))
        updates = [(1, ts)] if not ts else [(-1, ts - 1), (1, ts)]
        for sign, row in updates:
            replaced = (pa.array([row]), pa.array([0], pa.int32()))
            line.process(1, Elements(replaced, np.array([ts]), np.array([END]), np.array([sign])))
        list(line.advance(Moment(ts, 0)))
        held.append(sum(s.rows for name, s in line.synopses().items() if name.endswith("relation")))
    assert 0 < max(held) <= 10


# --- plans


def test_the_plan_tells_how_often_it_is_to_be_evaluated() -> None:
    spec = spec_of(
        "SELECT a.k FROM S [RANGE 5 TUPLES, FREQUENCY 20 TUPLES] a, S [NOW, FREQUENCY 3 SECOND] b WHERE a.k = b.k"
    )
    assert spec.asked == ((0, 3, 0), (20, 0, 0))
    assert spec.describe()["evaluated"] == (Ticks(3), "20 tuples")


ASKED = [
    ("SELECT k, v FROM S [FREQUENCY 4 TUPLES PARTITIONED BY k] WHERE v > 1", ["stream 4 None (k)"]),
    ("SELECT k, v [FREQUENCY 2 SECOND] FROM S", ["answer None 2 ()"]),
    (
        "SELECT k, COUNT(*) [FREQUENCY 7 SECOND PARTITIONED BY k] FROM S [ROWS 5, FREQUENCY 20 TUPLES] GROUP BY k",
        ["answer None 7 (k)", "window 20 None ()"],
    ),
    (
        "SELECT a.k FROM S [RANGE 5 TUPLES, FREQUENCY 20 TUPLES] a, S [NOW, FREQUENCY 3 SECOND] b WHERE a.k = b.k",
        ["window 20 None ()", "window None 3 ()"],
    ),
    ("SELECT COUNT(*) FROM S [FREQUENCY 4 TUPLES PARTITIONED BY k]", ["stream 4 None (k)"]),
    # Nested frequencies are one when the plan is made: every sixth.
    ("SELECT v FROM (SELECT v FROM S [FREQUENCY 2 TUPLES]) AS x [FREQUENCY 3 TUPLES]", ["stream 6 None ()"]),
    # FREQUENCY in time is SLIDE, and SLIDE asks for an answer as often.
    ("SELECT COUNT(*) FROM S [RANGE 5 SECOND, FREQUENCY 3 SECOND]", ["window None 3 ()"]),
    ("RSTREAM(SELECT COUNT(*) FROM S [RANGE 5 SECOND SLIDE 3 SECOND ALIGN TO 1])", ["window None 3 ()"]),
    ("SELECT COUNT(*) FROM S [RANGE 5 SECOND]", []),
]  # fmt: skip


@pytest.mark.parametrize(("query", "wanted"), ASKED)
def test_the_plan_tells_how_often_it_is_to_be_answered(query: str, wanted: list[str]) -> None:
    """On streams, in windows and of the answers: place, tuples, ticks, substreams."""
    (bound,) = bind_script(f"{STREAM} CREATE QUERY q AS {query};").queries
    found = plan_queries([type(bound)(bound.name, optimize(bound.root), bound.sink)]).periods["q"]
    assert [f"{p.place.value} {p.tuples} {p.ticks} ({', '.join(p.by)})" for p in found] == wanted


def test_explain_shows_how_often_a_query_is_to_be_answered() -> None:
    plan = plan_of(
        "SELECT k, COUNT(*) [FREQUENCY 7 SECOND PARTITIONED BY k] FROM S [NOW, FREQUENCY 2 TUPLES] GROUP BY k"
    )
    tree = render_plan(plan, "q")
    asked = "answers, 7 SECOND PARTITIONED BY k; window boundaries, 2 TUPLES"
    (output,) = (node for node in json.loads(to_json(tree))["nodes"] if node["label"] == "Output")
    assert output["parameters"]["evaluated at"] == asked
    # The line is full here: its last word stands on the next one.
    text = to_text(tree)
    assert f"evaluated at: {asked.removesuffix(' TUPLES')} " in text
    assert "│    TUPLES\n" in text


def test_a_frequency_that_is_the_answer_is_cut_over_shards() -> None:
    def exchange(query: str) -> list[object]:
        (bound,) = bind_script(f"{STREAM} CREATE QUERY q AS {query};").queries
        plan = plan_queries([type(bound)(bound.name, optimize(bound.root), bound.sink)])
        (step,) = (step for step in plan.steps if isinstance(step.spec, FrequencySpec))
        return [edge.exchange.key for edge in step.inputs if edge.exchange is not None]

    assert exchange("SELECT k, v [FREQUENCY 2 TUPLES PARTITIONED BY k] FROM S") == [(0,)]
    assert exchange("SELECT k, v [FREQUENCY 2 TUPLES] FROM S") == [()]


def test_explain_says_that_a_query_is_in_the_sequence_model() -> None:
    (bound,) = bind_script(
        f"{STREAM} CREATE QUERY q AS SELECT COUNT(*) FROM S [RANGE 2 TUPLES, FREQUENCY 3 TUPLES];"
    ).queries
    (found,) = (node for node in walk(bound.root) if isinstance(node, Sequenced))
    assert found.describe()["model"] == "sequence"
    assert json.dumps(dict(found.describe()))


# --- many cuts of longer inputs


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, SUM(v) AS s FROM S [RANGE 7 TUPLES, FREQUENCY 3 TUPLES PARTITIONED BY k] GROUP BY k",
        "SELECT SUM(v) AS s, COUNT(*) AS n FROM S [RANGE 20 SECOND, FREQUENCY 5 TUPLES]",
        "SELECT COUNT(*) AS n [FREQUENCY 5 TUPLES] FROM S [RANGE 7 TUPLES, FREQUENCY 9 SECOND]",
        "SELECT k, COUNT(*) AS n [FREQUENCY 3 TUPLES PARTITIONED BY k] FROM S [RANGE 9 SECOND] GROUP BY k",
    ],
)
def test_long_inputs_however_cut(query: str) -> None:
    draw = random.Random(query)
    tick, given = 0, []
    for number in range(150):
        tick += draw.choice([0, 0, 1, 2, 7])
        given.append((tick, draw.randrange(4), number % 11))
    columns = zip(*given, strict=True)
    table = pa.table(
        {
            n: pa.array(c, t)
            for n, c, t in zip(["ts", "k", "v"], columns, (pa.int64(), pa.int32(), pa.int32()), strict=True)
        }
    )
    (bound,) = bind_script(f"{STREAM} CREATE QUERY q AS {query};").queries
    expected = run_oracle(bound, {"S": table}, drain=True)
    assert expected.events
    for seed in range(3):
        found = run_local([bound], {"S": table}, seed=seed, shards=1 + seed, drain=True, reload=seed == 1)
        assert_same(bound, found.tables["q"], expected)
