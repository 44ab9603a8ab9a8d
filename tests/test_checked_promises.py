"""Promises that are CHECKED: which rows are rejected, by definition and in the engine, and what they count for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import StreamScan, declared_sources
from penstock.language.scripts import bind_script
from penstock.physical.operators import Rejection
from penstock.physical.operators.checks.first_checks import without_repeats
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle
from penstock.testing.promises.closings import checked

Rows = Sequence[tuple[Any, ...]]
COLUMNS = "x BIGINT, v BIGINT, w BIGINT"


def _stream(promises: str = "", columns: str = COLUMNS, name: str = "S", slack: int = 0) -> str:
    late = f"ORDER WITHIN {slack} SECONDS" if slack else ""
    return f"CREATE STREAM {name} (t BIGINT, {columns}) FROM MEMORY () TIMESTAMP BY t {late} {promises};"


def _query(declared: str, text: str = "SELECT t, x, v, w FROM S") -> Query:
    (query,) = bind_script(f"{declared} CREATE QUERY q AS {text};").queries
    return query


def _inputs(query: Query, rows: dict[str, Rows]) -> dict[str, pa.Table]:
    tables = {}
    for name, source in declared_sources(query.root).items():
        columns = list(zip(*rows[name], strict=True)) if rows[name] else [()] * len(source.columns)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, source.columns, strict=True)]
        tables[name] = pa.Table.from_arrays(arrays, names=list(source.columns.names))
    return tables


def _answered(query: Query, rows: dict[str, Rows], random: Random | None = None) -> Answer:
    """Return the answer by definition, which the engine has too, however its input is cut and over whatever shards."""
    inputs = _inputs(query, rows)
    answer = run_oracle(query, inputs)
    for shards in (1, 3):
        cut = 0 if random is None else random.randrange(1, 8)
        found = run_local([query], inputs, shards=shards, batch_rows=cut or None, reload=bool(cut % 2))
        assert_same(query, found.tables["q"], answer)
        told = {name: dict(counts) for name, counts in found.rejected.items() if counts}
        assert told == {name: dict(counts) for name, counts in answer.rejected.items() if counts}
    return answer


def _rows(random: Random, length: int = 30, slack: int = 0) -> list[tuple[Any, ...]]:
    """Return rows (t, x, v, w) with a few values that come again and again, in order of arrival."""
    most = random.choice((3, 6, 12))
    ticks = sorted(random.randrange(max(1, length)) for _ in range(random.randrange(length)))
    ticks.sort(key=lambda tick: tick + random.randrange(slack + 1))

    def value(tick: int) -> int | None:
        return None if random.random() < 0.1 else tick // 4 + random.randrange(most)

    return [(tick, value(tick), random.randrange(3), value(tick)) for tick in ticks]


def _promises(random: Random) -> Iterator[str]:
    kinds = (
        "UNIQUE (x)",
        "UNIQUE (w, x)",
        "CLUSTERED BY (x)",
        "CLUSTERED BY (w, v)",
        "ORDERED BY (x)",
        "ORDERED BY (w) DESC",
    )
    for kind in random.sample(kinds, random.randrange(1, 4)):
        k = random.choice(("", " WITHIN 1 ROWS", " WITHIN 7 ROWS", " WITHIN 100 ROWS"))
        k = random.choice((k, " WITHIN 0 SECONDS", " WITHIN 2 SECONDS", " WITHIN 100 SECONDS"))
        yield f"{kind} CHECKED" if kind.startswith("UNIQUE") else f"{kind}{k} CHECKED"


# --- which rows are rejected


def test_a_checked_promise_rejects_what_breaks_it() -> None:
    query = _query(
        _stream("CONSTRAINT c CLUSTERED BY (x) WITHIN 0 ROWS CHECKED", "x BIGINT, v BIGINT"), "SELECT x, v FROM S"
    )
    rows = {"S": [(1, 1, 1), (2, 2, 2), (3, 1, 3), (4, None, 4), (5, 2, 5), (5, 3, 6), (6, 3, 7)]}
    answer = _answered(query, rows)
    # 1 is closed at 2 and rejected at 3, where it counts all the same: it closes 2.
    assert [row[1] for _, _, row in answer.events] == [1, 2, 4, 6, 7]
    assert answer.rejected == {"S": {"constraint c": 2}}


def test_of_two_unique_rows_of_one_instant_the_first_by_arrival_stays() -> None:
    query = _query(_stream("UNIQUE (x) CHECKED", "x BIGINT, v BIGINT"), "SELECT x, v FROM S")
    rows = {"S": [(1, 1, 1), (1, 1, 2), (1, None, 3), (2, 1, 4), (2, None, 5)]}
    answer = _answered(query, rows)
    assert sorted(row[1] for _, _, row in answer.events) == [1, 3, 5]
    assert answer.rejected == {"S": {"constraint x_unique": 2}}


def test_a_value_stays_closed() -> None:
    """Other than in a promise that is trusted, where a later row opens its value anew."""
    query = _query(_stream("CLUSTERED BY (x) CHECKED", "x BIGINT"), "SELECT x FROM S")
    rows = {"S": [(1, 1), (2, 2), (3, 1), (4, 1), (5, 1)]}
    assert [ts for ts, _, _ in _answered(query, rows).events] == [1, 2]


def test_of_equal_rows_each_is_one_dead_letter() -> None:
    """Of five equal rows of one instant UNIQUE leaves the first, and the order rejects all; 3 is below it."""

    def letter(name: str, order: int, element: str, ts: int = 4) -> Rejection:
        return Rejection("S", ts, "1, 2", f"constraint {name}", element, order)

    unique, rising = letter("once", 3, "a"), letter("rising", 7, "a")
    other, update = letter("rising", 7, "b"), Rejection("R", 4, "1, 2", "no such row")
    # In whatever order tasks report.
    found = without_repeats([rising] * 3 + [other, update, letter("rising", 7, "a", 5)] + [unique] * 4 + [rising] * 2)
    assert Counter(found) == Counter({unique: 4, rising: 1, other: 1, update: 1, letter("rising", 7, "a", 5): 1})


def test_what_one_promise_rejects_counts_for_the_others() -> None:
    """A row that breaks both is a dead letter of the first that was declared."""
    two = "CONSTRAINT a UNIQUE (v) CHECKED CONSTRAINT b CLUSTERED BY (x) CHECKED"
    rows = {"S": [(1, 1, 1), (2, 2, 1), (3, 1, 1), (4, 1, 5), (5, 3, 6)]}
    answer = _answered(_query(_stream(two, "x BIGINT, v BIGINT"), "SELECT x, v FROM S"), rows)
    # The row of 2 is rejected by a, and closes 1 for b; that of 3 breaks both.
    assert [ts for ts, _, _ in answer.events] == [1, 5]
    assert answer.rejected == {"S": {"constraint a": 2, "constraint b": 1}}


def test_promises_in_other_modes_reject_nothing() -> None:
    query = _query(_stream("UNIQUE (x) CLUSTERED BY (x) OBSERVED", "x BIGINT"), "SELECT x FROM S")
    assert len(_answered(query, {"S": [(1, 1), (2, 1), (3, 2), (4, 1)]}).events) == 4


@pytest.mark.parametrize("slack", [0, 5])
@pytest.mark.parametrize("seed", range(20))
def test_the_engine_rejects_as_the_definition_does(seed: int, slack: int) -> None:
    random = Random(f"{seed} {slack}")
    rows = {"S": _rows(random, random.choice((1, 8, 20, 40)), slack)}
    _answered(_query(_stream(" ".join(_promises(random)), slack=slack)), rows, random)


@pytest.mark.parametrize("seed", range(8))
def test_the_answer_is_that_over_the_rows_that_are_left(seed: int) -> None:
    """In joins, groups, windows and set operations, of a stream with itself too."""
    random = Random(seed)
    rows = {name: _rows(random) for name in ("S", "T")}
    declared = _stream(" ".join(_promises(random)))
    plain = _stream() + _stream(name="T")
    for text in (
        "SELECT a.x, b.v FROM S [RANGE 3 SECONDS] AS a, S [RANGE 4 SECONDS] AS b WHERE a.v = b.v AND a.w <= b.w",
        "SELECT S.x, T.v FROM S [RANGE 3 SECONDS] LEFT JOIN T [RANGE 5 SECONDS] ON S.v = T.v",
        "SELECT v, COUNT(*) AS n, MAX(x) AS m FROM S [RANGE 5 SECONDS SLIDE 2 SECONDS] GROUP BY v",
        "SELECT DISTINCT v FROM S [RANGE 2 SECONDS] WHERE w > 1",
        "SELECT x FROM S [RANGE 4 SECONDS] EXCEPT SELECT x FROM T [RANGE 4 SECONDS]",
        "SELECT v, SUM(w) AS s FROM S [PARTITION BY v ROWS 3] GROUP BY v",
        "SELECT x FROM S [SESSION 2 SECONDS]",
        "SELECT v FROM S ORDER BY v LIMIT 2",
    ):
        query = _query(declared + _stream(name="T"), text)
        (scan, *_) = (
            node for node in operators(query.root) if isinstance(node, StreamScan) and node.source.name == "S"
        )
        verdicts = checked(scan.checks, [(row[0], row) for row in rows["S"]])
        gone = {position for positions in verdicts.values() for position in positions}
        left = {**rows, "S": [row for position, row in enumerate(rows["S"]) if position not in gone]}
        answer = _answered(query, rows, random)
        if "ROWS" not in text and rows["S"] and rows["T"]:
            other = run_oracle(_query(plain, text), _inputs(query, left))
            until = min(answer.final or 0, other.final or 0)
            assert [e for e in answer.events if e[0] <= until] == [e for e in other.events if e[0] <= until], text


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM S [FREQUENCY 2 TUPLES]",
        "SELECT COUNT(*) AS n [FREQUENCY 2 TUPLES] FROM S",
        "SELECT v, x FROM S SAMPLE (50)",
        "SELECT v FROM S [ROWS 3]",
        "RSTREAM(SELECT v FROM S [RANGE 2 SECONDS SLIDE 2 SECONDS])",
        "SELECT a.v FROM S [NOW] AS a, S [ROWS 2] AS b WHERE a.v = b.v",
        "SELECT v FROM S [RANGE 3 SECONDS INTERNAL]",
        "SELECT MAX(v) AS m FROM S [RANGE 3 SECONDS] WHERE v IN (SELECT v FROM S [RANGE 1 SECOND])",
        "SELECT v, SUM(x) AS s FROM S GROUP BY v",
        "SELECT v FROM S UNION ALL SELECT w FROM S",
    ],
)
def test_every_kind_of_reader(text: str) -> None:
    random = Random(text)
    query = _query(_stream("UNIQUE (w, t) CHECKED ORDERED BY (w) WITHIN 3 ROWS CHECKED"), text)
    for _ in range(2):
        _answered(query, {"S": _rows(random)}, random)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", (0.0, -0.0, 1.5, float("nan"), None, 2.0, -3.0, 1.5, 0.0)),
        ("STRING", ("b", "a", "ä", None, "", "z", "Z", "b")),
        ("BOOLEAN", (False, True, None, False, True)),
        ("DATE", (date(2024, 1, 1), date(1969, 1, 1), None, date(2024, 1, 1))),
        (
            "DECIMAL(30, 2)",
            tuple(
                None if v is None else Decimal(v) for v in ("1.50", "-2.00", None, "1.50", "99999999999999999999.00")
            ),
        ),
        ("BINARY", (b"a", b"", None, b"b", b"a")),
        ("BIGINT", (-(2**63), 2**63 - 1, None, 0, -(2**63))),
    ],
)
def test_values_of_every_type(kind: str, values: tuple[Any, ...]) -> None:
    random = Random(kind)
    for promise in (
        "UNIQUE (x)",
        "CLUSTERED BY (x)",
        "CLUSTERED BY (x) WITHIN 2 SECONDS",
        "ORDERED BY (x)",
        "ORDERED BY (x) DESC WITHIN 2 ROWS",
    ):
        query = _query(
            _stream(f"{promise} CHECKED UNIQUE (x, v) CHECKED", f"x {kind}, v BIGINT"), "SELECT t, x, v FROM S"
        )
        for _ in range(3):
            chosen = random.choices(values, k=20)
            rows = [(number // 2, value, random.randrange(3)) for number, value in enumerate(chosen)]
            _answered(query, {"S": rows}, random)


def test_nothing_came() -> None:
    query = _query(_stream("UNIQUE (x) CHECKED ORDERED BY (x) CHECKED CLUSTERED BY (x) CHECKED"))
    assert _answered(query, {"S": []}).events == []


# --- how it is planned


def test_readers_of_all_columns_and_queries_read_one_step() -> None:
    texts = ("SELECT x FROM S", "SELECT v, w FROM S [RANGE 3 SECONDS]", "SELECT COUNT(*) AS n FROM S")
    queries = "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    declared = _stream("UNIQUE (v) CHECKED CLUSTERED BY (w) CHECKED")
    plan = plan_queries(bind_script(declared + queries).queries)
    titles = Counter(step.spec.title for step in plan.steps)
    assert (titles["Check"], titles["Unrejected"], titles["AcceptedScan"], titles["Scan"]) == (2, 1, 1, 0)


def test_the_state_of_an_order_is_what_is_not_yet_k_old(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.runtime.local.runtime import LocalJob

    query = _query(_stream("ORDERED BY (x) WITHIN 5 ROWS CHECKED"))
    most, round_ = [0], LocalJob.round

    def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
        done = round_(job, *given, **named)
        executors = [executor for row in job.stages for executor in row]
        found = [s.rows for e in executors for name, s in e.synopses().items() if name.endswith("greatest")]
        most[0] = max(most[0], *found)
        return done

    monkeypatch.setattr(LocalJob, "round", measured)
    rows = [(t, t, 0, 0) for t in range(1000)]
    assert run_local([query], _inputs(query, {"S": rows}), batch_rows=50).tables["q"].num_rows == 1000
    assert most[0] <= 7
