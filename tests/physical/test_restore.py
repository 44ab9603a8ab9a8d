"""RESTORE: reported and restored results come of one operator tree where SLIDE only rounds them."""

from __future__ import annotations

import pytest

from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries

SCRIPT = """
CREATE STREAM S (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION U (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
"""
JOINED = "SELECT S.k FROM S [RANGE 9 SECONDS SLIDE 4 SECONDS], {} WHERE S.k = {}.k"


@pytest.mark.parametrize(
    ("kind", "query", "joins", "rounded"),
    [
        ("RSTREAM RESTORE", JOINED.format("T [RANGE 5 SECONDS SLIDE 4 SECONDS]", "T"), 1, 1),
        # All that is emitted are insertions of the continual query.
        ("ISTREAM RESTORE", JOINED.format("T [RANGE 5 SECONDS SLIDE 4 SECONDS]", "T"), 1, 0),
        # A relation changes when it does, not at the boundaries.
        ("RSTREAM RESTORE", JOINED.format("U", "U"), 2, 0),
        ("ISTREAM RESTORE", JOINED.format("U", "U"), 2, 0),
    ],
)
def test_lives_are_rounded_where_windows_decide_them(kind: str, query: str, joins: int, rounded: int) -> None:
    plan = plan_queries(bind_script(f"{SCRIPT} CREATE QUERY q AS {kind}({query});").queries)
    names = [type(step.spec).__name__ for step in plan.steps]
    assert (names.count("JoinSpec"), names.count("RoundedSpec")) == (joins, rounded)
