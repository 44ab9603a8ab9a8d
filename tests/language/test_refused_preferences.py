"""What is refused of preferences and summaries says what to do; what is odd and not refused is answered."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import ScriptErrors
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "errors" / "preferences.cqltest"
SETUP, *REFUSED = (
    re.sub(r"^(error|#).*\n?", "", part, flags=re.MULTILINE).strip()
    for part in re.split(r"^statement\n", SCRIPT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
)


def test_every_refusal_has_a_position_and_says_what_to_do() -> None:
    """Codes and positions are those of the script; here that each error has a hint too."""
    assert len(REFUSED) > 60
    for statement in REFUSED:
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"{SETUP}\n{statement}")
        for error in caught.value.errors:
            assert error.position is not None and error.hint, f"{statement}\n{error.message}"


@pytest.mark.parametrize(
    "statement, code, hint",
    [
        ("CREATE SUMMARY x ON o (key);", "P0202", "known: amount, at, k, name"),
        ("CREATE QUERY q AS SELECT k FROM p WITH PREFERENCE SUMMARY.Estimate.Count(k);", "P0350", "p_k, p_too"),
        ("CREATE QUERY q AS SELECT k FROM s WITH PREFERENCE SUMMARY.Estimate.Count(k);", "P0350",
         "CREATE SUMMARY s_k ON s (k)"),
        ("CREATE QUERY q AS SELECT k FROM o WITH PREFERENCE amount FADE FACTOR 0 PER SECOND;", "P0203", "0.8 takes"),
        ("CREATE QUERY q AS SELECT k FROM o WITH PREFERENCE amount FADE FACTOR 1.5 PER SECOND;", "P0203", "0.8 takes"),
        ("CREATE QUERY q AS SELECT k FROM o WITH PREFERENCE amount BUDGET 0 PER SECOND;", "P0203", "UNLIMITED"),
        ("CREATE QUERY q AS SELECT k FROM o WITH PREFERENCE amount BUDGET -1 PER TUPLE;", "P0203", "UNLIMITED"),
    ],
)  # fmt: skip
def test_bad_clauses_are_refused_with_their_remedy(statement: str, code: str, hint: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{SETUP}\n{statement}")
    (error,) = caught.value.errors
    assert error.code == code and hint in (error.hint or "")


JOIN = """
CREATE STREAM a (ts BIGINT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM b (ts BIGINT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE SUMMARY of_a ON a (k) USING {method};
CREATE SUMMARY of_b ON b (k) USING {method};
CREATE QUERY q AS SELECT a.k, a.n, b.n AS m FROM a [RANGE 30 SECONDS] AS a, b [RANGE 30 SECONDS] AS b WHERE a.k = b.k
  WITH PREFERENCE {order} of_a.Estimate.Count(a.k), of_b.Estimate.Count(b.k) BUDGET {budget};
"""
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int32()), ("n", pa.int32())])


def rows(*found: tuple[int, int | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


@pytest.mark.spread(2)
@pytest.mark.parametrize("budget", ["2 PER TUPLE", "1 PER 4 SECONDS"])
@pytest.mark.parametrize("method", ["EXACT", "COUNTSKETCH"])
@pytest.mark.parametrize("order", ["DESC", "ASC", "WEIGHTED"])
@pytest.mark.parametrize("kind", ["empty summary", "NULL keys"])
def test_overload_with_an_empty_summary_and_null_keys_are_answered(
    kind: str, order: str, method: str, budget: str
) -> None:
    """With nothing in a summary no zone is known, so all is in rest entries. NULL in a key joins nothing, and what has
    it is neither counted nor makes entries."""
    null = None if kind == "NULL keys" else 1
    left = rows(*((at, null if at % 2 else 1, at) for at in range(12)))
    # Of the other stream nothing comes before the end: until then its summary is empty, under load.
    right = (
        rows((11, 1, 0), (11, null, 1)) if kind == "empty summary" else rows((3, None, 0), (11, None, 1), (11, 1, 2))
    )
    (query,) = bind_script(JOIN.format(order=order, method=method, budget=budget)).queries
    inputs = {"a": left, "b": right}
    wanted = run_oracle(query, inputs, True)
    assert wanted.events
    for cut in (None, 3):
        assert_same(query, run_local([query], inputs, 1, True, cut, reload=cut is not None).tables["q"], wanted)


@pytest.mark.parametrize("method", ["EXACT", "COUNTSKETCH"])
def test_a_granularity_longer_than_the_time_there_is_and_a_preference_that_is_null_are_answered(method: str) -> None:
    """The limits of COLLAPSE and of time: no product of them overflows. NULL ranks last, so all rows are equal."""
    longest = f"WITH GRANULARITY 1000000000000 DAYS AND COLLAPSE (1024, 32) USING {method}"
    text = JOIN.replace("USING {method}", longest).format(order="DESC", method=method, budget="1 PER TUPLE")
    null = "CREATE QUERY n AS SELECT n FROM a [RANGE 9 SECONDS] WITH PREFERENCE NULL BUDGET 1 PER 2 SECONDS;"
    inputs = {
        "a": rows(*((at, at % 2, at) for at in range(-5, 25))),
        "b": rows(*((at, at % 3, at) for at in range(25))),
    }
    for query in bind_script(text + null).queries:
        wanted = run_oracle(query, inputs, True)
        assert wanted.events
        for cut in (None, 3):
            found = run_local([query], inputs, 1, True, cut, reload=cut is not None).tables[query.name]
            assert_same(query, found, wanted)


def test_slide_beside_a_non_retroactive_relation_is_the_plain_query_or_refused() -> None:
    """Without a budget, and under AUTO without a target, the row looks up as of its own instant, as without the clause.
    With a budget it would be looked up at its boundary: the relation has changed by then, so it is refused."""
    text = """
    CREATE STREAM a (ts BIGINT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE NON RETROACTIVE RELATION t (ts BIGINT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    """
    select = "SELECT a.k, a.n, t.n AS m FROM a [RANGE 6 SECONDS SLIDE 4 SECONDS], t WHERE a.k = t.k"
    clauses = {"plain": "", **{f"q{kind}": f" WITH PREFERENCE a.n BUDGET {kind}" for kind in ("UNLIMITED", "AUTO")}}
    text += "".join(f"CREATE QUERY {name} AS {select}{clause};" for name, clause in clauses.items())
    inputs = {
        "a": rows(*((at, at % 2, at) for at in range(20))),
        "t": rows(*((at, at % 2, at) for at in range(1, 20, 3))),
    }
    plain, *others = bind_script(text).queries
    wanted = run_oracle(plain, inputs, True)
    assert wanted.events
    for query in others:
        assert query.root.fingerprint == plain.root.fingerprint
        for cut in (None, 3):
            assert_same(
                query, run_local([query], inputs, 1, True, cut, reload=cut is not None).tables[query.name], wanted
            )
    for kind in ("1 PER TUPLE", "1 PER SECOND", "AUTO"):
        with pytest.raises(ScriptErrors) as caught:
            bind_script(
                f"SET target_latency = '1 s'; {text} CREATE QUERY few AS {select} WITH PREFERENCE a.n BUDGET {kind};"
            )
        assert {error.code for error in caught.value.errors} == {"P0901"}
        assert all("BUDGET UNLIMITED" in (error.hint or "") for error in caught.value.errors)
