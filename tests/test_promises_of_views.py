"""Views that are streams pass promises on: a query over one answers, and ends its state, as one over a nested query
does [docs/promises.md]."""

from __future__ import annotations

from random import Random

import pytest

from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups, PromisedJoin
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.algebra.optimizer.optimizer import optimize
from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script
from penstock.language.scripts.proposals import proposed_promises
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from tests.test_promises import KINDS, Rows, _answer, _inputs, _query, _rows, _stream

COLUMNS = "x BIGINT, v BIGINT, w BIGINT"
#: Over the streams A and B.
VIEWS = (
    "SELECT v, x, w FROM B WHERE w > 0",
    "SELECT DISTINCT v, x, w FROM B",
    "SELECT v, x, w FROM B UNION ALL SELECT w, x, v FROM A",
    "SELECT B.v, B.x, A.w FROM A, B WHERE A.x = B.x",
    "SELECT MAX(v) AS v, x, COUNT(*) AS w FROM B GROUP BY x HAVING CLOSED(x)",
    "SELECT x, v, w FROM B WHERE CLOSED(x)",
    "SELECT x, v, w FROM B [RANGE UNBOUNDED SLIDE 3 SECONDS]",
)
#: The first so many pass promises on.
PASSING = 5
#: Over A and the view.
QUERIES = (
    "SELECT A.x AS a, V.w AS w FROM A {a}, {V} {b} WHERE A.x = V.x",
    "SELECT V.x AS a, A.w AS w FROM {V} {b}, A {a} WHERE A.x = V.x AND A.v <> V.v",
    "SELECT A.x AS a, V.w AS w FROM A LEFT JOIN {V} ON A.x = V.x",
    "SELECT V.x AS a FROM {V} WHERE V.x IN (SELECT x FROM A)",
    "SELECT V.x, COUNT(*) AS n, SUM(V.v) AS s FROM {V} GROUP BY V.x",
    "SELECT DISTINCT V.x FROM {V} WHERE V.v > 0",
    "SELECT V.x, COUNT(*) AS n FROM {V} GROUP BY V.x HAVING CLOSED(V.x)",
    "SELECT V.x, V.w FROM {V} WHERE CLOSED(V.x)",
)
_OF_A = ("", "[RANGE 3 SECONDS]", "[RANGE 4 SECONDS SLIDE 3 SECONDS]")
_OF_V = ("", "", "[NOW]", "[RANGE 6 SECONDS]", "[RANGE 4 SECONDS SLIDE 3 SECONDS]")
_WITHIN = ("", " WITHIN 1 ROWS", " WITHIN 3 ROWS", " WITHIN 2 SECONDS", " WITHIN 90 ROWS")


def _declared(random: Random) -> str:
    """Return declarations of A and B with promises, of B by x."""
    declared = ""
    for name, kinds in (("A", KINDS[:4]), ("B", KINDS)):
        chosen = random.sample(kinds, random.randrange(1, 3))
        promises = (kind if kind == KINDS[0] else kind + random.choice(_WITHIN) for kind in chosen)
        declared += _stream(name, COLUMNS, " ".join(promises))
    return declared


def _bound(declared: str, text: str) -> Query | None:
    """Return a query; None where no promise closes what it says is closed."""
    try:
        return _query(declared, text)
    except ScriptErrors as error:
        assert {one.code for one in error.errors} == {"P0373"}
        return None


def _uses(query: Query) -> list[str]:
    """Return the operators whose state promises end."""
    kinds = PromisedJoin | ClosingGroups | ClosedRows
    return sorted(type(node).__name__ for node in operators(query.root) if isinstance(node, kinds))


