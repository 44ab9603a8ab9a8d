"""WITH PREFERENCE over joins of every form: by expressions on either side, several, casts, views, self-joins, tables.

Each answers what the oracle says, in rounds and over restarts; under a budget that covers all work, what the query
answers without the clause.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

CASE = """
statement
CREATE STREAM o (t BIGINT, k STRING, n INT, d DOUBLE) FROM MEMORY () TIMESTAMP BY t;
CREATE STREAM p (t BIGINT, k STRING, u BIGINT, e DECIMAL(8,2)) FROM MEMORY () TIMESTAMP BY t;
CREATE STREAM s (t BIGINT, k STRING, v INT) FROM MEMORY () TIMESTAMP BY t;
CREATE RELATION r (k STRING, z INT) FROM MEMORY ();
CREATE NON RETROACTIVE RELATION nr (t BIGINT, op STRING, k STRING, z INT) FROM MEMORY ()
  TIMESTAMP BY t OPERATION BY op;
CREATE SUMMARY so ON o (k) USING EXACT;
CREATE SUMMARY sp ON p (u) USING EXACT;
CREATE VIEW upper_p AS SELECT UPPER(k) AS k, u FROM p;
CREATE VIEW upper_o AS SELECT UPPER(k) AS kk, n + 1 AS n FROM o [RANGE 6 SECONDS];
CREATE VIEW lately AS SELECT k, u FROM p [RANGE 5 SECONDS];
{queries}

input o
{o}

input p
{p}

input s
{s}

input r
{r}

