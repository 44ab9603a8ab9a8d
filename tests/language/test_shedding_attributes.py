"""What the binder makes of the attributes of shedding: where budgets go, and what policies know of the predicate."""

from __future__ import annotations

import pytest

from penstock.algebra import Coalesce, Select, Shed, StretchChances
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.scripts import bind_script

_STREAM = "CREATE STREAM m (at BIGINT, k BIGINT, x INT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"
_FROM = "m (k, x) VALID FOR 3 SECONDS [RANGE 1000 SECONDS] AS s"


def shed_of(where: str, attributes: str = "memory '9 TUPLES'", items: str = "k, VALID(s)", before: str = "") -> Shed:
    clause = f" WHERE {where}" if where else ""
    said = f" WITH ({attributes})" if attributes else ""
    text = f"{_STREAM}{before}CREATE QUERY q{said} AS SELECT {items} FROM {_FROM}{clause};"
    (query,) = bind_script(text).queries
    (found,) = (node for node in operators(query.root) if isinstance(node, Shed))
    return found


@pytest.mark.parametrize(
    ("where", "least", "misses_only"),
    [
        ("", 0, True),
        ("LENGTH(VALID(s)) >= 5", 5, True),
        ("LENGTH(VALID(s)) > 5", 6, True),
        ("5 <= LENGTH(VALID(s))", 5, True),
        ("CAST(VALID(s) AS INTERVAL MINUTE) >= 3", 180, True),
        ("CAST(VALID(s) AS INTERVAL MINUTE) > 3", 240, True),
        ("k = 1 AND LENGTH(VALID(s)) >= 5", 5, True),
        ("LENGTH(VALID(s)) < 5", 0, False),
        ("LENGTH(VALID(s)) = 5", 0, False),
        ("BEGIN(VALID(s)) <= 7", 0, True),
        ("END(VALID(s)) >= 7", 0, True),
        ("BEGIN(VALID(s)) >= 7", 0, False),
        ("LENGTH(VALID(s)) >= k", 0, False),
        ("LENGTH(VALID(s)) >= 5 OR k = 1", 0, False),
    ],
)
def test_what_is_known_of_the_predicate(where: str, least: int, misses_only: bool) -> None:
    shed = shed_of(where)
    assert (shed.least, shed.misses_only) == (least, misses_only)
    assert shed.describe()["error"] == ("misses only" if misses_only else "both ways")


def test_a_selection_on_the_value_is_below_the_budget_and_one_on_the_period_above() -> None:
    text = f"{_STREAM}CREATE QUERY q WITH (memory '9 TUPLES') AS SELECT k FROM {_FROM}"
    (query,) = bind_script(f"{text} WHERE k > 1 AND LENGTH(VALID(s)) >= 5 AND x = 2;").queries
    selections = [node for node in operators(query.root) if isinstance(node, Select)]
    assert [isinstance(node.input, Coalesce) for node in selections] == [True, False]
    (shed,) = (node for node in operators(query.root) if isinstance(node, Shed))
    assert shed.input is selections[1]


def test_an_aggregate_above_may_err_both_ways() -> None:
    text = f"{_STREAM}CREATE QUERY q WITH (memory '9 TUPLES') AS SELECT k, COUNT(*) AS n FROM {_FROM} GROUP BY k;"
    (query,) = bind_script(text).queries
    (shed,) = (node for node in operators(query.root) if isinstance(node, Shed))
    assert not shed.misses_only


def test_settings_are_the_defaults_of_attributes() -> None:
    before = "SET shed_memory = '64 KB'; SET shed = 'value'; SET shed_buckets = 4; SET shed_error_sample = '0.1';"
    shed = shed_of("", "", before=before)
    assert (shed.budget, shed.in_bytes, shed.policy, shed.buckets, shed.sample) == (65536, True, "value", 4, 100_000)
    own = shed_of("", "memory '7 tuples', shed 'newest', error_sample '20%', compact 'false'", before=before)
    assert (own.budget, own.in_bytes, own.policy, own.buckets, own.sample) == (7, False, "newest", 4, 200_000)
    assert not own.compact


def test_a_setting_does_not_touch_queries_that_do_not_coalesce() -> None:
    text = f"{_STREAM}SET shed_memory = '9 TUPLES'; CREATE QUERY q AS SELECT k FROM m [NOW];"
    (query,) = bind_script(text).queries
    assert not any(isinstance(node, Shed) for node in operators(query.root))


