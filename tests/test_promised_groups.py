"""Groups, distinct values and rows that promises of streams close, in the engine of one process [docs/promises.md]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups
from penstock.algebra.nodes.query import Query
from penstock.algebra.properties.promises import Promises
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.binder.context import Context
from penstock.language.plan_form import FORMAT, printed
from penstock.language.plans.document import exported, read_plan
from penstock.language.scripts import bind_script
from penstock.language.text import SourceText
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.settings import Settings
from penstock.testing.compare import assert_same
from penstock.testing.definitions import World
from penstock.testing.oracle import run_oracle
from penstock.testing.promises.closings import whole
from penstock.testing.promises.held import Group, elements_of, groups_of
from penstock.testing.scalars.values import Row
from tests.test_promises import Rows, _inputs, _query, _rows, _stream

COLUMNS = "x BIGINT, v BIGINT, w BIGINT"
FUNCTIONS = (
    "CREATE AGGREGATE total (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:Total';"
    "CREATE AGGREGATE spread (DOUBLE) RETURNS DOUBLE AS 'penstock.testing.samples:Spread';"
    "CREATE AGGREGATE joined (STRING) RETURNS STRING AS 'penstock.testing.samples:Joined';"
)
#: Over the streams A and B, and C, whose rows refer to A.
GROUPED = (
    "SELECT x, COUNT(*) AS n, SUM(v) AS s FROM A GROUP BY x",
    "SELECT v, x, COUNT(*) AS n, MAX(w) AS m, COUNT(DISTINCT w) AS d FROM A WHERE v > 0 GROUP BY v, x",
    "SELECT x, MEDIAN(w) AS m, MIN(w) AS l, AVG(CAST(v AS DOUBLE)) AS a, APPROX_COUNT_DISTINCT(w) AS d,"
    " MODE(v) AS o, MAX(CAST(w AS STRING)) AS t FROM A GROUP BY x",
    "SELECT DISTINCT x FROM A WHERE w > 0",
    "SELECT DISTINCT v, x FROM A",
    "RSTREAM(SELECT x, COUNT(*) AS n FROM A GROUP BY x)",
    "SELECT x, COUNT(*) AS n FROM (SELECT x FROM A UNION ALL SELECT x FROM B WHERE w > 0) AS u GROUP BY x",
    "SELECT n, COUNT(*) AS m FROM (SELECT x, COUNT(*) AS n FROM A GROUP BY x) AS g GROUP BY n",
    "SELECT x, total(v) AS t, MAX(w) AS m, spread(w) AS s, joined(DISTINCT w) AS j FROM A GROUP BY x",
    "SELECT DISTINCT C.x, A.w FROM A, C WHERE A.x = C.x",
    "SELECT C.x, A.v, COUNT(*) AS n FROM A, C WHERE A.x = C.x GROUP BY C.x, A.v",
)
FINAL = (
    "SELECT x, COUNT(*) AS n, SUM(v) AS s FROM A WHERE w > 0 GROUP BY x HAVING CLOSED(x)",
    "SELECT x, v, COUNT(*) AS n, MAX(w) AS m, COUNT(DISTINCT w) AS d FROM A GROUP BY x, v HAVING CLOSED(x)",
    "SELECT x, v, COUNT(*) AS n, MEDIAN(w) AS m FROM A GROUP BY x, v HAVING CLOSED(x, v) AND COUNT(*) > 1",
    "SELECT x FROM A GROUP BY x HAVING CLOSED(x)",
    "SELECT v, x, total(w) AS t, joined(w) FILTER (WHERE w > 1) AS j FROM A GROUP BY v, x HAVING CLOSED(x)",
    "SELECT x, COUNT(*) AS n FROM (SELECT x FROM A UNION ALL SELECT x FROM B) AS u GROUP BY x HAVING CLOSED(x)",
    "SELECT n, COUNT(*) AS m FROM (SELECT x, COUNT(*) AS n FROM A GROUP BY x HAVING CLOSED(x)) AS g GROUP BY n",
    "SELECT x, MAX(n) AS m FROM (SELECT x, v, COUNT(*) AS n FROM A GROUP BY x, v HAVING CLOSED(x, v)) AS g GROUP BY x",
    "SELECT x, v, w FROM A WHERE CLOSED(x)",
    "SELECT x + v AS y FROM A WHERE CLOSED(x) AND CLOSED(v) AND w > 0",
    "SELECT x, COUNT(*) AS n FROM A WHERE CLOSED(x) GROUP BY x",
    "SELECT x, COUNT(*) AS n FROM A WHERE CLOSED(x) GROUP BY x HAVING CLOSED(x)",
    "SELECT u.x FROM (SELECT x FROM A UNION ALL SELECT x FROM B WHERE w > 0) AS u WHERE CLOSED(u.x)",
    "SELECT A.x, B.w FROM A, B WHERE A.x = B.x AND CLOSED(A.x)",
    "SELECT A.x, B.w FROM A, B WHERE A.x = B.x AND CLOSED(A.x) AND CLOSED(B.v)",
    "SELECT C.x, C.w, COUNT(*) AS n FROM A, C WHERE A.x = C.x AND CLOSED(C.w) GROUP BY C.x, C.w",
    "SELECT C.x, A.v, COUNT(*) AS n FROM A, C WHERE A.x = C.x GROUP BY C.x, A.v HAVING CLOSED(C.x)",
    "SELECT C.x, A.v FROM A, C WHERE A.x = C.x AND CLOSED(C.x) AND CLOSED(A.v)",
    "SELECT A.x, COUNT(*) AS n, SUM(C.w) AS s FROM A, C WHERE A.x = C.x AND C.w > 0 GROUP BY A.x HAVING CLOSED(A.x)",
    "SELECT y, COUNT(*) AS n FROM (SELECT A.x AS y, C.v FROM A, C WHERE A.x = C.x) AS j GROUP BY y, v"
    " HAVING CLOSED(y, v)",
    "SELECT A.x, C.v, MAX(C.w) AS m FROM C, A WHERE A.x = C.x GROUP BY A.x, C.v",
    "SELECT x, v FROM (SELECT x, v, w FROM A WHERE CLOSED(x)) AS c WHERE CLOSED(x) AND w > 0",
    "SELECT x, v, COUNT(*) AS n FROM (SELECT x, v FROM A WHERE CLOSED(x, v)) AS c GROUP BY x, v",
)
KINDS: tuple[str, ...] = ("UNIQUE (x)", "CLUSTERED BY (x)", "CLUSTERED BY (v)", "CLUSTERED BY (x, v)", "ORDERED BY (x)")
KINDS += ("ORDERED BY (x) DESC", "ORDERED BY (v)", "CLUSTERED BY (x)", "ORDERED BY (x)")
WITHIN: tuple[str, ...] = (
    "",
    "",
    " WITHIN 1 ROWS",
    " WITHIN 2 ROWS",
    " WITHIN 5 ROWS",
    " WITHIN 90 ROWS",
    " WITHIN 0 SECONDS",
)
WITHIN += (" WITHIN 1 SECOND", " WITHIN 2 SECONDS", " WITHIN 90 SECONDS")


def _promises(random: Random, kinds: Sequence[str] = KINDS) -> str:
    kinds = random.sample(kinds, random.randrange(1, 4))
    named = (f"CONSTRAINT c{i} {kind}" for i, kind in enumerate(kinds))
    return " ".join(kind if "UNIQUE" in kind else kind + random.choice(WITHIN) for kind in named)


def _declared(random: Random) -> str:
    """Return declarations of streams with drawn promises."""
    streams = _stream("A", COLUMNS, "UNIQUE (x) " + _promises(random, KINDS[1:]))
    streams += _stream("B", COLUMNS, _promises(random))
    kinds = (*KINDS[1:], "CLUSTERED BY (w)")
    return FUNCTIONS + streams + _stream("C", COLUMNS, f"FOREIGN KEY (x) REFERENCES A (x) {_promises(random, kinds)}")


def _bound(declared: str, text: str) -> Query | None:
    """Return a query; None where no promise closes what it says is closed."""
    try:
        return _query(declared, text)
    except ScriptErrors as error:
        assert {one.code for one in error.errors} == {"P0373"}
        return None


def _is_promised(query: Query) -> bool:
    return any(isinstance(node, ClosedRows | ClosingGroups) for node in operators(query.root))


def _run(query: Query, inputs: Any, random: Random, drain: bool) -> Any:
    """Answer in a way that is drawn: cuts, order between streams, shards, state read back."""
    shards, reload = random.randrange(1, 4), random.random() < 0.5
    seed, rows = random.choice(((random.randrange(1000), None), (None, random.randrange(1, 7))))
    found = run_local([query], inputs, shards=shards, drain=drain, reload=reload, seed=seed, batch_rows=rows)
    return found.tables["q"]


@pytest.mark.parametrize("seed", range(60))
def test_the_engine_answers_as_defined(seed: int) -> None:
    """Over data that break the promises, however they are cut, over shards and with the state read back."""
    random = Random(seed)
    answered = 0
    for text in (*GROUPED, *FINAL):
        declared = _declared(random)
        query = _bound(declared, text)
        if query is None or not _is_promised(query):
            continue
        inputs = _inputs(query, {name: _rows(random, random.choice((1, 2, 4))) for name in "ABC"})
        drain = random.random() < 0.5
        try:
            assert_same(query, _run(query, inputs, random, drain), run_oracle(query, inputs, drain=drain))
        except AssertionError as error:
            raise AssertionError(f"{declared} {text} {inputs}") from error
        answered += 1
    assert answered > 3


@pytest.mark.parametrize("seed", range(100, 106))
def test_queries_together(seed: int) -> None:
    """In one job, beside windows over the same streams."""
    random = Random(seed)
    declared, windows = _declared(random), ("SELECT x FROM A [RANGE 5 SECONDS]", "SELECT DISTINCT x FROM B [NOW]")
    texts = [one for one in random.sample((*GROUPED, *FINAL, *windows), 8) if _bound(declared, one) is not None]
    made = "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))
    queries = bind_script(declared + made).queries
    rows: dict[str, Rows] = {name: _rows(random, random.choice((1, 2, 4))) for name in "ABC"}
    inputs = {name: table for query in queries for name, table in _inputs(query, rows).items()}
    found = run_local(queries, inputs, shards=random.randrange(1, 4), reload=random.random() < 0.5, seed=seed)
    for query in queries:
        own = {name: inputs[name] for name in query.root.source_names}
        assert_same(query, found.tables[query.name], run_oracle(query, own))


def test_a_group_column_that_equals_the_promised_one() -> None:
    """Of winning bids only the stream of bids says when an auction is over, and the auction is grouped."""
    auctions = _stream("S", "id BIGINT, item STRING", "UNIQUE (id)")
    text = "SELECT S.id, MAX(T.price) AS price FROM S, T WHERE S.id = T.auction GROUP BY S.id HAVING CLOSED(S.id)"
    rows: dict[str, Rows] = {
        "S": [(1, 7, "a"), (1, 8, "b")],
        "T": [(2, 7, 5), (3, 8, 3), (4, 7, 9), (9, 8, 4), (10, 8, 6), (30, 9, 1)],
    }
    bids = _stream("T", "auction BIGINT, price BIGINT", "{} CLUSTERED BY (auction) WITHIN 3 SECONDS")
    query = _query(auctions + bids.format("FOREIGN KEY (auction) REFERENCES S"), text)
    for ways in ({}, {"batch_rows": 1, "reload": True}, {"shards": 3, "seed": 1}):
        found = run_local([query], _inputs(query, rows), **ways).tables["q"].to_pylist()
        # That of 8 is closed at 6: the auction has left when the bids of 9 and 10 come.
        assert [tuple(row.values()) for row in found] == [(6, 8, 3), (7, 7, 9)]
    # A bid that may come before its auction is a row of the join long after its value was closed.
    with pytest.raises(ScriptErrors) as caught:
        _query(auctions + bids.format(""), text)
    assert [one.code for one in caught.value.errors] == ["P0373"]


def test_rows_lie_by_columns_of_all_promises() -> None:
    both = _stream("A", COLUMNS, "CLUSTERED BY (x, w) CLUSTERED BY (v, w)")
    (node,) = _closing(_query(both, "SELECT x, v, w, COUNT(*) AS n FROM A GROUP BY x, v, w"))
    assert node.describe()["groups end by"] == "CLUSTERED BY (x, w); CLUSTERED BY (v, w)"
    apart = _stream("A", COLUMNS, "ORDERED BY (w) CLUSTERED BY (v) CLUSTERED BY (x)")
    (node,) = _closing(_query(apart, "SELECT x, v, w, COUNT(*) AS n FROM A GROUP BY x, v, w"))
    assert node.describe()["groups end by"] == "ORDERED BY (w); CLUSTERED BY (v)"
    assert node.describe()["not used"] == "CLUSTERED BY (x)"


def _closing(query: Query) -> Iterator[ClosingGroups]:
    return (node for node in operators(query.root) if isinstance(node, ClosingGroups))


def _held(query: Query, rows: dict[str, Any], instant: int) -> int:
    """Return how many groups, or rows, the one operator by promises of a query holds after an instant; of those that
    are emitted when they are closed only what can be."""
    world = World({name: [(row[0], tuple(row)) for row in own] for name, own in rows.items()}, instant)
    (node,) = (one for one in operators(query.root) if isinstance(one, ClosedRows | ClosingGroups))
    if isinstance(node, ClosingGroups):
        groups = groups_of(node, world)
        return sum(group.rows[0].start <= instant < group.until and _may_close(node, group) for group in groups)
    came = elements_of(node.input, world)
    entered = Counter((one.ts, one.row) for one in elements_of(node, world) if one.start <= instant)
    left = Counter((one.ts, one.row) for one in came if one.ts <= instant and _values(node.closing, one.row)) - entered
    return len(left)


def _may_close(node: ClosingGroups, group: Group) -> bool:
    return not node.final or _values([node.closing], group.rows[0].row)


def _values(closing: Sequence[Promises], row: Row) -> bool:
    return all(any(whole(row, one.columns) is not None for one in condition) for condition in closing)


#: With one operator by promises each.
HELD = (
    *(GROUPED[0], GROUPED[3], FINAL[1]),
    "SELECT x, v, w FROM A WHERE CLOSED(x)",
    "SELECT x, v FROM A WHERE CLOSED(x) AND CLOSED(v)",
)


@pytest.mark.parametrize("seed", range(300, 330))
def test_what_is_held_is_what_is_open(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every round, also over data that break the promises."""
    random, held, round_ = Random(seed), list[tuple[int, int]](), LocalJob.round

    def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
        done = round_(job, *given, **named)
        found = [executor.synopses() for row in job.stages for executor in row]
        ours = (s.rows for one in found for name, s in one.items() if name.rpartition(".")[2] in ("groups", "rows"))
        held.append((job.heartbeats()["q"], sum(ours)))
        return done

    monkeypatch.setattr(LocalJob, "round", measured)
    for text in HELD:
        declared = _stream("A", COLUMNS, _promises(random))
        query = _bound(declared, text)
        if query is None or not _is_promised(query):
            continue
        rows: dict[str, Rows] = {"A": _rows(random, random.choice((1, 2, 4)))}
        held.clear()
        _run(query, _inputs(query, rows), random, False)
        assert [count for _, count in held] == [_held(query, rows, instant) for instant, _ in held], (declared, text)


