"""Streams that are punctuated and promise more: a row that a punctuation rejects counts for the promises all the same,
in N and as a row of its values, in the engine as by definition."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.algebra.properties.heartbeats import PlacedHeartbeat, with_heartbeats
from penstock.language.binder.statements.punctuations import read_punctuation
from penstock.language.scripts import BoundScript, bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import RUNS, CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle

Row = tuple[int | None, int | None, str | None]

STREAMS = """
CREATE STREAM S (ts INT, a INT, b STRING, said STRING) FROM MEMORY () TIMESTAMP BY ts {clauses};
CREATE STREAM P (ts INT, a INT, b STRING) FROM MEMORY () TIMESTAMP BY ts {other};
"""
JOINS = """
CREATE QUERY inner_join AS SELECT S.b, P.b AS c FROM S, P WHERE S.a = P.a;
CREATE QUERY in_windows AS SELECT S.b, P.b AS c FROM S [RANGE 9 SECONDS], P [RANGE 6 SECONDS SLIDE 3 SECONDS]
  WHERE S.a = P.a;
CREATE QUERY outer_join AS SELECT P.a, S.b FROM P LEFT JOIN S ON S.a = P.a;
CREATE QUERY semi_join AS SELECT a, b FROM P WHERE a IN (SELECT a FROM S);
"""
GROUPS = """
CREATE QUERY groups AS SELECT a, COUNT(*) AS n FROM S GROUP BY a;
CREATE QUERY of_user AS SELECT a, MAX(b) AS m FROM S WHERE b <> 'x' GROUP BY a;
CREATE QUERY distinct_values AS SELECT DISTINCT a FROM S WHERE b <> 'x';
CREATE QUERY plain AS SELECT ts, a, b FROM S;
"""
CLOSED = """
CREATE QUERY final AS SELECT a, COUNT(*) AS n, MAX(b) AS m FROM S GROUP BY a HAVING CLOSED(a);
CREATE QUERY closed AS SELECT a, b FROM S WHERE CLOSED(a);
"""
_K = ("", " WITHIN 1 ROWS", " WITHIN 3 ROWS", " WITHIN 2 SECONDS", " WITHIN 100 ROWS")
_SAID = ("a = 1", "a <= 2", "a IN (3, 4)", "a = 2 AND b = 'x'", "b = 'y'", "a IS NULL", "a >= 4", "a = 5 AND ts <= 9")


def _promises(draw: random.Random) -> tuple[str, str, str]:
    """Return promises of S and of P, and the queries that they take."""
    kinds = (f"CLUSTERED BY (a){draw.choice(_K)}", f"ORDERED BY (a){draw.choice(_K)}")
    chosen = draw.sample([*kinds, "UNIQUE (a, b)", f"CLUSTERED BY (a, b){draw.choice(_K)}"], draw.randint(1, 3))
    checked = [draw.choice(("", "", " CHECKED")) for _ in chosen]
    queries = JOINS + GROUPS + (CLOSED if any(one in kinds for one in chosen) else "")
    other = ""
    if draw.random() < 0.4:
        chosen, checked = [*chosen, "UNIQUE (a)"], [*checked, draw.choice(("", " CHECKED"))]
        other = f"FOREIGN KEY (a) REFERENCES S (a){draw.choice(_K)}"
    return " ".join(map("".join, zip(chosen, checked, strict=True))), other, queries


def _table(rows: list[Row], said: list[str | None] | None = None) -> pa.Table:
    ts, a, b = ([row[i] for row in rows] for i in range(3))
    found = {"ts": pa.array(ts, pa.int32()), "a": pa.array(a, pa.int32()), "b": pa.array(b, pa.string())}
    return pa.table(found if said is None else {**found, "said": pa.array(said, pa.string())})


def _inputs(draw: random.Random, bound: BoundScript, by_record: bool, slack: int) -> dict[str, pa.Table]:
    values, source = [None, *range(6)], bound.catalog.sources["s"]

    def row(tick: int) -> Row:
        near = draw.choice((tick // 3, draw.randint(0, 5)))
        return tick + draw.randint(-slack, 0), draw.choice((near, near, *values)), draw.choice((None, "x", "y"))

    rows: list[Row] = []
    said: list[str | None] = []
    placed: list[PlacedHeartbeat] = []
    for number in range(draw.choice((8, 30))):
        if draw.random() < 0.8:
            rows.append(row(number // 2))
            said.append(None)
        elif by_record:
            rows.append((None, None, None))
            said.append(draw.choice(_SAID))
        else:
            text = read_punctuation(draw.choice(_SAID), source).as_text()
            placed.append(PlacedHeartbeat(len(rows), 0, 0, text))
    return {"S": with_heartbeats(_table(rows, said), placed), "P": _table([row(tick // 2) for tick in range(20)])}


@pytest.mark.parametrize("seed", range(40))
def test_what_a_punctuation_rejects_counts_for_other_promises(seed: int) -> None:
    draw = random.Random(seed)
    promises, other, queries = _promises(draw)
    by_record, slack = draw.random() < 0.5, draw.choice((0, 0, 3))
    clauses = f"{'ORDER WITHIN 3 SECONDS' if slack else ''} {promises} {'PUNCTUATED BY said' if by_record else ''}"
    bound = bind_script(STREAMS.format(clauses=clauses, other=other) + queries)
    inputs = _inputs(draw, bound, by_record, slack)
    run = draw.choice([*RUNS, CaseRun(2, seed=seed), CaseRun(3, seed=seed + 1, reload=True, guesses=seed)])
    result = run.answer(bound.queries, inputs, False, None)
    for query in bound.queries:
        answer = run_oracle(query, inputs)
        assert_same(query, result.tables[query.name], answer)
        given = {reason: n for reason, n in result.rejected.get("S", {}).items() if n}
        assert given == answer.rejected["S"], f"{run} {clauses}"


def _answered(clauses: str, text: str, rows: list[Row], said: list[str | None]) -> Answer:
    script = STREAMS.format(clauses=f"{clauses} PUNCTUATED BY said", other="") + f"CREATE QUERY q AS {text};"
    (query,) = bind_script(script).queries
    inputs = {"S": _table(rows, said)}
    answer = run_oracle(query, inputs)
    for shards, batch_rows in ((1, None), (3, 1), (2, 3)):
        result = run_local([query], inputs, shards, batch_rows=batch_rows, reload=shards > 1)
        assert_same(query, result.tables["q"], answer)
        assert dict(result.rejected["S"]) == answer.rejected["S"]
    return answer


def test_a_punctuated_row_counts_in_n() -> None:
    """1 is closed at 3, the second instant of other rows, of which the first is punctuated."""
    rows: list[Row] = [(1, 1, "x"), (None, None, None), (2, 2, "x"), (3, 3, "x"), (4, 1, "y"), (5, 3, "z")]
    said = [None, "a = 2", None, None, None, None]
    answer = _answered("CLUSTERED BY (a) WITHIN 1 ROWS", "SELECT b FROM S WHERE CLOSED(a)", rows, said)
    assert answer.events[0] == (3, None, ("x",))


def test_a_punctuated_row_is_the_last_one_of_its_value() -> None:
    """1 has a punctuated row at 2, so it is closed at 4 and not at 3."""
    rows: list[Row] = [(1, 1, "x"), (None, None, None), (2, 1, "y"), (3, 3, "x"), (4, 3, "x")]
    said = [None, "b = 'y'", None, None, None]
    answer = _answered("CLUSTERED BY (a) WITHIN 1 ROWS", "SELECT b FROM S WHERE CLOSED(a)", rows, said)
    assert answer.events == [(4, None, ("x",))]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        # The punctuated row is the first of its value, and stays that.
        ([(1, 1, "y"), (1, 1, "x"), (2, 1, "x")], []),
        ([(1, 1, "x"), (1, 1, "y"), (2, 1, "y")], ["x"]),
    ],
)
def test_of_unique_rows_of_one_instant_a_punctuated_one_counts_by_arrival(rows: list[Row], left: list[str]) -> None:
    given: list[Row] = [(None, None, None), *rows]
    said = ["b = 'y'", None, None, None]
    answer = _answered("UNIQUE (a) CHECKED", "SELECT b FROM S", given, said)
    assert [row[0] for _, _, row in answer.events] == left


def test_a_row_is_a_dead_letter_of_the_punctuation_alone() -> None:
    rows: list[Row] = [(1, 1, "x"), (None, None, None), (2, 1, "y"), (2, 1, "y"), (3, 1, "x")]
    said = [None, "b = 'y'", None, None, None]
    answer = _answered("CONSTRAINT u UNIQUE (a) CHECKED UNIQUE (a, b) CHECKED", "SELECT b FROM S", rows, said)
    assert answer.rejected["S"] == {"punctuated": 2, "constraint u": 1}, "of the first it breaks"


def test_equal_rows_before_and_after_a_punctuation() -> None:
    """Of equal rows of one instant the first stays, one is rejected by the promise, the others by the punctuation."""
    row: Row = (2, 1, "y")
    rows: list[Row] = [row, row, (None, None, None), row, row, (3, 2, "x")]
    said = [None, None, "b = 'y'", None, None, None]
    answer = _answered("CONSTRAINT u UNIQUE (a) CHECKED ORDERED BY (a) CHECKED", "SELECT b FROM S", rows, said)
    assert answer.rejected["S"] == {"punctuated": 2, "constraint u": 1}
    assert [row[0] for _, _, row in answer.events] == ["y", "x"]
