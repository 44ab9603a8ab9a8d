"""When results are emitted: each as soon as no result can come before it, where nothing takes it back [semantics 1]."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from test_property import Arrivals, Inputs, explore, runtime_is_oracle

from penstock.algebra.nodes.base import leaves
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Scan
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import LocalJob, compute_statics, static_sources
from penstock.runtime.local.schedule import rounds
from penstock.session import Session
from penstock.testing.cases import CaseRun
from penstock.testing.compare import check_shape, events_of, first_difference, show_events
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour
from penstock.testing.thresholds import lowered, small

CASES, MANY_CASES = 10, 400

#: What has been read of every source, what is known of time, and the results of every query so far.
State = tuple[Inputs, Mapping[str, SourceProgress], dict[str, pa.Table]]


def played(plan: Plan, inputs: Inputs, run: CaseRun, drain: bool) -> Iterator[State]:
    """Feed `inputs` round by round."""
    # Of rows that violate a primary key the first one counts.
    keyed = {name: keyed_rows(source, inputs[name])[0] for name, source in static_sources(plan).items()}
    statics = compute_statics(plan, keyed)
    job = LocalJob(plan, statics, run.shards, drain)
    seen = {name: SourceProgress() for name in plan.sources}
    read = {name: table.slice(0, 0) if name in plan.sources else table for name, table in inputs.items()}
    results = {name: answer_table(query, []) for name, query in plan.queries.items()}
    for due in rounds(plan.sources, inputs, run.seed, run.batch_rows):
        stamped: dict[str, list[Elements]] = {}
        for piece in due.pieces:
            taken = job.stamp(piece, seen[piece.source], None)
            seen[piece.source] = seen[piece.source].merge(taken.progress)
            stamped.setdefault(piece.source, []).append(taken.elements)
            read[piece.source] = inputs[piece.source].slice(0, read[piece.source].num_rows + piece.batch.num_rows)
        for name in due.ended:
            seen[name] = replace(seen[name], ended=True)
        for name, parts in job.round(stamped, seen).items():
            results[name] = pa.concat_tables([results[name], answer_table(plan.queries[name], parts)])
        if run.reload:
            job.reload()
        yield dict(read), dict(seen), dict(results)


def reached(query: Query, seen: Mapping[str, SourceProgress]) -> int | None:
    """The least over the sources of `query` of (largest timestamp less slack); None before all have been heard of and
    where one has ended."""
    sources = {leaf.source for leaf in leaves(query.root) if isinstance(leaf, Scan) and not leaf.source.is_static}
    known = [(seen[source.name], source.slack) for source in sources]
    if not known or any(p.high is None and not p.ended for p, _ in known) or all(p.ended for p, _ in known):
        return None
    return min(p.high - slack for p, slack in known if p.high is not None and not p.ended)


def emitted_as_it_comes(
    bound: BoundScript, inputs: Inputs, arrivals: Arrivals | None, run: CaseRun, drain: bool
) -> None:
    """After every round the results are those of plain SQL over what has been read: up to the newest instant, itself
    included, where nothing waits, and before it elsewhere."""
    if arrivals or any(s.system_time or s.idle for q in bound.queries for s in _sources(q)):
        return
    with lowered({} if run.thresholds is None else small(run.thresholds)):
        _emitted_as_it_comes(bound, inputs, run, drain)


def _emitted_as_it_comes(bound: BoundScript, inputs: Inputs, run: CaseRun, drain: bool) -> None:
    plan = plan_queries(bound.queries, strategy=run.strategy)
    for read, seen, results in played(plan, inputs, run, drain):
        for query in bound.queries:
            until = reached(query, seen)
            if until is None:
                continue
            found = events_of(query, results[query.name])
            check_shape(found)
            events = [event for event in run_oracle(query, read, drain).events if event[0] <= until]
            assert all(ts <= until for ts, _, _ in found)
            if plan.waits(query.name):
                # A part of the query that need not wait may be ahead of the others.
                newest = [
                    Counter(show_events([e for e in some if e[0] == until], query.domain)) for some in (found, events)
                ]
                assert newest[0] <= newest[1], f"at {until}: {newest}"
                events, found = ([e for e in some if e[0] < until] for some in (events, found))
            differs = first_difference(events, found)
            shown = [show_events(some, query.domain) for some in (events, found)]
            assert differs is None, "\n".join([f"differs at {differs}; expected:", *shown[0], "found:", *shown[1]])


def _sources(query: Query) -> Sequence:
    return [leaf.source for leaf in leaves(query.root) if isinstance(leaf, Scan)]


@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_results_are_emitted_as_soon_as_they_are_known(
    flavour: Flavour, case_count: int | None, case_seed: int | None
) -> None:
    explore(emitted_as_it_comes, flavour, case_count or CASES, case_seed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda f: f.name)
def test_many_more_results_are_emitted_as_soon_as_they_are_known(
    flavour: Flavour, case_count: int | None, case_seed: int | None
) -> None:
    explore(emitted_as_it_comes, flavour, case_count or MANY_CASES, case_seed or 1)


DECLARED = """
    CREATE STREAM S (ts INT, k STRING, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE STREAM T (ts INT, k STRING, b INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND ORDER WITHIN 2 SECONDS;
    CREATE RELATION R (k STRING, c INT) FROM MEMORY ();
    CREATE RELATION U (ts INT, k STRING, c INT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE NON RETROACTIVE RELATION N (ts INT, k STRING, c INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE VIEW V AS SELECT k, a + 1 AS a FROM S WHERE a > 0;
"""
ON_ARRIVAL = (
    "SELECT k, a FROM S WHERE a > 1",
    "SELECT a FROM V WHERE a > 3",
    "SELECT k, a FROM S SAMPLE(50)",
    "SELECT k, a FROM S UNION ALL SELECT k, b FROM T",
    "SELECT S.a, T.b FROM S, T WHERE S.k = T.k",
    "SELECT S.a, R.c FROM S, R WHERE S.k = R.k",
    "SELECT DISTINCT k FROM S",
    "ISTREAM(SELECT DISTINCT k FROM S [RANGE 3 SECONDS])",
    "ISTREAM(SELECT k FROM S [RANGE 3 SECONDS])",
    "ISTREAM(SELECT S.k FROM S [RANGE 3 SECONDS], T [RANGE 2 SECONDS] WHERE S.k = T.k)",
    "RSTREAM(SELECT k, a FROM S [NOW] WHERE a > 1)",
    "RSTREAM(SELECT S.k, T.b FROM S [NOW], T [RANGE 3 SECONDS] WHERE S.k = T.k)",
    "SELECT k, a [FREQUENCY 2 TUPLES] FROM S",
)
WAITING = (
    "SELECT k, a FROM S [RANGE 3 SECONDS]",
    "SELECT k, SUM(a) AS a FROM S GROUP BY k",
    "ISTREAM(SELECT k, SUM(a) AS a FROM S GROUP BY k)",
    "DSTREAM(SELECT k FROM S [RANGE 3 SECONDS])",
    "ISTREAM(SELECT k FROM S [ROWS 2])",
    "ISTREAM(SELECT k, a FROM S ORDER BY a LIMIT 1)",
    "ISTREAM(SELECT k FROM S EXCEPT SELECT k FROM T)",
    "ISTREAM(SELECT S.k, c FROM S, U WHERE S.k = U.k)",
    "SELECT S.k, c FROM S, N WHERE S.k = N.k",
    "RSTREAM(SELECT k FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS])",
    "SELECT k, a [FREQUENCY 2 SECONDS] FROM S",
    "SELECT COUNT(*) AS n FROM S [RANGE 3 SECONDS INTERNAL]",
)


@pytest.mark.parametrize("query", [*ON_ARRIVAL, *WAITING])
def test_what_waits_and_what_does_not(query: str) -> None:
    session = Session()
    session.execute(f"{DECLARED} CREATE QUERY q AS {query};")
    output = json.loads(session.explain("q", "json"))["physical"]["nodes"][0]
    assert output["label"] == "Output"
    assert (output["parameters"].get("emitted") == "on arrival") == (query in ON_ARRIVAL)


@pytest.mark.spread(2)
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("query", ON_ARRIVAL)
def test_the_newest_row_is_emitted_in_the_round_that_reads_it(query: str, shards: int) -> None:
    """Row by row, with rows of the same instant and equal ones, which cancel goings one by one."""
    bound = bind_script(f"{DECLARED} CREATE QUERY q AS {query};")
    rows = {
        "S": [(1, "x", 2), (2, "x", 3), (2, "y", 3), (4, "x", 1), (4, "x", 5), (4, "x", 2), (4, "x", 2), (7, "y", 9)],
        "T": [(3, "x", 1), (1, "x", 8), (4, "y", 6), (6, "x", 4), (6, "x", 7), (7, "y", 2), (9, "y", 3), (9, "x", 3)],
        "R": [("x", 10), ("y", 20), ("x", 30)],
    }
    used = {source.name: source for source in _sources(bound.queries[0])}
    inputs = {
        name: pa.Table.from_pylist([dict(zip(source.columns.names, row, strict=True)) for row in rows[name]], schema)
        for name, source in used.items()
        for schema in [pa.schema(list(zip(source.columns.names, source.columns.types, strict=True)))]
    }
    for run in (CaseRun(shards, batch_rows=1), CaseRun(shards, batch_rows=1, reload=True), CaseRun(shards, seed=3)):
        emitted_as_it_comes(bound, inputs, None, run, drain=False)
        runtime_is_oracle(bound, inputs, None, run, drain=False)