def test_values_of_closed_groups_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is flat while groups begin and end, whatever the aggregates keep of them."""
    declared = FUNCTIONS + _stream("A", COLUMNS, "CLUSTERED BY (x) WITHIN 10 ROWS")
    text = (
        "SELECT x, COUNT(DISTINCT v) AS a, MAX(v) AS b, MEDIAN(v) AS c, MODE(v) AS d,"
        " STRING_AGG(CAST(v AS STRING), ',') AS e, APPROX_COUNT_DISTINCT(v) AS f, MIN(CAST(v AS STRING)) AS g,"
        " total(v) AS h, joined(v) AS i FROM A GROUP BY x"
    )
    rows: dict[str, Rows] = {"A": [(t, t // 3, t % 7, 0) for t in range(3000)]}
    for query in (_query(declared, text), _query(declared, text + " HAVING CLOSED(x)")):
        sizes, round_ = list[tuple[int, int]](), LocalJob.round

        def measured(job: LocalJob, *given: Any, round_: Any = round_, sizes: Any = sizes, **named: Any) -> Any:
            done = round_(job, *given, **named)
            found = [s for row in job.stages for executor in row for s in executor.synopses().values()]
            sizes.append((sum(s.rows for s in found), sum(s.nbytes for s in found)))
            return done

        with monkeypatch.context() as patched:
            patched.setattr(LocalJob, "round", measured)
            for reload in (False, True):
                run_local([query], _inputs(query, rows), shards=1, batch_rows=50, reload=reload)
        half = len(sizes) // 4
        early, late = sizes[half // 2 : half], sizes[half : 2 * half]
        assert max(late)[0] <= 1.3 * max(early)[0], sizes
        assert max(one[1] for one in late) <= 1.5 * max(one[1] for one in early), sizes


# --- where it ends


def test_a_value_is_open_until_every_branch_of_a_union_has_passed_it() -> None:
    declared = _stream("A", "x BIGINT", "ORDERED BY (x) DESC") + _stream("B", "x BIGINT", "ORDERED BY (x) DESC")
    query = _query(declared, "SELECT x, COUNT(*) AS n FROM (SELECT x FROM A UNION ALL SELECT x FROM B) AS u GROUP BY x")
    inputs = _inputs(query, {"A": [(1, 0), (2, 1), (9, 1)], "B": [(1, 1), (6, 1)]})
    found = run_local([query], inputs, batch_rows=1).tables["q"]
    assert_same(query, found, run_oracle(query, inputs))
    # A has passed 1, B has not: the group goes on.
    assert found.column("n").to_pylist()[-1] == 4


@pytest.mark.parametrize(
    "text",
    [
        "SELECT x, COUNT(*) AS n FROM A [RANGE UNBOUNDED SLIDE 5 SECONDS] GROUP BY x",
        "SELECT DISTINCT v FROM A",
        "SELECT x, COUNT(*) AS n FROM A [RANGE 5 SECONDS] GROUP BY x",
    ],
)
def test_groups_that_no_promise_ends(text: str) -> None:
    assert not list(_closing(_query(_stream("A", COLUMNS, "CLUSTERED BY (x)"), text)))


def test_closed_needs_rows_that_wait_for_no_boundary() -> None:
    declared = _stream("A", COLUMNS, "CLUSTERED BY (x)")
    assert _bound(declared, "SELECT x FROM A [RANGE UNBOUNDED SLIDE 5 SECONDS] WHERE CLOSED(x)") is None


def test_groups_above_several_closings_are_refused() -> None:
    declared = _stream("A", COLUMNS, "CLUSTERED BY (x) ORDERED BY (v)")
    query = _query(declared, "SELECT x, COUNT(*) AS n FROM A WHERE CLOSED(x) AND CLOSED(v) GROUP BY x")
    with pytest.raises(PenstockError, match="CLUSTERED BY above a CLOSED of several conditions") as caught:
        run_local([query], _inputs(query, {"A": [(1, 1, 1, 1)]}))
    assert caught.value.code == "P0901"
    # What an order has closed stays closed.
    ordered = _query(declared, "SELECT v, COUNT(*) AS n FROM A WHERE CLOSED(x) AND CLOSED(v) GROUP BY v")
    inputs = _inputs(
        ordered, {"A": [(1, 1, 1, 1), (2, 2, 2, 0), (3, 1, 1, 1), (4, 3, 5, 0), (5, 3, 9, 0), (6, 4, 9, 0)]}
    )
    assert_same(ordered, run_local([ordered], inputs, batch_rows=1).tables["q"], run_oracle(ordered, inputs))


# --- as data


@pytest.mark.parametrize("text", [GROUPED[1], GROUPED[4], FINAL[1], FINAL[8]])
def test_plans_as_data_are_read_as_they_were(text: str) -> None:
    declared = _stream("A", COLUMNS, "CONSTRAINT c CLUSTERED BY (x) CONSTRAINT o ORDERED BY (v)")
    bound = bind_script(f"{declared} CREATE QUERY q AS {text};")
    context = Context(SourceText(""), bound.catalog, Settings())
    data = exported(bound.queries[0].root, context)
    assert "Closing" in str(data) or "ClosedRows" in str(data)
    again = read_plan(printed({"format": FORMAT, "logical": data}), context)
    assert again == bound.queries[0].root


@pytest.mark.parametrize(
    ("closing", "error"),
    [
        ([], "a promise is needed"),
        ([{"stream": "A", "constraint": "d", "columns": ["x"]}], "there is no promise d of A"),
        ([{"stream": "A", "constraint": "c", "columns": ["v"]}], "there is no promise c of A"),
        ([{"stream": "A", "constraint": "c"}], "the field columns is missing"),
    ],
)
def test_a_plan_that_names_no_promise_is_refused(closing: list[Any], error: str) -> None:
    bound = bind_script(f"{_stream('A', COLUMNS, 'CONSTRAINT c CLUSTERED BY (x)')} CREATE QUERY q AS {GROUPED[0]};")
    context = Context(SourceText(""), bound.catalog, Settings())
    data = exported(bound.queries[0].root, context)
    data["inputs"][0]["fields"]["closing"] = closing
    with pytest.raises((PenstockError, ScriptErrors), match=error):
        read_plan(printed({"format": FORMAT, "logical": data}), context)