@pytest.mark.parametrize("seed", range(24))
def test_a_view_is_as_the_query_that_it_names(seed: int) -> None:
    """Over data that break promises, by definition and in the engine."""
    random = Random(seed)
    used = 0
    for view in VIEWS[:PASSING]:
        declared = _declared(random)
        text = random.choice(QUERIES).replace("{a}", random.choice(_OF_A)).replace("{b}", random.choice(_OF_V))
        if _bound(declared, view) is None:
            continue
        one = _bound(f"{declared} CREATE VIEW V AS {view};", text.replace("{V}", "V"))
        # A relation in FROM has no window.
        nested = "{V} [" not in text
        other = _bound(declared, text.replace("{V}", f"({view}) AS V")) if nested else one
        if one is None or other is None:
            assert one is other
            continue
        rows = {name: _rows(random, random.choice((1, 2, 4))) for name in "AB"}
        inputs = _inputs(one, rows)
        drain = random.random() < 0.5
        answer = run_oracle(one, inputs, drain=drain)
        assert _uses(one) == _uses(other), (declared, view, text)
        assert run_oracle(other, inputs, drain=drain).events == answer.events, (declared, view, text)
        used += bool(_uses(one))
        optimized = optimize(one.root, check=True)
        assert run_oracle(one, inputs, drain=drain, optimized_root=optimized).events == answer.events
        cut = {"seed": seed} if random.random() < 0.5 else {"batch_rows": random.randrange(1, 7)}
        found = run_local([one], inputs, shards=random.randrange(1, 4), drain=drain, reload=seed % 2 == 0, **cut)
        assert_same(one, found.tables["q"], answer)
    assert used > 0


@pytest.mark.parametrize("view", VIEWS[PASSING:])
def test_views_whose_rows_come_later_pass_nothing_on(view: str) -> None:
    declared = _stream("A", COLUMNS) + _stream("B", COLUMNS, "CLUSTERED BY (x)")
    query = _query(f"{declared} CREATE VIEW V AS {view};", "SELECT A.x, V.w FROM A, V WHERE A.x = V.x")
    assert not [node for node in operators(query.root) if isinstance(node, PromisedJoin)]
    streams = [node for node in operators(query.root) if isinstance(node, RelationToStream)]
    assert [one.promises for one in streams] == [(), ()]


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ("DSTREAM(SELECT x FROM B [RANGE 5 SECONDS])", [6]),
        ("RSTREAM(SELECT x FROM B [RANGE 4 SECONDS SLIDE 2 SECONDS])", [2, 4]),
        ("ISTREAM(SELECT x FROM B [RANGE UNBOUNDED SLIDE 5 SECONDS])", [5]),
        ("ISTREAM(SELECT x FROM B [RANGE 4 SECONDS SLIDE 4 SECONDS])", [4]),
    ],
)
def test_streams_that_emit_a_value_later(view: str, found: list[int]) -> None:
    """Counter-examples: the promise is kept, and a value comes after it is closed at 2."""
    rows: dict[str, Rows] = {"A": [(0, 7), (9, 1)], "B": [(1, 7), (2, 8), (9, 9)]}
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT", "CLUSTERED BY (x)")
    query = _query(f"{declared} CREATE VIEW V AS {view};", "SELECT A.x FROM A, V [NOW] WHERE A.x = V.x")
    assert not [node for node in operators(query.root) if isinstance(node, PromisedJoin)]
    assert [row[0] for row in _answer(query, rows) if row[1] == "+"] == found


def test_a_view_over_a_view() -> None:
    declared = _stream("A", "x BIGINT") + _stream("B", "x BIGINT, v BIGINT", "CLUSTERED BY (x)")
    views = "CREATE VIEW U AS SELECT v, x FROM B WHERE v > 0; CREATE VIEW V AS SELECT x AS y, v FROM U;"
    query = _query(declared + views, "SELECT V.v FROM A, V WHERE A.x = V.y")
    (join,) = (node for node in operators(query.root) if isinstance(node, PromisedJoin))
    assert join.describe()["leaving"] == "left by CLUSTERED BY of B"


def test_promises_are_proposed_to_queries_over_views() -> None:
    declared = "".join(_stream(name, "x BIGINT, v BIGINT") for name in "AB")
    view = "CREATE VIEW V AS SELECT v, x AS y FROM B WHERE v > 0;"
    bound = bind_script(f"{declared} {view} CREATE QUERY q AS SELECT A.v FROM A, V WHERE A.x = V.y;")
    proposed = {line for one in proposed_promises(bound.queries[-1], bound.catalog) for line in one.statements}
    assert "ALTER STREAM B ADD CONSTRAINT x_clustered CLUSTERED BY (x) WITHIN 0 ROWS ASSERTED" in proposed
