"""Queries under a budget: the local runtime, cut at random places and over several shards, against the definition."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.testing.cases import RUNS
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

_SOURCE = (
    "CREATE STREAM t (at BIGINT, k STRING, x INT, a BIGINT, b BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"
)
_FROM = (
    "t (k) VALID FOR 3 SECONDS [RANGE 6 SECONDS] AS s",
    "t (k, x) VALID FOR 4 SECONDS [RANGE 9 SECONDS SLIDE 3 SECONDS] AS s",
    "t (k) [RANGE 12 SECONDS SLIDE 2 SECONDS] AS s",
    "t (x) VALID FROM a TO b [RANGE 8 SECONDS] AS s",
    "t (k) VALID FOR 2 SECONDS [UNBOUNDED] AS s",
    "t (k) VALID FOR 3 SECONDS [ROWS 6] AS s",
    "t (k, x % 2 AS y) VALID FROM a TO b [ROWS 9 WHERE x > 1 OR k = 'a'] AS s",
    "GAPS OF t (k) AT LEAST 2 SECONDS VALID FOR 3 SECONDS [RANGE 9 SECONDS] AS s",
    "GAPS OF t (k, x) VALID FROM a TO b [RANGE 12 SECONDS SLIDE 2 SECONDS] AS s",
)
_WHERE = ("", "LENGTH(VALID(s)) >= 5", "CAST(VALID(s) AS INTERVAL SECOND) > 3", "LENGTH(VALID(s)) < 6")
_POLICIES = ("random", "newest", "value", "cals_v", "cals_i", "cals", "cals_q")


def script_of(draw: random.Random, policy: str) -> str:
    source = draw.choice(_FROM)
    # Of an open gap no other comparison is known in silence.
    where = [
        draw.choice(_WHERE[:2] if "GAPS" in source else _WHERE),
        "s.k <> 'c'" if "(k" in source and draw.random() < 0.3 else "",
    ]
    said = " AND ".join(part for part in where if part)
    memory = draw.choice(["1 TUPLES", "3 TUPLES", "8 TUPLES", "400", "900 B"])
    more = draw.choice(
        ["", ", buckets '3'" if memory[0] not in "1" else "", ", compact 'false'", ", error_sample '50%'"]
    )
    items = "*, VALID(s)" if "(x)" not in source else "s.x, VALID(s)"
    items = "s.k, VALID(s)" if "(k" in source else items
    clause = f" WHERE {said}" if said else ""
    attributes = f"memory '{memory}', shed '{policy}'{more}"
    return f"{_SOURCE}CREATE QUERY q WITH ({attributes}) AS SELECT {items} FROM {source}{clause};"


#: Queries of which a budget counts what goes on: of stretches that are told once, and of sessions.
_WHOLE = (
    "SELECT s.k, VALID(s) FROM t (k) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s))",
    "SELECT s.k, s.y, VALID(s) FROM t (k, x % 2 AS y) VALID FOR x SECONDS AS s WHERE CLOSED(VALID(s)) AND s.k <> 'c'",
    "SELECT s.k, VALID(s) FROM t (k) [UNBOUNDED SLIDE 3 SECONDS] AS s WHERE CLOSED(VALID(s)) AND LENGTH(VALID(s)) > 3",
    "SELECT s.k, s.x, VALID(s) FROM t [PARTITION BY k SESSION 3 SECONDS] AS s",
    "SELECT s.k, s.a, VALID(s) FROM t [PARTITION BY k SESSION x SECONDS AT MOST 7 SECONDS] AS s WHERE s.k <> 'b'",
    "RSTREAM(SELECT k, x, VALID(s), COUNT(*) AS n, MIN(a) AS least FROM t [PARTITION BY k, x SESSION 2 SECONDS] AS s"
    " GROUP BY k, x, VALID(s))",
    "SELECT VALID(s), COUNT(*) AS n, SUM(x) AS total FROM t [PARTITION BY k SESSION 4 SECONDS AT MOST 9 SECONDS] AS s"
    " GROUP BY VALID(s)",
    "SELECT x, VALID(s) FROM t (x) [PARTITION BY k SESSION 4 SECONDS] AS s",
)
#: The same of sessions that are told while they go on.
_OPEN = (
    "SELECT s.k, s.x, s.at, VALID(s) FROM t [PARTITION BY k SESSION 3 SECONDS OPEN] AS s",
    "SELECT s.k, s.a, VALID(s) FROM t [PARTITION BY k SESSION x SECONDS AT MOST 7 SECONDS OPEN] AS s WHERE s.k <> 'b'",
    "SELECT k, x, VALID(s), COUNT(*) AS n, MIN(a) AS least FROM t [PARTITION BY k, x SESSION 4 SECONDS OPEN] AS s"
    " GROUP BY k, x, VALID(s)",
    "RSTREAM(SELECT s.k, s.at FROM t [PARTITION BY k SESSION 3 SECONDS OPEN] AS s)",
    "ISTREAM(SELECT s.x, COUNT(*) AS n FROM t [PARTITION BY k SESSION 5 SECONDS OPEN] AS s GROUP BY s.x)",
)


def script_of_whole(draw: random.Random, policy: str) -> str:
    memory = draw.choice(["1 TUPLES", "2 TUPLES", "3 TUPLES", "8 TUPLES", "200", "300 B"])
    more = draw.choice(["", ", buckets '2'" if memory[0] != "1" else ""])
    more += draw.choice(["", ", accuracy_at_least '90%', on_inaccuracy 'fail'"])
    more += draw.choice(["", ", compact 'false'"])
    query = draw.choice(_WHOLE if draw.random() < 0.6 else _OPEN)
    return f"{_SOURCE}CREATE QUERY q WITH (memory '{memory}', shed '{policy}'{more}) AS {query};"


#: Queries of which a budget counts runs of granules.
_RUNS = (
    "t (k) [RANGE 12 SECONDS SLIDE 2 SECONDS]",
    "t (k, x) [RANGE 6 SECONDS SLIDE 1 SECOND]",
    "t (k) [RANGE 3 SECONDS SLIDE 3 SECONDS]",
    "t (x) [RANGE 8 SECONDS SLIDE 4 SECONDS ALIGN TO 1]",
    "t (k, x % 2 AS y) [RANGE 20 SECONDS SLIDE 2 SECONDS WHERE x > 1 OR k = 'a']",
    "GAPS OF t (k) [RANGE 12 SECONDS SLIDE 2 SECONDS]",
)


def script_of_runs(draw: random.Random, policy: str) -> str:
    source = draw.choice(_RUNS)
    memory = draw.choice(["1 TUPLES", "2 TUPLES", "3 TUPLES", "5 TUPLES", "200", "400 B"])
    more = draw.choice(["", "", ", buckets '2'" if memory[0] != "1" else ""])
    more += draw.choice(["", ", accuracy_at_least '90%', on_inaccuracy 'fail'"])
    where = ["", "LENGTH(VALID(s)) >= 3", "LENGTH(VALID(s)) > 5", "CAST(VALID(s) AS INTERVAL SECOND) >= 8"]
    parts = [draw.choice(where[:1] if "GAPS" in source else where)]
    parts += ["s.k <> 'c'"] if "(k" in source and draw.random() < 0.3 else []
    said = " AND ".join(part for part in parts if part)
    clause = f" WHERE {said}" if said else ""
    items = "s.x, VALID(s)" if "(x)" in source else "s.k, VALID(s)"
    kept = f"WITH (memory '{memory}', shed '{policy}'{more})"
    return f"{_SOURCE}CREATE QUERY q {kept} AS SELECT {items} FROM {source} AS s{clause};"


def table_of(draw: random.Random, rows: int = 40) -> pa.Table:
    at, made = 0, []
    for _ in range(rows):
        at += draw.choice([0, 0, 1, 1, 2, 6])
        begin = at + draw.randrange(-6, 4)
        key = draw.choice(["a", "b", "c", "a", None])
        made.append((at, key, draw.choice([1, 2, None]), begin, draw.choice([begin + draw.randrange(0, 8), None])))
    names = ("at", "k", "x", "a", "b")
    types = (pa.int64(), pa.string(), pa.int32(), pa.int64(), pa.int64())
    columns = [pa.array(list(values), kind) for values, kind in zip(zip(*made, strict=True), types, strict=True)]
    return pa.Table.from_arrays(columns, names=list(names))


def check(seed: int, policy: str, script_of: Callable[[random.Random, str], str] = script_of) -> int:
    draw = random.Random(f"{policy}/{seed}")
    script = script_of(draw, policy)
    bound = bind_script(script, one_time=True)
    (query,) = bound.queries
    inputs = {"t": table_of(draw)}
    drain = draw.random() < 0.5
    expected = run_oracle(query, inputs, drain).events
    for run in draw.sample(RUNS, 2):
        result = run.answer(bound.queries, inputs, drain, None)
        assert_same(query, result.tables["q"], expected)
    return len(expected)


@pytest.mark.spread(2)
@pytest.mark.parametrize("policy", _POLICIES)
def test_the_local_runtime_equals_the_definition(policy: str) -> None:
    assert sum(check(seed, policy) for seed in range(4))


@pytest.mark.parametrize("policy", ["value", "cals_q"])
def test_what_goes_on_has_a_budget(policy: str) -> None:
    assert sum(check(seed, policy, script_of_whole) for seed in range(12))


@pytest.mark.parametrize("policy", ["random", "cals_q"])
def test_runs_of_granules_have_a_budget(policy: str) -> None:
    assert sum(check(seed, policy, script_of_runs) for seed in range(10))


def test_what_leaves_a_window_of_rows_is_taken_back_also_where_its_value_goes_with_it() -> None:
    """The run that forgets a value as soon as nothing is held of it had lost the last of its rows."""
    text = f"{_SOURCE}CREATE QUERY q WITH (memory '2 TUPLES', shed 'value', buckets '2') AS SELECT k, x, VALID(s) FROM"
    bound = bind_script(f"{text} t (k, x) VALID FOR 3 SECONDS [ROWS 6] AS s;", one_time=True)
    (query,) = bound.queries
    inputs = {"t": table_of(random.Random("leaves"))}
    expected = run_oracle(query, inputs, False).events
    for run in RUNS:
        if run.thresholds is not None:
            assert_same(query, run.answer(bound.queries, inputs, False, None).tables["q"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("policy", _POLICIES)
def test_the_local_runtime_equals_the_definition_in_many_cases(policy: str) -> None:
    for seed in range(4, 100):
        check(seed, policy)
        check(seed, policy, script_of_whole)
        check(seed, policy, script_of_runs)


_LINE = "CREATE STREAM m (at BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"


def many_values(memory: str, more: str = "", rows: int = 4000) -> tuple[str, dict[str, pa.Table]]:
    draw = random.Random(3)
    script = f"{_LINE}CREATE QUERY q WITH (memory '{memory}', shed 'cals_q', error_sample '40%'{more}) AS "
    script += "SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS [RANGE 1000 SECONDS] AS s;"
    at = [k // 4 for k in range(rows)]
    keys = [draw.randrange(300) for _ in range(rows)]
    return script, {"m": pa.table({"at": pa.array(at, pa.int64()), "k": pa.array(keys, pa.int64())})}


def test_a_query_that_is_too_inaccurate_fails_at_one_instant_whatever_the_rounds() -> None:
    script, inputs = many_values("1500 TUPLES", ", accuracy_at_least '90%', on_inaccuracy 'fail'")
    bound = bind_script(script, one_time=True)
    messages = set()
    for run in (RUNS[0], RUNS[2]):
        with pytest.raises(PenstockError) as failed:
            run.answer(bound.queries, inputs, False, None)
        assert failed.value.code == "P0633"
        messages.add(failed.value.message)
    assert len(messages) == 1
    assert "below accuracy_at_least 0.9" in messages.pop()


def test_a_query_that_is_accurate_enough_goes_on() -> None:
    script, inputs = many_values("1500 TUPLES", ", accuracy_at_least '5%', on_inaccuracy 'fail'")
    bound = bind_script(script, one_time=True)
    assert RUNS[0].answer(bound.queries, inputs, False, None).tables["q"].num_rows