input nr
{nr}
"""
KEYS = ("a", "A", "b", "B", "NULL", "1")
O, P, S = "o [RANGE 6 SECONDS]", "p [RANGE 5 SECONDS]", "s [RANGE 4 SECONDS]"  # noqa: E741
#: (query, preference)
FORMS = [
    *((f"SELECT o.k, p.u FROM {O}, {P} WHERE {condition}", preference) for condition, preference in (
        ("UPPER(o.k) = p.k", "p.u"),
        ("o.k = LOWER(p.k)", "p.u, o.n"),
        ("UPPER(o.k) = UPPER(p.k)", "o.n"),
        ("UPPER(o.k) = UPPER(p.k) AND o.n = p.u", "o.n"),
        ("UPPER(o.k) = UPPER(p.k) AND o.n + 1 = p.u * 2", "o.n"),
        ("UPPER(o.k) = p.k AND o.n < p.u", "o.n"),
        ("UPPER(o.k) = p.k AND o.n BETWEEN p.u AND p.u + 2", "o.n"),
        ("UPPER(o.k) <=> p.k AND o.n = p.u", "o.n"),
        ("o.n = p.u", "o.n"),
        ("o.d = p.e", "o.n"),
        ("CAST(o.n AS STRING) = p.k", "o.n"),
        ("o.n = CAST(p.k AS INT)", "o.n"),
        ("(o.k, o.n) = (p.k, p.u)", "o.n"),
        ("COALESCE(o.k, 'x') = COALESCE(p.k, 'x')", "o.n"),
        ("o.k = UPPER(p.k)", "1"),
        ("o.k = p.k AND UPPER(o.k) = UPPER(p.k)", "SUMMARY.Estimate.Count(o.k)"),
        ("CAST(o.n AS BIGINT) = p.u", "SUMMARY.Estimate.Count(p.u)"),
    )),
    (f"SELECT o.k, p.u FROM {O} JOIN {P} ON UPPER(o.k) = p.k", "o.n"),
    (f"SELECT x.k, y.n FROM {O} x, o [RANGE 3 SECONDS] y WHERE UPPER(x.k) = y.k", "x.n"),
    (f"SELECT x.k, y.n FROM {O} x, {O} y WHERE UPPER(x.k) = UPPER(y.k)", "x.n"),
    (f"SELECT o.k, v.u FROM {O}, upper_p [RANGE 5 SECONDS] v WHERE LOWER(o.k) = LOWER(v.k)", "v.u"),
    ("SELECT kk, u FROM upper_o, lately WHERE kk = k", "n"),
    ("SELECT kk, u FROM upper_o, lately WHERE LOWER(kk) = LOWER(k)", "n"),
    (f"SELECT x.kk, y.u FROM (SELECT UPPER(k) AS kk, n FROM {O} WHERE n > 1) x, {P} y WHERE x.kk = y.k", "n"),
    ("SELECT o.k, p.u FROM o [RANGE 6 SECONDS SLIDE 2 SECONDS], p [RANGE 6 SECONDS SLIDE 2 SECONDS]"
     " WHERE UPPER(o.k) = p.k", "o.n"),
    (f"SELECT UPPER(o.k) AS k, COUNT(*) AS c FROM {O}, {P} WHERE UPPER(o.k) = p.k GROUP BY UPPER(o.k)", "o.n"),
    (f"SELECT o.k, r.z FROM {O}, r WHERE UPPER(o.k) = UPPER(r.k)", "r.z"),
    (f"SELECT o.k, r.z FROM r, {O} WHERE o.k = UPPER(r.k)", "SUMMARY.Estimate.Count(o.k)"),
    (f"SELECT o.k, r.z FROM {O}, r WHERE o.k <=> r.k", "r.z"),
    (f"SELECT o.k, nr.z FROM {O}, nr WHERE UPPER(o.k) = UPPER(nr.k)", "nr.z"),
    (f"SELECT o.k, nr.z FROM nr, {O} WHERE o.k = UPPER(nr.k) AND o.n < nr.z", "SUMMARY.Estimate.Count(o.k)"),
    (f"SELECT o.k, nr.z FROM {O}, nr WHERE o.k <=> nr.k", "o.n"),
    (f"SELECT o.k, u, v FROM {O}, {P}, {S} WHERE UPPER(o.k) = UPPER(p.k) AND LOWER(p.k) = LOWER(s.k)", "o.n, v"),
    (f"SELECT o.k, u, v FROM {O}, {P}, {S} WHERE UPPER(o.k) = p.k AND o.n = s.v", "v"),
    (f"SELECT o.k, u, z FROM {O}, {P}, r WHERE UPPER(o.k) = UPPER(p.k) AND LOWER(p.k) = LOWER(r.k)", "o.n"),
    (f"SELECT x.k, y.k, z.k FROM {O} x, {O} y, {O} z WHERE UPPER(x.k) = y.k AND y.k = LOWER(z.k)", "x.n"),
]  # fmt: skip
BUDGETS = ("1 PER TUPLE", "2 PER SECOND", "1000000 PER TUPLE", "AUTO")


def rows(draw: random.Random, value: Callable[[], str]) -> str:
    found, at = [], 0
    for _ in range(25):
        at += draw.choice((0, 0, 1, 1, 2))
        found.append(f"{at}, {draw.choice(KEYS)}, {value()}")
    return "\n".join(found)


@pytest.mark.spread(4)
@pytest.mark.parametrize("number", range(len(FORMS)))
def test_every_form_of_join_waits_as_the_oracle_says(number: int) -> None:
    draw, (select, preference) = random.Random(number), FORMS[number]
    order = ("DESC", "WEIGHTED", "ASC")[number % 3]
    queries = [f"CREATE QUERY plain AS {select};"] + [
        f"CREATE QUERY q{i} AS {select} WITH PREFERENCE {order} {preference} BUDGET {budget};"
        for i, budget in enumerate(BUDGETS)
    ]
    case = parse_case(
        CASE.format(
            queries="\n".join(queries),
            o=rows(draw, lambda: f"{draw.randrange(5)}, {draw.choice((1.0, 2.5, 0.0))}"),
            p=rows(draw, lambda: f"{draw.randrange(5)}, {draw.choice((1, 2.5, 0))}"),
            s=rows(draw, lambda: str(draw.randrange(5))),
            r="\n".join(f"{key}, {draw.randrange(5)}" for key in KEYS),
            nr="\n".join(f"{i}, +, {key}, {draw.randrange(5)}" for i, key in enumerate(KEYS)),
        )
    )
    bound = bind_script(case.script)
    inputs = case_inputs(case, bound)
    plain, *waiting = bound.queries
    whole = Counter(map(str, run_local([plain], inputs, 1, True).tables["plain"].to_pylist()))
    assert whole
    for query, budget in zip(waiting, BUDGETS, strict=True):
        wanted = run_oracle(query, inputs, True)
        for cut in (None, number):
            found = run_local([query], inputs, 1, True, cut, reload=cut is not None).tables[query.name]
            assert_same(query, found, wanted)
        if budget == "AUTO" or budget.startswith("1000000"):
            cut_up = run_local([query], inputs, 3, True, number).tables[query.name]
            assert Counter(map(str, cut_up.to_pylist())) == whole


@pytest.mark.parametrize("condition", ["o.k <=> p.k", "o.n < p.u", "UPPER(o.k) = p.k OR o.n = p.u", "o.n + p.u = 4"])
def test_a_join_of_streams_without_an_equality_is_refused(condition: str) -> None:
    script = CASE[CASE.index("CREATE") : CASE.index("{queries}")]
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{script} CREATE QUERY q AS SELECT o.k FROM {O}, {P} WHERE {condition} WITH PREFERENCE o.n;")
    assert [error.code for error in caught.value.errors] == ["P0901"]
    assert "needs an equality" in str(caught.value)
