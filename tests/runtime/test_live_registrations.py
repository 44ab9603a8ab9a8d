"""Registering in one process costs what the new query does: what stands is copied at most, not looked at step by step.

Counted are the bytecodes that Python carries out. The graph of a stage, which is grown from that of the version before,
is the one that is made of all parts.
"""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from live_machine import random_life

from penstock.algebra.nodes.query import Start, StartMode
from penstock.language.scripts import bind_script
from penstock.physical.execution import step_graph
from penstock.physical.execution.progress import timed_sources
from penstock.physical.execution.step_graph import StepGraph
from penstock.runtime.live import LiveEngine

STREAMS = """
CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
#: By kind of query its text, and the bytecodes for each query that stands: a few looks at its part in each version,
#: stage and shard. Its operators, edges and synopses would take thousands.
KINDS = {
    "filters": ("SELECT k, SUM(v) AS s FROM S [RANGE 30 SECONDS] WHERE v <> {n} GROUP BY k", 600),
    "lengths": ("SELECT k, SUM(v) AS s FROM S [RANGE {n} SECONDS] GROUP BY k", 900),
    "joins": ("SELECT a.v, b.v AS w FROM S [RANGE {n} SECONDS] AS a, T [RANGE 9 SECONDS] AS b WHERE a.k = b.k", 1300),
}


def engine_with(text: str, count: int) -> LiveEngine:
    """Return an engine in which so many queries stand."""
    engine = LiveEngine(2)
    bound = bind_script(STREAMS + "".join(f"CREATE QUERY q{n} AS {text.format(n=1000 - n)};" for n in range(count)))
    for source in {name: s for query in bound.queries for name, s in timed_sources(query.root).items()}.values():
        engine.declare(source)
    for query in bound.queries:
        engine.register(query, Start(StartMode.NOW))
    return engine


def bytecodes_of_one_more(text: str, count: int) -> int:
    """Return how many bytecodes it takes to register another query beside so many."""
    engine = engine_with(text, count)
    (query,) = bind_script(STREAMS + f"CREATE QUERY one AS {text.format(n=1000 - count)};").queries
    done: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        done[event] += 1
        return trace

    sys.settrace(trace)
    try:
        engine.register(query, Start(StartMode.NOW))
    finally:
        sys.settrace(None)
    return done["opcode"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_registration_does_little_for_each_query_that_stands(kind: str) -> None:
    text, most = KINDS[kind]
    few, many = (bytecodes_of_one_more(text, count) for count in (16, 80))
    assert (many - few) / 64 < most, (few, many)


def test_a_graph_that_grows_is_that_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = step_graph._joined, Counter[str]()

    def joined(plan: Any, pieces: Any, name: Any, steps: Any, before: StepGraph | None) -> StepGraph:
        grown = made(plan, pieces, name, steps, before)
        step_graph._joined_graphs(plan).clear()
        assert grown == made(plan, pieces, name, steps, None)
        step_graph._joined_graphs(plan).clear()
        seen["grown"] += before is not None and before._grows_to(pieces, plan.shared)
        seen["borrowing"] += any(piece.borrowed for piece in pieces)
        return grown

    monkeypatch.setattr(step_graph, "_joined", joined)
    for seed in range(12):
        random_life(seed)
    assert min(seen["grown"], seen["borrowing"]) > 100, seen