def test_queries_with_other_budgets_share_nothing_above_them() -> None:
    assert shed_of("").fingerprint != shed_of("", "memory '10 TUPLES'").fingerprint


def test_errors_name_the_nearest() -> None:
    text = f"{_STREAM}CREATE QUERY q WITH (memory '9 TUPLES', shed 'calls') AS SELECT k FROM {_FROM};"
    with pytest.raises(PenstockError, match="cals"):
        bind_script(text)
    with pytest.raises(PenstockError) as refused:
        bind_script(f"{_STREAM}CREATE QUERY q WITH (memmory '9 TUPLES') AS SELECT k FROM {_FROM};")
    assert "memory" in str(refused.value)


_STRETCHES = "m (k) VALID FOR 3 SECONDS [RANGE 60 SECONDS]"
_ENDED = "m [PARTITION BY k SESSION 3 SECONDS]"


def bind_estimate(budget: str, source: str) -> Query:
    script = "CREATE STREAM m (at BIGINT, k STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"
    script += f"CREATE QUERY q {budget}AS SELECT ESTIMATE(COUNT(*)) AS n FROM {source} AS s;"
    (query,) = bind_script(script).queries
    return query


@pytest.mark.parametrize(
    ("budget", "source", "message", "hint"),
    [
        ("", _STRETCHES, "no budget leaves any out: the aggregate is exact", "shed 'value'"),
        ("", _ENDED, "no budget leaves any out: the aggregate is exact", "shed 'value'"),
        ("WITH (memory '3 TUPLES') ", _STRETCHES, "under shed 'cals_q', which drops tuples of a value", "shed 'value'"),
        ("WITH (memory '3 TUPLES', shed 'random') ", _STRETCHES, "with no known probability", "coverage_at_least"),
        ("WITH (memory '3 TUPLES', cpu '1', shed 'newest') ", _STRETCHES, "under shed 'newest'", "shed 'value'"),
        (
            "WITH (memory '9 TUPLES', shed 'value') ",
            "(SELECT COUNT(*) AS n FROM m (k) VALID FOR 3 SECONDS [RANGE 60 SECONDS] AS s GROUP BY LENGTH(VALID(s)))",
            "ESTIMATE through GROUP BY or an aggregate of a sample", "selections, projections",
        ),
    ],
)  # fmt: skip
def test_estimates_without_known_probabilities_are_refused(budget: str, source: str, message: str, hint: str) -> None:
    with pytest.raises(ScriptErrors) as failed:
        bind_estimate(budget, source)
    (error,) = failed.value.errors
    assert error.code == "P0355" and error.position is not None and error.position.line == 2
    assert message in error.message and error.hint is not None and hint in error.hint


@pytest.mark.parametrize(
    ("budget", "source"),
    [
        ("WITH (memory '3 TUPLES', shed 'value') ", _STRETCHES),
        # Nothing but the cores limits it: what goes are whole values, whatever the policy.
        ("WITH (cpu '0.5') ", _STRETCHES),
        # Policies of tuples mean whole values here.
        ("WITH (memory '3 TUPLES', shed 'random') ", _ENDED),
        ("WITH (memory '3 TUPLES') ", "m (k) [RANGE 60 SECONDS SLIDE 2 SECONDS]"),
    ],
)
def test_estimates_over_whole_values_are_bound(budget: str, source: str) -> None:
    query = bind_estimate(budget, source)
    assert sum(isinstance(node, StretchChances) for node in operators(query.root)) == 1


def test_a_budget_that_a_setting_gives_has_estimates_too() -> None:
    script = "CREATE STREAM m (at BIGINT, k STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;\n"
    view = f"CREATE VIEW v AS SELECT ESTIMATE(COUNT(*)) AS n FROM {_STRETCHES} AS s;"
    bind_script(f"{script}SET shed_memory = '5 TUPLES'; SET shed = 'value'; {view} CREATE QUERY q AS SELECT * FROM v;")
    with pytest.raises(ScriptErrors, match="no budget leaves any out"):
        bind_script(f"{script}{view} CREATE QUERY q AS SELECT * FROM v;")
