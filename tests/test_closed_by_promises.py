"""What each promise has closed, and what is open: EXPLAIN ANALYZE, and counts that follow from the rows alone
[docs/promises.md]."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from penstock.algebra.nodes.query import Query
from penstock.physical.execution.meter import SynopsisSize, closed_by_promises
from penstock.physical.plan.joins.promised import PromisedJoinSpec
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.session import Session
from tests.test_promised_joins import random_join
from tests.test_promises import BOTH, FULFILMENTS, JOINS, OF_ORDERS, ORDERS, _inputs, _query
from tests.test_promises import _stream as declaration

UNIQUE, REFERENCE = "UNIQUE id, item of O", "FOREIGN KEY id, item WITHIN 0 ROWS of F"
CLUSTERED = "CLUSTERED BY id WITHIN 1 ROWS of F"


class _Watched:
    """The counts of the last round of a run, of all operators and shards together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: Counter[str] = Counter()
        self.open = 0
        round_ = LocalJob.round

        def watched(job: LocalJob, *given: Any, **named: Any) -> Any:
            done = round_(job, *given, **named)
            sizes = [
                SynopsisSize.of(one)
                for stage in job.stages
                for executor in stage
                for name, one in executor.synopses().items()
            ]
            self.closed = Counter(closed_by_promises(sizes))
            self.open = sum(size.rows for size in sizes if size.ends_by_promises)
            return done

        monkeypatch.setattr(LocalJob, "round", watched)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("batch_rows", [1, 2, None])
def test_orders_and_fulfilments(monkeypatch: pytest.MonkeyPatch, shards: int, batch_rows: int | None) -> None:
    watched = _Watched(monkeypatch)
    query = _query(ORDERS + FULFILMENTS, BOTH)
    run_local([query], _inputs(query, OF_ORDERS), shards=shards, batch_rows=batch_rows)
    assert watched.closed == Counter({REFERENCE: 8, CLUSTERED: 3, UNIQUE: 0})
    assert watched.open == 2


def _ways(random: Random) -> dict[str, Any]:
    cut = {"seed": random.randrange(1000)} if random.random() < 0.5 else {"batch_rows": random.choice((1, 2, 3, 50))}
    return {**cut, "shards": random.randrange(1, 4)}


def _counts(watched: _Watched, query: Query, rows: dict[str, Any], **ways: Any) -> tuple[dict[str, int], int]:
    watched.closed, watched.open = Counter(), 0
    run_local([query], _inputs(query, rows), **ways)
    return dict(watched.closed), watched.open


@pytest.mark.parametrize("seed", range(8))
def test_counts_follow_from_the_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """However rows are cut into rounds and shards, each promise has closed as many."""
    random = Random(seed)
    watched = _Watched(monkeypatch)
    checked = 0
    for text in JOINS[:9]:
        query, rows, declared = random_join(random, text)
        if not any(isinstance(step.spec, PromisedJoinSpec) for step in plan_queries([query]).steps):
            continue
        whole = _counts(watched, query, rows)
        assert _counts(watched, query, rows, **_ways(random)) == whole, (declared, text, rows)
        checked += sum(whole[0].values()) > 0
    assert checked


@pytest.mark.parametrize(
    ("select", "closed", "held"),
    [
        ("SELECT k, COUNT(*) AS n FROM S GROUP BY k", 3, 2),
        ("SELECT k, COUNT(*) AS n FROM S GROUP BY k HAVING CLOSED(k)", 3, 1),
        ("SELECT DISTINCT k FROM S", 3, 2),
        ("SELECT k, x FROM S WHERE CLOSED(k)", 6, 1),
    ],
)
def test_groups_and_rows(monkeypatch: pytest.MonkeyPatch, select: str, closed: int, held: int) -> None:
    """x is closed at 6, y at 8, z at 9; what is open is x anew, and the NULL, which is never closed."""
    rows: dict[str, Any] = {
        "S": [(1, "x", 5), (2, "x", 1), (3, "y", 7), (3, "x", 6), (4, "y", 1), (6, "z", 9), (8, None, 4), (9, "x", 8)]
    }
    query = _query(declaration("S", "k STRING, x BIGINT", "CLUSTERED BY (k) WITHIN 1 ROWS"), select)
    watched = _Watched(monkeypatch)
    for ways in ({}, {"batch_rows": 1}, {"batch_rows": 2, "shards": 3}):
        found = _counts(watched, query, rows, **ways)
        assert found == ({"CLUSTERED BY k WITHIN 1 ROWS of S": closed}, held), ways


def test_several_conditions_count_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    promises = "CLUSTERED BY (k) WITHIN 0 ROWS CLUSTERED BY (k, x) WITHIN 1 ROWS"
    query = _query(
        declaration("S", "k STRING, x BIGINT", promises), "SELECT k, x FROM S WHERE CLOSED(k) AND CLOSED(k, x)"
    )
    rows: dict[str, Any] = {"S": [(1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "c", 2)]}
    watched = _Watched(monkeypatch)
    for ways in ({}, {"batch_rows": 1}):
        closed, held = _counts(watched, query, rows, **ways)
        # Both promises are on columns of the second condition; the first to close counts.
        assert closed == {"CLUSTERED BY k WITHIN 0 ROWS of S": 4, "CLUSTERED BY k, x WITHIN 1 ROWS of S": 0}, ways
        assert held == 2, ways


def test_explain_analyze() -> None:
    session = Session()
    session.execute("""
        CREATE STREAM O (at INT, id INT) FROM MEMORY () TIMESTAMP BY at UNIQUE (id);
        CREATE STREAM F (at INT, id INT) FROM MEMORY () TIMESTAMP BY at CLUSTERED BY (id) WITHIN 1 ROWS;
        INSERT INTO O VALUES (1, 1), (2, 2), (3, 3);
        INSERT INTO F VALUES (2, 1), (3, 2), (4, 1), (6, 3), (7, 3), (8, 4);
        CREATE QUERY q AS SELECT O.id FROM O, F WHERE O.id = F.id""")
    nodes = json.loads(session.explain("q", "json", analyze=True))["physical"]["nodes"]
    (found,) = (node["measured"] for node in nodes if node["label"] == "PromisedJoin")
    assert (found["closed"], found["open"]) == (7, 2), "order 3, and the fulfilment of 4, are open"
    assert found["closed_by_CLUSTERED_BY_id_WITHIN_1_ROWS_of_F"] == 2
    assert found["closed_by_UNIQUE_id_of_O"] == 5
    assert (found["values_closed"], found["values_open"]) == (2, 2)
    assert "closed by UNIQUE id of O 5" in session.explain("q", "text", analyze=True)
    session.execute("CREATE QUERY g AS SELECT id, COUNT(*) AS n FROM F GROUP BY id HAVING CLOSED(id)")
    nodes = json.loads(session.explain("g", "json", analyze=True))["physical"]["nodes"]
    (found,) = (node["measured"] for node in nodes if "closed" in node["measured"])
    assert (found["closed"], found["open"], found["values_closed"], found["values_open"]) == (2, 2, 2, 2)
